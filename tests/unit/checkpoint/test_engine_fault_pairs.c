/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine over the simulated driver, in one process: each two calls of a pause and a resume
 * fail, to the driver and to the system (memory, mappings, threads), once or for good. Whatever
 * fails, the job runs on with all bytes, or is paused or failed with all bytes, and a resume works
 * when nothing fails any more; and then a pause gives back as much as ever. The same for yields that
 * take the memory in two parts, and a fill.
 *
 * There are many thousand pairs. PAIRS=all takes each, and PAIRS=K/N the part K of N, so that several
 * processors can share them; else neighbours in time are taken, from a random one on, and then
 * others at random, for PAIRS_SECONDS (12) in each kind of pause. A failure names SEED, the pair and
 * the functions that failed; SEED= and PAIR="first second for_good result" play it again.
 *
 * A stream whose destruction fails lives on, with a thread of the simulated driver. So that these do
 * not become thousands, all pairs are taken in SLICES processes for each kind of pause.
 */
#include "tests/unit/checkpoint/engine_world.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#define SLICES  40
#define HANG_S  300 /* of a pair; sanitizers are slow */
#define WAIT_MS 30  /* of a resume that finds no memory */

static const size_t sizes[] = {6 * MB, 300000, 5 * MB, 1000, 4 * MB, 2 * MB};
/* By their numbers: the kinds of pause. */
static const struct {
	const char *release, *verify;
	bool parts;
} kinds[] = {
	{"all", "0", false}, {"memory", "0", false}, {"memory", "1", false}, {"memory", "0", true}};
#define NKINDS ((int)(sizeof(kinds) / sizeof(kinds[0])))

static bool in_parts;

static struct pair {
	unsigned long at[SIM_FAULTS]; /* in the order of time, over all calls */
	bool for_good;
	CUresult result;
} pair;
static unsigned long calls; /* since it was armed */

/* Calls to the system, made by our code alone: the rest is not linked to these functions. */
static struct {
	bool armed;
	const char *struck[SIM_FAULTS];
} host;

static bool host_fails(const char *name)
{
	unsigned long n;

	if (!__atomic_load_n(&host.armed, __ATOMIC_RELAXED))
		return false;
	n = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < SIM_FAULTS; i++) {
		const char *struck = __atomic_load_n(&host.struck[i], __ATOMIC_RELAXED);

		if (n == pair.at[i])
			__atomic_store_n(&host.struck[i], name, __ATOMIC_RELAXED);
		else if (!pair.for_good || struck != name)
			continue;
		errno = ENOMEM;
		return true;
	}
	return false;
}

/* The linker puts these in the place of the system's functions. */
#define WRAP(type, name, failure, parameters, ...)                               \
	type __real_##name parameters;                                           \
	type __wrap_##name parameters;                                           \
	type __wrap_##name parameters                                            \
	{                                                                        \
		return host_fails(#name) ? failure : __real_##name(__VA_ARGS__); \
	}

WRAP(void *, malloc, NULL, (size_t size), size)
WRAP(void *, calloc, NULL, (size_t count, size_t size), count, size)
WRAP(void *, realloc, NULL, (void *old, size_t size), old, size)
WRAP(void *, reallocarray, NULL, (void *old, size_t count, size_t size), old, count, size)
WRAP(int, posix_memalign, ENOMEM, (void **out, size_t alignment, size_t size), out, alignment, size)
WRAP(void *, mmap, MAP_FAILED,
     (void *at, size_t size, int protection, int flags, int fd, off_t offset), at, size, protection,
     flags, fd, offset)
WRAP(int, madvise, -1, (void *start, size_t size, int advice), start, size, advice)
WRAP(int, pthread_create, EAGAIN,
     (pthread_t * thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg), thread,
     attr, start, arg)

static struct sim_faults driver; /* what it had failed when it was disarmed */

static void disarm(void)
{
	struct sim_faults faults, none = {0};

	__atomic_store_n(&host.armed, false, __ATOMIC_RELAXED);
	w.control(&none, &faults);
	if (faults.armed)
		driver = faults;
}

static void arm(void)
{
	struct sim_faults faults = {
		.armed = true,
		.calls = &calls,
		.at = {pair.at[0], pair.at[1]},
		.for_good = pair.for_good,
		.result = pair.result,
	};

	calls = 0;
	memset(host.struck, 0, sizeof(host.struck));
	w.control(&faults, NULL);
	__atomic_store_n(&host.armed, true, __ATOMIC_RELAXED);
}

static const char *struck(int i)
{
	if (driver.struck[i])
		return driver.struck[i];
	return host.struck[i] ? host.struck[i] : "nothing";
}

#define PAIR_FORMAT "SEED=%u PAIR=\"%lu %lu %d %d\""
#define PAIR_VALUES w.seed, pair.at[0], pair.at[1], pair.for_good, pair.result

#define MUST(condition, format, ...)                                                           \
	do {                                                                                   \
		if (!(condition)) {                                                            \
			disarm();                                                              \
			ck_abort_msg(PAIR_FORMAT " (%s, %s): " format, PAIR_VALUES, struck(0), \
				     struck(1), __VA_ARGS__);                                  \
		}                                                                              \
	} while (0)

/* The driver's lock is not taken: the thread that was interrupted may have it. */
static void on_hang(int sig)
{
	static char text[200];
	int size = snprintf(text, sizeof(text), "hangs: " PAIR_FORMAT "\n", PAIR_VALUES);

	(void)!write(STDERR_FILENO, text, size);
	signal(sig, SIG_DFL);
	raise(SIGABRT);
}

static void check_job(void)
{
	const char *wrong = check_bytes();

	MUST(!wrong, "%s", wrong);
}

static struct engine_op op;

static void prepare(int timeout_ms)
{
	op = (struct engine_op){.drv = &w.drv,
				.timeout_ms = timeout_ms,
				.progress = {.ready = nothing, .tell = nothing, .room = SIZE_MAX}};
}

static const char *yield(int timeout_ms, size_t bytes)
{
	prepare(timeout_ms);
	op.release = RELEASE_MEMORY;
	op.bytes = bytes;
	engine_yield(&op);
	return failure(&op.result);
}

static const char *pause_job(int timeout_ms)
{
	if (in_parts) {
		yield(timeout_ms, sizes[0]);
		return yield(timeout_ms, SIZE_MAX);
	}
	prepare(timeout_ms);
	engine_pause(&op);
	return failure(&op.result);
}

/* A fill has no time limit: it would wait for memory that never comes. */
static const char *resume_job(int timeout_ms)
{
	prepare(timeout_ms);
	if (in_parts && (timeout_ms != WAIT_MS || pair.result != CUDA_ERROR_OUT_OF_MEMORY))
		engine_fill(&op);
	else
		engine_resume(&op);
	return failure(&op.result);
}

/* As the control thread does between two operations. */
static void tidy(void)
{
	prepare(0);
	if (engine_is_untidy())
		engine_tidy(&op);
}

/* With nothing that fails. Returns the bytes that a pause leaves on the GPU. */
static size_t pause_and_resume(void)
{
	const char *error;
	size_t left;

	error = pause_job(TIMEOUT_MS);
	MUST(!error, "a later pause: %s", error);
	left = w.used();
	error = resume_job(TIMEOUT_MS);
	MUST(!error, "a later resume: %s", error);
	tidy();
	check_job();
	return left;
}

/* What the pair is drawn from: all that is done between two moments at which the job runs. */
static void armed_cycle(void)
{
	const char *error;

	arm();
	error = pause_job(TIMEOUT_MS);
	MUST(error || engine_is_paused(), "%s", "a pause that succeeded is none");
	tidy();
	if (engine_is_paused()) {
		error = resume_job(WAIT_MS);
		MUST(error || !engine_is_paused(), "%s", "a resume that succeeded is none");
		tidy();
	}
}

static unsigned long count_calls(void)
{
	memset(&pair, 0, sizeof(pair));
	armed_cycle();
	disarm();
	ck_assert(!engine_is_paused());
	return calls;
}

static void try_pair(size_t left)
{
	const char *error;
	size_t found;

	alarm(HANG_S);
	armed_cycle();
	disarm();
	if (engine_is_paused()) {
		error = resume_job(TIMEOUT_MS);
		MUST(!error, "the resume when nothing fails: %s", error);
	}
	check_job();
	found = pause_and_resume();
	MUST(found == left, "a pause leaves %zu bytes on the GPU, not %zu", found, left);
}

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* PAIRS: part *@part, from 1 on, of *@parts. Returns false if not all pairs are to be tried. */
static bool read_part(unsigned long *part, unsigned long *parts)
{
	const char *text = getenv("PAIRS");

	*part = *parts = 1;
	if (!text)
		return false;
	return !strcmp(text, "all") ||
	       (sscanf(text, "%lu/%lu", part, parts) == 2 && *part && *part <= *parts);
}

static void try_slice(unsigned long n, size_t left, unsigned long *tried, unsigned long slice)
{
	for (unsigned long i = 1 + slice; i <= n; i += SLICES)
		for (unsigned long j = i; j <= n; j++)
			for (int for_good = 0; for_good < 2; for_good++, ++*tried) {
				pair = (struct pair){{i, j}, for_good, CUDA_ERROR_UNKNOWN};
				try_pair(left);
			}
}

static unsigned long draw(unsigned long limit)
{
	return (unsigned long)rand() % limit + 1;
}

/* Each call, and the first one on the way back from its failure; from any of them on. */
static void try_neighbours(unsigned long n, size_t left, unsigned long *tried, double until)
{
	unsigned long first = draw(n);

	for (unsigned long i = 0; i < n && seconds() < until; i++, ++*tried) {
		unsigned long at = (first + i) % n + 1;

		pair = (struct pair){{at, at + 1}, false, CUDA_ERROR_UNKNOWN};
		try_pair(left);
	}
}

static void try_some(unsigned long n, size_t left, unsigned long *tried, double until)
{
	for (; seconds() < until; ++*tried) {
		pair = (struct pair){
			.at = {draw(n), draw(n)},
			.for_good = rand() % 2,
			.result = rand() % 4 ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_OUT_OF_MEMORY,
		};
		try_pair(left);
	}
}

static void begin(void)
{
	world_begin();
	signal(SIGALRM, on_hang);
}

static void try_one(const char *text, size_t left)
{
	int for_good, result;

	ck_assert_int_eq(
		sscanf(text, "%lu %lu %d %d", &pair.at[0], &pair.at[1], &for_good, &result), 4);
	pair.for_good = for_good;
	pair.result = result;
	try_pair(left);
}

START_TEST(each_two_calls_fail)
{
	const char *one = getenv("PAIR");
	const char *limit = getenv("PAIRS_SECONDS");
	double limit_s = limit ? strtod(limit, NULL) : 12;
	unsigned long n, tried = 0, slice = _i / NKINDS, part, parts;
	int kind = _i % NKINDS;
	bool all = read_part(&part, &parts);
	double start;
	size_t left;

	if (all && slice % parts != part - 1)
		return;
	setenv("CUDAW_RELEASE", kinds[kind].release, 1);
	setenv("CUDAW_VERIFY", kinds[kind].verify, 1);
	in_parts = kinds[kind].parts;
	start_job(sizes, sizeof(sizes) / sizeof(sizes[0]));
	/* The first time, memory is made that is kept. */
	left = pause_and_resume();
	ck_assert_uint_eq(pause_and_resume(), left);
	n = count_calls();
	ck_assert_uint_gt(n, 100);
	start = seconds();
	if (one) {
		try_one(one, left);
	} else if (all) {
		try_slice(n, left, &tried, slice);
	} else {
		try_neighbours(n, left, &tried, start + limit_s * 3 / 4);
		try_some(n, left, &tried, start + limit_s);
	}
	printf("# CUDAW_RELEASE=%s CUDAW_VERIFY=%s%s SEED=%u: %lu pairs of %lu calls in %.1f s\n",
	       kinds[kind].release, kinds[kind].verify, in_parts ? " in parts" : "", w.seed, tried,
	       n, seconds() - start);
	fflush(stdout);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fault_pairs");
	TCase *tc = tcase_create("engine");
	unsigned long part, parts;

	tcase_set_timeout(tc, 0);
	tcase_add_checked_fixture(tc, begin, world_end);
	tcase_add_loop_test(tc, each_two_calls_fail, 0,
			    read_part(&part, &parts) ? NKINDS * SLICES : NKINDS);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
