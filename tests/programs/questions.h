/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_QUESTIONS_H
#define CUDAW_QUESTIONS_H
/*
 * For programs that ask the driver questions: what a program says has nothing in it that differs from
 * run to run, so that a native run and one under cudaw can be compared. A line of stdout is
 * "QUESTION: ANSWER".
 */
#include <cuda.h>

#include "tests/programs/kernels.h"

#include <pthread.h>
#include <stdbool.h>

#define KIB         (UINT64_C(1) << 10)
#define MIB         (UINT64_C(1) << 20)
#define GIB         (UINT64_C(1) << 30)
#define HOLD_LOOKS  1000 /* at a call that sleeps, a millisecond apart or more */
#define HOLD_USED_S 0.5  /* of processor time, of a call that spins */

static struct kernels gpu;

static inline const char *name_of(CUresult result)
{
	const char *name = "unknown";

	cuGetErrorName(result, &name);
	return name;
}

__attribute__((format(printf, 1, 2))) static inline void say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

static inline void say_result(const char *question, CUresult result)
{
	say("%s: %s", question, name_of(result));
}

static inline double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

static inline CUdeviceptr alloc(size_t size)
{
	CUdeviceptr ptr;

	CALL(cuMemAlloc(&ptr, size));
	return ptr;
}

static inline CUstream stream_new(void)
{
	CUstream stream;

	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

static volatile uint32_t *flag; /* pinned; the kernel spins until it is not 0 */

static inline void busy(CUstream stream)
{
	CUdeviceptr dev;
	void *args[] = {&dev};

	if (!flag)
		CALL(cuMemHostAlloc((void **)&flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	*flag = 0;
	CALL(cuMemHostGetDevicePointer(&dev, (void *)flag, 0));
	CALL(cuLaunchKernel(gpu.spin_until, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

enum { CALL_ASKED, CALL_RETURNED, CALL_WAITS };

struct asked {
	int call;
	pid_t thread; /* that makes it */
	clockid_t clock;
};

static inline double used_s(clockid_t clock)
{
	struct timespec used = {0};

	clock_gettime(clock, &used);
	return used.tv_sec + used.tv_nsec * 1e-9;
}

static inline bool is_asleep(pid_t thread)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	file = fopen(path, "re");
	if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	if (file)
		fclose(file);
	return state == 'S';
}

/*
 * End the kernel when the call has returned, or waits for that: it sleeps, or spins. A thread that gets no
 * processor does neither.
 */
static inline void *end_busy_later(void *arg)
{
	struct asked *a = (struct asked *)arg;
	double end_s = used_s(a->clock) + HOLD_USED_S;
	int asked = CALL_ASKED, looks = 0;

	while (looks < HOLD_LOOKS && used_s(a->clock) < end_s &&
	       __atomic_load_n(&a->call, __ATOMIC_ACQUIRE) == asked) {
		usleep(1000);
		looks += is_asleep(a->thread);
	}
	__atomic_compare_exchange_n(&a->call, &asked, CALL_WAITS, false, __ATOMIC_ACQ_REL,
				    __ATOMIC_ACQUIRE);
	*flag = 1;
	return NULL;
}

/* Whether the call @what waits for the kernel: it returns after the helper thread ended that. */
#define WAITS(question, what)                                                             \
	do {                                                                              \
		struct asked asked_ = {CALL_ASKED, gettid(), 0};                          \
		pthread_t helper_;                                                        \
		CUresult result_;                                                         \
		busy(stream);                                                             \
		pthread_getcpuclockid(pthread_self(), &asked_.clock);                     \
		pthread_create(&helper_, NULL, end_busy_later, &asked_);                  \
		result_ = (what);                                                         \
		say("%s: %s, %s", question, name_of(result_),                             \
		    __atomic_exchange_n(&asked_.call, CALL_RETURNED, __ATOMIC_ACQ_REL) == \
				    CALL_WAITS                                            \
			    ? "waits for the kernel"                                      \
			    : "returns");                                                 \
		pthread_join(helper_, NULL);                                              \
		CALL(cuStreamSynchronize(stream));                                        \
	} while (0)

static unsigned int left_s; /* once the work has been ended */

/* A call may wait for the work whose end comes after it. The answers after this one show how it went on. */
static inline void end_stuck(int sig)
{
	static const char said[] = "the work was ended, for a call that waits: yes\n";

	if (flag && !*flag) {
		(void)!write(STDOUT_FILENO, said, sizeof(said) - 1);
		*flag = 1;
	}
	signal(sig, SIG_DFL);
	alarm(left_s);
}

/* A case: its questions, and how many GPUs they need. */
struct questions {
	const char *name;
	void (*run)(void);
	int gpus;
};

/*
 * For main(): ask the questions of the case that is named, or list the cases. Work that keeps the GPU
 * busy ends after half of the time that a program has.
 */
static inline int questions_ask(int argc, char **argv, const struct questions *cases, size_t n)
{
	int count = 0;

	if (argc != 2)
		step_die("usage: %s CASE, or %s list", argv[0], argv[0]);
	left_s = step_hang_s() / 2;
	signal(SIGALRM, end_stuck);
	alarm(step_hang_s() - left_s);
	step_tell_crashes();
	for (size_t i = 0; i < n; i++) {
		if (!strcmp(argv[1], "list")) {
			printf("%s %d\n", cases[i].name, cases[i].gpus);
			continue;
		}
		if (strcmp(argv[1], cases[i].name))
			continue;
		kernels_init(&gpu);
		CALL(cuDeviceGetCount(&count));
		if (count < cases[i].gpus) {
			say("needs %d GPUs", cases[i].gpus);
			return 77;
		}
		cases[i].run();
		return 0;
	}
	return strcmp(argv[1], "list") ? 2 : 0;
}

#endif
