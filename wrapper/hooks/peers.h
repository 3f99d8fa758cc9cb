/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_HOOKS_PEERS_H
#define CUDAW_HOOKS_PEERS_H
/*
 * Which launches are peer launches (checkpoint/ledger/peers.h): those of kernels with certain names,
 * and of graphs with nodes of such kernels. The generated functions call these (driver.words).
 *
 * A function is marked when the program gets it by its name. As long as the process has none that
 * is marked, a launch costs one more test.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct peers_launch;

extern bool peers_any; /* a function is marked; for peers_are_known() */

static inline bool peers_are_known(void)
{
	return __builtin_expect(__atomic_load_n(&peers_any, __ATOMIC_RELAXED), 0);
}

/* The program has got @function, a CUfunction or CUkernel, which is @name. */
void peers_named(const void *function, const char *name);

/* The same for @function of @kernel, and for what an enumeration has given. */
void peers_shared(const void *function, const void *kernel);
void peers_functions(CUmodule module, const CUfunction *list, unsigned int n);
void peers_kernels(CUlibrary library, const CUkernel *list, unsigned int n);

/*
 * Before a launch, inside the gate: leaves and enters the gate to wait. False: the gate refuses the
 * call, and the thread is outside.
 */
bool peers_launch(CUfunction f, CUstream stream, void **params, void **extra);
bool peers_launch_graph(CUgraphExec exec, CUstream stream);

/*
 * For peer_graphs.c: whether a launch of @function is a peer launch, which *@launch describes then;
 * and the rest of the functions above: the work goes to @stream.
 */
bool peers_is_launch(const void *function, void **params, void **extra,
		     struct peers_launch *launch);
bool peers_pass(struct peers_launch *launches, size_t n, CUstream stream);

/* @exec is an instance of @graph, or was updated to it; @exec is about to be destroyed. */
void peers_instantiated(CUgraphExec exec, CUgraph graph);
void peers_exec_leaving(CUgraphExec exec);

#endif
