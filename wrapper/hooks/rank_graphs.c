/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs with nodes of kernels that wait for other processes: what one launch of an instantiated
 * graph counts. The nodes are read when it is instantiated or updated, however they came into the
 * graph. Bodies of conditional nodes are not counted, as nobody knows how often they run.
 */
#include "checkpoint/ledger/ranks.h"
#include "common/system/forks.h"
#include "wrapper/hooks/rank_kernels.h"
#include "wrapper/real.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS    256
#define DEEPEST    16 /* child graphs in child graphs */
#define COMMS_MOST 16 /* of one graph; launches in further ones are not counted */

struct exec {
	struct exec *next;
	CUgraphExec handle;
	struct ranks_launch launches[COMMS_MOST];
	size_t n;
};

FORKS_LOCK(lock);
static struct exec *execs[BUCKETS]; /* under lock: those with such nodes */

/* With lock held: the place of @handle, or that of the end of its list. */
static struct exec **find(CUgraphExec handle)
{
	struct exec **e = &execs[((uintptr_t)handle >> 4) * 0x9e3779b97f4a7c15UL >> 56];

	while (*e && (*e)->handle != handle)
		e = &(*e)->next;
	return e;
}

static void add(struct exec *exec, const struct ranks_launch *launch)
{
	for (size_t i = 0; i < exec->n; i++)
		if (exec->launches[i].kind == launch->kind &&
		    exec->launches[i].comm == launch->comm) {
			exec->launches[i].count++;
			return;
		}
	if (exec->n < COMMS_MOST)
		exec->launches[exec->n++] = *launch;
}

static void add_kernel(struct exec *exec, CUgraphNode node)
{
	CUDA_KERNEL_NODE_PARAMS p = {0};
	struct ranks_launch launch;

	if (!real.cuGraphKernelNodeGetParams_v2 || real.cuGraphKernelNodeGetParams_v2(node, &p))
		return;
	if (rank_kernels_is_launch(p.func ? (const void *)p.func : (const void *)p.kern,
				   p.kernelParams, p.extra, &launch))
		add(exec, &launch);
}

static void add_graph(struct exec *exec, CUgraph graph, int depth)
{
	CUgraphNode *nodes;
	size_t n = 0;

	if (depth > DEEPEST || real.cuGraphGetNodes(graph, NULL, &n) || !n)
		return;
	nodes = calloc(n, sizeof(*nodes));
	if (!nodes || real.cuGraphGetNodes(graph, nodes, &n))
		n = 0;
	for (size_t i = 0; i < n; i++) {
		CUgraphNodeType type;
		CUgraph child;

		if (real.cuGraphNodeGetType(nodes[i], &type))
			continue;
		if (type == CU_GRAPH_NODE_TYPE_KERNEL)
			add_kernel(exec, nodes[i]);
		else if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
			 !real.cuGraphChildGraphNodeGetGraph(nodes[i], &child))
			add_graph(exec, child, depth + 1);
	}
	free(nodes);
}

void rank_kernels_exec_leaving(CUgraphExec handle)
{
	struct exec **at, *gone;

	pthread_mutex_lock(&lock);
	at = find(handle);
	gone = *at;
	if (gone)
		*at = gone->next;
	pthread_mutex_unlock(&lock);
	free(gone);
}

void rank_kernels_instantiated(CUgraphExec handle, CUgraph graph)
{
	struct exec *exec;

	if (!rank_kernels_are_known())
		return;
	rank_kernels_exec_leaving(handle);
	exec = calloc(1, sizeof(*exec));
	if (!exec)
		return;
	exec->handle = handle;
	add_graph(exec, graph, 0);
	if (!exec->n) {
		free(exec);
		return;
	}
	pthread_mutex_lock(&lock);
	*find(handle) = exec;
	pthread_mutex_unlock(&lock);
}

bool rank_kernels_launch_graph(CUgraphExec handle, CUstream stream)
{
	struct ranks_launch launches[COMMS_MOST];
	const struct exec *exec;
	size_t n = 0;

	pthread_mutex_lock(&lock);
	exec = *find(handle);
	if (exec) {
		n = exec->n;
		memcpy(launches, exec->launches, sizeof(launches));
	}
	pthread_mutex_unlock(&lock);
	return !n || rank_kernels_pass(launches, n, stream);
}
