/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread of the program that makes no CUDA call, and closes files that are not its own: once there is a
 * file CLOSES_WHEN, those whose path contains CLOSES_WHAT. It opens CLOSES_OPENS in the place of each, and
 * removes CLOSES_WHEN.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILES 1024

static void close_and_open(int fd)
{
	char link[64], path[4096];
	ssize_t len;
	int own;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	if (len < 0)
		return;
	path[len] = '\0';
	if (!strstr(path, getenv("CLOSES_WHAT")))
		return;
	close(fd);
	own = open(getenv("CLOSES_OPENS"), O_RDWR);
	if (own == fd)
		return;
	dup2(own, fd);
	close(own);
}

static void *in_thread(void *arg)
{
	while (access(arg, F_OK))
		usleep(1000);
	for (int fd = 3; fd < FILES; fd++)
		close_and_open(fd);
	unlink(arg);
	return NULL;
}

__attribute__((constructor)) static void begin(void)
{
	pthread_t thread;
	char *when = getenv("CLOSES_WHEN");

	if (when && !strcmp(program_invocation_short_name, "counter"))
		pthread_create(&thread, NULL, in_thread, when);
}
