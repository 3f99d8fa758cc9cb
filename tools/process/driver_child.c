/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/driver_child.h"

#include "common/clock.h"
#include "common/find/find.h"
#include "common/system/hostmem.h"
#include "common/gpu/nvml.h"
#include "common/patience.h"
#include "common/processes/maps.h"
#include "common/text.h"
#include "tools/process/cuda_use.h"
#include "tools/process/inside.h"

#include <ctype.h>
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 10
#define END_MS  200 /* for a child that was killed to be gone */
#define TURNS   100 /* LOOK_MS apart, to restore a process */

#define UNTIL_FD (STDERR_FILENO + 1) /* work->keeps.until, in the child */

/* NVML shows that memory is free some time after the driver has freed it. */
#define SETTLE_MS 1000
#define QUIET_MS  200 /* and part after part, no further apart than this */

#define FUNCTIONS(X)                     \
	X(cuInit)                        \
	X(cuDeviceGetCount)              \
	X(cuDeviceGetUuid_v2)            \
	X(cuGetErrorName)                \
	X(cuCheckpointProcessGetState)   \
	X(cuCheckpointProcessLock)       \
	X(cuCheckpointProcessCheckpoint) \
	X(cuCheckpointProcessRestore)    \
	X(cuCheckpointProcessUnlock)

#define MEMBER(name) __typeof__(name) *name;
static struct {
	FUNCTIONS(MEMBER)
} cu;
#undef MEMBER

static bool initialised; /* cuInit() has been tried */

/* The answer if there is no memory for one. */
static struct driver_answer no_answer = {.state = DRIVER_UNKNOWN};

__attribute__((format(printf, 2, 3))) static void fail(struct driver_answer *answer,
						       const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(answer->failure, sizeof(answer->failure), fmt, ap);
	va_end(ap);
}

static bool load(struct driver_answer *answer)
{
	char path[PATH_MAX], why[192];
	void *lib;

	answer->unsupported = true;
	if (find_real_driver(path, sizeof(path))) {
		find_explain(FIND_DRIVER, why, sizeof(why));
		fail(answer, "there is no driver: %s", why);
		return false;
	}
	lib = find_open_driver(path);
	if (!lib) {
		fail(answer, "the driver cannot be loaded: %s", dlerror());
		return false;
	}
#define LOAD(name)                                                                             \
	cu.name = (__typeof__(cu.name))find_function(lib, #name);                              \
	if (!cu.name) {                                                                        \
		fail(answer, "the driver has no %s, which came with r570 (CUDA 12.8)", #name); \
		return false;                                                                  \
	}
	FUNCTIONS(LOAD)
#undef LOAD
	answer->unsupported = false;
	return true;
}

/* Note the result of @call, unless an earlier one failed. True if it succeeded. */
static bool succeeded(struct driver_answer *answer, const char *call, CUresult result)
{
	const char *name = NULL;

	if (result == CUDA_SUCCESS)
		return true;
	if (*answer->call)
		return false;
	cu.cuGetErrorName(result, &name);
	snprintf(answer->call, sizeof(answer->call), "%s", call);
	snprintf(answer->error_name, sizeof(answer->error_name), "%s", name ? name : "?");
	answer->error = result;
	return false;
}

static void set_variable(const char *name, const char *value)
{
	if (*value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

/* Without a context: no GPU memory is used. */
static bool init_seeing(struct driver_answer *answer, const struct driver_sight *sight)
{
	initialised = true;
	set_variable("CUDA_VISIBLE_DEVICES", sight->visible);
	set_variable("CUDA_DEVICE_ORDER", sight->order);
	return succeeded(answer, "cuInit", cu.cuInit(0));
}

static bool init(struct driver_answer *answer)
{
	static const struct driver_sight all;

	return init_seeing(answer, &all);
}

/* cuInit takes up to seconds, so the driver is asked without it first. */
static enum driver_state ask_state(pid_t pid)
{
	struct driver_answer ignored = {0};
	CUprocessState state;
	CUresult result = cu.cuCheckpointProcessGetState(pid, &state);

	if (result == CUDA_ERROR_NOT_INITIALIZED && !initialised && init(&ignored))
		result = cu.cuCheckpointProcessGetState(pid, &state);
	return result == CUDA_SUCCESS ? (enum driver_state)state : DRIVER_UNKNOWN;
}

static void find_gpus(struct held *held)
{
	int count = 0;
	CUuuid uuid;

	cu.cuDeviceGetCount(&count);
	for (int dev = 0; dev < count && dev < GPU_MAX; dev++)
		if (cu.cuDeviceGetUuid_v2(&uuid, dev) == CUDA_SUCCESS)
			nvml_uuid_text(&uuid, held->gpus[held->n++].uuid);
}

/* The free bytes of each GPU of @held. False if NVML does not tell. */
static bool free_bytes(const struct held *held, size_t *bytes)
{
	for (int i = 0; i < held->n; i++)
		if (nvml_free_memory(held->gpus[i].uuid, &bytes[i]))
			return false;
	return true;
}

/* What the process holds, by NVML. False if NVML does not list it, as in a container. */
static bool listed_bytes(struct held *held, pid_t pid, size_t *sum)
{
	bool known = false;

	*sum = 0;
	for (int i = 0; i < held->n; i++) {
		known |= !nvml_memory_of(held->gpus[i].uuid, pid, &held->gpus[i].bytes);
		*sum += held->gpus[i].bytes;
	}
	return known;
}

/*
 * Wait until memory becomes free and no more does, and take it for what the process held. False: none
 * becomes free. The last look comes after the time is up, however long we were held up.
 */
static bool freed_bytes(struct held *held, const size_t *before)
{
	const double until = clock_ms() + SETTLE_MS;
	double changed = 0, looked;
	size_t after[GPU_MAX];

	for (int i = 0; i < held->n; i++)
		held->gpus[i].bytes = 0;
	do {
		looked = clock_ms();
		if (!free_bytes(held, after))
			break;
		for (int i = 0; i < held->n; i++) {
			if (after[i] <= before[i] + held->gpus[i].bytes)
				continue;
			held->gpus[i].bytes = after[i] - before[i];
			changed = looked;
		}
		usleep(LOOK_MS * 1000);
	} while (looked < (changed ? changed + QUIET_MS : until));
	return changed;
}

/* Leave out the GPUs on which the process held nothing. */
static void drop_unused(struct held *held)
{
	int n = 0;

	for (int i = 0; i < held->n; i++)
		if (held->gpus[i].bytes)
			held->gpus[n++] = held->gpus[i];
	held->n = n;
}

/* The driver puts the memory into that of the process; the kernel must not end it for that. */
static bool has_room(struct driver_answer *answer, size_t bytes)
{
	size_t available = hostmem_machine_available();
	char needed[FORMAT_SIZE], there[FORMAT_SIZE];

	if (bytes + HOSTMEM_RESERVE <= available)
		return true;
	fail(answer, "it needs %s of host memory, and %s are available",
	     format_bytes(needed, bytes), format_bytes(there, available));
	return false;
}

static bool unlock(struct driver_answer *answer, pid_t pid)
{
	CUcheckpointUnlockArgs args = {0};

	return succeeded(answer, "cuCheckpointProcessUnlock",
			 cu.cuCheckpointProcessUnlock(pid, &args));
}

static bool checkpoint(struct driver_answer *answer, pid_t pid, double timeout_ms)
{
	CUcheckpointLockArgs lock = {.timeoutMs = (unsigned int)timeout_ms};
	CUcheckpointCheckpointArgs args = {0};

	if (!succeeded(answer, "cuCheckpointProcessLock", cu.cuCheckpointProcessLock(pid, &lock)))
		return false;
	if (succeeded(answer, "cuCheckpointProcessCheckpoint",
		      cu.cuCheckpointProcessCheckpoint(pid, &args)))
		return true;
	unlock(answer, pid);
	return false;
}

static bool restore(struct driver_answer *answer, pid_t pid, CUcheckpointRestoreArgs *args)
{
	return succeeded(answer, "cuCheckpointProcessRestore",
			 cu.cuCheckpointProcessRestore(pid, args)) &&
	       unlock(answer, pid);
}

static void take(struct driver_answer *answer, const struct driver_work *work)
{
	static const struct held unknown;
	struct held *held = &answer->held;
	size_t before[GPU_MAX], sum;
	bool told, listed;
	double begin;

	if (!init(answer))
		return;
	find_gpus(held);
	told = free_bytes(held, before);
	listed = listed_bytes(held, work->pid, &sum);
	if (listed && !has_room(answer, sum))
		return;
	begin = clock_ms();
	if (!checkpoint(answer, work->pid, work->timeout_ms))
		return;
	answer->ms = clock_ms() - begin;
	/* If it is not known, the resume takes the host memory of the process for an upper bound. */
	if (listed || (told && freed_bytes(held, before))) {
		drop_unused(held);
		record_write(work->record, held);
	} else {
		record_write(work->record, &unknown);
	}
}

static void give_back(struct driver_answer *answer, const struct driver_work *work)
{
	CUcheckpointRestoreArgs args = {0};
	double begin = clock_ms();

	if (!init(answer))
		return;
	if (ask_state(work->pid) != DRIVER_CHECKPOINTED)
		unlock(answer, work->pid);
	else if (!restore(answer, work->pid, &args))
		return;
	answer->ms = clock_ms() - begin;
	if (!*answer->call)
		record_remove(work->record);
}

/* Such a process does not answer. */
static bool is_stopped(pid_t pid)
{
	struct process process;

	return process_find(pid, &process) && toupper((unsigned char)process.state) == 'T';
}

/* The driver knows no process that has only inherited its library, as the child of a fork. */
static bool is_known(pid_t pid)
{
	return is_stopped(pid) || ask_state(pid) != DRIVER_UNKNOWN;
}

static void find_sharer(struct driver_answer *answer, pid_t pid)
{
	struct process process;

	if (process_find(pid, &process))
		answer->sharer = cuda_use_sharer(&process, is_known, answer->sharer_how,
						 sizeof(answer->sharer_how));
}

static void list(struct driver_answer *answer, const struct driver_work *work)
{
	for (size_t i = 0; i < work->nlook && answer->nlisted < DRIVER_LISTED; i++) {
		struct driver_listed *found = &answer->listed[answer->nlisted];

		if (!process_find(work->look[i], &found->process) || is_stopped(work->look[i]))
			continue;
		found->state = ask_state(work->look[i]);
		if (found->state <= DRIVER_RUNNING || found->state > DRIVER_FAILED)
			continue;
		inside_command(work->look[i], found->command, sizeof(found->command));
		answer->nlisted++;
	}
}

/* False: the driver does not know the process, or cannot have anything of it. */
static bool find_one(pid_t pid, struct driver_listed *found)
{
	char path[PATH_MAX];

	if (!process_find(pid, &found->process))
		return false;
	if (is_stopped(pid)) {
		found->state = DRIVER_UNKNOWN;
		return maps_find(pid, "libnvidia-ml.so", path);
	}
	found->state = ask_state(pid);
	return found->state != DRIVER_UNKNOWN;
}

static void find(struct driver_answer *answer, const struct driver_work *work)
{
	for (size_t i = 0; i < work->nlook; i++) {
		if (answer->nlisted == DRIVER_LISTED) {
			fail(answer, "more than %d processes use the driver", DRIVER_LISTED - 1);
			return;
		}
		answer->nlisted += find_one(work->look[i], &answer->listed[answer->nlisted]);
	}
}

/* Checkpoint it; one that ends meanwhile does not matter. */
static bool keep_one(struct driver_answer *answer, const struct process *process, double timeout_ms)
{
	if (checkpoint(answer, process->pid, timeout_ms))
		return true;
	answer->kept_not = process->pid;
	if (!process_ends(process))
		return false;
	answer->kept_not = 0;
	*answer->call = '\0';
	return true;
}

/* Restore and unlock it. The child of another command may be about to do the same. */
static void bring_back(struct driver_answer *answer, const struct process *process,
		       CUcheckpointRestoreArgs *args)
{
	struct driver_answer one;
	pid_t pid = process->pid;

	*one.call = '\0';
	for (int turn = 0; turn < TURNS; turn++) {
		enum driver_state state = ask_state(pid);

		if (!process_is_there(process) || state == DRIVER_RUNNING ||
		    (state == DRIVER_LOCKED ? unlock(&one, pid) : restore(&one, pid, args)))
			return;
		usleep(LOOK_MS * 1000);
	}
	memcpy(answer->call, one.call, sizeof(one.call));
	memcpy(answer->error_name, one.error_name, sizeof(one.error_name));
	answer->error = one.error;
	answer->kept_not = pid;
}

/* A stopped process does not answer: it comes back once somebody continues it. */
static void bring_all_back(struct driver_answer *answer, const struct driver_work *work,
			   struct process *left, size_t n)
{
	CUcheckpointRestoreArgs args = {
		.gpuPairs = (CUcheckpointGpuPair *)work->keeps.pairs,
		.gpuPairsCount = work->keeps.npairs,
	};

	while (n) {
		size_t nstopped = 0;

		for (size_t i = 0; i < n; i++)
			if (process_is_there(&left[i]) && is_stopped(left[i].pid))
				left[nstopped++] = left[i];
			else
				bring_back(answer, &left[i], &args);
		n = nstopped;
		__atomic_store_n(&answer->halted, n > 0, __ATOMIC_RELEASE);
		usleep(LOOK_MS * 1000);
	}
}

/* The other end of the pipe is closed: nobody needs them any more. */
static bool is_over(void)
{
	struct pollfd end = {.fd = UNTIL_FD, .events = POLLIN};

	return poll(&end, 1, 0) > 0;
}

static void keep(struct driver_answer *answer, const struct driver_work *work)
{
	struct process all[DRIVER_LISTED];
	size_t n = 0, kept;
	char end;

	if (!init(answer))
		return;
	for (size_t i = 0; i < work->nlook; i++)
		n += process_find(work->look[i], &all[n]);
	kept = work->keeps.already ? n : 0;
	while (kept < n && !is_over() && keep_one(answer, &all[kept], work->timeout_ms))
		kept++;
	__atomic_store_n(&answer->kept, kept == n, __ATOMIC_RELEASE);
	while (answer->kept && read(UNTIL_FD, &end, 1) < 0 && errno == EINTR)
		;
	bring_all_back(answer, work, all, kept);
}

/* The child. */
static void run(const struct driver_work *work)
{
	struct driver_answer *answer = work->answer;

	if (load(answer)) {
		if (work->op == DRIVER_LIST)
			list(answer, work);
		else if (work->op == DRIVER_FIND)
			find(answer, work);
		else if (work->op == DRIVER_GPUS && init_seeing(answer, work->sight))
			find_gpus(&answer->held);
		else if (work->op == DRIVER_SHARER)
			find_sharer(answer, work->pid);
		else if (work->op == DRIVER_PAUSE)
			take(answer, work);
		else if (work->op == DRIVER_RESUME)
			give_back(answer, work);
		else if (work->op == DRIVER_KEEP)
			keep(answer, work);
		if (work->pid)
			answer->state = ask_state(work->pid);
	}
	answer->done = true;
}

static bool only_asks(const struct driver_work *work)
{
	return work->op < DRIVER_PAUSE;
}

/* Nobody who reads the output of the command, or interrupts it, has to do with the child. */
static void detach(const struct driver_work *work)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; null >= 0 && fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
	if (only_asks(work))
		return;
	/* The command's end must end its locks, too, and the pipe. */
	if (work->op == DRIVER_KEEP) {
		dup2(work->keeps.until, UNTIL_FD);
		closefrom(UNTIL_FD + 1);
	}
	setsid();
	signal(SIGTERM, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
}

bool driver_child_begin(struct driver_work *work)
{
	work->child = -1;
	work->answer = mmap(NULL, sizeof(*work->answer), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (work->answer == MAP_FAILED) {
		fail(&no_answer, "%s", strerror(errno));
		work->answer = &no_answer;
		return false;
	}
	work->answer->state = DRIVER_UNKNOWN;
	/* Otherwise both processes would write the buffers of stdio. */
	fflush(NULL);
	work->child = fork();
	if (!work->child) {
		detach(work);
		run(work);
		_exit(0);
	}
	if (work->child < 0)
		fail(work->answer, "%s", strerror(errno));
	return work->child > 0;
}

bool driver_child_await(struct driver_work *work, double ms)
{
	struct patience patience = {0};
	int status;

	while (work->child > 0 && waitpid(work->child, &status, WNOHANG) == 0) {
		if (patience_ms(&patience) >= ms)
			return false;
		usleep(LOOK_MS * 1000);
	}
	work->child = -1;
	if (!work->answer->done && !*work->answer->failure)
		fail(work->answer, "the driver crashed in the process that asked it");
	return true;
}

void driver_child_end(struct driver_work *work)
{
	/* One that hangs in another user's file system cannot be killed, and is left to init. */
	if (work->child > 0 && only_asks(work)) {
		kill(work->child, SIGKILL);
		for (int waited = 0; waited < END_MS && waitpid(work->child, NULL, WNOHANG) == 0;
		     waited += LOOK_MS)
			usleep(LOOK_MS * 1000);
	}
	if (work->answer != &no_answer)
		munmap(work->answer, sizeof(*work->answer));
}

static bool ask(struct driver_work *work, double ms, struct driver_answer *answer)
{
	bool answered = driver_child_begin(work) && driver_child_await(work, ms);

	*answer = *work->answer;
	if (!answered && !*answer->failure) {
		answer->silent = true;
		fail(answer, "the driver does not answer within %.0f s", ms / 1000);
	}
	driver_child_end(work);
	return answered;
}

bool driver_child_ask(enum driver_op op, pid_t pid, double ms, struct driver_answer *answer)
{
	struct driver_work work = {.op = op, .pid = pid};

	return ask(&work, ms, answer);
}

bool driver_child_gpus(const struct driver_sight *sight, double ms, struct driver_answer *answer)
{
	struct driver_work work = {.op = DRIVER_GPUS, .sight = sight};

	return ask(&work, ms, answer);
}

bool driver_child_find(const pid_t *pids, size_t n, double ms, struct driver_answer *answer)
{
	struct driver_work work = {.op = DRIVER_FIND, .look = pids, .nlook = n};

	return ask(&work, ms, answer);
}

/* Leave in @pids those of this user. */
static size_t keep_own(pid_t *pids, size_t n)
{
	struct process process;
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (process_find(pids[i], &process) && process_is_of(&process, geteuid()))
			pids[kept++] = pids[i];
	return kept;
}

bool driver_child_list(double ms, struct driver_answer *answer)
{
	pid_t *pids = calloc(CUDA_USE_PIDS, sizeof(*pids)), slow = 0;
	enum cuda_use *uses = calloc(CUDA_USE_PIDS, sizeof(*uses));
	struct driver_work work = {.op = DRIVER_LIST, .look = pids};
	size_t n = pids && uses ? keep_own(pids, cuda_use_pids(pids, CUDA_USE_PIDS)) : 0;
	bool answered = true;

	cuda_use_all(pids, n, uses);
	for (size_t i = 0; i < n; i++) {
		if (uses[i] == CUDA_USE_NATIVE)
			pids[work.nlook++] = pids[i];
		else if (uses[i] == CUDA_USE_SLOW && !slow)
			slow = pids[i];
	}
	*answer = (struct driver_answer){0};
	if (work.nlook)
		answered = ask(&work, ms, answer);
	answer->slow = slow;
	free(pids);
	free(uses);
	return answered;
}
