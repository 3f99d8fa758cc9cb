/* SPDX-License-Identifier: Apache-2.0 */
/* On SIGWINCH becomes another program, or with --itself 1 this one, which then only sleeps. */
#include "tests/programs/kernels.h"

static unsigned long itself;

static void become(int sig)
{
	(void)sig;
	execl(itself ? "/proc/self/exe" : "/bin/sleep", "sleep", "1000", NULL);
}

int main(int argc, char **argv)
{
	static const struct step_option options[] = {{"itself", &itself}};
	CUdeviceptr data;
	struct kernels kernels;

	if (argc == 2)
		return (int)sleep((unsigned int)atoi(argv[1]));
	step_parse(argc, argv, options, 1);
	signal(SIGWINCH, become);
	kernels_init(&kernels);
	CALL(cuMemAlloc_v2(&data, 1 << 20));
	for (unsigned long steps = 0; step_more(steps); steps++) {
		CALL(cuCtxSynchronize());
		step_done(steps);
	}
	return 0;
}
