/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_GRAPHS_H
#define CUDAW_WRAPPER_GRAPHS_H
/*
 * graphs: the program's graphs, with translated addressing. Their nodes hold real addresses, which
 * change at a pause.
 *
 * A pause reads the nodes of every graph while the memory still has its old addresses, and keeps
 * their parameters with virtual addresses (graph_node.h). The resume writes them again, even if no
 * address has changed: the memory was freed, and the driver remembers it in the nodes. A launch
 * does nothing more. When the program reads the parameters of a node, they are translated at once.
 *
 * The nodes of an instantiated graph cannot be read, and the graph that it was made from may be
 * gone or changed. So cudaw keeps a clone of that graph for each instantiated graph, and changes it
 * likewise: by node (cuGraphExec*NodeSetParams) or as a whole (cuGraphExecUpdate). After a resume
 * the instantiated graph is updated from the clone. A pause tries this before anything moves. It
 * fails, and names the reason, if a graph cannot be cloned or updated, or if its nodes cannot be
 * written.
 *
 * A graph with a kernel whose module or library is unloaded can never run again, and the driver
 * must not be asked about that kernel. A pause leaves such a graph alone, and graphs_usable()
 * refuses it from then on. The unload finds these graphs, while the kernel is still there.
 *
 * Locking: one mutex. It is held across driver calls at an unload and while a node is destroyed, so
 * that nothing is destroyed while it is read (docs/internals/threads.md, "Locks across driver
 * calls"). Another thread may add or change nodes meanwhile [H200, driver 580.159]. A pause and a
 * resume take no lock: the gate is closed, and no other thread is here.
 */
#include <cuda.h>
#include <stdbool.h>

/* From now on a pause and a resume carry the graphs along (engine_set_moves()). */
void graphs_start(void);
extern const struct engine_moves graphs_moves;

/* The program has created, cloned or captured @graph. */
void graphs_add(CUgraph graph);
/* @graph is about to be destroyed. */
void graphs_remove(CUgraph graph);

/* @exec was instantiated from @graph, with @flags. */
void graphs_instantiated(CUgraphExec exec, CUgraph graph, unsigned long long flags);
/* @exec was updated with @graph: from now on graphs_usable() accepts it again. */
void graphs_updated(CUgraphExec exec, CUgraph graph);
/* @exec is about to be destroyed. */
void graphs_exec_remove(CUgraphExec exec);

/* @exec cannot move from now on, or until it is updated with a graph, as it has @reason. */
void graphs_fix(CUgraphExec exec, const char *reason, bool until_updated);

/* The node of our clone that belongs to @node in @exec; NULL: there is none. */
CUgraphNode graphs_our_node(CUgraphExec exec, CUgraphNode node);

/* An error if @handle, a graph or an instantiated graph, still has the addresses before a move. */
CUresult graphs_usable(const void *handle);

/* Let the driver destroy @node, of a graph of the program. */
CUresult graphs_destroy_node(CUgraphNode node);

/* @owner, a module or library, is about to be unloaded. To be called inside the gate. */
void graphs_unload(const void *owner);

#endif
