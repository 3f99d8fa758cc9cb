/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_HOST_FUNCTIONS_H
#define CUDAW_HOOKS_HOST_FUNCTIONS_H
/*
 * Host functions and callbacks of streams: the driver calls ours, which notes that the program's runs
 * (checkpoint/ledger/host_work.h), and calls it. During a capture the driver gets the program's: it becomes a
 * node of a graph, may run often, and can be read back.
 */
#include "checkpoint/ledger/host_work.h"

/* A node of these parameters is about to be added. */
static inline void host_functions_node(const CUgraphNodeParams *params)
{
	if (params && (params->type == CU_GRAPH_NODE_TYPE_HOST ||
		       params->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP ||
		       params->type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT))
		host_work_made();
}

#endif
