/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_ENGINE_WORLD_H
#define CUDAW_ENGINE_WORLD_H
/*
 * A job on the simulated driver, in the process of a test of the engine: two contexts, of one GPU or two, with buffers in
 * turn, and two objects of the program. Each has contents of its own, which a test checks and changes while the job runs.
 */
#include "checkpoint/engine/engine.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/ledger/contexts.h"
#include "checkpoint/release/devices.h"
#include "tests/check_suite.h"
#include "tests/sim/faults.h"
#include "vmem/cuda_driver.h"
#include "vmem/objects/objects.h"
#include "vmem/vmem.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MB         (1UL << 20)
#define BUFFERS    8     /* at most */
#define TIMEOUT_MS 60000 /* of an operation: none is to end by it */

static struct {
	struct cuda_driver drv;
	__typeof__(sim_control) *control;
	__typeof__(sim_used) *used;
	const size_t *sizes;
	CUdevice other; /* of the second context: set it before the job starts */
	/* Of n, the last two are objects: one is mapped twice, and one only while its bytes are looked at. */
	int n;
	CUdeviceptr buffers[BUFFERS], second;
	CUmemGenericAllocationHandle hidden;
	unsigned char generation; /* of the contents */
	unsigned int seed;        /* of rand(), in SEED */
	char base[64];            /* a directory */
} w;

static inline unsigned char byte_at(int b, size_t i)
{
	return (unsigned char)((i * 2654435761u >> 13) + b * 31 + w.generation);
}

/* The bytes that are written and looked at: the first three of each page, and some in between. */
static inline size_t next_byte(size_t i)
{
	size_t in_page = i % 4096;

	if (in_page < 2)
		return i + 1;
	return in_page + 97 < 4096 ? i + 97 : i - in_page + 4096;
}

static inline void fill(int b)
{
	for (size_t i = 0; i < w.sizes[b]; i = next_byte(i))
		((unsigned char *)w.buffers[b])[i] = byte_at(b, i);
}

/* What is wrong with the buffer @b, at @at; NULL: nothing. */
static inline const char *wrong_in(int b, CUdeviceptr at)
{
	const unsigned char *bytes = (const unsigned char *)at;
	static char text[100];

	for (size_t i = 0; i < w.sizes[b]; i = next_byte(i)) {
		if (bytes[i] == byte_at(b, i))
			continue;
		snprintf(text, sizeof(text), "byte %zu of buffer %d is %d, not %d", i, b, bytes[i],
			 byte_at(b, i));
		return text;
	}
	return NULL;
}

static inline const char *map_object(int b, CUdeviceptr at, CUmemGenericAllocationHandle handle)
{
	const CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
				      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	if (objects_map(at, w.sizes[b], 0, handle, 0))
		return "an object is not mapped";
	return objects_set_access(at, w.sizes[b], &desc, 1) ? "an object is not accessible" : NULL;
}

static inline const char *show_hidden(void)
{
	return map_object(w.n - 1, w.buffers[w.n - 1], w.hidden);
}

static inline const char *hide(void)
{
	return objects_unmap(w.buffers[w.n - 1], w.sizes[w.n - 1]) ? "an object is not unmapped"
								   : NULL;
}

/* As the program sees it: the host may read what is mapped. NULL: all bytes are right. */
static inline const char *check_bytes(void)
{
	const char *wrong = show_hidden();

	for (int b = 0; b < w.n && !wrong; b++)
		wrong = wrong_in(b, w.buffers[b]);
	if (!wrong)
		wrong = wrong_in(w.n - 2, w.second);
	return wrong ? wrong : hide();
}

static inline CUdeviceptr reserve(size_t size)
{
	CUdeviceptr at;

	ck_assert_int_eq(w.drv.cuMemAddressReserve(&at, size, 0, 0, 0), 0);
	return at;
}

static inline CUmemGenericAllocationHandle make_object(int b)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemGenericAllocationHandle handle;

	ck_assert_int_eq(w.drv.cuMemCreate(&handle, w.sizes[b], &prop, 0), 0);
	ck_assert(objects_add(&handle, w.sizes[b], &prop));
	w.buffers[b] = reserve(w.sizes[b]);
	ck_assert_ptr_null(map_object(b, w.buffers[b], handle));
	fill(b);
	return handle;
}

static inline void make_objects(void)
{
	int b = w.n - 2;
	CUmemGenericAllocationHandle twice = make_object(b);

	w.second = reserve(w.sizes[b]);
	ck_assert_ptr_null(map_object(b, w.second, twice));
	ck_assert_int_eq(objects_release(twice), 0);
	w.hidden = make_object(w.n - 1);
	ck_assert_ptr_null(hide());
}

static inline void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);

	ck_assert_msg(found, "%s: %s", name, dlerror());
	return found;
}

static inline void start_driver(CUcontext *primary, CUcontext *other)
{
	const char *path = getenv("CUDAW_REAL_LIBCUDA"), *missing = "";
	void *library = dlopen(path, RTLD_NOW);
	__typeof__(cuCtxCreate_v4) *create;

	ck_assert_msg(library, "CUDAW_REAL_LIBCUDA=%s: %s", path, dlerror());
	w.control = symbol(library, "sim_control");
	w.used = symbol(library, "sim_used");
	create = symbol(library, "cuCtxCreate_v4");
	ck_assert_int_eq(cuda_driver_fill(&w.drv, library, &missing), 0);
	ck_assert_int_eq(((__typeof__(cuInit) *)symbol(library, "cuInit"))(0), 0);
	ck_assert_int_eq(gate_init(), 0);
	ck_assert_int_eq(vmem_init(&w.drv), 0);
	devices_find(&w.drv);
	ck_assert_int_eq(w.drv.cuDevicePrimaryCtxRetain(primary, 0), 0);
	ck_assert(contexts_reserve());
	ck_assert_int_eq(create(other, NULL, 0, w.other), 0);
	contexts_add(*other, w.other);
}

/* The job has @n buffers of these sizes. */
static inline void start_job(const size_t *sizes, int n)
{
	CUcontext ctx[2];

	start_driver(&ctx[0], &ctx[1]);
	w.sizes = sizes;
	w.n = n;
	for (int b = 0; b < n - 2; b++) {
		ck_assert_int_eq(w.drv.cuCtxSetCurrent(ctx[b % 2]), 0);
		ck_assert_int_eq(
			vmem_alloc(ctx[b % 2], b % 2 ? w.other : 0, sizes[b], &w.buffers[b], NULL),
			0);
		fill(b);
	}
	make_objects();
	w.drv.cuCtxSetCurrent(NULL);
}

/* A fixture: a directory for cudaw's files, and SEED. */
static inline void world_begin(void)
{
	const char *text = getenv("SEED");

	strcpy(w.base, "/tmp/test-engine-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(w.base));
	setenv("CUDAW_RUNTIME_DIR", w.base, 1);
	setenv("CUDAW_SIM_STRICT", "1", 1);
	setenv("CUDAW_SIM_DEVICES", "2", 1);
	w.seed = text ? (unsigned int)strtoul(text, NULL, 0)
		      : (unsigned int)time(NULL) ^ (unsigned int)getpid();
	srand(w.seed);
}

static inline void world_end(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", w.base);
	ck_assert_int_eq(system(command), 0);
}

static inline void nothing(void)
{
}

static inline const char *failure(const struct engine_result *result)
{
	return result->code != END_OK ? result->message : NULL;
}

#endif
