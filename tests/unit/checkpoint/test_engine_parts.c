/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job whose memory goes out in parts and comes back in parts, over the simulated driver in this
 * process: yields, fills, pauses, resumes, trims and snapshots in random order, with a seed (SEED=
 * plays it again). After each step the bytes on the GPU are those that the engine says, and whenever
 * the job runs it has all its contents. Then each call of a yield and a fill fails, to the driver.
 *
 * Each of these takes PARTS_SECONDS (8), and begins with a random call; with PARTS_SECONDS=0 all calls
 * fail.
 */
#include "checkpoint/engine/plan.h"
#include "checkpoint/gate/hold.h"
#include "checkpoint/host/claims.h"
#include "checkpoint/host/hostpool.h"
#include "checkpoint/sharing/sharing.h"
#include "checkpoint/snapshot/manifest_write.h"
#include "tests/unit/checkpoint/engine_world.h"

#include <sys/mman.h>

#define LARGEST (24 * MB)
#define HANG_S  120

static const size_t sizes[] = {6 * MB, 300000, LARGEST, 1000, 4 * MB, 10 * MB, LARGEST / 2, 2 * MB};
static char dir[96];

/* Host memory that is ready: how little makes this process let go of what it has saved. */
static size_t ready = SIZE_MAX;

size_t __wrap_hostmem_ready(void);

size_t __wrap_hostmem_ready(void)
{
	return ready;
}

/* ---- the job ---- */

static void start(void)
{
	start_job(sizes, sizeof(sizes) / sizeof(sizes[0]));
}

/* The job runs: check what it has, and change all of it. */
static void run_a_step(void)
{
	const char *wrong = check_bytes();

	ck_assert_msg(!wrong, "SEED=%u: %s", w.seed, wrong);
	w.generation++;
	ck_assert_ptr_null(show_hidden());
	for (int b = 0; b < w.n; b++)
		fill(b);
	ck_assert_ptr_null(hide());
}

static void begin(void)
{
	world_begin();
	snprintf(dir, sizeof(dir), "%s/snapshot", w.base);
	printf("# SEED=%u\n", w.seed);
	fflush(stdout);
	alarm(HANG_S);
}

/* ---- operations ---- */

static struct engine_op op;
static size_t
	raise_to; /* bytes of room that come when the fill tells that it has used what it had */
static size_t last_told, told_before_the_others; /* bytes */

int __real_sharing_released(struct sharing_wait *wait);
int __wrap_sharing_released(struct sharing_wait *wait);

/* The others are waited for. */
int __wrap_sharing_released(struct sharing_wait *wait)
{
	told_before_the_others = last_told;
	return __real_sharing_released(wait);
}

static void told(void)
{
	last_told = op.progress.moved;
	if (raise_to > op.progress.room)
		__atomic_store_n(&op.progress.room, raise_to, __ATOMIC_RELAXED);
}

static size_t mapped(void)
{
	struct vmem_stats stats;

	vmem_get_stats(&stats);
	return stats.mapped - stats.cached;
}

static void prepare(enum release_choice release)
{
	op = (struct engine_op){.drv = &w.drv,
				.timeout_ms = TIMEOUT_MS,
				.release = release,
				.progress = {.ready = nothing, .tell = told}};
}

static const char *yield(size_t bytes)
{
	prepare(RELEASE_MEMORY);
	op.bytes = bytes;
	engine_yield(&op);
	claims_drop();
	return failure(&op.result);
}

/* @more: room that comes later. */
static const char *fill_up_to(size_t room, size_t more)
{
	prepare(RELEASE_MEMORY);
	op.progress.room = room;
	raise_to = more;
	engine_fill(&op);
	raise_to = 0;
	claims_drop();
	return failure(&op.result);
}

static const char *pause_job(enum release_choice release)
{
	prepare(release);
	engine_pause(&op);
	claims_drop();
	return failure(&op.result);
}

static const char *resume_job(void)
{
	prepare(RELEASE_MEMORY);
	engine_resume(&op);
	claims_drop();
	return failure(&op.result);
}

static void tidy(void)
{
	prepare(RELEASE_MEMORY);
	if (engine_is_untidy())
		engine_tidy(&op);
}

static const char *snapshot(bool pause, bool gives_back)
{
	static struct snapshot_plan plan;
	struct snapshot_facts facts = {.cuda = 13000};

	facts.devices = devices_all(&facts.ndevices);
	plan = (struct snapshot_plan){
		.gives_back = gives_back, .incremental = rand() % 2, .codec = SNAPSHOT_RAW};
	strcpy(plan.path, dir);
	prepare(rand() % 2 ? RELEASE_ALL : RELEASE_MEMORY);
	op.plan = &plan;
	op.facts = &facts;
	if (pause)
		engine_pause(&op);
	else
		engine_snapshot(&op);
	claims_drop();
	return failure(&op.written);
}

#define OK(call)                                                                  \
	do {                                                                      \
		const char *error_ = (call);                                      \
		ck_assert_msg(!error_, "SEED=%u: %s: %s", w.seed, #call, error_); \
	} while (0)

/* ---- random order ---- */

static size_t total;

static size_t some_bytes(void)
{
	return rand() % 4 ? (size_t)rand() % total : total + LARGEST;
}

static size_t min(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t largest_on(CUdevice dev)
{
	struct vmem_region regions[BUFFERS];
	size_t largest = 0;

	for (size_t i = vmem_regions(regions, BUFFERS); i-- > 0;)
		if (regions[i].dev == dev && regions[i].size > largest)
			largest = regions[i].size;
	return largest;
}

static void do_yield(void)
{
	size_t bytes = some_bytes(), before = mapped(), there = w.used(), freed;
	bool released = engine_is_released();

	OK(yield(bytes));
	freed = before - mapped();
	ck_assert_uint_ge(freed, min(bytes, before));
	ck_assert_uint_le(freed, min(bytes, before) + largest_on(0) + largest_on(1));
	ck_assert_uint_eq(op.progress.moved, freed);
	ck_assert_uint_eq(op.mapped, mapped());
	ck_assert(engine_is_paused());
	ck_assert_int_eq(engine_is_partly_out(), mapped() > 0);
	ck_assert_int_eq(engine_is_released(), released);
	ck_assert_uint_eq(there - w.used(), freed);
}

static void do_fill(void)
{
	size_t room = some_bytes(), more = rand() % 2 ? some_bytes() : 0, before = mapped();

	if (!engine_is_paused())
		return;
	OK(fill_up_to(room, more));
	/* A fill that can use none of its room tells nothing, and so gets no more. */
	if (!mapped()) {
		ck_assert_uint_lt(room, LARGEST);
		more = 0;
	}
	room = more > room ? more : room;
	ck_assert_uint_le(mapped(), room > before ? room : before);
	ck_assert_uint_eq(op.progress.moved, mapped());
	ck_assert_int_eq(engine_is_paused(), mapped() < total);
	if (room >= total)
		ck_assert(!engine_is_paused());
	else if (!more)
		ck_assert_uint_gt(mapped() + LARGEST, room);
}

static void do_pause(void)
{
	OK(pause_job(rand() % 2 ? RELEASE_ALL : RELEASE_MEMORY));
	ck_assert_uint_eq(mapped(), 0);
	ck_assert(!engine_is_partly_out());
}

static void do_resume(void)
{
	if (!engine_is_paused())
		return;
	OK(resume_job());
	ck_assert(!engine_is_paused());
	ck_assert_uint_eq(mapped(), total);
}

static void do_trim(void)
{
	size_t before = mapped();

	prepare(RELEASE_MEMORY);
	engine_trim(&op);
	OK(failure(&op.result));
	ck_assert_uint_eq(mapped(), before);
}

static void do_snapshot(void)
{
	bool gives_back = rand() % 2, was_there = engine_snapshot_dir() != NULL;
	bool at_rest = engine_is_paused() && !engine_is_partly_out();
	const char *error = snapshot(!at_rest || rand() % 2, gives_back);

	/* The snapshot that alone has the memory cannot be written again. */
	ck_assert_msg(!error == !was_there, "SEED=%u: %s", w.seed, error);
	ck_assert_int_eq(engine_snapshot_dir() != NULL, gives_back || was_there);
	ck_assert_uint_eq(mapped(), 0);
}

static void (*const deeds[])(void) = {do_yield, do_yield,  do_yield, do_fill,     do_fill, do_fill,
				      do_pause, do_resume, do_trim,  do_snapshot, tidy};

static long limit_s(void)
{
	const char *limit = getenv("PARTS_SECONDS");

	return limit ? strtol(limit, NULL, 10) : 8;
}

static void random_order(void)
{
	time_t end = time(NULL) + limit_s();
	unsigned long steps = 0;

	start();
	total = mapped();
	/* In the first pause, memory is made that is kept. */
	OK(pause_job(RELEASE_ALL));
	OK(resume_job());
	for (; time(NULL) < end; steps++) {
		ready = rand() % 2 ? SIZE_MAX : 0;
		deeds[(size_t)rand() % (sizeof(deeds) / sizeof(*deeds))]();
		if (!engine_is_paused())
			run_a_step();
		else if (rand() % 2)
			tidy();
	}
	do_resume();
	run_a_step();
	printf("# SEED=%u: %lu steps\n", w.seed, steps);
	fflush(stdout);
}

START_TEST(in_any_order)
{
	setenv("CUDAW_VERIFY", _i ? "1" : "0", 1);
	w.other = _i / 2;
	random_order();
}
END_TEST

static size_t mapped_on(CUdevice dev)
{
	struct vmem_stats stats;

	vmem_get_device_stats(dev, &stats);
	return stats.mapped;
}

/* Each time at most one region more than that; also where one GPU has a single one. */
START_TEST(each_gpu_gives_the_same_part)
{
	static const size_t single[] = {4 * MB, 1000, 4 * MB, 1000, 4 * MB, 1000, 4 * MB, 4 * MB};
	size_t had[2], gone;

	w.other = 1;
	start_job(_i ? single : sizes, BUFFERS);
	total = mapped();
	for (int part = 1; part <= 4; part++) {
		for (CUdevice dev = 0; dev < 2; dev++)
			had[dev] = mapped_on(dev);
		OK(yield(mapped() / 8));
		for (CUdevice dev = 0; dev < 2; dev++) {
			gone = had[dev] - mapped_on(dev);
			ck_assert_uint_ge(gone, had[dev] / 8);
			ck_assert_uint_le(gone, had[dev] / 8 + largest_on(dev));
		}
	}
	OK(fill_up_to(total, 0));
	run_a_step();
}
END_TEST

/* What stays on the GPU is neither copied nor unmapped, and what comes back is not copied again. */
START_TEST(the_same_regions_go_first)
{
	size_t first, room;

	start();
	total = mapped();
	OK(yield(1));
	first = op.progress.moved;
	ck_assert_uint_gt(first, 0);
	ck_assert_uint_eq(op.progress.done, first);
	OK(yield(1));
	ck_assert_uint_gt(op.progress.moved, 0);
	room = total - first;
	OK(fill_up_to(room, 0));
	ck_assert_uint_eq(mapped(), room);
	/* The saved data is still valid. */
	OK(yield(1));
	ck_assert_uint_eq(op.progress.done, 0);
	OK(fill_up_to(total, 0));
	ck_assert(!engine_is_paused());
	run_a_step();
	/* Now it is not. */
	OK(yield(1));
	ck_assert_uint_eq(op.progress.moved, first);
	ck_assert_uint_eq(op.progress.done, first);
	OK(resume_job());
	run_a_step();
}
END_TEST

/* The blocks of the pool that have pages. */
static size_t full_blocks(void)
{
	unsigned char pages[HOSTPOOL_BLOCK / 4096];
	size_t count = 0;

	for (size_t i = 0; i < hostpool_count(); i++) {
		ck_assert_int_eq(mincore(hostpool_block(i)->start, HOSTPOOL_BLOCK, pages), 0);
		count += memchr(pages, 1, sizeof(pages)) != NULL;
	}
	return count;
}

static size_t blocks_for(size_t bytes)
{
	return (bytes + HOSTPOOL_BLOCK - 1) / HOSTPOOL_BLOCK;
}

/* All goes, region by region: several workers might give slots in another order. Returns the bytes of the first one. */
static size_t yield_each(size_t left)
{
	size_t first = 0;

	while (mapped() > left) {
		OK(yield(1));
		first = first ? first : op.progress.moved;
	}
	return first;
}

/* Where host memory is short, a fill gives back what it no longer needs, while it copies. */
START_TEST(what_has_come_back_is_let_go)
{
	size_t last, out;

	start();
	total = mapped();
	ready = 0;
	last = yield_each(0);
	ck_assert_uint_eq(full_blocks(), blocks_for(total));
	OK(fill_up_to(total / 2, 0));
	out = total - mapped();
	ck_assert_uint_lt(blocks_for(out), blocks_for(total));
	ck_assert_uint_eq(full_blocks(), blocks_for(out));
	/* It goes out again by a copy. */
	OK(yield(total));
	ck_assert_uint_eq(op.progress.done, total - out);
	ck_assert_uint_eq(full_blocks(), blocks_for(total));
	OK(fill_up_to(total, 0));
	ck_assert(!engine_is_paused());
	/* The last region has its own still. */
	ck_assert_uint_eq(full_blocks(), blocks_for(last));
	tidy();
	ck_assert_uint_eq(full_blocks(), 0);
	run_a_step();
}
END_TEST

/* What one fill kept goes with the next one, once memory is short. */
START_TEST(what_was_kept_is_let_go_later)
{
	start();
	total = mapped();
	yield_each(0);
	OK(fill_up_to(total / 2, 0));
	ck_assert_uint_eq(full_blocks(), blocks_for(total));
	ready = 0;
	OK(fill_up_to(0, 0));
	ck_assert_uint_eq(full_blocks(), blocks_for(total - mapped()));
	ready = SIZE_MAX;
	OK(fill_up_to(total, 0));
	tidy();
	/* There is plenty again. */
	ck_assert_uint_gt(hostpool_count(), 0);
	run_a_step();
}
END_TEST

/* A pause gives the lowest slots to the first regions: there would be gaps, and empty blocks would be pinned. */
START_TEST(after_a_pause_all_stays_saved_until_the_job_runs)
{
	static const size_t few[] = {10 * MB, 2 * MB, 10 * MB, 4 * MB}; /* for one worker */

	start_job(few, 4);
	total = mapped();
	OK(pause_job(RELEASE_MEMORY));
	ready = 0;
	OK(fill_up_to(total / 2, 0));
	ck_assert_uint_eq(full_blocks(), blocks_for(total));
	OK(yield(total));
	ck_assert_uint_eq(op.progress.done, 0);
	tidy();
	ck_assert_uint_eq(hostpool_pinned(), blocks_for(total) * HOSTPOOL_BLOCK);
	OK(fill_up_to(total, 0));
	ck_assert(!engine_is_paused());
	run_a_step();
}
END_TEST

/* The regions that a pause has added are let go when all of them are back. */
START_TEST(what_a_pause_has_added_is_let_go_together)
{
	size_t first;

	start();
	total = mapped();
	yield_each(total / 2);
	first = total - mapped();
	OK(pause_job(RELEASE_MEMORY));
	ready = 0;
	OK(fill_up_to(total - first - 1, 0));
	ck_assert_uint_gt(mapped(), 0);
	OK(yield(total));
	ck_assert_uint_eq(op.progress.done, 0);
	OK(fill_up_to(total - first, 0));
	ck_assert_uint_eq(full_blocks(), blocks_for(first));
	OK(fill_up_to(total, 0));
	run_a_step();
}
END_TEST

/* An allocation of more than VMEM_PIECE goes out and comes back in pieces. */
START_TEST(a_large_allocation)
{
	size_t size = VMEM_PIECE + 6 * MB;
	CUdeviceptr large;
	CUcontext ctx[2];
	unsigned char *end;

	start_driver(&ctx[0], &ctx[1]);
	ck_assert_int_eq(w.drv.cuCtxSetCurrent(ctx[0]), 0);
	ck_assert_int_eq(vmem_alloc(ctx[0], 0, size, &large, NULL), 0);
	end = (unsigned char *)large + size;
	memset(end - 6 * MB, 7, 6 * MB);
	OK(yield(4 * MB));
	ck_assert_uint_eq(op.progress.moved, 6 * MB);
	ck_assert_uint_eq(mapped(), VMEM_PIECE);
	OK(fill_up_to(size - 2 * MB, 0));
	ck_assert_uint_eq(mapped(), VMEM_PIECE);
	OK(fill_up_to(size, 0));
	ck_assert(!engine_is_paused());
	for (size_t i = 1; i <= 6 * MB; i += 4097)
		ck_assert_int_eq(end[-i], 7);
}
END_TEST

static void yield_together(void)
{
	struct hold hold;

	hold_init(&hold, nothing);
	hold_give_order(&hold, &(struct hold_order){.commit = true});
	prepare(RELEASE_MEMORY);
	op.bytes = mapped();
	op.progress.hold = &hold;
	engine_yield(&op);
	claims_drop();
}

/* Another job can have it at once. */
START_TEST(one_of_several_tells_what_it_has_given_before_it_waits_for_the_others)
{
	start();
	yield_together();
	OK(failure(&op.result));
	ck_assert_uint_gt(op.progress.moved, 0);
	ck_assert_uint_eq(told_before_the_others, op.progress.moved);
}
END_TEST

static CUresult (*unmap)(CUdeviceptr address, size_t size);

static CUresult unmap_some(CUdeviceptr address, size_t size)
{
	static int calls_left = 4;

	return calls_left-- > 0 ? unmap(address, size) : CUDA_ERROR_UNKNOWN;
}

/* All may have to come back. */
START_TEST(one_of_several_that_fails_tells_nothing_before_that)
{
	start();
	unmap = w.drv.cuMemUnmap;
	w.drv.cuMemUnmap = unmap_some;
	yield_together();
	w.drv.cuMemUnmap = unmap;
	ck_assert(failure(&op.result) && engine_is_paused());
	ck_assert_uint_gt(op.progress.moved, 0);
	ck_assert_uint_eq(told_before_the_others, 0);
	OK(resume_job());
}
END_TEST

/* ---- host memory for the next pause ---- */

size_t __real_hostmem_limit(void);
size_t __wrap_hostmem_limit(void);

static unsigned int limits_read;

size_t __wrap_hostmem_limit(void)
{
	limits_read++;
	return __real_hostmem_limit();
}

/* The control thread asks each time that it wakes up. */
START_TEST(no_limit_is_read_until_there_is_more_memory_to_prepare_for)
{
	setenv("CUDAW_PREPARE", "1", 1);
	start();
	ck_assert(engine_is_untidy());
	setenv("CUDAW_HOST_POOL", "0", 1);
	ck_assert(!engine_is_untidy());
	unsetenv("CUDAW_HOST_POOL");
	tidy();
	limits_read = 0;
	ck_assert(!engine_is_untidy());
	ck_assert_uint_eq(limits_read, 0);
}
END_TEST

/* ---- faults ---- */

static struct sim_faults driver; /* what it had failed when it was disarmed */
static unsigned long calls;

static void disarm(void)
{
	struct sim_faults none = {0};

	w.control(&none, &driver);
}

/* Out in two parts, back in two parts; in between, what the job has is whole. */
static void cycle(void)
{
	yield(total / 3);
	yield(total / 3);
	if (engine_is_paused())
		fill_up_to(total / 2, total);
	tidy();
}

static void armed_cycle(unsigned long at, bool for_good, CUresult result)
{
	struct sim_faults faults = {
		.armed = true, .calls = &calls, .at = {at}, .for_good = for_good, .result = result};

	calls = 0;
	ready = at % 2 ? 0 : SIZE_MAX;
	w.control(&faults, NULL);
	cycle();
	disarm();
}

static void check_after(unsigned long at, size_t left)
{
	const char *struck = driver.struck[0] ? driver.struck[0] : "nothing", *error;

	if (engine_is_paused()) {
		error = at % 2 ? resume_job() : fill_up_to(total, 0);
		ck_assert_msg(!error, "call %lu (%s) failed; then: %s", at, struck, error);
	}
	ck_assert_msg(!engine_is_paused(), "call %lu (%s): it does not run", at, struck);
	ck_assert_msg(mapped() == total, "call %lu (%s): %zu bytes are mapped, not %zu", at, struck,
		      mapped(), total);
	run_a_step();
	error = pause_job(RELEASE_MEMORY);
	ck_assert_msg(!error, "call %lu (%s): a later pause: %s", at, struck, error);
	ck_assert_msg(w.used() == left, "call %lu (%s): a pause leaves %zu bytes, not %zu", at,
		      struck, w.used(), left);
	OK(resume_job());
	tidy();
}

START_TEST(each_call_fails)
{
	bool verify = _i & 1, for_good = _i & 2;
	unsigned long n, first, tried = 0;
	time_t end;
	size_t left;

	setenv("CUDAW_VERIFY", verify ? "1" : "0", 1);
	start();
	total = mapped();
	cycle();
	tidy();
	OK(pause_job(RELEASE_MEMORY));
	left = w.used();
	OK(resume_job());
	tidy();
	armed_cycle(0, false, CUDA_SUCCESS);
	n = calls;
	ck_assert_uint_gt(n, 50);
	check_after(0, left);
	first = (unsigned long)rand() % n;
	end = time(NULL) + limit_s();
	for (; tried < n && (!limit_s() || time(NULL) < end); tried++) {
		unsigned long at = (first + tried) % n + 1;

		alarm(HANG_S);
		armed_cycle(at, for_good, CUDA_ERROR_UNKNOWN);
		check_after(at, left);
	}
	printf("# SEED=%u: %lu of %lu calls\n", w.seed, tried, n);
	fflush(stdout);
}
END_TEST

static void add(Suite *s, const char *name, const TTest *test, int times)
{
	TCase *tc = tcase_create(name);

	tcase_set_timeout(tc, 0);
	tcase_add_checked_fixture(tc, begin, world_end);
	tcase_add_loop_test(tc, test, 0, times);
	suite_add_tcase(s, tc);
}

int main(void)
{
	Suite *s = suite_create("parts");

	add(s, "same", the_same_regions_go_first, 1);
	add(s, "let go", what_has_come_back_is_let_go, 1);
	add(s, "let go", what_was_kept_is_let_go_later, 1);
	add(s, "let go", after_a_pause_all_stays_saved_until_the_job_runs, 1);
	add(s, "let go", what_a_pause_has_added_is_let_go_together, 1);
	add(s, "large", a_large_allocation, 1);
	add(s, "joint", one_of_several_tells_what_it_has_given_before_it_waits_for_the_others, 1);
	add(s, "joint", one_of_several_that_fails_tells_nothing_before_that, 1);
	add(s, "limits", no_limit_is_read_until_there_is_more_memory_to_prepare_for, 1);
	add(s, "same", each_gpu_gives_the_same_part, 2);
	add(s, "order", in_any_order, 3);
	add(s, "faults", each_call_fails, 4);
	return check_suite_run(s);
}
