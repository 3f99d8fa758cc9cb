/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills --mib N of GPU memory with noise, which no compression makes smaller, and says "filled". Of
 * each 8 bytes the first --bytes N (8) are noise, and the rest zeros. Then it takes lines:
 *
 *	change	make every tenth 2 MiB other noise; says "changed"
 *	verify	compare all of it; says "every byte right"
 *
 * and ends when no more come.
 */
#include "tests/programs/kernels.h"

#include <inttypes.h>

#define PIECE  (256UL << 20) /* of one allocation */
#define CHUNK  (2UL << 20)
#define WORDS  (CHUNK / sizeof(uint64_t))
#define NTH    10
#define PIECES 1024

static unsigned long mib = 1024, bytes = 8;
static CUdeviceptr pieces[PIECES];
static uint64_t changes;
static uint64_t chunk[WORDS], found[WORDS];

/* What is at @number of 2 MiB. */
static void make_chunk(uint64_t number)
{
	uint64_t round = number % NTH ? 0 : changes;
	uint64_t state = (number + 1) * 0x9e3779b97f4a7c15 ^ round * 0xbf58476d1ce4e5b9;
	uint64_t mask = bytes < 8 ? (UINT64_C(1) << 8 * bytes) - 1 : UINT64_MAX;

	for (size_t i = 0; i < WORDS; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		chunk[i] = state & mask;
	}
}

static CUdeviceptr place_of(uint64_t number)
{
	return pieces[number / (PIECE / CHUNK)] + number % (PIECE / CHUNK) * CHUNK;
}

static void fill(uint64_t step)
{
	for (uint64_t number = 0; number < mib / 2; number += step) {
		make_chunk(number);
		CALL(cuMemcpyHtoD_v2(place_of(number), chunk, CHUNK));
	}
	CALL(cuCtxSynchronize());
}

static void verify(void)
{
	for (uint64_t number = 0; number < mib / 2; number++) {
		make_chunk(number);
		CALL(cuMemcpyDtoH_v2(found, place_of(number), CHUNK));
		if (memcmp(found, chunk, CHUNK))
			step_wrong("noise: 2 MiB number %" PRIu64 " differ", number);
	}
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {{"mib", &mib}, {"bytes", &bytes}};
	struct kernels kernels;
	char line[16];

	step_parse(argc, argv, options, 2);
	kernels_init(&kernels);
	if (mib > PIECES * (PIECE >> 20))
		step_die("noise: at most %lu MiB", PIECES * (PIECE >> 20));
	for (size_t i = 0; i * PIECE < mib << 20; i++)
		CALL(cuMemAlloc_v2(&pieces[i], PIECE));
	fill(1);
	for (puts("filled"); fflush(stdout), fgets(line, sizeof(line), stdin);) {
		if (!strcmp(line, "change\n")) {
			changes++;
			fill(NTH);
			puts("changed");
		} else if (!strcmp(line, "verify\n")) {
			verify();
			puts("every byte right");
		}
	}
	return 0;
}
