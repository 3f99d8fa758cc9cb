/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job of several processes whose kernels wait for each other, as collectives do: --ranks N of
 * them, each of which does the --steps rounds of an all-reduce. A round's kernel says in memory
 * that all share that its rank has come, and spins until all ranks have. Ranks launch ahead of
 * their GPU by as many rounds as it happens, with other calls and random sleeps in between. At the
 * end every rank computes on the CPU what all of them should have, and compares.
 *
 * Every 32nd round also has the CPUs wait for each other: rank 0 launches its kernel before that,
 * the others after it. SIGINT to the first process, which uses no CUDA, ends the job at a round
 * that is the same for all. Rank 0 prints the steps.
 */
#include "tests/programs/kernels.h"
#include "tests/programs/many.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_RANKS 16
#define AHEAD     256 /* rounds that a rank launches before it waits for its GPU, at the most */
#define BARRIER   32
#define WORDS     (1u << 18)

/* The kernel knows the offsets of the first two. */
struct shared {
	uint32_t arrived[MAX_RANKS]; /* rounds that each rank has come to */
	uint32_t values[2][MAX_RANKS];
	uint32_t barrier[MAX_RANKS]; /* as arrived, for the CPUs */
	uint32_t stop_at;
	uint32_t stop; /* soon */
};

/*
 *	all_reduce(uint32_t *shared, uint32_t *data, uint32_t rank, uint32_t ranks, uint32_t round)
 *
 * for a grid of one thread: values[round % 2][rank] = *data; arrived[rank] = round + 1; then it
 * waits until arrived[i] > round for all i, and *data = *data * 1664525 + sum of values + round.
 */
static const char all_reduce_ptx[] =
	".version 6.4\n"
	".target sm_75\n"
	".address_size 64\n"
	".visible .entry all_reduce(.param .u64 shared, .param .u64 data, .param .u32 rank,\n"
	"	.param .u32 ranks, .param .u32 round)\n"
	"{\n"
	"	.reg .pred more, early;\n"
	"	.reg .b32 value, sum, other, count, index, turn, parity, next;\n"
	"	.reg .b64 arrived, values, word, mine, offset;\n"
	"	ld.param.u64 arrived, [shared];\n"
	"	cvta.to.global.u64 arrived, arrived;\n"
	"	ld.param.u64 word, [data];\n"
	"	cvta.to.global.u64 word, word;\n"
	"	ld.param.u32 index, [rank];\n"
	"	ld.param.u32 count, [ranks];\n"
	"	ld.param.u32 turn, [round];\n"
	"	add.u32 next, turn, 1;\n"
	"	and.b32 parity, turn, 1;\n"
	"	mul.wide.u32 offset, parity, 64;\n"
	"	add.u64 values, arrived, 64;\n"
	"	add.u64 values, values, offset;\n"
	"	mul.wide.u32 offset, index, 4;\n"
	"	ld.global.u32 value, [word];\n"
	"	add.u64 mine, values, offset;\n"
	"	st.volatile.global.u32 [mine], value;\n"
	"	membar.sys;\n"
	"	add.u64 mine, arrived, offset;\n"
	"	st.volatile.global.u32 [mine], next;\n"
	"	mov.u32 sum, turn;\n"
	"	mov.u32 index, 0;\n"
	"rank_loop:\n"
	"	mul.wide.u32 offset, index, 4;\n"
	"	add.u64 mine, arrived, offset;\n"
	"again:\n"
	"	ld.volatile.global.u32 other, [mine];\n"
	"	setp.ge.u32 early, other, next;\n"
	"	@early bra here;\n"
	"	nanosleep.u32 2000;\n"
	"	bra again;\n"
	"here:\n"
	"	membar.sys;\n"
	"	add.u64 mine, values, offset;\n"
	"	ld.volatile.global.u32 other, [mine];\n"
	"	add.u32 sum, sum, other;\n"
	"	add.u32 index, index, 1;\n"
	"	setp.lt.u32 more, index, count;\n"
	"	@more bra rank_loop;\n"
	"	mad.lo.u32 value, value, 1664525, sum;\n"
	"	st.global.u32 [word], value;\n"
	"	ret;\n"
	"}\n";

static unsigned long nranks = 2;
static unsigned long my_rank = MAX_RANKS; /* the first process has none */
static unsigned long shared_fd;
static struct shared *shared;

struct rank {
	struct kernels kernels;
	CUfunction all_reduce;
	CUstream stream;
	CUdeviceptr shared; /* as the GPU sees it */
	CUdeviceptr value, words;
	uint64_t nwords;
	uint32_t increments;
	uint32_t random;
};

static uint32_t next_random(struct rank *r)
{
	r->random = r->random * 1664525u + 1013904223u;
	return r->random >> 8;
}

static void map_shared(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, (int)shared_fd, 0);
	if (shared == MAP_FAILED)
		step_die("ranks: mmap: %s", strerror(errno));
}

static uint32_t read_word(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void rank_init(struct rank *r)
{
	CUmodule module;

	kernels_init(&r->kernels);
	CALL(cuModuleLoadData(&module, all_reduce_ptx));
	CALL(cuModuleGetFunction(&r->all_reduce, module, "all_reduce"));
	CALL(cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING));
	CALL(cuMemHostRegister_v2(shared, sizeof(*shared), CU_MEMHOSTREGISTER_DEVICEMAP));
	CALL(cuMemHostGetDevicePointer_v2(&r->shared, shared, 0));
	CALL(cuMemAlloc_v2(&r->value, sizeof(uint32_t)));
	CALL(cuMemsetD32_v2(r->value, (uint32_t)my_rank + 1, 1));
	r->nwords = WORDS;
	CALL(cuMemAlloc_v2(&r->words, WORDS * sizeof(uint32_t)));
	CALL(cuMemsetD32_v2(r->words, 0, WORDS));
	/* Those were on another stream. */
	CALL(cuCtxSynchronize());
	r->random = (uint32_t)my_rank * 7919 + 1;
}

static void launch_round(struct rank *r, uint32_t round)
{
	uint32_t rank = (uint32_t)my_rank, ranks = (uint32_t)nranks;
	void *args[] = {&r->shared, &r->value, &rank, &ranks, &round};

	CALL(cuLaunchKernel(r->all_reduce, 1, 1, 1, 1, 1, 1, 0, r->stream, args, NULL));
}

static void launch_increment(struct rank *r)
{
	void *args[] = {&r->words, &r->nwords};

	CALL(cuLaunchKernel(r->kernels.increment, 16, 1, 1, 256, 1, 1, 0, r->stream, args, NULL));
	r->increments++;
}

/* What only this rank does between two rounds. */
static void other_calls(struct rank *r)
{
	CUdeviceptr scratch;

	for (uint32_t n = next_random(r) % 4; n > 0; n--) {
		if (next_random(r) % 8) {
			launch_increment(r);
		} else {
			CALL(cuMemAlloc_v2(&scratch, 4096));
			CALL(cuMemsetD32Async(scratch, n, 1024, r->stream));
			CALL(cuMemFree_v2(scratch));
		}
	}
}

static void meet_on_cpu(uint32_t round)
{
	__atomic_store_n(&shared->barrier[my_rank], round + 1, __ATOMIC_RELEASE);
	for (unsigned long i = 0; i < nranks; i++)
		while (read_word(&shared->barrier[i]) < round + 1)
			usleep(50);
}

static void one_round(struct rank *r, uint32_t round)
{
	bool barrier = round % BARRIER == BARRIER - 1;

	if (barrier && my_rank)
		meet_on_cpu(round);
	launch_round(r, round);
	if (barrier && !my_rank) {
		/* This one does not wait for the kernel, as cuMemFree() would. */
		launch_increment(r);
		meet_on_cpu(round);
	}
	other_calls(r);
}

static void check_result(struct rank *r, uint32_t rounds)
{
	uint32_t values[MAX_RANKS], found, *words = malloc(WORDS * sizeof(*words));

	for (uint32_t i = 0; i < nranks; i++)
		values[i] = i + 1;
	for (uint32_t k = 0; k < rounds; k++) {
		uint32_t sum = k;

		for (uint32_t i = 0; i < nranks; i++)
			sum += values[i];
		for (uint32_t i = 0; i < nranks; i++)
			values[i] = values[i] * 1664525u + sum;
	}
	CALL(cuMemcpyDtoH_v2(&found, r->value, sizeof(found)));
	if (found != values[my_rank])
		step_wrong("ranks: rank %lu has %08" PRIx32 " after %" PRIu32
			   " rounds, should have %08" PRIx32,
			   my_rank, found, rounds, values[my_rank]);
	CALL(cuMemcpyDtoH_v2(words, r->words, WORDS * sizeof(*words)));
	for (uint32_t i = 0; i < WORDS; i++)
		if (words[i] != r->increments)
			step_wrong("ranks: word %" PRIu32 " of rank %lu is %" PRIu32
				   ", should be %" PRIu32,
				   i, my_rank, words[i], r->increments);
	free(words);
}

/*
 * For rank 0: nobody has launched a later round than @round, since the others wait for their GPUs,
 * and so for rank 0, after AHEAD rounds at the latest.
 */
static void stop_after(uint32_t round)
{
	if (round + 1 < shared->stop_at)
		__atomic_store_n(&shared->stop_at, round + 1, __ATOMIC_RELEASE);
}

static int rank_main(void)
{
	struct rank r = {0};
	uint32_t round, ahead = 0, until = 1;

	map_shared();
	rank_init(&r);
	for (round = 0; round < read_word(&shared->stop_at); round++) {
		if (!my_rank && read_word(&shared->stop))
			stop_after(round + AHEAD);
		one_round(&r, round);
		if (next_random(&r) % 4 == 0)
			usleep(next_random(&r) % (1000 * step_ms + 1));
		if (++ahead < until)
			continue;
		CALL(cuStreamSynchronize(r.stream));
		if (!my_rank) {
			printf("step %" PRIu32 "\n", round + 1);
			fflush(stdout);
		}
		ahead = 0;
		until = 1 + next_random(&r) % (1 + next_random(&r) % AHEAD);
	}
	CALL(cuStreamSynchronize(r.stream));
	check_result(&r, round);
	return 0;
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {
		{"ranks", &nranks}, {"rank", &my_rank}, {"fd", &shared_fd}};

	step_parse(argc, argv, options, 3);
	if (nranks < 1 || nranks > MAX_RANKS)
		step_die("ranks: --ranks is 1 to %d", MAX_RANKS);
	if (my_rank < nranks)
		return rank_main();
	shared_fd = (unsigned long)memfd_create("ranks", 0);
	if (ftruncate((int)shared_fd, sizeof(*shared)))
		step_die("ranks: memfd: %s", strerror(errno));
	map_shared();
	shared->stop_at = (uint32_t)step_count;
	for (my_rank = 0; my_rank < nranks; my_rank++)
		many_start("ranks", options, 3);
	many_wait("ranks", nranks, &shared->stop);
	printf("ranks: %" PRIu32 " rounds, every word right\n", shared->stop_at);
	return 0;
}
