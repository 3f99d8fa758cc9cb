/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into a job: takes the GPU memory that a pause freed, by the real driver and for good,
 * so that the resume gets other addresses.
 *
 * TAKER_DIR names a directory. A file there with the process's id for a name has the real driver's
 * path in its first line, and in each other one "SIZE ADDRESS": what is to be taken if it is free,
 * in bytes and as a hexadecimal number. The file is removed when that is done, or failed, which is
 * said.
 */
#include "common/find/find.h"

#include <cuda.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_US 5000
#define TRIES   64 /* the driver may have other places as well */

struct driver {
	__typeof__(cuDevicePrimaryCtxRetain) *retain;
	__typeof__(cuDevicePrimaryCtxRelease) *release;
	__typeof__(cuCtxSetCurrent) *set_current;
	__typeof__(cuMemAlloc) *alloc;
	__typeof__(cuMemFree) *free;
};

/* Of the real driver: by its path it would be ours, of which all calls wait while the job is paused. */
static bool find(struct driver *drv, const char *path)
{
	char name[sizeof(FIND_ITSELF) + PATH_MAX];
	void *lib;

	snprintf(name, sizeof(name), FIND_ITSELF "%s", path);
	lib = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
	if (!lib)
		return false;
	drv->retain = (__typeof__(drv->retain))dlsym(lib, "cuDevicePrimaryCtxRetain");
	drv->release = (__typeof__(drv->release))dlsym(lib, "cuDevicePrimaryCtxRelease_v2");
	drv->set_current = (__typeof__(drv->set_current))dlsym(lib, "cuCtxSetCurrent");
	drv->alloc = (__typeof__(drv->alloc))dlsym(lib, "cuMemAlloc_v2");
	drv->free = (__typeof__(drv->free))dlsym(lib, "cuMemFree_v2");
	return drv->retain && drv->release && drv->set_current && drv->alloc && drv->free;
}

static void take(const struct driver *drv, size_t size, CUdeviceptr where)
{
	CUdeviceptr found[TRIES];
	bool there = false;
	int n = 0;

	while (n < TRIES && !there && !drv->alloc(&found[n], size))
		there = found[n++] == where;
	for (int i = 0; i < n - there; i++)
		drv->free(found[i]);
	if (!there)
		fprintf(stderr, "taker: no %zu bytes at 0x%llx\n", size, where);
}

static void take_all(FILE *list)
{
	unsigned long long where;
	char path[PATH_MAX];
	struct driver drv;
	CUcontext ctx;
	size_t size;

	if (!fgets(path, sizeof(path), list))
		return;
	path[strcspn(path, "\n")] = '\0';
	if (!find(&drv, path) || drv.retain(&ctx, 0)) {
		fprintf(stderr, "taker: no context of %s\n", path);
		return;
	}
	drv.set_current(ctx);
	while (fscanf(list, "%zu %llx", &size, &where) == 2)
		take(&drv, size, where);
	drv.set_current(NULL);
	drv.release(0);
}

static void *serve(void *name)
{
	for (;; usleep(LOOK_US)) {
		FILE *list = fopen(name, "re");

		if (!list)
			continue;
		take_all(list);
		fclose(list);
		unlink(name);
	}
	return NULL;
}

__attribute__((constructor)) static void start(void)
{
	const char *dir = getenv("TAKER_DIR");
	sigset_t all, before;
	pthread_t thread;
	char *name;

	if (!dir || asprintf(&name, "%s/%d", dir, getpid()) < 0)
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_create(&thread, NULL, serve, name);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}
