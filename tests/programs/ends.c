/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends without a word as soon as it has run on after a resume: when cudaw is about to answer
 * whoever asked for that.
 */
#include "tests/programs/kernels.h"

#include <sys/socket.h>
#include <unistd.h>

#define WORDS (1UL << 20)

/* In the place of the C library's, for all libraries of the program. */
ssize_t send(int fd, const void *data, size_t size, int flags)
{
	static const char answer[] = "resume_us ";

	if (size >= strlen(answer) && !memcmp(data, answer, strlen(answer)))
		_exit(0);
	return sendto(fd, data, size, flags, NULL, 0);
}

int main(int argc, char **argv)
{
	uint64_t words = WORDS;
	struct kernels kernels;
	CUdeviceptr data;
	void *args[] = {&data, &words};

	step_parse(argc, argv, NULL, 0);
	kernels_init(&kernels);
	CALL(cuMemAlloc_v2(&data, words * sizeof(uint32_t)));
	for (unsigned long steps = 0; step_more(steps); steps++) {
		kernels_launch(kernels.increment, NULL, args);
		CALL(cuCtxSynchronize());
		step_done(steps);
	}
	return 0;
}
