/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudawd as tests run it: 'cudawd_clock --clock FD [OPTION]...' takes the options of cudawd. On the daemon's clock as
 * many milliseconds more have passed as the file FD says, an int64_t that the test writes: time passes without a wait.
 */
#include "tools/daemon/now.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const int64_t *passed_ms;

double __real_now_ms(void);
double __wrap_now_ms(void);
int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);

double __wrap_now_ms(void)
{
	return __real_now_ms() + (double)__atomic_load_n(passed_ms, __ATOMIC_ACQUIRE);
}

int __wrap_main(int argc, char **argv)
{
	void *clock = MAP_FAILED;

	if (argc > 2 && !strcmp(argv[1], "--clock"))
		clock = mmap(NULL, sizeof(*passed_ms), PROT_READ, MAP_SHARED, atoi(argv[2]), 0);
	if (clock == MAP_FAILED) {
		fputs("usage: cudawd_clock --clock FD [OPTION]...\n", stderr);
		return EXIT_FAILURE;
	}
	passed_ms = clock;
	argv[2] = argv[0];
	return __real_main(argc - 2, argv + 2);
}
