/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How two processes that share GPU memory come through the driver's own checkpoint, natively:
 * memory of cuMemCreate exported as a descriptor and imported by the other, interprocess events,
 * host pages that both register, and a hand-over of memory from one process to the other. One
 * probe a run, named by the argument. Each process has a watchdog (alarm), as some of these are
 * known to hang the driver. Nothing here creates a multicast object or managed memory.
 *
 * On two H200s, driver 580.159.04, 2026-11-23:
 *	share, _visible_one, _one_by_one, _one_gpu
 *			20 and 3 cycles with 48 exports and 48 imports of 64 MiB each way: every word
 *			right, 0 MiB in between, no descriptor left over; exports, imports and maps
 *			take 12 to 28 ms, driver's checkpoint 0.4 to 0.6 s, restore 0.7 s
 *	share_busy	a process is checkpointed while the other one computes
 *	share_keep_fd	works, but the memory behind each descriptor stays on the GPU, so that each
 *			cycle takes 3 GiB more
 *	share_keep_handle	an import that was unmapped but not released: the checkpoint succeeds,
 *			the restore fails (NOT_SUPPORTED), for good
 *	share_resident	exportable memory that was never exported is carried by the driver
 *	events, events_live	interprocess events work after a restore, also those that lived through it
 *	events_one_gpu, events_alone	so do those on one GPU, and if one of the two goes through it alone
 *	pages, pages_private, pages_again	kernels that wait for the other process through host
 *			pages which both registered: right after each restore
 *	creates		exportable memory: 1 GiB in 1.07 ms, 0.25 ms if it is not; 2 MiB in 60 and 100 us
 *	handover	22 GiB from one process to another on a full GPU: 0.6 s, 77 to 79 GB/s in and
 *			out together for parts of 64, 256 and 1024 MiB; cuMemUnmap of a part 0.6 to
 *			1.7 ms, cuMemCreate and mapping at most 2 ms
 */
#include <cuda.h>

#include "tests/programs/descriptors.h"
#include "tests/programs/kernels.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MIB           (UINT64_C(1) << 20)
#define GIB           (UINT64_C(1) << 30)
#define END_S         60
#define FDS_A_MESSAGE 16

/* How a run of "share" departs from what is expected to work. */
struct mode {
	const char *name;
	int cycles;
	bool keep_handle; /* the importer unmaps, but does not release */
	bool keep_fd;     /* the exporter holds its descriptors */
	bool resident;    /* the exporter's memory stays, never exported */
	bool visible_one; /* each process sees only its own GPU */
	bool one_by_one;  /* checkpoint and restore one process after the other */
	bool one_gpu;     /* both use the first GPU */
	bool busy;        /* the other process computes while this one is checkpointed */
};

static const struct mode modes[] = {
	{.name = "share", .cycles = 20},
	{.name = "share_one_by_one", .cycles = 3, .one_by_one = true},
	{.name = "share_visible_one", .cycles = 3, .visible_one = true},
	{.name = "share_one_gpu", .cycles = 3, .one_gpu = true},
	{.name = "share_keep_fd", .cycles = 2, .keep_fd = true},
	{.name = "share_resident", .cycles = 2, .resident = true},
	{.name = "share_keep_handle", .cycles = 1, .keep_handle = true},
	{.name = "share_busy", .cycles = 3, .busy = true},
};

static struct shared {
	pthread_barrier_t both;
	CUipcEventHandle event;
	volatile int freed; /* parts that the giver has given up */
	volatile int ended;
} * shared;

static int rank_, peer_socket;
static struct kernels gpu;
static double phase_begin;

static double now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1e3 + ts.tv_nsec * 1e-6;
}

__attribute__((format(printf, 1, 2))) static void say(const char *fmt, ...)
{
	char line[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	printf("rank %d: %s\n", rank_, line);
	fflush(stdout);
}

static const char *name_of(CUresult result)
{
	const char *name = "unknown";

	cuGetErrorName(result, &name);
	return name;
}

static void together(void)
{
	pthread_barrier_wait(&shared->both);
}

static void phase_end(const char *name, bool loud)
{
	double now = now_ms();

	if (loud)
		say("%-10s %8.2f ms", name, now - phase_begin);
	phase_begin = now;
}

/*
 * ---- shared cuMemCreate memory -----------------------------------------------------------------
 */

#define PIECES 48
#define PIECE  (64 * MIB)
#define WORDS  (PIECE / 4)

static CUdeviceptr own[PIECES], theirs[PIECES];
static CUmemGenericAllocationHandle own_handle[PIECES], their_handle[PIECES];
static int own_fd[PIECES];
static uint32_t increments;

static void map(CUdeviceptr ptr, CUmemGenericAllocationHandle handle)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, gpu.dev},
				  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	CALL(cuMemMap(ptr, PIECE, 0, handle, 0));
	CALL(cuMemSetAccess(ptr, PIECE, &access, 1));
}

static void create_own(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes =
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.dev}};

	for (int i = 0; i < PIECES; i++) {
		CALL(cuMemCreate(&own_handle[i], PIECE, &prop, 0));
		if (!own[i])
			CALL(cuMemAddressReserve(&own[i], PIECE, 0, 0, 0));
		map(own[i], own_handle[i]);
	}
}

static void exchange(const struct mode *mode)
{
	int fds[PIECES];

	for (int i = 0; i < PIECES; i++)
		CALL(cuMemExportToShareableHandle(&own_fd[i], own_handle[i],
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	for (int i = 0; i < PIECES; i += FDS_A_MESSAGE) {
		char byte = 0;

		if (!descriptors_send(peer_socket, &byte, 1, own_fd + i, FDS_A_MESSAGE) ||
		    !descriptors_receive(peer_socket, &byte, 1, fds + i, FDS_A_MESSAGE))
			step_die("the other process is gone");
	}
	for (int i = 0; i < PIECES; i++) {
		CALL(cuMemImportFromShareableHandle(&their_handle[i], (void *)(uintptr_t)fds[i],
						    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		close(fds[i]);
		if (!mode->keep_fd)
			close(own_fd[i]);
		if (!theirs[i])
			CALL(cuMemAddressReserve(&theirs[i], PIECE, 0, 0, 0));
		map(theirs[i], their_handle[i]);
	}
}

/* Each word of the other's memory is one more. */
static void increment_theirs(void)
{
	uint64_t n = WORDS;

	for (int i = 0; i < PIECES; i++) {
		void *args[] = {&theirs[i], &n};

		kernels_launch(gpu.increment, NULL, args);
	}
	CALL(cuCtxSynchronize());
	increments++;
}

static void fill_own(void)
{
	uint64_t n = WORDS;

	for (int i = 0; i < PIECES; i++) {
		uint32_t seed = rank_ * 1000 + i;
		void *args[] = {&own[i], &n, &seed};

		kernels_launch(gpu.iota, NULL, args);
	}
	CALL(cuCtxSynchronize());
}

/* The first words of each piece are what the other made of them. */
static int count_wrong(void)
{
	int wrong = 0;

	for (int i = 0; i < PIECES; i++) {
		uint32_t words[64], seed = rank_ * 1000 + i;

		CALL(cuMemcpyDtoH(words, own[i] + PIECE / 2, sizeof(words)));
		for (uint32_t k = 0; k < 64; k++)
			wrong += words[k] !=
				 seed * 2654435761u + (uint32_t)(WORDS / 2) + k + increments;
	}
	return wrong;
}

static char *out; /* pinned copy of all own memory */

static void save_own(void)
{
	if (!out)
		CALL(cuMemHostAlloc((void **)&out, PIECES * PIECE, 0));
	for (int i = 0; i < PIECES; i++)
		CALL(cuMemcpyDtoHAsync(out + i * PIECE, own[i], PIECE, NULL));
	CALL(cuCtxSynchronize());
}

static void load_own(void)
{
	for (int i = 0; i < PIECES; i++)
		CALL(cuMemcpyHtoDAsync(own[i], out + i * PIECE, PIECE, NULL));
	CALL(cuCtxSynchronize());
}

static void drop_theirs(const struct mode *mode)
{
	for (int i = 0; i < PIECES; i++) {
		CALL(cuMemUnmap(theirs[i], PIECE));
		if (!mode->keep_handle || !rank_)
			CALL(cuMemRelease(their_handle[i]));
	}
}

static void drop_own(void)
{
	for (int i = 0; i < PIECES; i++) {
		CALL(cuMemUnmap(own[i], PIECE));
		CALL(cuMemRelease(own_handle[i]));
	}
}

static bool checkpoint_call(const char *name, CUresult result)
{
	if (result)
		say("%s: %s", name, name_of(result));
	return !result;
}

static bool checkpoint_out(void)
{
	CUcheckpointLockArgs lock = {.timeoutMs = 10000};
	CUcheckpointCheckpointArgs checkpoint = {0};

	return checkpoint_call("lock", cuCheckpointProcessLock(getpid(), &lock)) &&
	       checkpoint_call("checkpoint", cuCheckpointProcessCheckpoint(getpid(), &checkpoint));
}

static bool checkpoint_in(void)
{
	CUcheckpointRestoreArgs restore = {0};
	CUcheckpointUnlockArgs unlock = {0};

	return checkpoint_call("restore", cuCheckpointProcessRestore(getpid(), &restore)) &&
	       checkpoint_call("unlock", cuCheckpointProcessUnlock(getpid(), &unlock));
}

static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

static void say_growth(const char *when)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	say("%s: %d descriptors, %ld MiB resident at most", when, count_fds(),
	    usage.ru_maxrss / 1024);
}

static void say_gpu(void)
{
	char line[256];
	FILE *smi;

	if (rank_)
		return;
	smi = popen("nvidia-smi --query-gpu=memory.used --format=csv,noheader | tr '\\n' ' '", "r");
	if (smi && fgets(line, sizeof(line), smi))
		say("checkpointed; the GPUs hold %s", line);
	if (smi)
		pclose(smi);
}

static void *compute(void *arg)
{
	uint64_t n = WORDS, count = 0;
	void *args[] = {&own[0], &n};

	CALL(cuCtxSetCurrent(gpu.ctx));
	while (!shared->ended) {
		kernels_launch(gpu.increment, NULL, args);
		CALL(cuCtxSynchronize());
		count++;
	}
	say("computed %lu times meanwhile", (unsigned long)count);
	return arg;
}

/* The second process computes while the first is checkpointed and restored. */
static void checkpoint_beside(void)
{
	pthread_t thread;

	shared->ended = 0;
	create_own();
	together();
	if (rank_) {
		pthread_create(&thread, NULL, compute, NULL);
		together();
		pthread_join(thread, NULL);
	} else {
		drop_own();
		checkpoint_out();
		phase_end("out", true);
		checkpoint_in();
		phase_end("in", true);
		create_own();
		shared->ended = 1;
		together();
	}
	drop_own();
	together();
}

static bool checkpoint_both(const struct mode *mode, bool loud)
{
	bool ok = true;

	for (int turn = 0; turn < 2; turn++) {
		if (!mode->one_by_one || rank_ == turn)
			ok &= turn && !mode->one_by_one ? ok : checkpoint_out();
		if (mode->one_by_one)
			together();
	}
	phase_end("out", loud);
	together();
	if (loud)
		say_gpu();
	together();
	phase_begin = now_ms();
	for (int turn = 0; turn < 2; turn++) {
		if (!mode->one_by_one || rank_ == turn)
			ok &= turn && !mode->one_by_one ? ok : checkpoint_in();
		if (mode->one_by_one)
			together();
	}
	phase_end("in", loud);
	return ok;
}

static void run_share(const struct mode *mode)
{
	int wrong = 0;

	if (mode->busy) {
		for (int i = 0; i < mode->cycles; i++)
			checkpoint_beside();
		say("result: went through");
		return;
	}
	create_own();
	fill_own();
	together();
	if (!mode->resident)
		exchange(mode);
	for (int i = 0; i < mode->cycles; i++) {
		bool loud = i == 0 || i == mode->cycles - 1;

		together();
		if (!mode->resident) {
			increment_theirs();
			together();
			phase_begin = now_ms();
			drop_theirs(mode);
			phase_end("unmap", loud);
			together();
			save_own();
			phase_end("copy out", loud);
			drop_own();
			phase_end("drop", loud);
		}
		together();
		phase_begin = now_ms();
		if (!checkpoint_both(mode, loud)) {
			say("result: the driver refused");
			return;
		}
		together();
		phase_begin = now_ms();
		if (!mode->resident) {
			create_own();
			phase_end("create", loud);
			load_own();
			phase_end("copy in", loud);
			together();
			phase_begin = now_ms();
			exchange(mode);
			phase_end("exchange", loud);
		}
		together();
		wrong += count_wrong();
		if (loud)
			say_growth(i ? "last" : "first");
	}
	together();
	say("result: %d cycles, %d words wrong", mode->cycles, wrong);
}

/*
 * ---- interprocess events ------------------------------------------------------------------------
 */

static const struct event_mode {
	const char *name;
	bool live;    /* the event is there at the checkpoint */
	bool one_gpu; /* both use the first GPU */
	bool alone;   /* one process is checkpointed while the other uses the event */
} event_modes[] = {
	{.name = "events"},
	{.name = "events_live", .live = true},
	{.name = "events_one_gpu", .live = true, .one_gpu = true},
	{.name = "events_alone", .live = true, .one_gpu = true, .alone = true},
};

/* What a process can do with the event while the other one is checkpointed. */
static void use_event(CUevent event)
{
	say("query: %s", name_of(cuEventQuery(event)));
	say("wait: %s, done: %s", name_of(cuStreamWaitEvent(NULL, event, 0)),
	    name_of(cuCtxSynchronize()));
	say("record: %s, done: %s", name_of(cuEventRecord(event, NULL)),
	    name_of(cuEventSynchronize(event)));
}

static bool checkpoint_alone(CUevent event)
{
	bool ok = true;

	for (int turn = 0; turn < 2; turn++) {
		together();
		if (rank_ == turn)
			ok &= checkpoint_out();
		together();
		if (rank_ != turn)
			use_event(event);
		together();
		if (rank_ == turn)
			ok = ok && checkpoint_in();
		together();
		if (rank_ == turn)
			use_event(event);
	}
	return ok;
}

static void run_events(const struct event_mode *mode)
{
	CUevent event = NULL, opened = NULL;
	bool live = mode->live;

	if (!rank_) {
		CALL(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
		CALL(cuIpcGetEventHandle(&shared->event, event));
		CALL(cuEventRecord(event, NULL));
	}
	together();
	if (rank_) {
		CUresult result = cuIpcOpenEventHandle(&opened, shared->event);

		say("open: %s, wait: %s, done: %s", name_of(result),
		    name_of(cuStreamWaitEvent(NULL, opened, 0)), name_of(cuCtxSynchronize()));
	}
	together();
	if (!live) {
		if (opened)
			CALL(cuEventDestroy(opened));
		together();
		if (event)
			CALL(cuEventDestroy(event));
	}
	together();
	if (mode->alone ? !checkpoint_alone(rank_ ? opened : event)
			: !checkpoint_out() || (together(), !checkpoint_in())) {
		say("result: the driver refused");
		return;
	}
	together();
	if (!rank_ && !live) {
		CALL(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
		CALL(cuIpcGetEventHandle(&shared->event, event));
	}
	if (!rank_)
		say("record after: %s", name_of(cuEventRecord(event, NULL)));
	together();
	if (rank_) {
		CUresult result = CUDA_SUCCESS;

		if (!live)
			result = cuIpcOpenEventHandle(&opened, shared->event);
		say("open after: %s, wait: %s, done: %s", name_of(result),
		    name_of(cuStreamWaitEvent(NULL, opened, 0)), name_of(cuCtxSynchronize()));
	}
	together();
	say("result: went through");
}

/*
 * ---- host pages that both register, on one GPU
 * ----------------------------------------------------
 */

static void run_pages(bool same_pages, bool again)
{
	uint32_t *pages = (uint32_t *)(shared + 1);
	uint32_t *mine = same_pages ? pages : pages + (1 + rank_) * (4 * MIB / 4);
	CUdeviceptr dev;
	void *args[] = {&dev};
	CUresult result;

	/* Rounded up to pages. */
	mine = (uint32_t *)(((uintptr_t)mine + 4095) & ~UINT64_C(4095));
	CALL(cuMemHostRegister(mine, 2 * MIB, CU_MEMHOSTREGISTER_DEVICEMAP));
	CALL(cuMemHostGetDevicePointer(&dev, mine, 0));
	for (int i = 0; i < 3; i++) {
		mine[1024 * rank_] = 0;
		together();
		dev += 4096 * rank_;
		result = cuLaunchKernel(gpu.spin_until, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL);
		dev -= 4096 * rank_;
		usleep(20000);
		/* The other's flag, on the same pages. */
		if (same_pages)
			__atomic_store_n(&mine[1024 * !rank_], 1, __ATOMIC_SEQ_CST);
		else
			__atomic_store_n(&mine[1024 * rank_], 1, __ATOMIC_SEQ_CST);
		say("kernel %d: %s, %s", i, name_of(result), name_of(cuCtxSynchronize()));
		together();
		if (again)
			CALL(cuMemHostUnregister(mine));
		together();
		if (!checkpoint_out() || (together(), !checkpoint_in())) {
			say("result: the driver refused");
			return;
		}
		together();
		if (again) {
			CALL(cuMemHostRegister(mine, 2 * MIB, CU_MEMHOSTREGISTER_DEVICEMAP));
			CALL(cuMemHostGetDevicePointer(&dev, mine, 0));
		}
	}
	say("result: went through");
}

/*
 * ---- a hand-over of memory on one GPU
 * --------------------------------------------------------------
 */

#define HANDED (22 * GIB)

static double longest_create, longest_unmap;

static void note(double *longest, double begin)
{
	if (now_ms() - begin > *longest)
		*longest = now_ms() - begin;
}

static CUdeviceptr part_new(CUdeviceptr at, size_t part, CUmemGenericAllocationHandle *handle)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.dev}};
	CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	if (cuMemCreate(handle, part, &prop, 0))
		return 0;
	CALL(cuMemMap(at, part, 0, *handle, 0));
	CALL(cuMemSetAccess(at, part, &access, 1));
	return at;
}

/*
 * The giver has HANDED bytes; the rest of the GPU is taken, so that the taker gets only what the
 * giver gave up. Copies and mapping of either overlap as the parts allow.
 */
static void run_handover(size_t part)
{
	size_t count = HANDED / part, free_bytes, total;
	CUmemGenericAllocationHandle *handles = calloc(count, sizeof(*handles)), rest[256];
	CUdeviceptr base, rest_base;
	char *host;
	CUstream stream;
	double begin, spent, at;

	CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CALL(cuMemAddressReserve(&base, HANDED, 0, 0, 0));
	host = mmap(NULL, HANDED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(host, HANDED, MADV_HUGEPAGE);
	for (size_t i = 0; i < HANDED; i += GIB) {
		memset(host + i, rank_, GIB);
		CALL(cuMemHostRegister(host + i, GIB, 0));
	}
	if (!rank_) {
		for (size_t i = 0; i < count; i++)
			if (!part_new(base + i * part, part, &handles[i]))
				step_die("no memory for part %zu", i);
	}
	together();
	if (rank_) {
		size_t n = 0;

		CALL(cuMemAddressReserve(&rest_base, 256 * GIB, 0, 0, 0));
		for (;;) {
			CALL(cuMemGetInfo(&free_bytes, &total));
			if (free_bytes < 2 * GIB || !part_new(rest_base + n * GIB, GIB, &rest[n]))
				break;
			n++;
		}
		say("the GPU has %zu MiB left", (size_t)(free_bytes / MIB));
	}
	together();
	begin = now_ms();
	for (size_t i = 0; i < count; i++) {
		CUdeviceptr ptr = base + i * part;
		double call;

		if (rank_) {
			while (shared->freed <= (int)i)
				usleep(50);
			call = now_ms();
			while (!part_new(ptr, part, &handles[i]))
				usleep(100);
			note(&longest_create, call);
			CALL(cuMemcpyHtoDAsync(ptr, host + i * part, part, stream));
		} else {
			/* The next copy is queued before the last part is unmapped. */
			if (!i)
				CALL(cuMemcpyDtoHAsync(host, ptr, part, stream));
			CALL(cuStreamSynchronize(stream));
			if (i + 1 < count)
				CALL(cuMemcpyDtoHAsync(host + (i + 1) * part, ptr + part, part,
						       stream));
			call = now_ms();
			CALL(cuMemUnmap(ptr, part));
			CALL(cuMemRelease(handles[i]));
			note(&longest_unmap, call);
			shared->freed = i + 1;
		}
	}
	CALL(cuStreamSynchronize(stream));
	spent = now_ms() - begin;
	say("parts of %zu MiB: %.3f s, %.1f GB/s; longest %s %.2f ms", (size_t)(part / MIB),
	    spent / 1e3, HANDED / spent / 1e6, rank_ ? "create" : "unmap",
	    rank_ ? longest_create : longest_unmap);
	together();
	at = now_ms() - begin;
	if (!rank_)
		say("both: %.3f s, %.1f GB/s together", at / 1e3, 2 * HANDED / at / 1e6);
	together();
}

/*
 * ---- cuMemCreate with and without a handle type
 * ------------------------------------------------------
 */

static void time_creates(const char *name, unsigned long long types, size_t size, int count,
			 int rdma)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = (CUmemAllocationHandleType)types,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.dev},
				    .allocFlags = {.gpuDirectRDMACapable = rdma}};
	CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle *handles = calloc(count, sizeof(*handles));
	size_t before, after, total;
	CUdeviceptr base;
	double begin, made;

	CALL(cuMemAddressReserve(&base, size * count, 0, 0, 0));
	CALL(cuMemGetInfo(&before, &total));
	begin = now_ms();
	for (int i = 0; i < count; i++) {
		CALL(cuMemCreate(&handles[i], size, &prop, 0));
		CALL(cuMemMap(base + i * size, size, 0, handles[i], 0));
		CALL(cuMemSetAccess(base + i * size, size, &access, 1));
	}
	made = now_ms();
	CALL(cuMemGetInfo(&after, &total));
	for (int i = 0; i < count; i++) {
		CALL(cuMemUnmap(base + i * size, size));
		CALL(cuMemRelease(handles[i]));
	}
	say("%-12s %5zu MiB x %d: made in %.1f us each, undone in %.1f us, %.3f of it held", name,
	    (size_t)(size / MIB), count, (made - begin) * 1e3 / count,
	    (now_ms() - made) * 1e3 / count, (double)(before - after) / (size * count));
	CALL(cuMemAddressFree(base, size * count));
	free(handles);
}

static void run_creates(void)
{
	for (int i = 0; i < 2; i++) {
		time_creates("plain", 0, 2 * MIB, 2000, 0);
		time_creates("descriptor", CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 2 * MIB, 2000,
			     0);
		time_creates("and RDMA", CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 2 * MIB, 2000,
			     1);
		time_creates("plain", 0, GIB, 60, 0);
		time_creates("descriptor", CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, GIB, 60, 0);
		time_creates("and RDMA", CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, GIB, 60, 1);
	}
}

/*
 * ---- running
 * ------------------------------------------------------------------------------------------
 */

static void init_on(int device)
{
	CALL(cuInit(0));
	CALL(cuDeviceGet(&gpu.dev, device));
	CALL(cuDevicePrimaryCtxRetain(&gpu.ctx, gpu.dev));
	CALL(cuCtxSetCurrent(gpu.ctx));
	CALL(cuModuleLoadData(&gpu.module, kernels_ptx));
	CALL(cuModuleGetFunction(&gpu.increment, gpu.module, "increment"));
	CALL(cuModuleGetFunction(&gpu.iota, gpu.module, "iota"));
	CALL(cuModuleGetFunction(&gpu.spin_until, gpu.module, "spin_until"));
}

static void run(const char *name, const char *argument)
{
	alarm(END_S);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (strcmp(name, modes[i].name))
			continue;
		if (modes[i].visible_one)
			setenv("CUDA_VISIBLE_DEVICES", rank_ ? "1" : "0", 1);
		init_on(modes[i].visible_one || modes[i].one_gpu ? 0 : rank_);
		run_share(&modes[i]);
		return;
	}
	for (size_t i = 0; i < sizeof(event_modes) / sizeof(event_modes[0]); i++) {
		if (strcmp(name, event_modes[i].name))
			continue;
		init_on(event_modes[i].one_gpu ? 0 : rank_);
		run_events(&event_modes[i]);
		return;
	}
	if (!strncmp(name, "pages", 5)) {
		init_on(0);
		run_pages(strcmp(name, "pages_private") != 0, !strcmp(name, "pages_again"));
	} else if (!strcmp(name, "handover")) {
		init_on(0);
		run_handover(atoi(argument) * MIB);
	} else if (!strcmp(name, "creates")) {
		init_on(0);
		if (!rank_)
			run_creates();
	} else {
		step_die("no probe %s", name);
	}
}

int main(int argc, char **argv)
{
	pthread_barrierattr_t attr;
	int pair[2], status, worst = 0;

	if (argc < 2)
		step_die("usage: %s PROBE [ARGUMENT]", argv[0]);
	shared = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->both, &attr, 2);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		step_die("socketpair: %s", strerror(errno));
	for (int i = 0; i < 2; i++) {
		if (fork())
			continue;
		rank_ = i;
		peer_socket = pair[i];
		close(pair[!i]);
		run(argv[1], argc > 2 ? argv[2] : "256");
		_exit(0);
	}
	close(pair[0]);
	close(pair[1]);
	while (wait(&status) > 0) {
		if (WIFSIGNALED(status))
			printf("a process was ended by signal %d\n", WTERMSIG(status));
		worst |= status;
	}
	return worst != 0;
}
