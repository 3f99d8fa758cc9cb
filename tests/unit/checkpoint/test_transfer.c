/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Over the simulated driver in this process: copies to and from the spill file, with memory for buffers and without;
 * and how many workers move the pieces of which GPU.
 */
#include "checkpoint/engine/transfer.h"
#include "checkpoint/host/hostpool.h"
#include "checkpoint/host/spill.h"
#include "common/system/hostmem.h"
#include "vmem/vmem.h"

#include "tests/check_suite.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PIECES   16
#define GRANULES 2 /* of a piece */
#define COUNT    (PIECES * GRANULES)
#define SIZE     (COUNT * VMEM_GRANULE)

#define MANY       128 /* pieces of a granule */
#define MANY_BYTES (MANY * VMEM_GRANULE)
#define BLOCKS     (MANY_BYTES / HOSTPOOL_BLOCK)

static struct cuda_driver drv;
static CUcontext ctx;
static char *memory; /* the simulated GPU's is there for the CPU, too */
static size_t left;  /* what the control group leaves */
static size_t populated;

size_t __wrap_hostmem_cgroup_available(void);
int __wrap_hostmem_populate(void *start, size_t size);
int __real_hostmem_populate(void *start, size_t size);

size_t __wrap_hostmem_cgroup_available(void)
{
	return left;
}

int __wrap_hostmem_populate(void *start, size_t size)
{
	__atomic_fetch_add(&populated, size, __ATOMIC_RELAXED);
	return __real_hostmem_populate(start, size);
}

static void fill(unsigned char with)
{
	for (size_t i = 0; i < SIZE; i++)
		memory[i] = (char)(with ? i * 2654435761u >> 13 : 0);
}

static void setup(void)
{
	const char *missing;
	void *library = dlopen(getenv("CUDAW_REAL_LIBCUDA"), RTLD_NOW);
	CUdeviceptr at;

	ck_assert_msg(library, "%s", dlerror());
	ck_assert_int_eq(cuda_driver_fill(&drv, library, &missing), 0);
	ck_assert_int_eq(((__typeof__(cuInit) *)dlsym(library, "cuInit"))(0), 0);
	ck_assert_int_eq(drv.cuDevicePrimaryCtxRetain(&ctx, 0), 0);
	ck_assert_int_eq(drv.cuCtxSetCurrent(ctx), 0);
	ck_assert_int_eq(drv.cuMemAlloc_v2(&at, SIZE), 0);
	memory = (char *)at;
	setenv("CUDAW_SPILL_DIR", "/var/tmp", 1);
	ck_assert_int_eq(spill_open(SIZE, true), 0);
}

static void move(enum transfer_direction direction)
{
	static uint32_t slots[COUNT];
	static struct transfer_piece pieces[PIECES];
	size_t done = 0;
	struct transfer t = {.drv = &drv,
			     .direction = direction,
			     .pieces = pieces,
			     .count = PIECES,
			     .bytes = SIZE,
			     .slots = slots,
			     .done = &done};

	for (size_t i = 0; i < PIECES; i++)
		pieces[i] = (struct transfer_piece){.ctx = ctx,
						    .dev = (CUdeviceptr)memory +
							   i * GRANULES * VMEM_GRANULE,
						    .first = i * GRANULES,
						    .count = GRANULES};
	populated = 0;
	ck_assert_int_eq(transfer_run(&t), 0);
	ck_assert_uint_eq(done, SIZE);
}

static void check_contents(void)
{
	for (size_t i = 0; i < SIZE; i += i % 4096 ? 997 : 1)
		ck_assert_int_eq(memory[i], (char)(i * 2654435761u >> 13));
}

START_TEST(buffers_are_taken_where_there_is_room)
{
	left = SIZE_MAX;
	fill(1);
	move(TRANSFER_OUT);
	ck_assert_uint_gt(populated, 0);
	fill(0);
	move(TRANSFER_IN);
	ck_assert_uint_gt(populated, 0);
	check_contents();
}
END_TEST

/* A page would be one too many: the kernel would end a process. */
START_TEST(a_full_group_gives_no_page)
{
	left = _i ? SIZE_MAX : 0;
	fill(1);
	move(TRANSFER_OUT);
	ck_assert_int_eq(populated > 0, _i);
	left = 0;
	fill(0);
	move(TRANSFER_IN);
	ck_assert_uint_eq(populated, 0);
	check_contents();
}
END_TEST

/* The workers that have come, until all have: of each GPU. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	size_t n, of[2];
} here = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, {0}};

static bool come(void *arg, size_t piece)
{
	const struct transfer *t = arg;
	size_t all = workers_threads(&t->workers, t->threads);

	pthread_mutex_lock(&here.lock);
	if (here.n < all) {
		here.of[t->pieces[piece].gpu]++;
		here.n++;
		pthread_cond_broadcast(&here.more);
	}
	while (here.n < all)
		pthread_cond_wait(&here.more, &here.lock);
	pthread_mutex_unlock(&here.lock);
	return true;
}

/*
 * Pieces without allocations, those of each of @gpus after one another, as if there were @bytes. Returns how many
 * workers were to move them.
 */
static size_t workers_of(enum transfer_direction direction, size_t gpus, size_t bytes,
			 bool in_order)
{
	static uint32_t slots[MANY];
	static struct transfer_piece pieces[MANY];
	size_t done = 0;
	struct transfer t = {.drv = &drv,
			     .direction = direction,
			     .pieces = pieces,
			     .count = MANY,
			     .bytes = bytes,
			     .slots = slots,
			     .pool_slots = MANY,
			     .next_slot = MANY,
			     .done = &done,
			     .backwards = direction == TRANSFER_OUT,
			     .in_order = in_order,
			     .await = come,
			     .arg = &t};

	for (size_t i = 0; i < MANY; i++) {
		slots[i] = SLOT_NONE;
		pieces[i] = (struct transfer_piece){
			.ctx = ctx, .gpu = i * gpus / MANY, .first = i, .count = 1};
	}
	here.n = here.of[0] = here.of[1] = 0;
	ck_assert_int_eq(transfer_run(&t), 0);
	ck_assert_uint_eq(done, MANY * VMEM_GRANULE);
	return t.threads;
}

START_TEST(all_gpus_have_workers)
{
	for (int direction = TRANSFER_SCAN; direction <= TRANSFER_IN; direction++) {
		workers_of(direction, 2, MANY_BYTES, false);
		ck_assert_uint_eq(here.of[0] - here.of[1], here.n % 2);
	}
}
END_TEST

START_TEST(one_worker_has_all_gpus)
{
	for (int direction = TRANSFER_SCAN; direction <= TRANSFER_IN; direction++)
		ck_assert_uint_eq(workers_of(direction, 2, 1, _i), 1);
}
END_TEST

START_TEST(some_pieces_go_in_order)
{
	for (int direction = TRANSFER_SCAN; direction <= TRANSFER_IN; direction++) {
		workers_of(direction, 2, MANY_BYTES, true);
		ck_assert_uint_eq(here.of[direction == TRANSFER_OUT], here.n);
	}
}
END_TEST

START_TEST(few_workers_move_what_is_pinned)
{
	ck_assert_int_eq(hostpool_grow(BLOCKS), 0);
	ck_assert_int_eq(hostpool_populate(BLOCKS, NULL), 0);
	hostpool_pin(&drv, ctx, BLOCKS, NULL);
	ck_assert_uint_eq(hostpool_pinned(), MANY_BYTES);
	for (int direction = TRANSFER_OUT; direction <= TRANSFER_IN; direction++) {
		for (size_t gpus = 1; gpus <= 2; gpus++)
			ck_assert_uint_eq(workers_of(direction, gpus, MANY_BYTES, false),
					  gpus * TRANSFER_PINNED);
		ck_assert_uint_eq(workers_of(direction, 1, MANY_BYTES, true), TRANSFER_PINNED);
		/* Those of a region are all of one GPU. */
		ck_assert_uint_eq(workers_of(direction, 2, MANY_BYTES, true), TRANSFER_WORKERS);
	}
	ck_assert_uint_eq(workers_of(TRANSFER_SCAN, 1, MANY_BYTES, false), TRANSFER_WORKERS);
	hostpool_unpin(&drv, ctx, BLOCKS - 1, NULL);
	for (int direction = TRANSFER_OUT; direction <= TRANSFER_IN; direction++)
		ck_assert_uint_eq(workers_of(direction, 1, MANY_BYTES, false), TRANSFER_WORKERS);
	hostpool_unpin(&drv, ctx, 0, NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("transfer");
	TCase *tc = tcase_create("transfer");

	tcase_add_checked_fixture(tc, setup, spill_close);
	tcase_add_test(tc, buffers_are_taken_where_there_is_room);
	tcase_add_loop_test(tc, a_full_group_gives_no_page, 0, 2);
	tcase_add_test(tc, all_gpus_have_workers);
	tcase_add_loop_test(tc, one_worker_has_all_gpus, 0, 2);
	tcase_add_test(tc, some_pieces_go_in_order);
	tcase_add_test(tc, few_workers_move_what_is_pinned);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
