/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/host_functions.h"
#include "checkpoint/ledger/captures.h"
#include "wrapper/current.h"
#include "wrapper/real.h"

#include <stddef.h>
#include <stdlib.h>

/* If its context breaks, the driver never calls a host function; this memory is lost then. */
struct call {
	struct host_run run;
	CUhostFn function; /* or NULL, and: */
	CUstreamCallback callback;
	void *data;
};

static void CUDA_CB run_function(void *arg)
{
	struct call *c = arg;

	host_work_begins(&c->run);
	c->function(c->data);
	host_work_ends(&c->run);
	free(c);
}

static void CUDA_CB run_callback(CUstream stream, CUresult status, void *arg)
{
	struct call *c = arg;

	host_work_begins(&c->run);
	c->callback(stream, status, c->data);
	host_work_ends(&c->run);
	free(c);
}

/* NULL: it becomes a node of a graph, or it cannot be noted; the driver gets the program's function. */
static struct call *note(CUstream stream, CUhostFn function, CUstreamCallback callback, void *data)
{
	struct call *c = NULL;

	if (!driver_table() || (!function && !callback))
		return NULL;
	if (!captures_open(driver_table()))
		c = malloc(sizeof(*c));
	if (!c) {
		host_work_made();
		return NULL;
	}
	*c = (struct call){
		.run = {.stream = stream,
			.function = function ? (const void *)function : (const void *)callback},
		.function = function,
		.callback = callback,
		.data = data};
	return c;
}

static CUresult noted(CUresult result, struct call *c)
{
	if (result)
		free(c);
	else
		host_work_launched();
	return result;
}

CUresult hook_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
	struct call *c = note(hStream, fn, NULL, userData);

	return c ? noted(real.cuLaunchHostFunc(hStream, run_function, c), c)
		 : real.cuLaunchHostFunc(hStream, fn, userData);
}

CUresult hook_cuLaunchHostFunc_ptsz(CUstream hStream, CUhostFn fn, void *userData)
{
	struct call *c = note(per_thread(hStream), fn, NULL, userData);

	return c ? noted(real.cuLaunchHostFunc_ptsz(hStream, run_function, c), c)
		 : real.cuLaunchHostFunc_ptsz(hStream, fn, userData);
}

CUresult hook_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData,
				  unsigned int flags)
{
	struct call *c = note(hStream, NULL, callback, userData);

	return c ? noted(real.cuStreamAddCallback(hStream, run_callback, c, flags), c)
		 : real.cuStreamAddCallback(hStream, callback, userData, flags);
}

CUresult hook_cuStreamAddCallback_ptsz(CUstream hStream, CUstreamCallback callback, void *userData,
				       unsigned int flags)
{
	struct call *c = note(per_thread(hStream), NULL, callback, userData);

	return c ? noted(real.cuStreamAddCallback_ptsz(hStream, run_callback, c, flags), c)
		 : real.cuStreamAddCallback_ptsz(hStream, callback, userData, flags);
}
