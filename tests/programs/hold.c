/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills buffers on the GPU, says "holding", and makes no CUDA call until a line comes on stdin;
 * then it verifies every byte. Whatever calls the driver sees in between are those of a pause and
 * a resume. --verify 0 leaves out the end, so that the calls before it can be counted; --until-eof
 * 1 verifies at every line and ends when no more come; --zeros N adds a buffer of N MiB of zeros;
 * --buffers N: only so many, from the smallest on.
 * --close-listener 1 closes the last of the listening sockets that the process has, before it says
 * that it holds. --initialised 1: first it only initialises CUDA, says "initialised", and waits for a
 * line, without any context.
 */
#include "tests/programs/kernels.h"

#include <inttypes.h>
#include <sys/socket.h>
#include <unistd.h>

static const size_t sizes[] = {1000, 4096, 300000, 2 << 20, (5 << 20) + 512, 9 << 20};
#define NBUFFERS (sizeof(sizes) / sizeof(sizes[0]))

static unsigned long nbuffers = NBUFFERS;
static unsigned long verify = 1;
static unsigned long zeros;
static unsigned long until_eof;
static unsigned long close_listener;
static unsigned long initialised;

static void fill(const struct kernels *kernels, CUdeviceptr *data, size_t size, uint32_t seed)
{
	uint64_t words = size / sizeof(uint32_t);
	void *args[] = {data, &words, &seed};

	CALL(cuMemAlloc_v2(data, size));
	kernels_launch(kernels->iota, NULL, args);
}

static void check(CUdeviceptr data, size_t size, uint32_t seed)
{
	uint32_t *words = malloc(size);

	if (!words)
		step_die("hold: out of memory");
	CALL(cuMemcpyDtoH_v2(words, data, size));
	for (size_t i = 0; i < size / sizeof(*words); i++)
		if (words[i] != seed * 2654435761u + (uint32_t)i)
			step_wrong("hold: word %zu of %zu bytes is %" PRIu32, i, size, words[i]);
	free(words);
}

/* A bit that is not zero shows in the sum of words and places. */
static void check_zeros(const struct kernels *kernels, CUdeviceptr data)
{
	uint64_t words = zeros << 18, sum = 0;
	CUdeviceptr out;
	void *args[] = {&data, &words, &out};

	CALL(cuMemAlloc_v2(&out, sizeof(sum)));
	CALL(cuMemcpyHtoD_v2(out, &sum, sizeof(sum)));
	kernels_launch(kernels->checksum, NULL, args);
	CALL(cuMemcpyDtoH_v2(&sum, out, sizeof(sum)));
	if (sum)
		step_wrong("hold: the zeros have the sum %" PRIu64, sum);
	CALL(cuMemFree_v2(out));
}

static void close_last_listener(void)
{
	for (int fd = 255; fd > 2; fd--) {
		int listens = 0;
		socklen_t size = sizeof(listens);

		if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) || !listens)
			continue;
		close(fd);
		return;
	}
	step_die("hold: no socket listens");
}

static void wait_without_context(void)
{
	char line[16];

	CALL(cuInit(0));
	printf("initialised\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		step_die("hold: nobody is there any more");
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"verify", &verify},
					      {"zeros", &zeros},
					      {"until-eof", &until_eof},
					      {"buffers", &nbuffers},
					      {"close-listener", &close_listener},
					      {"initialised", &initialised}};
	CUdeviceptr data[NBUFFERS], zero = 0;
	struct kernels kernels;
	char line[16];

	step_parse(argc, argv, options, 6);
	if (nbuffers > NBUFFERS)
		step_die("hold: has %zu buffers", NBUFFERS);
	if (initialised)
		wait_without_context();
	kernels_init(&kernels);
	for (size_t b = 0; b < nbuffers; b++)
		fill(&kernels, &data[b], sizes[b], (uint32_t)b + 1);
	if (zeros) {
		CALL(cuMemAlloc_v2(&zero, zeros << 20));
		CALL(cuMemsetD8_v2(zero, 0, zeros << 20));
	}
	CALL(cuCtxSynchronize());
	if (close_listener)
		close_last_listener();
	printf("holding\n");
	fflush(stdout);
	do {
		if (!fgets(line, sizeof(line), stdin)) {
			if (until_eof)
				break;
			step_die("hold: nobody is there any more");
		}
		for (size_t b = 0; verify && b < nbuffers; b++)
			check(data[b], sizes[b], (uint32_t)b + 1);
		if (verify && zeros)
			check_zeros(&kernels, zero);
		printf("hold: %s\n", verify ? "every byte right" : "done");
		fflush(stdout);
	} while (until_eof);
	for (size_t b = 0; verify && b < nbuffers; b++)
		CALL(cuMemFree_v2(data[b]));
	return 0;
}
