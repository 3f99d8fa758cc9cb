/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library whose constructor makes CUDA calls for a second, in the context whose address is in
 * TEST_CONTEXT: it has the loader's lock all the time.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

__attribute__((constructor)) static void construct(void)
{
	int (*set)(void *context) = (int (*)(void *))dlsym(RTLD_DEFAULT, "cuCtxSetCurrent");
	int (*get)(size_t * bytes, size_t * total) =
		(int (*)(size_t *, size_t *))dlsym(RTLD_DEFAULT, "cuMemGetInfo_v2");
	const struct timespec pause = {.tv_nsec = 10000000};
	const char *context = getenv("TEST_CONTEXT");
	size_t bytes, total;

	if (!set || !get || !context || set((void *)strtoul(context, NULL, 16)))
		abort();
	for (int i = 0; i < 100; i++) {
		if (get(&bytes, &total))
			abort();
		nanosleep(&pause, NULL);
	}
}
