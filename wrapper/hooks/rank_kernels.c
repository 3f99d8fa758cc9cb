/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/hooks/rank_kernels.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/ledger/ranks.h"
#include "common/system/forks.h"
#include "common/settings.h"
#include "wrapper/kernels/launch.h"
#include "wrapper/real.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define LOG_PREFIX "rank_kernels: "
#include "common/log.h"

#define FUNCTIONS 4096 /* a power of two; NCCL has a few hundred kernels */

/* Parts of the names of kernels; the first that matches decides. */
static const struct {
	const char *part;
	enum ranks_kind kind;
} kernels[] = {
	{"ncclDevKernel_SendRecv", RANKS_SOME}, /* NCCL since 2.19 */
	{"ncclDevKernel_", RANKS_ALL},
	{"ncclKernel_SendRecv", RANKS_SOME}, /* before */
	{"ncclKernel_", RANKS_ALL},
	{"ncclSymk", RANKS_OTHER},            /* NCCL's symmetric memory */
	{"cross_device_reduce", RANKS_OTHER}, /* vLLM, SGLang */
	{"allreduce_fusion", RANKS_OTHER},    /* FlashInfer, TensorRT-LLM */
	{"one_shot_all_reduce", RANKS_OTHER}, /* PyTorch's symmetric memory */
	{"two_shot_all_reduce", RANKS_OTHER},
	{"multimem_", RANKS_OTHER},
	{"nvshmemi_", RANKS_OTHER},
};

bool rank_kernels_any;

FORKS_LOCK(lock); /* for changes; look-ups take none */
/* Open addressing. A function that is gone may have given its handle to one without a mark. */
static struct {
	const void *function;
	enum ranks_kind kind;
} functions[FUNCTIONS];
static size_t nfunctions;

/* True if @name contains a part of the list @parts, which commas separate. */
static bool is_listed(const char *parts, const char *name)
{
	while (*parts) {
		size_t len = strcspn(parts, ",");

		if (len && memmem(name, strlen(name), parts, len))
			return true;
		parts += len + (parts[len] == ',');
	}
	return false;
}

static enum ranks_kind kind_of_name(const char *name)
{
	const char *own = setting_text(SETTING_RANK_KERNELS);

	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
		if (strstr(name, kernels[i].part))
			return kernels[i].kind;
	return own && is_listed(own, name) ? RANKS_OTHER : RANKS_NONE;
}

static size_t slot_of(const void *function)
{
	size_t slot = ((uintptr_t)function >> 4) * 0x9e3779b97f4a7c15UL >> 32;
	const void *found;

	for (;; slot++) {
		found = __atomic_load_n(&functions[slot % FUNCTIONS].function, __ATOMIC_ACQUIRE);
		if (!found || found == function)
			return slot % FUNCTIONS;
	}
}

static enum ranks_kind kind_of(const void *function)
{
	return __atomic_load_n(&functions[slot_of(function)].kind, __ATOMIC_RELAXED);
}

static void mark(const void *function, enum ranks_kind kind)
{
	size_t slot;

	if (!function || (kind == RANKS_NONE && !rank_kernels_are_known()))
		return;
	pthread_mutex_lock(&lock);
	slot = slot_of(function);
	if (functions[slot].function || (kind != RANKS_NONE && nfunctions < FUNCTIONS / 2)) {
		__atomic_store_n(&functions[slot].kind, kind, __ATOMIC_RELAXED);
		nfunctions += !functions[slot].function;
		__atomic_store_n(&functions[slot].function, function, __ATOMIC_RELEASE);
		__atomic_store_n(&rank_kernels_any, true, __ATOMIC_RELAXED);
	} else if (kind != RANKS_NONE) {
		pr_warn("more than %d kernels wait for those of other processes: the others are not counted",
			FUNCTIONS / 2);
	}
	pthread_mutex_unlock(&lock);
}

void rank_kernels_named(const void *function, const char *name)
{
	mark(function, name ? kind_of_name(name) : RANKS_NONE);
}

void rank_kernels_shared(const void *function, const void *kernel)
{
	mark(function, kind_of(kernel));
}

void rank_kernels_functions(CUmodule module, const CUfunction *list, unsigned int n)
{
	unsigned int count = 0;
	const char *name;

	/* Fewer are given if the module has no more. */
	if (real.cuModuleGetFunctionCount(&count, module))
		return;
	for (unsigned int i = 0; i < n && i < count; i++)
		if (!real.cuFuncGetName(&name, list[i]))
			rank_kernels_named(list[i], name);
}

void rank_kernels_kernels(CUlibrary library, const CUkernel *list, unsigned int n)
{
	unsigned int count = 0;
	const char *name;

	if (real.cuLibraryGetKernelCount(&count, library))
		return;
	for (unsigned int i = 0; i < n && i < count; i++)
		if (!real.cuKernelGetName(&name, list[i]))
			rank_kernels_named(list[i], name);
}

/* The first eight bytes of a kernel's parameters; 0: it has none. */
static CUdeviceptr first_param(void **params, void **extra)
{
	CUdeviceptr first = 0;
	size_t size;
	char *buffer = params ? NULL : launch_packed(extra, &size);

	if (params && params[0])
		memcpy(&first, params[0], sizeof(first));
	else if (buffer && size >= sizeof(first))
		memcpy(&first, buffer, sizeof(first));
	return first;
}

/* True if the work goes into a graph. An answer that is an error says that it does not. */
static bool is_captured(CUstream stream)
{
	CUstreamCaptureStatus status;

	return !real.cuStreamIsCapturing(stream, &status) &&
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool rank_kernels_pass(struct ranks_launch *launches, size_t n, CUstream stream)
{
	CUcontext ctx = NULL;
	int seen;

	if (is_captured(stream))
		return true;
	real.cuCtxGetCurrent(&ctx);
	for (size_t i = 0; i < n; i++)
		launches[i].ctx = ctx;
	/* A call inside another call of its thread does not wait (gate.h). */
	while (!ranks_try(launches, n, &seen) && gate_self.depth == 1) {
		gate_exit();
		ranks_wait(seen);
		if (!gate_enter(GATE_HOLD))
			return false;
	}
	return true;
}

bool rank_kernels_is_launch(const void *function, void **params, void **extra,
			    struct ranks_launch *launch)
{
	enum ranks_kind kind = kind_of(function);

	if (kind == RANKS_NONE)
		return false;
	*launch = (struct ranks_launch){.kind = kind, .count = 1};
	if (kind != RANKS_OTHER)
		launch->comm = first_param(params, extra);
	return true;
}

bool rank_kernels_launch(CUfunction f, CUstream stream, void **params, void **extra)
{
	struct ranks_launch launch;

	return !rank_kernels_is_launch(f, params, extra, &launch) ||
	       rank_kernels_pass(&launch, 1, stream);
}
