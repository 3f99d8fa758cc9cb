/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_RANK_KERNELS_H
#define CUDAW_RANK_KERNELS_H
/*
 * Which launches are rank launches (checkpoint/ledger/ranks.h): those of kernels with certain names,
 * and of graphs with nodes of such kernels. The generated functions call these (driver.words).
 *
 * A function is marked when the program gets it by its name. As long as the process has none that
 * is marked, a launch costs one more test.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct ranks_launch;

extern bool rank_kernels_any; /* a function is marked; for rank_kernels_are_known() */

static inline bool rank_kernels_are_known(void)
{
	return __builtin_expect(__atomic_load_n(&rank_kernels_any, __ATOMIC_RELAXED), 0);
}

/* The program has got @function, a CUfunction or CUkernel, which is @name. */
void rank_kernels_named(const void *function, const char *name);

/* The same for @function of @kernel, and for what an enumeration has given. */
void rank_kernels_shared(const void *function, const void *kernel);
void rank_kernels_functions(CUmodule module, const CUfunction *list, unsigned int n);
void rank_kernels_kernels(CUlibrary library, const CUkernel *list, unsigned int n);

/*
 * Before a launch, inside the gate: leaves and enters the gate to wait. False: the gate refuses the
 * call, and the thread is outside.
 */
bool rank_kernels_launch(CUfunction f, CUstream stream, void **params, void **extra);
bool rank_kernels_launch_graph(CUgraphExec exec, CUstream stream);

/*
 * For rank_graphs.c: whether a launch of @function is a rank launch, which *@launch describes then;
 * and the rest of the functions above: the work goes to @stream.
 */
bool rank_kernels_is_launch(const void *function, void **params, void **extra,
			    struct ranks_launch *launch);
bool rank_kernels_pass(struct ranks_launch *launches, size_t n, CUstream stream);

/* @exec is an instance of @graph, or was updated to it; @exec is about to be destroyed. */
void rank_kernels_instantiated(CUgraphExec exec, CUgraph graph);
void rank_kernels_exec_leaving(CUgraphExec exec);

#endif
