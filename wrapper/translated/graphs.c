/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/translated/graphs.h"
#include "checkpoint/engine/engine.h"
#include "common/system/forks.h"
#include "vmem/context_gone.h"
#include "vmem/addresses/translate.h"
#include "wrapper/real.h"
#include "wrapper/translated/graph_node.h"
#include "wrapper/translated/symbols.h"
#include "wrapper/translated/windows.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

/* uthash would otherwise exit() the program when memory runs out. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define LOG_PREFIX "graphs: "
#include "common/log.h"

/* A graph of the program, or an instantiated graph. */
struct known {
	const void *handle;
	CUgraphExec exec;         /* NULL: a graph */
	CUgraph graph;            /* the graph itself, or our clone, which may be NULL */
	CUcontext ctx;            /* the current one when it was made */
	const char *fixed;        /* why it cannot move, or NULL */
	const char *differs;      /* the same, until it is updated as a whole */
	bool broken;              /* it has the addresses before a move */
	bool unloaded;            /* it has a kernel that is gone */
	struct graph_node *nodes; /* during a pause */
	UT_hash_handle hh;
};

FORKS_LOCK(lock);
static struct known *table; /* under lock */
static bool any_broken;
static unsigned int moves_before; /* the pause */

static struct known *find_locked(const void *handle)
{
	struct known *k;

	HASH_FIND_PTR(table, &handle, k);
	return k;
}

static void free_nodes(struct known *k)
{
	struct graph_node *n, *next;

	LL_FOREACH_SAFE(k->nodes, n, next)
		graph_node_free(n);
	k->nodes = NULL;
}

/* Forget @handle. The clone, if there was one, is the caller's to destroy. */
static CUgraph take(const void *handle)
{
	CUgraph clone = NULL;
	struct known *k;

	pthread_mutex_lock(&lock);
	k = find_locked(handle);
	if (k) {
		HASH_DEL(table, k);
		clone = k->exec ? k->graph : NULL;
	}
	pthread_mutex_unlock(&lock);
	free(k);
	return clone;
}

static void add(const struct known *values)
{
	struct known *k = malloc(sizeof(*k)), *old = NULL;
	CUgraph clone = values->exec ? values->graph : NULL;

	if (k) {
		*k = *values;
		pthread_mutex_lock(&lock);
		HASH_REPLACE_PTR(table, handle, k, old);
		if (k->hh.tbl)
			clone = old && old->exec ? old->graph : NULL;
		pthread_mutex_unlock(&lock);
	}
	if (!k || !k->hh.tbl) {
		pr_err("no host memory to follow a graph: it fails after a pause");
		free(k);
	}
	free(old);
	if (clone)
		real.cuGraphDestroy(clone);
}

void graphs_add(CUgraph graph)
{
	struct known k = {.handle = graph, .graph = graph};

	real.cuCtxGetCurrent(&k.ctx);
	add(&k);
}

void graphs_remove(CUgraph graph)
{
	take(graph);
}

static CUgraph clone_of(CUgraph graph)
{
	CUgraph clone;

	return real.cuGraphClone(&clone, graph) ? NULL : clone;
}

void graphs_instantiated(CUgraphExec exec, CUgraph graph, unsigned long long flags)
{
	struct known k = {.handle = exec, .exec = exec, .graph = clone_of(graph)};

	if (!k.graph)
		k.fixed = "nodes that the driver does not clone";
	else if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		k.fixed = "launches by the GPU";
	real.cuCtxGetCurrent(&k.ctx);
	add(&k);
}

void graphs_updated(CUgraphExec exec, CUgraph graph)
{
	CUgraph clone = clone_of(graph), old = clone;
	struct known *k;

	pthread_mutex_lock(&lock);
	k = find_locked(exec);
	if (k) {
		old = k->graph;
		k->graph = clone;
		k->broken = false;
		k->unloaded = false;
		k->differs = NULL;
		if (!clone)
			k->fixed = "nodes that the driver does not clone";
	}
	pthread_mutex_unlock(&lock);
	if (old)
		real.cuGraphDestroy(old);
}

void graphs_exec_remove(CUgraphExec exec)
{
	CUgraph clone = take(exec);

	if (clone)
		real.cuGraphDestroy(clone);
}

void graphs_fix(CUgraphExec exec, const char *reason, bool until_updated)
{
	struct known *k;

	pthread_mutex_lock(&lock);
	k = find_locked(exec);
	if (k && until_updated)
		k->differs = reason;
	else if (k)
		k->fixed = reason;
	pthread_mutex_unlock(&lock);
}

CUgraphNode graphs_our_node(CUgraphExec exec, CUgraphNode node)
{
	CUgraphNode ours;
	CUgraph clone = NULL;
	struct known *k;

	pthread_mutex_lock(&lock);
	k = find_locked(exec);
	if (k)
		clone = k->graph;
	pthread_mutex_unlock(&lock);
	if (!clone)
		return NULL;
	if (!real.cuGraphNodeFindInClone(&ours, node, clone))
		return ours;
	graphs_fix(exec, "a node that was changed, of a graph that it was not last updated with",
		   true);
	return NULL;
}

CUresult graphs_usable(const void *handle)
{
	CUresult result = CUDA_SUCCESS;
	struct known *k;

	if (!__atomic_load_n(&any_broken, __ATOMIC_RELAXED))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	k = find_locked(handle);
	if (k && k->broken)
		result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	pthread_mutex_unlock(&lock);
	return result;
}

/* The driver's graphs went with the context, or leak as those of the program do. */
static void forget_context(CUcontext ctx)
{
	struct known *k, *next;

	pthread_mutex_lock(&lock);
	HASH_ITER(hh, table, k, next) {
		if (k->ctx != ctx)
			continue;
		HASH_DEL(table, k);
		free(k);
	}
	pthread_mutex_unlock(&lock);
}

CONTEXT_GONE(forget_context);

/* Called for a node that is not a child graph. NULL, or the reason to end the walk. */
typedef const char *(*visit_fn)(CUgraphNode node, CUgraphNodeType type, void *arg);

static const char *each_node(CUgraph graph, visit_fn visit, void *arg);

static const char *visit_node(CUgraphNode node, visit_fn visit, void *arg)
{
	CUgraphNodeType type;
	CUgraph child;

	if (real.cuGraphNodeGetType(node, &type))
		return "a node that the driver does not show";
	if (type != CU_GRAPH_NODE_TYPE_GRAPH)
		return visit(node, type, arg);
	if (real.cuGraphChildGraphNodeGetGraph(node, &child))
		return "a child graph that the driver does not show";
	return each_node(child, visit, arg);
}

/* Visit all nodes, those of child graphs as well. NULL, or the reason why the walk ended. */
static const char *each_node(CUgraph graph, visit_fn visit, void *arg)
{
	const char *why = NULL;
	CUgraphNode *nodes;
	size_t count;

	if (real.cuGraphGetNodes(graph, NULL, &count))
		return "nodes that the driver does not show";
	nodes = malloc((count + 1) * sizeof(*nodes));
	if (!nodes || real.cuGraphGetNodes(graph, nodes, &count))
		why = "more nodes than there is host memory for";
	for (size_t i = 0; i < count && !why; i++)
		why = visit_node(nodes[i], visit, arg);
	free(nodes);
	return why;
}

/* Add @node to the list at @arg if it has addresses of ours. */
static const char *read_node(CUgraphNode node, CUgraphNodeType type, void *arg)
{
	struct graph_node *n, **read = arg;
	const char *why;

	why = graph_node_read(node, type, &n);
	if (!why && type == CU_GRAPH_NODE_TYPE_KERNEL)
		why = graph_node_kernel_fixed(node);
	if (!n)
		return why;
	LL_PREPEND(*read, n);
	return n->unclear ? "a pointer that may be of two allocations, or lies outside of one"
			  : why;
}

static const char ends[] = "a kernel that ends";

static const char *ends_with(CUgraphNode node, CUgraphNodeType type, void *owner)
{
	return type == CU_GRAPH_NODE_TYPE_KERNEL && graph_node_kernel_is_of(node, owner) ? ends
											 : NULL;
}

/* Asks in the context of the graph, if it has one; false if that was destroyed unseen. */
static bool loses_kernel(const struct known *k, const void *owner)
{
	CUcontext ctx;
	bool loses;

	if (k->unloaded || !k->graph || (k->ctx && real.cuCtxPushCurrent_v2(k->ctx)))
		return false;
	loses = each_node(k->graph, ends_with, (void *)owner) == ends;
	if (k->ctx)
		real.cuCtxPopCurrent_v2(&ctx);
	return loses;
}

CUresult graphs_destroy_node(CUgraphNode node)
{
	CUresult result;

	pthread_mutex_lock(&lock);
	result = real.cuGraphDestroyNode(node);
	pthread_mutex_unlock(&lock);
	return result;
}

void graphs_unload(const void *owner)
{
	pthread_mutex_lock(&lock);
	for (struct known *k = table; k; k = k->hh.next)
		k->unloaded |= loses_kernel(k, owner);
	pthread_mutex_unlock(&lock);
}

/* Give the instantiated graph the parameters of our clone. */
static CUresult update(const struct known *k)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphExecUpdateResult how;
	CUgraphNode node;

	if (real.cuGraphExecUpdate_v2)
		return real.cuGraphExecUpdate_v2(k->exec, k->graph, &info);
	return real.cuGraphExecUpdate(k->exec, k->graph, &node, &how);
}

/* Get @k ready for a move. Returns NULL, or the reason why it cannot move. */
static const char *prepare(struct known *k)
{
	const char *why = k->fixed ? k->fixed : k->differs;

	/* It can never run: it lost a kernel, is broken, or its context was destroyed unseen. */
	if (k->unloaded)
		return NULL;
	if (why || k->broken || real.cuCtxSetCurrent(k->ctx))
		return why;
	why = each_node(k->graph, read_node, &k->nodes);
	if (!why && k->exec && k->nodes && update(k))
		why = "nodes that the driver does not update";
	return why;
}

static int leaving(char *text, size_t size)
{
	const char *why = NULL, *reason;
	size_t count = 0;
	struct known *k;

	for (k = table; k; k = k->hh.next) {
		reason = prepare(k);
		count += reason != NULL;
		why = why ? why : reason;
	}
	moves_before = __atomic_load_n(&translation.moves, __ATOMIC_SEQ_CST);
	if (why)
		for (k = table; k; k = k->hh.next)
			free_nodes(k);
	real.cuCtxSetCurrent(NULL);
	if (!why)
		return 0;
	snprintf(text, size, "%zu graph%s (CUDAW_ADDRESSING=translated) cannot be carried: %s %s",
		 count, count == 1 ? "" : "s", count == 1 ? "it has" : "one has", why);
	return -ENOTSUP;
}

static CUresult write_anew(const struct known *k)
{
	CUresult result = real.cuCtxSetCurrent(k->ctx);
	const struct graph_node *n;

	LL_FOREACH(k->nodes, n) {
		if (!result)
			result = graph_node_write(n);
	}
	return result || !k->exec ? result : update(k);
}

static void back(char *note, size_t size)
{
	bool moved = __atomic_load_n(&translation.moves, __ATOMIC_SEQ_CST) != moves_before;
	CUresult result, error = CUDA_SUCCESS;
	size_t count = 0;
	struct known *k;

	for (k = table; k; k = k->hh.next) {
		/*
		 * Memory at its old address is still another allocation: with the old nodes, the
		 * launch of a graph that is cloned or instantiated later crashes [H200, driver
		 * 580.159].
		 */
		result = k->nodes ? write_anew(k) : CUDA_SUCCESS;
		free_nodes(k);
		if (!result && !k->unloaded)
			continue;
		k->broken = true;
		__atomic_store_n(&any_broken, true, __ATOMIC_RELAXED);
		if (!result)
			continue;
		error = result;
		count++;
	}
	if (moved)
		windows_move();
	real.cuCtxSetCurrent(NULL);
	if (!count)
		return;
	snprintf(note, size,
		 "%zu graph%s could not be given the addresses that memory has now (driver error "
		 "%d): launches of %s fail",
		 count, count == 1 ? "" : "s", error, count == 1 ? "it" : "them");
	pr_err("%s", note);
}

const struct engine_moves graphs_moves = {leaving, symbols_renew, back};

void graphs_start(void)
{
	engine_set_moves(&graphs_moves);
}
