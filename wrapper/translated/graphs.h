/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_GRAPHS_H
#define CUDAW_WRAPPER_GRAPHS_H
/*
 * graphs: the program's graphs, with translated addressing. Their nodes hold real addresses, which
 * change at a pause.
 *
 * A pause reads the nodes of every graph, while the memory is still where they say, and keeps their
 * parameters with virtual addresses (graph_node.h); the resume writes them again, even where no
 * address has changed: the memory was freed, and the driver remembers it in the nodes.
 * Nothing is done at a launch, and what the program reads back from a node is translated there and
 * then.
 *
 * The nodes of an instantiated graph cannot be read, and the graph that it was made from may be
 * gone or changed. So there is a clone of that, ours, for each instantiated graph, and it is
 * changed with it: by node (cuGraphExec*NodeSetParams) or as a whole (cuGraphExecUpdate). After a
 * resume the instantiated graph is updated from the clone. That this works is tried before
 * anything moves: a graph that cannot be cloned or updated, or whose nodes cannot be written, makes
 * the pause fail, by name.
 *
 * A graph with a kernel whose module or library is unloaded can never run again, and the driver
 * must not be asked about that kernel: a pause leaves such a graph alone, and graphs_usable()
 * refuses it from then on. Which they are is found out at the unload, while the kernel is there.
 *
 * Locking: one mutex. It is held across driver calls at an unload and while a node is destroyed, so
 * that nothing is destroyed while it is read (docs/architecture.md, "Locks across driver calls").
 * The driver bears that another thread adds or changes nodes [H200, driver 580.159]. A pause and a
 * resume take no lock: the gate is closed, and no other thread is here.
 */
#include <cuda.h>
#include <stdbool.h>

/* From now on a pause and a resume carry the graphs along (engine_set_moves()). */
void graphs_start(void);
extern const struct engine_moves graphs_moves;

/* @graph is the program's: it was created, cloned or captured; it is about to be destroyed. */
void graphs_add(CUgraph graph);
void graphs_remove(CUgraph graph);

/*
 * @exec was made of @graph, with these flags; or updated with it, after which graphs_usable()
 * refuses it no more; it is about to be destroyed.
 */
void graphs_instantiated(CUgraphExec exec, CUgraph graph, unsigned long long flags);
void graphs_updated(CUgraphExec exec, CUgraph graph);
void graphs_exec_remove(CUgraphExec exec);

/* @exec cannot move from now on, or until it is updated with a graph: it has @what. */
void graphs_fix(CUgraphExec exec, const char *what, bool until_updated);

/* The node of our clone that belongs to @node in @exec; NULL: there is none. */
CUgraphNode graphs_our_node(CUgraphExec exec, CUgraphNode node);

/* An error where @handle, a graph or an instantiated one, still has the addresses before a move. */
CUresult graphs_usable(const void *handle);

/* Have the driver destroy @node, which is of a graph of the program's. */
CUresult graphs_destroy_node(CUgraphNode node);

/* @owner, a module or library, is about to be unloaded. To be called inside the gate. */
void graphs_unload(const void *owner);

#endif
