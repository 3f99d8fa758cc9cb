/* SPDX-License-Identifier: Apache-2.0 */
/*
 * At a line on stdin another thread loads the library TEST_LIBRARY, whose constructor makes CUDA
 * calls (tests/preload/constructor.c). At the next one it verifies its memory.
 */
#include "tests/programs/kernels.h"

#include <dlfcn.h>
#include <pthread.h>

#define WORDS (1UL << 20)

static void *load(void *arg)
{
	if (!dlopen(getenv("TEST_LIBRARY"), RTLD_NOW))
		step_die("constructor: %s", dlerror());
	puts("constructed");
	return arg;
}

int main(int argc, char **argv)
{
	static uint32_t words[WORDS];
	struct kernels kernels;
	char context[32];
	pthread_t thread;
	CUdeviceptr data;

	setlinebuf(stdout);
	step_parse(argc, argv, NULL, 0);
	kernels_init(&kernels);
	CALL(cuMemAlloc_v2(&data, sizeof(words)));
	CALL(cuMemsetD32_v2(data, 7, WORDS));
	CALL(cuCtxSynchronize());
	snprintf(context, sizeof(context), "%p", (void *)kernels.ctx);
	setenv("TEST_CONTEXT", context, 1);
	puts("ready");
	getchar();
	if (pthread_create(&thread, NULL, load, NULL))
		step_die("constructor: no thread");
	puts("constructing");
	getchar();
	pthread_join(thread, NULL);
	CALL(cuMemcpyDtoH_v2(words, data, sizeof(words)));
	for (size_t i = 0; i < WORDS; i++)
		if (words[i] != 7)
			step_wrong("constructor: word %zu is %u", i, words[i]);
	puts("every word right");
	return 0;
}
