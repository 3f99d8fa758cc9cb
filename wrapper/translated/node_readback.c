/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/translated/node_readback.h"
#include "wrapper/real.h"
#include "common/forks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* uthash would otherwise exit() the program when memory runs out. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct shown {
	CUgraphNode node;
	const void *owner; /* what takes it along when it is destroyed, as far as noted */
	struct graph_node *read;
	UT_hash_handle hh;
};

FORKS_LOCK(lock);
static struct shown *table; /* under lock */

static void note(CUgraphNode node, const void *owner)
{
	struct shown *s;

	pthread_mutex_lock(&lock);
	HASH_FIND_PTR(table, &node, s);
	if (s)
		s->owner = owner;
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
	struct shown *s, *next;

	pthread_mutex_lock(&lock);
	HASH_ITER(hh, table, s, next)
	{
		if (s->node != owner && s->owner != owner)
			continue;
		HASH_DEL(table, s);
		graph_node_free(s->read);
		free(s);
	}
	pthread_mutex_unlock(&lock);
}

void node_readback_leaving_node(CUgraphNode node)
{
	if (!is_empty())
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
