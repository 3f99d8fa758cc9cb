/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What direct I/O reaches on a disk, with nothing else done: a file for each thread, written or
 * read from its beginning to its end in requests of 2 MiB, one at a time. Writing ends with an
 * fsync. No two pages that are written are equal, and none can be compressed.
 *
 *	bench_disk write|read DIR MIB THREADS
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHUNK       (2UL << 20)
#define PAGE        4096UL
#define THREADS_MAX 256

static const char *dir;
static bool writing;
static size_t size; /* of each file */

static void die(const char *what)
{
	fprintf(stderr, "bench_disk: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static char *make_noise(uint64_t state)
{
	uint64_t *words = aligned_alloc(PAGE, CHUNK);

	if (!words)
		die("memory");
	for (size_t i = 0; i < CHUNK / sizeof(*words); i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		words[i] = state;
	}
	return (char *)words;
}

/* A file and a buffer for a thread, made before the clock runs. */
struct lane {
	pthread_t thread;
	int fd;
	char *buffer;
};

static void *lane_main(void *arg)
{
	const struct lane *lane = arg;

	for (size_t at = 0; at < size; at += CHUNK) {
		ssize_t n;

		for (size_t page = 0; writing && page < CHUNK; page += PAGE)
			*(uint64_t *)(lane->buffer + page) ^= at + page + 1;
		n = writing ? pwrite(lane->fd, lane->buffer, CHUNK, at)
			    : pread(lane->fd, lane->buffer, CHUNK, at);
		if (n != (ssize_t)CHUNK)
			die(writing ? "pwrite" : "pread");
	}
	if (writing && fsync(lane->fd))
		die("fsync");
	return NULL;
}

int main(int argc, char **argv)
{
	static struct lane lanes[THREADS_MAX];
	size_t count = argc == 5 ? strtoul(argv[4], NULL, 0) : 0;
	char path[4096];
	double start;

	writing = argc == 5 && !strcmp(argv[1], "write");
	if (!count || count > THREADS_MAX || (!writing && strcmp(argv[1], "read"))) {
		fputs("usage: bench_disk write|read DIR MIB THREADS\n", stderr);
		return 2;
	}
	dir = argv[2];
	size = (strtoul(argv[3], NULL, 0) << 20) / count / CHUNK * CHUNK;
	for (size_t i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/disk-%zu", dir, i);
		lanes[i].fd = open(
			path, O_DIRECT | (writing ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY), 0600);
		if (lanes[i].fd < 0)
			die(path);
		lanes[i].buffer = make_noise((i + 1) * 0x9e3779b97f4a7c15);
	}
	start = now();
	for (size_t i = 0; i < count; i++)
		if (pthread_create(&lanes[i].thread, NULL, lane_main, &lanes[i]))
			die("pthread_create");
	for (size_t i = 0; i < count; i++)
		pthread_join(lanes[i].thread, NULL);
	start = now() - start;
	printf("figure seconds %.4f s\nfigure rate %.4f GB/s\n", start, size * count / 1e9 / start);
	return 0;
}
