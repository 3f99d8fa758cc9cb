/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudawd as tests run it: it asserts what parties.h and turns.h promise after each decision. With '--clock FD' before
 * its options as many milliseconds more have passed on its clock as the file FD says, an int64_t that the test writes:
 * time passes without a wait.
 */
#include "tools/daemon/now.h"
#include "tools/daemon/parties/parties.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const int64_t none, *passed_ms = &none;

double __real_now_ms(void);
double __wrap_now_ms(void);
void __real_parties_decide(struct parties *p, double now,
			   void (*give)(const struct party_order *, void *), void *arg);
void __wrap_parties_decide(struct parties *p, double now,
			   void (*give)(const struct party_order *, void *), void *arg);
int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);

double __wrap_now_ms(void)
{
	return __real_now_ms() + (double)__atomic_load_n(passed_ms, __ATOMIC_ACQUIRE);
}

void __wrap_parties_decide(struct parties *p, double now,
			   void (*give)(const struct party_order *, void *), void *arg)
{
	__real_parties_decide(p, now, give, arg);
	parties_check(p);
}

int __wrap_main(int argc, char **argv)
{
	void *clock;

	if (argc <= 2 || strcmp(argv[1], "--clock"))
		return __real_main(argc, argv);
	clock = mmap(NULL, sizeof(*passed_ms), PROT_READ, MAP_SHARED, atoi(argv[2]), 0);
	if (clock == MAP_FAILED) {
		fputs("usage: cudawd_clock [--clock FD] [OPTION]...\n", stderr);
		return EXIT_FAILURE;
	}
	passed_ms = clock;
	argv[2] = argv[0];
	return __real_main(argc - 2, argv + 2);
}
