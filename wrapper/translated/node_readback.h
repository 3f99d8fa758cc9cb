/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_SHOWN_H
#define CUDAW_WRAPPER_SHOWN_H
/*
 * shown: the parameters of graphs' nodes as the program reads them, with translated addressing.
 * What is read back lies in the node's own memory: it stays valid until the node goes or is
 * changed. Where it was not changed what is there stays, as the program may still look at it.
 *
 * Thread-safe; no call into the driver under the lock.
 */
#include "wrapper/translated/graph_node.h"

/* What the program is to be shown in place of @node's parameters; NULL where they are right. */
const struct graph_node *node_readback_node(CUgraphNode node, CUgraphNodeType type);

/*
 * @node is about to be destroyed, which may fail; only now can the nodes of its child graph be
 * found. It is gone, with those. @graph is about to go, with all its nodes.
 */
void node_readback_leaving_node(CUgraphNode node);
void node_readback_forget_node(CUgraphNode node);
void node_readback_forget_graph(CUgraph graph);

#endif
