/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver's own process checkpoint does to two processes on one GPU whose kernels run for long
 * or wait for each other. Each of --cycles: both processes run --kernels kernels each and come to rest,
 * the first process takes both through lock, checkpoint, restore and unlock, and they go on. For native
 * runs.
 *
 *	--words 0	the kernels spin for --spin-ms by the clock, and touch no host memory
 *	--words 1	a kernel waits for a word in registered host memory of its own process
 *	--words 2	the kernels of both wait for each other, in pages that both have registered
 *	--words 3	as 0, but both have registered the same pages
 *	--again 1	unregister before the checkpoint, register after the unlock
 *	--beside 1	both processes at once; else one after the other, each step
 *	--apart-ms N	the second is restored and unlocked so long after the first is unlocked
 *	--alone 1	the second process is not taken through them
 *	--idle 1	the second process runs no kernels
 *	--single 1	there is no second process
 *	--fresh 1	go on in a new stream; 2: in a new context
 *
 * Prints "rank R, cycle C: CALL: ERROR" for the first call that fails in a process, and "every call
 * succeeded" if none did.
 */
#include "tests/programs/kernels.h"
#include "tests/programs/many.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>

#define RANKS 2
#define PAGE  4096

struct control {
	uint32_t pid[RANKS];
	uint32_t rested[RANKS]; /* cycles after which it rests */
	uint32_t failed[RANKS];
	uint32_t go; /* cycles that may begin */
	uint32_t stop;
};

/*
 *	spin_ns(uint64_t ns)
 *	meet(uint32_t *mine, const uint32_t *other, uint32_t round): *mine = round, until *other >= round
 */
static const char probe_ptx[] =
	".version 6.4\n"
	".target sm_75\n"
	".address_size 64\n"
	".visible .entry spin_ns(.param .u64 ns)\n"
	"{\n"
	"	.reg .pred still;\n"
	"	.reg .b64 start, now, limit;\n"
	"	ld.param.u64 limit, [ns];\n"
	"	mov.u64 start, %globaltimer;\n"
	"again:\n"
	"	mov.u64 now, %globaltimer;\n"
	"	sub.u64 now, now, start;\n"
	"	setp.lt.u64 still, now, limit;\n"
	"	@still bra again;\n"
	"	ret;\n"
	"}\n"
	".visible .entry meet(.param .u64 mine, .param .u64 other, .param .u32 round)\n"
	"{\n"
	"	.reg .pred still;\n"
	"	.reg .b32 turn, value;\n"
	"	.reg .b64 my_word, other_word;\n"
	"	ld.param.u64 my_word, [mine];\n"
	"	ld.param.u64 other_word, [other];\n"
	"	ld.param.u32 turn, [round];\n"
	"	cvta.to.global.u64 my_word, my_word;\n"
	"	cvta.to.global.u64 other_word, other_word;\n"
	"	st.volatile.global.u32 [my_word], turn;\n"
	"	membar.sys;\n"
	"again:\n"
	"	ld.volatile.global.u32 value, [other_word];\n"
	"	setp.lt.u32 still, value, turn;\n"
	"	@still bra again;\n"
	"	ret;\n"
	"}\n";

static unsigned long my_rank = RANKS; /* the first process has none */
static unsigned long shared_fd, words, again, beside, apart_ms;
static unsigned long alone, idle, single, fresh;
static unsigned long cycles = 3, kernels = 50, spin_ms = 20;
static struct control *control;
static uint32_t *pages; /* of the words that kernels wait for */

static uint32_t get(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void set(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static void *map(off_t offset)
{
	void *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, (int)shared_fd, offset);

	if (at == MAP_FAILED)
		step_die("restored_probe: mmap: %s", strerror(errno));
	return at;
}

struct rank {
	struct kernels base;
	CUfunction spin_ns, meet;
	CUstream stream;
	CUdeviceptr words;
	uint32_t round;
	unsigned long cycle;
};

static bool works(struct rank *r, const char *call, CUresult result)
{
	const char *name = NULL;

	if (result == CUDA_SUCCESS)
		return true;
	cuGetErrorName(result, &name);
	printf("rank %lu, cycle %lu, round %u: %s: %s\n", my_rank, r->cycle, r->round, call,
	       name ? name : "?");
	fflush(stdout);
	set(&control->failed[my_rank], 1);
	return false;
}

static bool enlist(struct rank *r)
{
	return !words || (works(r, "cuMemHostRegister",
				cuMemHostRegister_v2(pages, PAGE,
						     CU_MEMHOSTREGISTER_DEVICEMAP |
							     CU_MEMHOSTREGISTER_PORTABLE)) &&
			  works(r, "cuMemHostGetDevicePointer",
				cuMemHostGetDevicePointer_v2(&r->words, pages, 0)));
}

static bool run_one(struct rank *r)
{
	const unsigned long other = words == 2 ? 1 - my_rank : my_rank + RANKS;
	uint64_t ns = (uint64_t)spin_ms * 1000000;
	CUdeviceptr mine = r->words + 256 * my_rank, theirs = r->words + 256 * other;
	void *const spin_args[] = {&ns};
	void *const meet_args[] = {&mine, &theirs, &r->round};
	const bool meets = words == 1 || words == 2;

	r->round++;
	if (!works(r, "cuLaunchKernel",
		   cuLaunchKernel(meets ? r->meet : r->spin_ns, 1, 1, 1, 1, 1, 1, 0, r->stream,
				  (void **)(meets ? meet_args : spin_args), NULL)))
		return false;
	if (words == 1) {
		usleep((unsigned)spin_ms * 1000);
		set(&pages[64 * other], r->round);
	}
	return works(r, "cuStreamSynchronize", cuStreamSynchronize(r->stream));
}

static bool run_cycle(struct rank *r)
{
	for (unsigned long i = 0; i < kernels && !(idle && my_rank); i++)
		if (!run_one(r))
			return false;
	return !again || !words || works(r, "cuMemHostUnregister", cuMemHostUnregister(pages));
}

static void load(struct rank *r)
{
	CUmodule module;

	CALL(cuModuleLoadData(&module, probe_ptx));
	CALL(cuModuleGetFunction(&r->spin_ns, module, "spin_ns"));
	CALL(cuModuleGetFunction(&r->meet, module, "meet"));
	CALL(cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING));
}

static void go_on_elsewhere(struct rank *r)
{
	CUcontext ctx;

	if (fresh == 1)
		CALL(cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING));
	if (fresh == 2) {
		CALL(cuCtxCreate_v4(&ctx, NULL, 0, r->base.dev));
		load(r);
		if (words)
			CALL(cuMemHostGetDevicePointer_v2(&r->words, pages, 0));
	}
}

static void rank_run(void)
{
	struct rank r = {.round = 0};

	set(&control->pid[my_rank], (uint32_t)getpid());
	kernels_init(&r.base);
	load(&r);
	if (words == 1)
		pages = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
	if (!enlist(&r))
		return;
	for (r.cycle = 0; r.cycle < cycles; r.cycle++) {
		if (!run_cycle(&r))
			return;
		set(&control->rested[my_rank], (uint32_t)r.cycle + 1);
		while (get(&control->go) <= r.cycle)
			usleep(500);
		if (!works(&r, "cuCtxSynchronize", cuCtxSynchronize()) || (again && !enlist(&r)))
			return;
		go_on_elsewhere(&r);
	}
	run_cycle(&r);
}

static void *take_through(void *pid_of)
{
	const int pid = (int)*(const uint32_t *)pid_of;
	CUcheckpointLockArgs lock = {.timeoutMs = 10000};
	CUcheckpointCheckpointArgs checkpoint = {0};

	CALL(cuCheckpointProcessLock(pid, &lock));
	CALL(cuCheckpointProcessCheckpoint(pid, &checkpoint));
	return NULL;
}

static void *bring_back(void *pid_of)
{
	const int pid = (int)*(const uint32_t *)pid_of;
	CUcheckpointRestoreArgs restore = {0};
	CUcheckpointUnlockArgs unlock = {0};

	CALL(cuCheckpointProcessRestore(pid, &restore));
	CALL(cuCheckpointProcessUnlock(pid, &unlock));
	return NULL;
}

static void for_both(void *(*step)(void *), unsigned long between_ms)
{
	pthread_t thread;

	if (alone || single) {
		step(&control->pid[0]);
		return;
	}
	if (beside) {
		if (pthread_create(&thread, NULL, step, &control->pid[0]))
			step_die("restored_probe: pthread_create");
		step(&control->pid[1]);
		pthread_join(thread, NULL);
		return;
	}
	step(&control->pid[0]);
	usleep((unsigned)between_ms * 1000);
	step(&control->pid[1]);
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {
		{"rank", &my_rank},   {"fd", &shared_fd},  {"words", &words},
		{"again", &again},    {"beside", &beside}, {"apart-ms", &apart_ms},
		{"alone", &alone},    {"idle", &idle},     {"single", &single},
		{"fresh", &fresh},    {"cycles", &cycles}, {"kernels", &kernels},
		{"spin-ms", &spin_ms}};
	const int count = sizeof(options) / sizeof(options[0]);
	unsigned long ranks;

	step_parse(argc, argv, options, count);
	ranks = single ? 1 : RANKS;
	if (my_rank == RANKS) {
		shared_fd = (unsigned long)memfd_create("restored_probe", 0);
		if (ftruncate((int)shared_fd, 2 * PAGE))
			step_die("restored_probe: ftruncate: %s", strerror(errno));
	}
	control = map(0);
	pages = map(PAGE);
	if (my_rank < RANKS) {
		rank_run();
		return 0;
	}
	for (my_rank = 0; my_rank < ranks; my_rank++)
		many_start("restored_probe", options, count);
	CALL(cuInit(0));
	for (uint32_t cycle = 0; cycle < cycles; cycle++) {
		for (unsigned long i = 0; i < ranks; i++)
			while (get(&control->rested[i]) <= cycle && !get(&control->failed[i]))
				usleep(500);
		if (get(&control->failed[0]) || get(&control->failed[1]))
			break;
		for_both(take_through, 0);
		for_both(bring_back, apart_ms);
		set(&control->go, cycle + 1);
	}
	set(&control->go, UINT32_MAX);
	many_wait("restored_probe", ranks, &control->stop);
	if (get(&control->failed[0]) || get(&control->failed[1]))
		return 1;
	printf("every call succeeded\n");
	return 0;
}
