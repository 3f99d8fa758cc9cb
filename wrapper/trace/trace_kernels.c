/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of kernels and the places of their parameters, for traces.
 *
 * Kernels are kept in a table of fixed size, by handle, and never freed, so that launches look them
 * up without a lock. After an unload a handle may belong to another kernel: every unload increments
 * a generation number, which says which entries were checked since. The driver is asked about a
 * kernel without room in the table at each launch.
 */
#include "wrapper/trace/trace_calls.h"
#include "wrapper/real.h"
#include "checkpoint/gate/gate.h"
#include "common/system/forks.h"
#include "wrapper/kernels/check.h"
#include "wrapper/kernels/launch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS      32768
#define MAX_FILLED (SLOTS / 2)
#define MAX_PARAMS 64
#define MAX_WORDS  16 /* shown of one parameter */
/* With less room, an event's parameters end with "...", as other arguments follow. */
#define LEAST_ROOM 256

/* Where the parameters lie in the buffer of all, and how large they are. */
struct layout {
	struct layout *next;     /* that the kernel had before */
	unsigned int generation; /* atomic: as the kernel's when it was last asked for */
	size_t count;
	bool more; /* than MAX_PARAMS */
	struct {
		size_t offset, size;
	} params[MAX_PARAMS];
};

struct kernel {
	const void *handle;
	bool library;            /* a CUkernel, not a CUfunction */
	unsigned int generation; /* atomic: when it was last known to be right */
	struct layout *layout;   /* atomic: the newest; NULL until asked for */
	char name[];
};

static struct kernel *table[SLOTS]; /* atomic; written under table_lock */
static size_t filled;               /* under table_lock */
FORKS_LOCK(table_lock);
static unsigned int generation; /* atomic */

void traced_kernels_forget(void)
{
	__atomic_add_fetch(&generation, 1, __ATOMIC_SEQ_CST);
}

/*
 * The kernel of @handle: with @name, or, if that is NULL, the one known to be right. *@slot is the
 * slot at which the search ended.
 */
static struct kernel *find(const void *handle, const char *name, size_t *slot)
{
	unsigned int now = __atomic_load_n(&generation, __ATOMIC_RELAXED);
	size_t i = ((uintptr_t)handle >> 4) * 0x9e3779b97f4a7c15UL >> 32;
	struct kernel *k;

	for (;; i++) {
		k = __atomic_load_n(&table[i % SLOTS], __ATOMIC_ACQUIRE);
		if (!k || (k->handle == handle &&
			   (name ? !strcmp(k->name, name)
				 : __atomic_load_n(&k->generation, __ATOMIC_RELAXED) == now)))
			break;
	}
	if (slot)
		*slot = i % SLOTS;
	return k;
}

static struct kernel *make(const void *handle, const char *name, bool library)
{
	size_t size = strlen(name) + 1;
	struct kernel *k = calloc(1, sizeof(*k) + size);

	if (!k)
		return NULL;
	k->handle = handle;
	k->library = library;
	memcpy(k->name, name, size);
	return k;
}

/* Keep the name of @handle; NULL: there is no room. */
static struct kernel *remember_locked(const void *handle, const char *name, bool library)
{
	unsigned int now = __atomic_load_n(&generation, __ATOMIC_RELAXED);
	struct kernel *k, *old = find(handle, NULL, NULL);
	size_t slot;

	/* Its module may have gone with a context that the runtime ended without our hooks. */
	if (old && strcmp(old->name, name))
		__atomic_store_n(&old->generation, now - 1, __ATOMIC_RELAXED);
	k = find(handle, name, &slot);
	if (!k) {
		k = filled < MAX_FILLED ? make(handle, name, library) : NULL;
		if (!k)
			return NULL;
		filled++;
	}
	__atomic_store_n(&k->generation, now, __ATOMIC_RELAXED);
	__atomic_store_n(&table[slot], k, __ATOMIC_RELEASE);
	return k;
}

static struct kernel *remember(const void *handle, const char *name, bool library)
{
	struct kernel *k;

	pthread_mutex_lock(&table_lock);
	k = remember_locked(handle, name, library);
	pthread_mutex_unlock(&table_lock);
	return k;
}

void traced_found(struct trace_event *event, const char *key, struct traced_found found)
{
	remember(found.handle, found.name, found.library);
	traced_handle(event, key, found.handle);
}

/* The name by the driver (CUDA 12.3 or later), or NULL. Inside the gate. */
static const char *ask_name(const void *handle, bool *library)
{
	const char *name = NULL;

	*library = false;
	if (real.cuFuncGetName && !real.cuFuncGetName(&name, (CUfunction)handle) && name)
		return name;
	*library = true;
	if (real.cuKernelGetName && !real.cuKernelGetName(&name, (CUkernel)handle) && name)
		return name;
	return NULL;
}

/*
 * The name of an unknown kernel: the runtime has its handles from tables of its own, and launches
 * CUkernels as well as CUfunctions. It is one of them: it has been launched, or looked at by the
 * checks (images.h).
 */
static struct kernel *ask(const void *handle, struct kernel **unkept)
{
	struct kernel *k = NULL;
	const char *name;
	bool library;

	*unkept = NULL;
	if (!gate_enter(GATE_HOLD))
		return NULL;
	name = ask_name(handle, &library);
	if (name) {
		k = remember(handle, name, library);
		if (!k)
			k = *unkept = make(handle, name, library);
	}
	gate_exit();
	return k;
}

/* The handle of a failed launch may be invalid: the driver is not asked then. */
static struct kernel *get(struct traced_launch launch, struct kernel **unkept)
{
	struct kernel *k = find(launch.f, NULL, NULL);

	*unkept = NULL;
	return k || (launch.result && !check_is_on) ? k : ask(launch.f, unkept);
}

static void drop(struct kernel *unkept)
{
	if (unkept)
		free(unkept->layout);
	free(unkept);
}

void traced_kernel(struct trace_event *event, const char *key, struct traced_launch launch)
{
	struct kernel *unkept, *k = get(launch, &unkept);

	traced_handle(event, key, launch.f);
	trace_set_name(event, k ? k->name : "unnamed kernel");
	drop(unkept);
}

static CUresult param_info(const struct kernel *k, size_t i, size_t *offset, size_t *size)
{
	if (k->library && real.cuKernelGetParamInfo)
		return real.cuKernelGetParamInfo((CUkernel)k->handle, i, offset, size);
	if (!k->library && real.cuFuncGetParamInfo)
		return real.cuFuncGetParamInfo((CUfunction)k->handle, i, offset, size);
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* By the driver, since CUDA 12.4; in relaxed mode, so that the question breaks no capture. */
static void ask_layout(const struct kernel *k, struct layout *layout)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	size_t offset, size;

	if (!gate_enter(GATE_HOLD))
		return;
	if (!real.cuThreadExchangeStreamCaptureMode(&mode)) {
		for (size_t i = 0; !param_info(k, i, &offset, &size); i++) {
			layout->more = i == MAX_PARAMS;
			if (layout->more)
				break;
			layout->params[i].offset = offset;
			layout->params[i].size = size;
			layout->count = i + 1;
		}
		real.cuThreadExchangeStreamCaptureMode(&mode);
	}
	gate_exit();
}

static bool same_layout(const struct layout *a, const struct layout *b)
{
	return a->count == b->count && a->more == b->more &&
	       !memcmp(a->params, b->params, a->count * sizeof(*a->params));
}

/*
 * The kernel may be of code that was loaded again, with other parameters. Old layouts stay: another
 * thread may use them, and they may be valid again later.
 */
static const struct layout *get_layout(struct kernel *k)
{
	struct layout *first = __atomic_load_n(&k->layout, __ATOMIC_ACQUIRE), *found, *l;
	unsigned int now = __atomic_load_n(&k->generation, __ATOMIC_RELAXED);

	for (l = first; l; l = l->next)
		if (__atomic_load_n(&l->generation, __ATOMIC_RELAXED) == now)
			return l;
	found = calloc(1, sizeof(*found));
	if (!found)
		return NULL;
	found->generation = now;
	ask_layout(k, found);
	for (l = first; l && !same_layout(l, found); l = l->next)
		;
	if (l) {
		__atomic_store_n(&l->generation, now, __ATOMIC_RELAXED);
		free(found);
		return l;
	}
	found->next = first;
	while (!__atomic_compare_exchange_n(&k->layout, &found->next, found, false,
					    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
	return found;
}

static void put_word(struct trace_event *event, const char *bytes, size_t size)
{
	uint64_t word = 0;

	memcpy(&word, bytes, size);
	traced_put_pointer(event, word);
}

/* A parameter is shown as one word, or as the list of its words. */
static void put_param(struct trace_event *event, const char *bytes, size_t size)
{
	if (size <= 8) {
		put_word(event, bytes, size);
		return;
	}
	for (size_t at = 0; at < size; at += 8) {
		trace_put(event, at ? "," : "[");
		if (at / 8 == MAX_WORDS || trace_room(event) < LEAST_ROOM) {
			trace_put(event, "\"...\"");
			break;
		}
		put_word(event, bytes + at, size - at < 8 ? size - at : 8);
	}
	trace_put(event, "]");
}

static void put_params(struct trace_event *event, const struct layout *layout, void **params,
		       void **extra)
{
	size_t room, size, offset;
	const char *buffer = launch_packed(params ? NULL : extra, &room);

	for (size_t i = 0; i < layout->count; i++) {
		size = layout->params[i].size;
		offset = layout->params[i].offset;
		if (params ? !params[i] : !buffer || offset > room || size > room - offset)
			break;
		if (i)
			trace_put(event, ",");
		if (trace_room(event) < LEAST_ROOM) {
			trace_put(event, "\"...\"");
			return;
		}
		put_param(event, params ? params[i] : buffer + offset, size);
	}
	if (layout->more)
		trace_put(event, ",\"...\"");
}

void traced_params(struct trace_event *event, const char *key, struct traced_params launch)
{
	struct kernel *unkept, *k = get(launch.launch, &unkept);
	const struct layout *layout = k ? get_layout(k) : NULL;

	if (layout && layout->count) {
		trace_arg_begin(event, key);
		trace_put(event, "[");
		put_params(event, layout, launch.params, launch.extra);
		trace_put(event, "]");
		trace_arg_end(event);
	}
	drop(unkept);
}
