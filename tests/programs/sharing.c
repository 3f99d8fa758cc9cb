/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that share GPU memory by exported descriptors, as NCCL's and symmetric memory's do:
 * --ranks N of them, each with --objects N allocations of --mib N MiB. --ipc 1: by
 * legacy IPC handles of cuMemAlloc's memory instead, of --kib N KiB if given. Each rank imports all
 * allocations of the others (--ring 1: of the rank before it only, so that ranks know each other
 * through others), and in each step changes those of the rank before it by a kernel; then every
 * rank checks all that it can see, word by word. Rank 0 prints the steps.
 *
 * --gpus N: rank R uses GPU R % N; --visible 1: and sees only that one. --self 1: each rank also imports its own allocations. --bare 1:
 * handles are released once the memory is mapped. --late N: in step N each rank makes, exports and
 * imports once more. --leaves N: in step N the last rank ends. --execs N: in step N it becomes another
 * program, and the others keep its memory mapped, and do not use it. --lingers N: after step N it goes on in an
 * exit handler. --deaf N: after step N it closes all descriptors that it did not open, and has none free.
 * --frees N: in step N the exporters free
 * their memory, which the importers go on to use. --closes N: in step N each rank closes what it has imported,
 * frees its own, and all is made anew, as for a new communicator. --waits 1: rank 1 imports late, when rank 0 says so
 * by a line on stdin. --dmabuf N: in step N each rank makes dma-bufs of the memory that it has imported.
 * --parcels 1: in each step each rank makes memory, exports it to the rank behind it, and frees it; that rank
 * imports it in the next step. A single rank keeps what it has imported for one more step.
 * --pooled 1: the default pool of each rank keeps memory beside what is shared.
 * --events N: the ranks do not wait for the end of their kernels, but each records an interprocess event
 * behind them, in turn one of N, and the streams of the others wait for it before they read.
 * --ballast N: N MiB more in each rank, which a pause has to copy. With --kib N they are allocations
 * of that size, and those that are shared late are some of them. SHARING_FAULT in the environment is
 * rank 1's CUDAW_SIM_FAULT, and SHARING_JOB its CUDAW_JOB. --apart 1: the files by which the simulator holds
 * a rank up end in the number of that. --stays 1: a rank that finds another one gone waits for its own end.
 * --host 1: the memory that is shared by descriptors is the host's, on its first NUMA node.
 */
#include "tests/programs/descriptors.h"
#include "tests/programs/kernels.h"

#include <inttypes.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_RANKS   8
#define MAX_OBJECTS 128
#define MAX_EVENTS  64

static unsigned long nranks = 2, nobjects = 4, mib = 4, ring, gpus = 1, self, bare, late, leaves,
		     execs, lingers, deaf, frees, closes, waits, ballast, dmabuf, ipc, kib, pooled,
		     nevents, parcels, apart, stays, host, visible;
static unsigned long rank;
static struct kernels kernels;
static size_t size;
static uint32_t *words;
static CUdeviceptr *small; /* the allocations of the ballast */
static unsigned long nsmall;

/* A socket to each other rank; of rank R to rank S, and the other end. */
static int sockets[MAX_RANKS][MAX_RANKS];
static bool alive[MAX_RANKS];

struct shared {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;
	bool opened;
};

/* What ranks say to each other of an allocation, beside a descriptor. */
union message {
	char byte;
	CUipcMemHandle ipc;
};

static struct shared own[MAX_OBJECTS], own_again[MAX_OBJECTS], imported[MAX_RANKS][MAX_OBJECTS];
static int parcel = -1;    /* a descriptor of memory that its exporter has freed */
static unsigned long made; /* objects of each rank so far */
static unsigned long step;
static bool lingering;
static CUevent events[MAX_RANKS][MAX_EVENTS];

static void miss(unsigned long other)
{
	while (stays)
		pause();
	step_die("sharing: rank %lu is gone", other);
}

static void say(unsigned long to, const void *data, size_t bytes, int fd)
{
	if (!descriptors_send(sockets[rank][to], data, bytes, &fd, fd >= 0))
		miss(to);
}

static int hear(unsigned long from, void *data, size_t bytes)
{
	int fd;

	if (!descriptors_receive(sockets[rank][from], data, bytes, &fd, 1))
		miss(from);
	return fd;
}

/* All ranks meet. Rank 0 decides whether they go on, and all hear it. */
static bool meet(bool more)
{
	char byte = more;

	for (unsigned long r = 1; r < nranks; r++)
		if (!rank && alive[r])
			hear(r, &(char){0}, 1);
	if (rank) {
		say(0, &byte, 1, -1);
		hear(0, &byte, 1);
	}
	for (unsigned long r = 1; r < nranks; r++)
		if (!rank && alive[r])
			say(r, &byte, 1, -1);
	return byte;
}

static unsigned long before(unsigned long r)
{
	do
		r = (r + nranks - 1) % nranks;
	while (!alive[r]);
	return r;
}

static bool imports_from(unsigned long other)
{
	return other != rank && alive[other] && (!ring || other == before(rank));
}

static CUmemLocation location(void)
{
	return host ? (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}
		    : (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, kernels.dev};
}

/* As NCCL does, which gives the host access as well. */
static void map(struct shared *s)
{
	CUmemAccessDesc desc[] = {
		{{CU_MEM_LOCATION_TYPE_DEVICE, kernels.dev}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
		{location(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};

	CALL(cuMemAddressReserve(&s->at, size, 0, 0, 0));
	CALL(cuMemMap(s->at, size, 0, s->handle, 0));
	CALL(cuMemSetAccess(s->at, size, desc, host ? 2 : 1));
	if (bare)
		CALL(cuMemRelease(s->handle));
}

static void unmap(struct shared *s)
{
	if (ipc) {
		CALL(s->opened ? cuIpcCloseMemHandle(s->at) : cuMemFree_v2(s->at));
		s->at = 0;
		return;
	}
	CALL(cuMemUnmap(s->at, size));
	if (!bare)
		CALL(cuMemRelease(s->handle));
	CALL(cuMemAddressFree(s->at, size));
	s->at = 0;
}

static void fill(CUdeviceptr at, uint32_t seed)
{
	uint64_t count = size / sizeof(uint32_t);
	void *args[] = {&at, &count, &seed};

	kernels_launch(kernels.iota, NULL, args);
}

static void check(CUdeviceptr at, uint32_t seed, const char *what)
{
	CALL(cuMemcpyDtoH_v2(words, at, size));
	for (size_t i = 0; i < size / sizeof(*words); i++)
		if (words[i] != seed * 2654435761u + (uint32_t)i)
			step_wrong("rank %lu, %s: word %zu is %" PRIu32 ", not %" PRIu32, rank,
				   what, i, words[i], seed * 2654435761u + (uint32_t)i);
}

static uint32_t seed_of(unsigned long r, unsigned long i, unsigned long k)
{
	return (uint32_t)(k * 1000 + r * 100 + i + 1);
}

static void import(struct shared *s, int fd)
{
	CALL(cuMemImportFromShareableHandle(&s->handle, (void *)(intptr_t)fd,
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	map(s);
}

static void open_ipc(struct shared *s, const union message *message)
{
	CALL(cuIpcOpenMemHandle_v2(&s->at, message->ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	s->opened = true;
}

static int export(const struct shared *s)
{
	int fd;

	CALL(cuMemExportToShareableHandle(&fd, s->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					  0));
	return fd;
}

static int make_exported(struct shared *s)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes =
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = location()};
	int fd;

	CALL(cuMemCreate(&s->handle, size, &prop, 0));
	fd = export(s);
	map(s);
	return fd;
}

static int make_ipc(struct shared *s, union message *message)
{
	/* Of the ballast, from the middle, so that the shared blocks have neighbours. */
	if (nsmall && made > nobjects)
		s->at = small[nsmall / 2 + 4 * made];
	else
		CALL(cuMemAlloc_v2(&s->at, size));
	CALL(cuIpcGetMemHandle(&message->ipc, s->at));
	return -1;
}

static void wait_to_import(void)
{
	if (!rank) {
		puts("exported");
		fflush(stdout);
		step_wait_byte();
		say(1, &(char){'t'}, 1, -1);
	} else if (rank == 1) {
		hear(0, &(char){0}, 1);
	}
}

/* Each rank makes one more allocation, and gives it to those that want it. */
static void make_one(unsigned long k)
{
	union message said = {.byte = 't'}, heard[MAX_RANKS];
	unsigned long i = made++;
	int fd, tickets[MAX_RANKS];

	fd = ipc ? make_ipc(&own[i], &said) : make_exported(&own[i]);
	fill(own[i].at, seed_of(rank, i, k));
	CALL(cuCtxSynchronize());
	for (unsigned long r = 0; r < nranks; r++)
		if (r != rank && alive[r])
			say(r, &said, sizeof(said), fd);
	for (unsigned long r = 0; r < nranks; r++)
		tickets[r] = r != rank && alive[r] ? hear(r, &heard[r], sizeof(said)) : -1;
	if (waits && !i)
		wait_to_import();
	for (unsigned long r = 0; r < nranks; r++)
		if (ipc && imports_from(r))
			open_ipc(&imported[r][i], &heard[r]);
		else if (tickets[r] >= 0 && imports_from(r))
			import(&imported[r][i], tickets[r]);
		else if (tickets[r] >= 0)
			close(tickets[r]);
	if (self)
		import(&own_again[i], fd);
	else if (fd >= 0)
		close(fd);
}

static void send_parcel(unsigned long k)
{
	struct shared s;
	int fd = make_exported(&s);

	fill(s.at, seed_of(rank, MAX_OBJECTS, k));
	CALL(cuCtxSynchronize());
	unmap(&s);
	parcel = fd;
	if (nranks == 1)
		return;
	say((rank + 1) % nranks, &(char){'p'}, 1, fd);
	close(fd);
	parcel = hear(before(rank), &(char){0}, 1);
}

/*
 * In the step after that in which it was sent. One of its own takes the place of what the rank has freed, and
 * stays for one more step.
 */
static void open_parcel(unsigned long k)
{
	uint32_t seed = seed_of(before(rank), MAX_OBJECTS, k - 1);
	static struct shared kept;
	static uint32_t kept_seed;
	struct shared s;

	if (kept.at) {
		check(kept.at, kept_seed, "a parcel that was kept");
		unmap(&kept);
		kept.at = 0;
	}
	if (parcel < 0)
		return;
	import(&s, parcel);
	parcel = -1;
	check(s.at, seed, "a parcel");
	if (nranks > 1 || bare) {
		unmap(&s);
		return;
	}
	kept = s;
	kept_seed = seed;
}

/* Of what each rank can see: the rank behind has changed it in step @k. */
static void check_all(unsigned long k)
{
	for (unsigned long i = 0; i < made; i++) {
		if (own[i].at)
			check(own[i].at, seed_of(rank, i, k), "its own");
		if (own_again[i].at)
			check(own_again[i].at, seed_of(rank, i, k), "its own, imported");
		for (unsigned long r = 0; r < nranks; r++)
			if (imported[r][i].at)
				check(imported[r][i].at, seed_of(r, i, k), "imported");
	}
}

static void end_imports(unsigned long other)
{
	for (unsigned long i = 0; i < made; i++)
		if (imported[other][i].at)
			unmap(&imported[other][i]);
}

static void free_own(void)
{
	for (unsigned long i = 0; i < made; i++)
		if (own[i].at)
			unmap(&own[i]);
}

static void make_anew(unsigned long k)
{
	unsigned long count = made;

	for (unsigned long r = 0; r < nranks; r++)
		if (r != rank)
			end_imports(r);
	free_own();
	made = 0;
	for (unsigned long i = 0; i < count; i++)
		make_one(k);
}

static void make_dmabufs(void)
{
	int fd;

	for (unsigned long r = 0; r < nranks; r++)
		for (unsigned long i = 0; i < made; i++)
			if (imported[r][i].at)
				CALL(cuMemGetHandleForAddressRange(
					&fd, imported[r][i].at, size,
					CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
}

static void make_ballast(void)
{
	size_t piece = kib ? size : ballast << 20;
	unsigned long count = (ballast << 20) / piece;

	small = calloc(count, sizeof(*small));
	for (unsigned long i = 0; i < count; i++)
		CALL(cuMemAlloc_v2(&small[i], piece));
	nsmall = kib ? count : 0;
}

static void keep_pooled(void)
{
	cuuint64_t all = UINT64_MAX;
	CUmemoryPool pool;
	CUdeviceptr at;

	CALL(cuDeviceGetDefaultMemPool(&pool, kernels.dev));
	CALL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
	CALL(cuMemAllocAsync(&at, 4096, NULL));
	CALL(cuMemFreeAsync(at, NULL));
}

static void make_events(void)
{
	CUipcEventHandle handle;

	for (unsigned long i = 0; i < nevents; i++) {
		CALL(cuEventCreate(&events[rank][i],
				   CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
		CALL(cuIpcGetEventHandle(&handle, events[rank][i]));
		for (unsigned long r = 0; r < nranks; r++)
			if (r != rank)
				say(r, &handle, sizeof(handle), -1);
		for (unsigned long r = 0; r < nranks; r++)
			if (r != rank) {
				hear(r, &handle, sizeof(handle));
				CALL(cuIpcOpenEventHandle(&events[r][i], handle));
			}
	}
}

/* The kernels of step @k of all ranks come before what this rank does next. */
static void order_after_all(unsigned long k)
{
	if (!nevents) {
		CALL(cuCtxSynchronize());
		return;
	}
	CALL(cuEventRecord(events[rank][k % nevents], NULL));
	/* A wait is for the latest record so far. */
	meet(true);
	for (unsigned long r = 0; r < nranks; r++)
		if (r != rank && alive[r])
			CALL(cuStreamWaitEvent(NULL, events[r][k % nevents], 0));
}

static bool is_own(int fd)
{
	for (unsigned long r = 0; r < nranks; r++)
		if (r != rank && sockets[rank][r] == fd)
			return true;
	return fd < 3;
}

/* As a daemon does that closes what it did not open. TSan would take it for a race. */
static void close_all(void)
{
	for (int fd = 3; fd < 1024; fd++)
		if (!is_own(fd))
			syscall(SYS_close, fd);
}

/* Each in one step: another thread would take a descriptor that is free for a moment. */
static void become_deaf(void)
{
	const struct rlimit limit = {256, 256};

	setrlimit(RLIMIT_NOFILE, &limit);
	while (syscall(SYS_dup, 0) >= 0)
		;
	for (int fd = 3; fd < 1024; fd++)
		if (!is_own(fd) && syscall(SYS_dup3, 0, fd, 0) < 0)
			syscall(SYS_close, fd);
}

static void prepare(void)
{
	if (ballast)
		make_ballast();
	make_events();
	for (unsigned long i = 0; i < nobjects; i++)
		make_one(0);
	if (pooled)
		keep_pooled();
}

static void run(void)
{
	for (; meet(rank || step_more(step)); step++) {
		unsigned long k = step;

		/* Of a ballast several, so that some are of one block, and some of neighbours. */
		for (unsigned long i = 0; late && k == late && i < (nsmall ? 8 : 1); i++)
			make_one(k);
		if (leaves && k == leaves) {
			if (rank == nranks - 1)
				exit(0);
			alive[nranks - 1] = false;
			end_imports(nranks - 1);
		}
		if (execs && k == execs) {
			if (rank == nranks - 1)
				execlp("sleep", "sleep", "60", NULL);
			alive[nranks - 1] = false;
			memset(imported[nranks - 1], 0, sizeof(imported[0]));
		}
		if (closes && k == closes)
			make_anew(k);
		if (dmabuf && k == dmabuf)
			make_dmabufs();
		check_all(k);
		open_parcel(k);
		if (parcels)
			send_parcel(k);
		if (frees && k == frees)
			free_own();
		meet(true);
		for (unsigned long i = 0; i < made && imports_from(before(rank)); i++)
			fill(imported[before(rank)][i].at, seed_of(before(rank), i, k + 1));
		for (unsigned long i = 0; i < made && nranks == 1; i++)
			fill(own_again[i].at, seed_of(rank, i, k + 1));
		order_after_all(k);
		if (!rank)
			step_done(k);
		if (deaf && k == deaf && rank == nranks - 1)
			become_deaf();
		if (lingers && k == lingers && rank == nranks - 1) {
			step++;
			lingering = true;
			exit(0);
		}
	}
	check_all(step);
	/* A sanitizer that looks for leaks at the end opens files, and does not end without. */
	if (deaf && rank == nranks - 1)
		close_all();
}

/* Registered before CUDA is used, it runs after what CUDA and cudaw have registered. */
static void linger(void)
{
	if (lingering)
		run();
}

static void start_ranks(void)
{
	for (unsigned long r = 0; r < nranks; r++)
		for (unsigned long s = 0; s < r; s++) {
			int ends[2];

			if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
				step_die("sharing: no socket");
			sockets[r][s] = ends[0];
			sockets[s][r] = ends[1];
		}
	fflush(stdout);
	for (unsigned long r = 1; r < nranks && !rank; r++)
		if (!fork())
			rank = r;
	for (unsigned long r = 0; r < nranks; r++)
		for (unsigned long s = 0; s < nranks; s++)
			if (r != rank && r != s)
				close(sockets[r][s]);
	for (unsigned long r = 0; r < nranks; r++)
		alive[r] = true;
	if (rank)
		signal(SIGINT, SIG_IGN);
}

static void hold_apart(const char *setting)
{
	const char *file = getenv(setting);
	char numbered[256];

	if (!file)
		return;
	snprintf(numbered, sizeof(numbered), "%s-%lu", file, rank);
	setenv(setting, numbered, 1);
}

/* Of those that the program may use, by index or UUID, the GPU @index alone. */
static void see_one(unsigned long index)
{
	const char *all = getenv("CUDA_VISIBLE_DEVICES");
	char one[64];

	snprintf(one, sizeof(one), "%lu", index);
	if (all && *all) {
		for (; index && strchr(all, ','); index--)
			all = strchr(all, ',') + 1;
		snprintf(one, sizeof(one), "%.*s", (int)strcspn(all, ","), all);
	}
	setenv("CUDA_VISIBLE_DEVICES", one, 1);
}

static void init(void)
{
	CUdevice dev;

	if (visible)
		see_one(rank % gpus);

	if (apart) {
		hold_apart("CUDAW_SIM_HOLD_OUT");
		hold_apart("CUDAW_SIM_HOLD_IN");
		hold_apart("CUDAW_SIM_HOLD_CALL");
	}
	if (rank == 1 && getenv("SHARING_JOB"))
		setenv("CUDAW_JOB", getenv("SHARING_JOB"), 1);
	if (rank == 1 && getenv("SHARING_FAULT"))
		setenv("CUDAW_SIM_FAULT", getenv("SHARING_FAULT"), 1);
	kernels_init(&kernels);
	if (visible || rank % gpus == 0)
		return;
	/* The module is this context's. */
	CALL(cuDeviceGet(&dev, (int)(rank % gpus)));
	CALL(cuDevicePrimaryCtxRelease_v2(kernels.dev));
	CALL(cuDevicePrimaryCtxRetain(&kernels.ctx, dev));
	CALL(cuCtxSetCurrent(kernels.ctx));
	kernels.dev = dev;
	CALL(cuModuleLoadData(&kernels.module, kernels_ptx));
	CALL(cuModuleGetFunction(&kernels.iota, kernels.module, "iota"));
}

int main(int argc, char **argv)
{
	const struct step_option options[] = {
		{"ranks", &nranks},    {"objects", &nobjects}, {"mib", &mib},
		{"ring", &ring},       {"gpus", &gpus},        {"self", &self},
		{"bare", &bare},       {"late", &late},        {"leaves", &leaves},
		{"frees", &frees},     {"waits", &waits},      {"ballast", &ballast},
		{"dmabuf", &dmabuf},   {"ipc", &ipc},          {"kib", &kib},
		{"pooled", &pooled},   {"events", &nevents},   {"closes", &closes},
		{"execs", &execs},     {"lingers", &lingers},  {"deaf", &deaf},
		{"parcels", &parcels}, {"apart", &apart},      {"stays", &stays},
		{"host", &host},       {"visible", &visible}};
	int status = 0, one;

	step_parse(argc, argv, options, sizeof(options) / sizeof(options[0]));
	if (nranks < 1 || (nranks == 1 && !self) || nranks > MAX_RANKS ||
	    nobjects + 8 > MAX_OBJECTS || nevents > MAX_EVENTS || !gpus ||
	    (ipc && (self || parcels || host)))
		step_die("sharing: bad numbers");
	size = kib ? kib << 10 : mib << 20;
	words = malloc(size);
	start_ranks();
	atexit(linger);
	init();
	prepare();
	run();
	if (rank)
		return 0;
	while (wait(&one) > 0)
		status = one ? one : status;
	if (status)
		step_child_failed("sharing: one of the ranks", nranks, status);
	puts("sharing: every word right");
	return 0;
}
