/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/translated/node_readback.h"
#include "wrapper/real.h"
#include "common/system/forks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* uthash would otherwise exit() the program when memory runs out. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct readback {
	CUgraphNode node;
	const void *owner; /* the node or graph that it is being destroyed with, or NULL */
	struct graph_node *read;
	UT_hash_handle hh;
};

FORKS_LOCK(lock);
static struct readback *table; /* under lock */

static void note(CUgraphNode node, const void *owner)
{
	struct readback *r;

	pthread_mutex_lock(&lock);
	HASH_FIND_PTR(table, &node, r);
	if (r)
		r->owner = owner;
	pthread_mutex_unlock(&lock);
}

static void note_graph(CUgraph graph, const void *owner);

/* The nodes of @node's child graph, if it has one, go with @owner. */
static void note_child(CUgraphNode node, const void *owner)
{
	CUgraphNodeType type;
	CUgraph child;

	if (!real.cuGraphNodeGetType(node, &type) && type == CU_GRAPH_NODE_TYPE_GRAPH &&
	    !real.cuGraphChildGraphNodeGetGraph(node, &child))
		note_graph(child, owner);
}

static void note_graph(CUgraph graph, const void *owner)
{
	CUgraphNode *nodes = NULL;
	size_t count = 0;

	if (real.cuGraphGetNodes(graph, NULL, &count))
		return;
	nodes = calloc(count + 1, sizeof(*nodes));
	if (nodes && real.cuGraphGetNodes(graph, nodes, &count))
		count = 0;
	for (size_t i = 0; nodes && i < count; i++) {
		note(nodes[i], owner);
		note_child(nodes[i], owner);
	}
	free(nodes);
}

static bool is_empty(void)
{
	return !__atomic_load_n(&table, __ATOMIC_RELAXED);
}

static void forget(const void *owner)
{
	struct readback *r, *next;

	pthread_mutex_lock(&lock);
	HASH_ITER(hh, table, r, next) {
		if (r->owner != owner)
			continue;
		HASH_DEL(table, r);
		graph_node_free(r->read);
		free(r);
	}
	pthread_mutex_unlock(&lock);
}

void node_readback_leaving_node(CUgraphNode node)
{
	if (is_empty())
		return;
	note(node, node);
	note_child(node, node);
}

void node_readback_forget_node(CUgraphNode node)
{
	forget(node);
}

void node_readback_forget_graph(CUgraph graph)
{
	if (is_empty())
		return;
	note_graph(graph, graph);
	forget(graph);
}

const struct graph_node *node_readback_node(CUgraphNode node, CUgraphNodeType type)
{
	struct graph_node *read, *unused;
	struct readback *r, *added;

	graph_node_read(node, type, &read);
	if (!read)
		return NULL;
	added = calloc(1, sizeof(*added));
	pthread_mutex_lock(&lock);
	HASH_FIND_PTR(table, &node, r);
	if (!r && added) {
		added->node = node;
		HASH_ADD_PTR(table, node, added);
		r = added->hh.tbl ? added : NULL;
		added = r ? NULL : added;
	}
	if (r)
		r->owner = NULL; /* the driver has refused to destroy it, or it is a new one */
	unused = read;
	if (r && (!r->read || !graph_node_same(r->read, read))) {
		unused = r->read;
		r->read = read;
	}
	read = r ? r->read : NULL;
	pthread_mutex_unlock(&lock);
	graph_node_free(unused);
	free(added);
	return read;
}
