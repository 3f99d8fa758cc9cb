/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/shown.h"
#include "calls.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* uthash would otherwise exit() the program when memory runs out. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct shown {
	CUgraphNode node;
	struct graph_node *read;
	UT_hash_handle hh;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shown *table; /* under lock */

void shown_forget_node(CUgraphNode node)
{
	struct shown *s;

	pthread_mutex_lock(&lock);
	HASH_FIND_PTR(table, &node, s);
	if (s)
		HASH_DEL(table, s);
	pthread_mutex_unlock(&lock);
	if (s)
		graph_node_free(s->read);
	free(s);
}

void shown_forget_graph(CUgraph graph)
{
	CUgraphNode *nodes = NULL;
	CUgraphNodeType type;
	size_t count = 0;
	CUgraph child;

	if (!__atomic_load_n(&table, __ATOMIC_RELAXED) || real.cuGraphGetNodes(graph, NULL, &count))
		return;
	nodes = calloc(count + 1, sizeof(*nodes));
	if (nodes && real.cuGraphGetNodes(graph, nodes, &count))
		count = 0;
	for (size_t i = 0; nodes && i < count; i++) {
		shown_forget_node(nodes[i]);
		if (!real.cuGraphNodeGetType(nodes[i], &type) && type == CU_GRAPH_NODE_TYPE_GRAPH &&
		    !real.cuGraphChildGraphNodeGetGraph(nodes[i], &child))
			shown_forget_graph(child);
	}
	free(nodes);
}

const struct graph_node *shown_node(CUgraphNode node, CUgraphNodeType type)
{
	struct graph_node *read, *unused;
	struct shown *s, *fresh;

	graph_node_read(node, type, &read);
	if (!read)
		return NULL;
	fresh = calloc(1, sizeof(*fresh));
	pthread_mutex_lock(&lock);
	HASH_FIND_PTR(table, &node, s);
	if (!s && fresh) {
		fresh->node = node;
		HASH_ADD_PTR(table, node, fresh);
		s = fresh->hh.tbl ? fresh : NULL;
		fresh = s ? NULL : fresh;
	}
	unused = read;
	if (s && (!s->read || !graph_node_same(s->read, read))) {
		unused = s->read;
		s->read = read;
	}
	read = s ? s->read : NULL;
	pthread_mutex_unlock(&lock);
	graph_node_free(unused);
	free(fresh);
	return read;
}
