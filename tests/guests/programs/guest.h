/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_GUEST_H
#define CUDAW_GUEST_H
/*
 * The frame of a guest: a small program of a kind that lives badly with interposers. It prints what
 * it observes, the same in every run; test_guests.py holds a run under cudaw against a native one.
 *
 * Most guests do one thing in several ways, and the first argument says which. A program that uses
 * CUDA calls guest_point() where a third run is paused and resumed; the other runs find the end of
 * stdin there and go on.
 */
#include <dirent.h>
#include <poll.h>

#include "tests/programs/kernels.h"

#define GUEST_WORDS (UINT64_C(1) << 18)

struct guest_way {
	const char *name;
	void (*run)(void);
};

#define GUEST_RUN(ways, argc, argv) \
	guest_run(ways, sizeof(ways) / sizeof((ways)[0]), (argc) > 1 ? (argv)[1] : "")

static inline void guest_run(const struct guest_way *ways, size_t count, const char *name)
{
	setlinebuf(stdout);
	for (size_t i = 0; i < count; i++)
		if (!strcmp(ways[i].name, name)) {
			ways[i].run();
			return;
		}
	step_die("expected one of the ways of this program, found '%s'", name);
}

/* A call of the system that must not fail. */
#define MUST(call)                                                                             \
	do {                                                                                   \
		if ((call) < 0)                                                                \
			step_die("%s:%d: %s: %s", __FILE__, __LINE__, #call, strerror(errno)); \
	} while (0)

static inline void guest_point(void)
{
	puts("point");
	fflush(stdout);
	step_wait_byte();
}

/* True once stdin has ended: a loop that is to be paused in its midst goes on until then. */
static inline int guest_told(void)
{
	struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&fd, 1, 0) > 0;
}

/* How many control threads of cudaw there are, of which @is_so (NULL: any) is true: natively none. */
static inline int guest_count_threads(int (*is_so)(pid_t tid))
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	int n = 0;

	while (tasks && (task = readdir(tasks))) {
		char path[300], name[32] = "";
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
		file = fopen(path, "r");
		if (file && fgets(name, sizeof(name), file) && !strcmp(name, "cudaw\n"))
			n += !is_so || is_so(atoi(task->d_name));
		if (file)
			fclose(file);
	}
	if (tasks)
		closedir(tasks);
	return n;
}

/* Memory on the GPU whose every word says how many steps were made. */
struct guest_memory {
	struct kernels kernels;
	CUdeviceptr data;
	uint32_t steps;
};

static inline void guest_memory_step(struct guest_memory *m)
{
	uint64_t words = GUEST_WORDS;
	void *args[] = {&m->data, &words};

	kernels_launch(m->kernels.increment, NULL, args);
	CALL(cuCtxSynchronize());
	m->steps++;
}

static inline void guest_memory_init(struct guest_memory *m)
{
	uint64_t words = GUEST_WORDS;
	uint32_t seed = 1;
	void *args[] = {&m->data, &words, &seed};

	m->steps = 0;
	kernels_init(&m->kernels);
	CALL(cuMemAlloc_v2(&m->data, GUEST_WORDS * sizeof(uint32_t)));
	kernels_launch(m->kernels.iota, NULL, args);
	guest_memory_step(m);
}

static inline void guest_memory_check(const struct guest_memory *m)
{
	static uint32_t words[GUEST_WORDS];

	CALL(cuMemcpyDtoH_v2(words, m->data, sizeof(words)));
	for (uint64_t i = 0; i < GUEST_WORDS; i++)
		if (words[i] != (uint32_t)(2654435761u + i + m->steps))
			step_die("word %lu of the GPU's memory is %u", (unsigned long)i, words[i]);
	puts("memory right");
}

/* A program that is paused here has its memory, and goes on with it. */
static inline void guest_memory_point(struct guest_memory *m)
{
	guest_point();
	guest_memory_step(m);
	guest_memory_check(m);
}

#endif
