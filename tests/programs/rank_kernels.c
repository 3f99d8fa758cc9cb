/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job of several processes whose kernels wait for each other in communicators, by kernels that are
 * named as NCCL's are. --ranks N processes make --steps steps of a training of a certain --shape:
 *
 *	0	data parallel: all-reduces of all ranks
 *	1	a pipeline: sends and receives between neighbours, in communicators of two
 *	2	tensor and data parallel: all-reduces of pairs, then of the ranks of the same parity
 *	3	as 0, with the all-reduces in a captured graph
 *	4	a pipeline of which all pairs use one communicator
 *	5	as 1, and an all-reduce of all ranks at the end of each step
 *	6	as 3, with a graph whose nodes are added one by one
 *
 * Between them are --calls kernels in the mean that wait for nobody, and sleeps. A rank looks at its results
 * after up to --ahead steps. --ballast N: N MiB more in each rank, which no kernel changes. With --leave N the
 * communicators end before step N, and the rest of the steps waits for nobody. SIGINT to the first process,
 * which uses no CUDA, ends the job at a step that is the same for all. Rank 0 prints the steps. At the end
 * every rank compares its memory with what it should have.
 */
#include "tests/programs/kernels.h"
#include "tests/programs/many.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_RANKS 16
#define COMMS     64
#define WORDS     (1u << 14)
#define BATCHES   4 /* in a step */

#define BALLAST_WORDS (ballast << 18)
#define BALLAST_WORD  (0xb0000000u + (uint32_t)my_rank)

enum shape { DATA, PIPELINE, GRID, GRAPH, ONE_COMM, PIPELINE_AND_WORLD, GRAPH_BY_HAND, SHAPES };

struct shared {
	uint32_t arrived[COMMS][MAX_RANKS];
	uint32_t stop_at;
	uint32_t stop; /* soon */
};

/* On the device. The kernels know the offsets. */
struct comm {
	uint32_t rank, size;
	CUdeviceptr arrived;
	uint32_t round, sum;
};

/*
 * NAME(struct comm *named, struct comm *comm), for a grid of one thread, does not look at "named".
 * With the members of "comm": arrived[rank] = round + 1; it waits until arrived[i] > round for all i;
 * then sum = sum * 1664525 + round and round += 1.
 */
#define MEET_PTX(name)                                                    \
	".visible .entry " name "(.param .u64 named, .param .u64 meet)\n" \
	"{\n"                                                             \
	"	.reg .pred more, early;\n"                                      \
	"	.reg .b32 rank, size, round, next, sum, i, other;\n"            \
	"	.reg .b64 comm, arrived, at;\n"                                 \
	"	ld.param.u64 comm, [meet];\n"                                   \
	"	cvta.to.global.u64 comm, comm;\n"                               \
	"	ld.global.u32 rank, [comm];\n"                                  \
	"	ld.global.u32 size, [comm+4];\n"                                \
	"	ld.global.u64 arrived, [comm+8];\n"                             \
	"	cvta.to.global.u64 arrived, arrived;\n"                         \
	"	ld.global.u32 round, [comm+16];\n"                              \
	"	add.u32 next, round, 1;\n"                                      \
	"	mul.wide.u32 at, rank, 4;\n"                                    \
	"	add.u64 at, arrived, at;\n"                                     \
	"	membar.sys;\n"                                                  \
	"	st.volatile.global.u32 [at], next;\n"                           \
	"	mov.u32 i, 0;\n"                                                \
	"ranks:\n"                                                        \
	"	mul.wide.u32 at, i, 4;\n"                                       \
	"	add.u64 at, arrived, at;\n"                                     \
	"again:\n"                                                        \
	"	ld.volatile.global.u32 other, [at];\n"                          \
	"	setp.ge.u32 early, other, next;\n"                              \
	"	@early bra here;\n"                                             \
	"	nanosleep.u32 2000;\n"                                          \
	"	bra again;\n"                                                   \
	"here:\n"                                                         \
	"	add.u32 i, i, 1;\n"                                             \
	"	setp.lt.u32 more, i, size;\n"                                   \
	"	@more bra ranks;\n"                                             \
	"	membar.sys;\n"                                                  \
	"	ld.global.u32 sum, [comm+20];\n"                                \
	"	mad.lo.u32 sum, sum, 1664525, round;\n"                         \
	"	st.global.u32 [comm+20], sum;\n"                                \
	"	st.global.u32 [comm+16], next;\n"                               \
	"	ret;\n"                                                         \
	"}\n"

static const char meet_ptx[] = ".version 6.4\n"
			       ".target sm_75\n"
			       ".address_size 64\n" MEET_PTX("ncclDevKernel_AllReduce_test")
				       MEET_PTX("ncclDevKernel_SendRecv_test");

static unsigned long nranks = 2;
static unsigned long my_rank = MAX_RANKS; /* the first process has none */
static unsigned long shared_fd, shape, ahead = 2, leave, calls = 2, ballast;
static struct shared *shared;

struct rank {
	struct kernels kernels;
	CUfunction all_reduce, send_recv;
	CUstream stream;
	CUdeviceptr shared; /* as the GPU sees it */
	CUdeviceptr ballast;
	CUdeviceptr comms; /* an array by index; those of other ranks are not used */
	uint32_t rounds[COMMS];
	CUdeviceptr words;
	uint64_t nwords;
	uint32_t increments;
	uint32_t random;
	CUgraphExec exec;
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
		step_die("rank_kernels: mmap: %s", strerror(errno));
}

/* This rank is @rank of the @size ranks of the communicator @index. */
static void join(struct rank *r, uint32_t index, uint32_t rank, uint32_t size)
{
	struct comm comm = {.rank = rank,
			    .size = size,
			    .arrived = r->shared + offsetof(struct shared, arrived[index])};

	CALL(cuMemcpyHtoD_v2(r->comms + index * sizeof(comm), &comm, sizeof(comm)));
}

/* World first, then pairs by their lower rank, then those of the same parity. */
#define WORLD        0
#define PAIR(lower)  (1 + (uint32_t)(lower))
#define PARITY(rank) (1 + MAX_RANKS + (uint32_t)(rank) % 2)

static void join_all(struct rank *r)
{
	uint32_t rank = (uint32_t)my_rank, n = (uint32_t)nranks;

	join(r, WORLD, rank, n);
	if (rank > 0)
		join(r, PAIR(rank - 1), 1, 2);
	if (rank + 1 < n)
		join(r, PAIR(rank), 0, 2);
	join(r, PARITY(rank), rank / 2, (n + 1 - rank % 2) / 2);
}

static void rank_init(struct rank *r)
{
	CUmodule module;

	kernels_init(&r->kernels);
	CALL(cuModuleLoadData(&module, meet_ptx));
	CALL(cuModuleGetFunction(&r->all_reduce, module, "ncclDevKernel_AllReduce_test"));
	CALL(cuModuleGetFunction(&r->send_recv, module, "ncclDevKernel_SendRecv_test"));
	CALL(cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING));
	CALL(cuMemHostRegister_v2(shared, sizeof(*shared), CU_MEMHOSTREGISTER_DEVICEMAP));
	CALL(cuMemHostGetDevicePointer_v2(&r->shared, shared, 0));
	CALL(cuMemAlloc_v2(&r->comms, COMMS * sizeof(struct comm)));
	r->nwords = WORDS;
	CALL(cuMemAlloc_v2(&r->words, WORDS * sizeof(uint32_t)));
	CALL(cuMemsetD32_v2(r->words, 0, WORDS));
	if (ballast) {
		CALL(cuMemAlloc_v2(&r->ballast, BALLAST_WORDS * sizeof(uint32_t)));
		CALL(cuMemsetD32_v2(r->ballast, BALLAST_WORD, BALLAST_WORDS));
	}
	join_all(r);
	/* Those were on another stream. */
	CALL(cuCtxSynchronize());
	r->random = (uint32_t)my_rank * 7919 + 1;
}

static void compute(struct rank *r)
{
	void *args[] = {&r->words, &r->nwords};

	for (uint32_t n = 1 + next_random(r) % (uint32_t)(2 * calls); n > 0; n--, r->increments++)
		CALL(cuLaunchKernel(r->kernels.increment, 16, 1, 1, 256, 1, 1, 0, r->stream, args,
				    NULL));
	if (next_random(r) % 4 == 0)
		usleep(next_random(r) % 500);
}

static CUdeviceptr comm_at(const struct rank *r, uint32_t index)
{
	return r->comms + index * sizeof(struct comm);
}

static void meet(struct rank *r, CUfunction kernel, uint32_t index)
{
	CUdeviceptr comm = comm_at(r, index), named = shape == ONE_COMM ? r->comms : comm;
	void *args[] = {&named, &comm};

	CALL(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, r->stream, args, NULL));
	r->rounds[index]++;
}

/* A batch passes the pipeline forward, or back. */
static void pass_on(struct rank *r, bool back)
{
	bool first = my_rank == 0, last = my_rank + 1 == nranks;
	uint32_t before = PAIR(my_rank - 1), after = PAIR(my_rank);

	if (back ? !last : !first)
		meet(r, r->send_recv, back ? after : before);
	compute(r);
	if (back ? !first : !last)
		meet(r, r->send_recv, back ? before : after);
}

static void pipeline_step(struct rank *r)
{
	for (int i = 0; i < BATCHES; i++)
		pass_on(r, false);
	for (int i = 0; i < BATCHES; i++)
		pass_on(r, true);
	if (shape == PIPELINE_AND_WORLD)
		meet(r, r->all_reduce, WORLD);
}

static void grid_step(struct rank *r)
{
	for (int i = 0; i < BATCHES; i++) {
		compute(r);
		meet(r, r->all_reduce, PAIR(my_rank & ~1ul));
	}
	meet(r, r->all_reduce, PARITY(my_rank));
}

static void data_step(struct rank *r)
{
	for (int i = 0; i < BATCHES; i++) {
		compute(r);
		meet(r, r->all_reduce, WORLD);
	}
}

static void capture(struct rank *r)
{
	CUgraph graph;

	CALL(cuStreamBeginCapture_v2(r->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	for (int i = 0; i < BATCHES; i++)
		meet(r, r->all_reduce, WORLD);
	CALL(cuStreamEndCapture(r->stream, &graph));
	CALL(cuGraphInstantiateWithFlags(&r->exec, graph, 0));
	CALL(cuGraphDestroy(graph));
	r->rounds[WORLD] = 0;
}

static void add_by_hand(struct rank *r)
{
	CUdeviceptr comm = comm_at(r, WORLD);
	void *args[] = {&comm, &comm};
	CUDA_KERNEL_NODE_PARAMS node = {.func = r->all_reduce,
					.gridDimX = 1,
					.gridDimY = 1,
					.gridDimZ = 1,
					.blockDimX = 1,
					.blockDimY = 1,
					.blockDimZ = 1,
					.kernelParams = args};
	CUgraphNode last = NULL;
	CUgraph graph;

	CALL(cuGraphCreate(&graph, 0));
	for (int i = 0; i < BATCHES; i++)
		CALL(cuGraphAddKernelNode_v2(&last, graph, &last, i > 0, &node));
	CALL(cuGraphInstantiateWithFlags(&r->exec, graph, 0));
	CALL(cuGraphDestroy(graph));
}

static void graph_step(struct rank *r)
{
	compute(r);
	CALL(cuGraphLaunch(r->exec, r->stream));
	r->rounds[WORLD] += BATCHES;
	compute(r);
	meet(r, r->all_reduce, WORLD);
}

static void one_step(struct rank *r)
{
	static void (*const steps[SHAPES])(struct rank *) = {
		data_step,     pipeline_step, grid_step, graph_step,
		pipeline_step, pipeline_step, graph_step};

	steps[shape](r);
}

static void check_comms(const struct rank *r)
{
	struct comm found;

	for (uint32_t index = 0; index < COMMS; index++) {
		uint32_t sum = 0;

		for (uint32_t i = 0; i < r->rounds[index]; i++)
			sum = sum * 1664525u + i;
		if (!r->rounds[index])
			continue;
		CALL(cuMemcpyDtoH_v2(&found, comm_at(r, index), sizeof(found)));
		if (found.round != r->rounds[index] || found.sum != sum)
			step_wrong("rank_kernels: rank %lu, communicator %" PRIu32 ": %" PRIu32
				   " rounds and sum %08" PRIx32 ", should be %" PRIu32
				   " and %08" PRIx32,
				   my_rank, index, found.round, found.sum, r->rounds[index], sum);
	}
}

static void check_each(CUdeviceptr at, size_t n, uint32_t right, const char *what)
{
	uint32_t *words = malloc(n * sizeof(*words));

	CALL(cuMemcpyDtoH_v2(words, at, n * sizeof(*words)));
	for (size_t i = 0; i < n; i++)
		if (words[i] != right)
			step_wrong("rank_kernels: %s %zu of rank %lu is %" PRIu32
				   ", should be %" PRIu32,
				   what, i, my_rank, words[i], right);
	free(words);
}

static void leave_all(struct rank *r)
{
	CALL(cuStreamSynchronize(r->stream));
	check_comms(r);
	CALL(cuMemFree_v2(r->comms));
	r->comms = 0;
}

static int rank_main(void)
{
	struct rank r = {0};
	uint32_t step, since = 0;

	map_shared();
	rank_init(&r);
	if (shape == GRAPH)
		capture(&r);
	else if (shape == GRAPH_BY_HAND)
		add_by_hand(&r);
	for (step = 0; step < __atomic_load_n(&shared->stop_at, __ATOMIC_ACQUIRE); step++) {
		/* No rank is so far beyond rank 0. */
		if (!my_rank && __atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE) &&
		    step + (nranks + 1) * ahead < shared->stop_at)
			__atomic_store_n(&shared->stop_at, step + (uint32_t)((nranks + 1) * ahead),
					 __ATOMIC_RELEASE);
		if (leave && step == leave)
			leave_all(&r);
		if (r.comms)
			one_step(&r);
		else
			compute(&r);
		step_sleep_ms(step_ms);
		if (++since < ahead && next_random(&r) % 2)
			continue;
		since = 0;
		CALL(cuStreamSynchronize(r.stream));
		if (!my_rank) {
			printf("step %" PRIu32 "\n", step + 1);
			fflush(stdout);
		}
	}
	CALL(cuStreamSynchronize(r.stream));
	if (r.comms)
		check_comms(&r);
	check_each(r.words, WORDS, r.increments, "word");
	if (r.ballast)
		check_each(r.ballast, BALLAST_WORDS, BALLAST_WORD, "word of the ballast");
	return 0;
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {
		{"ranks", &nranks}, {"rank", &my_rank}, {"fd", &shared_fd}, {"shape", &shape},
		{"ahead", &ahead},  {"leave", &leave},  {"calls", &calls},  {"ballast", &ballast}};

	step_parse(argc, argv, options, 8);
	if (nranks < 1 || nranks > MAX_RANKS || shape >= SHAPES || !ahead || !calls)
		step_die("rank_kernels: --ranks is 1 to %d, --shape 0 to %d", MAX_RANKS,
			 SHAPES - 1);
	if (my_rank < nranks)
		return rank_main();
	shared_fd = (unsigned long)memfd_create("rank_kernels", 0);
	if (ftruncate((int)shared_fd, sizeof(*shared)))
		step_die("rank_kernels: memfd: %s", strerror(errno));
	map_shared();
	shared->stop_at = (uint32_t)step_count;
	for (my_rank = 0; my_rank < nranks; my_rank++)
		many_start("rank_kernels", options, 8);
	many_wait("rank_kernels", nranks, &shared->stop);
	printf("rank_kernels: %" PRIu32 " steps, every rank right\n", shared->stop_at);
	return 0;
}
