/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_NODE_READBACK_H
#define CUDAW_WRAPPER_NODE_READBACK_H
/*
 * node_readback: the parameters of graphs' nodes as the program reads them back, with translated
 * addressing. The driver returns pointers to parameters that stay valid until the node is changed
 * or destroyed. So does this module: as long as a node has the same parameters, each read returns
 * the same pointers.
 *
 * Thread-safe; no call into the driver under the lock.
 */
#include "wrapper/translated/graph_node.h"

/* @node with virtual addresses, for the program; NULL: the driver's answer has no address. */
const struct graph_node *node_readback_node(CUgraphNode node, CUgraphNodeType type);

/* @node is about to be destroyed, which may fail. Only now can its child graph's nodes be found. */
void node_readback_leaving_node(CUgraphNode node);
/* @node was destroyed, with the nodes of its child graph. Others may have their handles, and were read back since. */
void node_readback_forget_node(CUgraphNode node);
/* @graph is about to be destroyed, with all its nodes. */
void node_readback_forget_graph(CUgraph graph);

#endif
