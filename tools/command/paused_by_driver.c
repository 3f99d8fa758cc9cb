/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/paused_by_driver.h"

#include "common/clock.h"
#include "common/nvml.h"
#include "common/rundir.h"
#include "common/text.h"
#include "tools/job/outcome.h"
#include "tools/job/select.h"
#include "tools/process/cuda_use.h"
#include "tools/process/driver.h"
#include "tools/report/progress.h"
#include "tools/report/report.h"

#include <ctype.h>
#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ASK_MS        10000 /* for the driver's answer; more than cuInit takes */
#define GPUS_MS       60000 /* cuInit on a machine with many GPUs */
#define TIMEOUT_MS    30000 /* of a pause */
#define RECORD_MS     2000  /* for another command on the same process */
#define LOOK_MS       200   /* between questions for free GPU memory */
#define CONTEXT_GUESS (1UL << 30)
#define WARNING       "by the driver's checkpoint, at its speed and without cudaw's guarantees"

static const char *state_text(enum driver_state state)
{
	switch (state) {
	case DRIVER_RUNNING:
		return "it runs on";
	case DRIVER_LOCKED:
		return "it is locked, and 'cudaw resume PID' unlocks it";
	case DRIVER_CHECKPOINTED:
		return "it is paused, and 'cudaw resume PID' restores it";
	case DRIVER_FAILED:
		return "the driver cannot bring it back";
	case DRIVER_UNKNOWN:
		break;
	}
	return "the driver does not tell its state; 'cudaw resume PID' asks again";
}

/* Say why the work on @pid failed. Returns the exit code; 0 if it did not fail. */
static int report_failure(const char *verb, pid_t pid, const struct driver_answer *answer)
{
	if (*answer->failure) {
		complain("%s %d: %s%s", verb, pid, answer->failure,
			 answer->state == DRIVER_RUNNING ? "; it runs on" : "");
		return answer->unsupported ? EXIT_UNSUPPORTED
		       : answer->silent    ? EXIT_TIMEOUT
					   : EXIT_FAILED;
	}
	if (!*answer->call)
		return EXIT_DONE;
	if (answer->error == CUDA_ERROR_NOT_READY) {
		complain("%s %d: its kernels did not end in time; %s", verb, pid,
			 state_text(answer->state));
		return EXIT_TIMEOUT;
	}
	complain("%s %d: %s fails with %s (%d); %s", verb, pid, answer->call, answer->error_name,
		 answer->error, state_text(answer->state));
	return answer->error == CUDA_ERROR_NOT_SUPPORTED ? EXIT_UNSUPPORTED : EXIT_FAILED;
}

/* Do @work, with the time shown. False: it goes on without us. */
static bool work_through(struct driver_work *work, const char *doing, bool no_wait)
{
	char label[16];

	snprintf(label, sizeof(label), "%d", work->pid);
	if (!driver_begin(work))
		return true;
	if (no_wait) {
		printf("%s %s\n", doing, label);
		return false;
	}
	progress_begin(doing);
	while (!driver_await(work, PROGRESS_MS))
		progress_time(label);
	progress_end();
	return true;
}

static size_t sum_of(const struct held *held)
{
	size_t sum = 0;

	for (int i = 0; i < held->n; i++)
		sum += held->gpus[i].bytes;
	return sum;
}

static bool is_stopped(const struct process *process)
{
	return toupper((unsigned char)process->state) == 'T';
}

static int refuse_stopped(const char *verb, const struct process *process)
{
	complain("%s %d: it is stopped, and the driver cannot work on it; SIGCONT continues it",
		 verb, process->pid);
	return EXIT_FAILED;
}

/* The process of @word, if it can be paused so. Otherwise a message, and the exit code. */
static int find_native(const char *word, struct process *process)
{
	const pid_t pid = select_pid_of(word);

	if (pid < 0) {
		complain("pause --driver %s: expected a PID, not a name", word);
		return EXIT_USAGE;
	}
	if (!process_find(pid, process)) {
		complain("there is no process %d", pid);
		return EXIT_NO_JOB;
	}
	if (!process_is_of(process, geteuid())) {
		complain("process %d belongs to another user", pid);
		return EXIT_DENIED;
	}
	switch (cuda_use(pid)) {
	case CUDA_USE_NONE:
		complain("process %d does not use CUDA", pid);
		return EXIT_NO_JOB;
	case CUDA_USE_HIDDEN:
		complain("process %d cannot be looked into: %s", pid, strerror(EACCES));
		return EXIT_DENIED;
	case CUDA_USE_CUDAW:
		complain("process %d runs under cudaw: 'cudaw pause %d' pauses it", pid, pid);
		return EXIT_UNSUPPORTED;
	case CUDA_USE_NATIVE:
		break;
	}
	if (is_stopped(process))
		return refuse_stopped("pause", process);
	return EXIT_DONE;
}

/* Whether the driver's checkpoint would break another process: 0, or an exit code after a message. */
static int check_peer(pid_t pid)
{
	struct driver_answer answer;

	driver_ask(DRIVER_PEER, pid, ASK_MS, &answer);
	if (*answer.failure)
		return report_failure("pause", pid, &answer);
	if (!answer.peer)
		return EXIT_DONE;
	complain(
		"pause %d: it may share GPU memory with process %d (%s), and the driver's checkpoint "
		"would break both; it runs on",
		pid, answer.peer, answer.peer_how);
	return EXIT_UNSUPPORTED;
}

/*
 * Open and lock the record of @process. A command that was interrupted may be about to end its work.
 * 0, or an exit code after a message.
 */
static int open_record(const char *verb, const struct process *process, struct record *record)
{
	double begin = clock_ms();
	const char *why;
	int err;

	while ((err = record_open(record, process, &why)) == -EAGAIN &&
	       clock_ms() - begin < RECORD_MS)
		usleep(LOOK_MS * 1000);
	if (err == -EAGAIN)
		complain("%s %d: another command works on it", verb, process->pid);
	else if (err)
		complain("%s %d: %s cannot be used: %s", verb, process->pid, record->path, why);
	return err ? EXIT_FAILED : EXIT_DONE;
}

/* Whether the driver can pause it now: -1, or an exit code after a message. */
static int check_state(pid_t pid)
{
	struct driver_answer answer;

	driver_ask(DRIVER_ASK, pid, ASK_MS, &answer);
	switch (answer.state) {
	case DRIVER_RUNNING:
		return -1;
	case DRIVER_CHECKPOINTED:
		printf("paused %d: already paused\n", pid);
		return EXIT_DONE;
	case DRIVER_UNKNOWN:
		if (*answer.failure)
			return report_failure("pause", pid, &answer);
		complain("pause %d: the driver does not know it as a process that uses CUDA, or "
			 "does not let you ask",
			 pid);
		return EXIT_UNSUPPORTED;
	case DRIVER_LOCKED:
	case DRIVER_FAILED:
		break;
	}
	complain("pause %d: %s", pid, state_text(answer.state));
	return EXIT_FAILED;
}

static int pause_recorded(pid_t pid, const struct record *record, long timeout_ms, bool no_wait)
{
	struct driver_work work = {.op = DRIVER_PAUSE,
				   .pid = pid,
				   .timeout_ms = timeout_ms ? timeout_ms : TIMEOUT_MS,
				   .record = record};
	char bytes[FORMAT_SIZE], took[FORMAT_SIZE], rate[FORMAT_SIZE];
	int code = check_state(pid);
	size_t sum;

	if (code >= 0)
		return code;
	record_prune(record);
	if (work_through(&work, "pausing", no_wait)) {
		code = report_failure("pause", pid, work.answer);
		sum = sum_of(&work.answer->held);
		if (!code && sum)
			printf("paused %d: %s in %s, %s; " WARNING "\n", pid,
			       format_bytes(bytes, sum), format_duration(took, work.answer->ms),
			       format_rate(rate, sum, work.answer->ms));
		else if (!code)
			printf("paused %d: in %s; " WARNING "\n", pid,
			       format_duration(took, work.answer->ms));
	} else {
		code = EXIT_DONE;
	}
	driver_end(&work);
	return code;
}

int paused_by_driver_pause(struct targets *targets, long timeout_ms, bool no_wait)
{
	for (int i = 0; i < targets->nwords; i++) {
		struct process process;
		struct record record;
		int code = find_native(targets->words[i], &process);

		if (!code)
			code = check_peer(process.pid);
		if (!code)
			code = open_record("pause", &process, &record);
		if (!code) {
			code = pause_recorded(process.pid, &record, timeout_ms, no_wait);
			record_close(&record, !no_wait);
		}
		if (code)
			targets_fail(targets, code);
	}
	return targets->code;
}

/* The locks of the GPUs that a restore takes memory of (release_lock()). */
struct claim {
	int fds[GPU_MAX];
	int n;
};

static void claim_drop(struct claim *claim, bool unlock)
{
	while (claim->n > 0)
		if (unlock)
			rundir_unlock(claim->fds[--claim->n]);
		else
			close(claim->fds[--claim->n]);
}

/* Whether another job has promised to take memory of the GPU, without its lock (promises.h). */
static bool is_promised(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	return !fcntl(fd, F_GETLK, &lock) && lock.l_type != F_UNLCK;
}

/*
 * Claim the GPUs of @held. False, with nothing claimed and the reason in @why: another job resumes
 * on one of them, or has too little free memory.
 */
static bool claim_take(struct claim *claim, int dir, const struct held *held, char *why,
		       size_t size)
{
	claim->n = 0;
	for (int i = 0; i < held->n; i++) {
		const struct held_gpu *gpu = &held->gpus[i];
		char name[NVML_UUID_SIZE + 8], needed[FORMAT_SIZE], there[FORMAT_SIZE];
		size_t bytes;
		int fd;

		snprintf(name, sizeof(name), "%s.lock", gpu->uuid);
		fd = rundir_lock(dir, name);
		if (fd >= 0)
			claim->fds[claim->n++] = fd;
		snprintf(why, size, "another job resumes on %s", gpu->uuid);
		if (fd == -EAGAIN || (fd >= 0 && is_promised(fd)))
			goto err_drop;
		if (nvml_free_memory(gpu->uuid, &bytes) || bytes >= gpu->bytes)
			continue;
		snprintf(why, size, "it needs %s%s of %s, which has %s free",
			 held->at_most ? "at most " : "", format_bytes(needed, gpu->bytes),
			 gpu->uuid, format_bytes(there, bytes));
		goto err_drop;
	}
	return true;

err_drop:
	claim_drop(claim, true);
	return false;
}

/* Host memory of @pid, and so the most that the driver may have put there; 0: not known. */
static size_t host_bytes(pid_t pid)
{
	char path[64], line[128];
	size_t kib, sum = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "VmRSS: %zu", &kib) == 1 || sscanf(line, "VmSwap: %zu", &kib) == 1)
			sum += kib << 10;
	if (file)
		fclose(file);
	return sum;
}

/*
 * What the restore of @pid takes: as the pause recorded it; or, if another program has paused it,
 * at most its host memory and a context, on any GPU.
 */
static void find_needs(pid_t pid, const struct record *record, struct held *needs)
{
	struct driver_answer answer;

	if (record_read(record, needs))
		return;
	driver_ask(DRIVER_GPUS, pid, GPUS_MS, &answer);
	*needs = answer.held;
	needs->at_most = true;
	for (int i = 0; i < needs->n; i++)
		needs->gpus[i].bytes = host_bytes(pid) + CONTEXT_GUESS;
}

/* Wait until @needs can be claimed. 0, or an exit code after a message. */
static int await_memory(pid_t pid, const struct record *record, const struct held *needs,
			long timeout_ms, bool no_wait, struct claim *claim)
{
	double begin = clock_ms();
	char why[256], label[32];
	bool claimed;

	snprintf(label, sizeof(label), "%d", pid);
	progress_begin("waiting for GPU memory for");
	for (;;) {
		claimed = claim_take(claim, record->dir, needs, why, sizeof(why));
		if (claimed || no_wait || (timeout_ms && clock_ms() - begin >= timeout_ms))
			break;
		progress_time(label);
		usleep(LOOK_MS * 1000);
	}
	progress_end();
	if (claimed)
		return EXIT_DONE;
	complain("resume %d: not enough GPU memory: %s; it stays paused", pid, why);
	return EXIT_TIMEOUT;
}

static int resume_recorded(pid_t pid, const struct record *record, long timeout_ms, bool no_wait)
{
	struct driver_work work = {.op = DRIVER_RESUME, .pid = pid, .record = record};
	struct driver_answer before;
	struct claim claim = {.n = 0};
	struct held needs = {0};
	char took[FORMAT_SIZE];
	bool ended;
	int code;

	/* An earlier answer may be old: only now is the record locked. */
	driver_ask(DRIVER_ASK, pid, ASK_MS, &before);
	switch (before.state) {
	case DRIVER_RUNNING:
		printf("resumed %d: it runs already\n", pid);
		return EXIT_DONE;
	case DRIVER_UNKNOWN:
	case DRIVER_FAILED:
		complain("resume %d: %s", pid,
			 *before.failure ? before.failure : state_text(before.state));
		return EXIT_FAILED;
	case DRIVER_CHECKPOINTED:
		find_needs(pid, record, &needs);
		code = await_memory(pid, record, &needs, timeout_ms, no_wait, &claim);
		if (code)
			return code;
		break;
	case DRIVER_LOCKED:
		break;
	}
	ended = work_through(&work, "resuming", no_wait);
	code = ended ? report_failure("resume", pid, work.answer) : EXIT_DONE;
	if (ended && !code) {
		format_duration(took, work.answer->ms);
		if (before.state == DRIVER_LOCKED)
			printf("resumed %d: it was only locked\n", pid);
		else
			printf("resumed %d: by the driver's restore in %s\n", pid, took);
	}
	claim_drop(&claim, ended);
	driver_end(&work);
	return code;
}

static int resume_process(const struct process *process, long timeout_ms, bool no_wait)
{
	struct record record;
	int code;

	if (is_stopped(process))
		return refuse_stopped("resume", process);
	code = open_record("resume", process, &record);
	if (code)
		return code;
	code = resume_recorded(process->pid, &record, timeout_ms, no_wait);
	record_close(&record, !no_wait);
	return code;
}

/* Whether @word is the PID of a process of this user that uses CUDA without cudaw. */
static bool is_native(const char *word, struct process *process)
{
	const pid_t pid = select_pid_of(word);

	return pid > 0 && process_find(pid, process) && process_is_of(process, geteuid()) &&
	       cuda_use(pid) == CUDA_USE_NATIVE;
}

/* Whether a resume of @word is one for the driver: a command may be about to pause the process. */
static bool is_for_driver(const char *word, struct process *process)
{
	struct driver_answer answer;
	struct record record;
	const char *why;
	int err;

	if (!is_native(word, process))
		return false;
	err = record_open(&record, process, &why);
	if (!err)
		record_close(&record, true);
	/* A stopped process does not answer. */
	if (err == -EAGAIN || is_stopped(process))
		return true;
	driver_ask(DRIVER_ASK, process->pid, ASK_MS, &answer);
	return answer.state > DRIVER_RUNNING;
}

bool paused_by_driver_resume(struct targets *targets, long timeout_ms, bool no_wait)
{
	struct process process;
	int left = 0, code;

	for (int i = 0; i < targets->nwords; i++) {
		if (!is_for_driver(targets->words[i], &process)) {
			targets->words[left++] = targets->words[i];
			continue;
		}
		code = resume_process(&process, timeout_ms, no_wait);
		if (code)
			targets_fail(targets, code);
	}
	if (!targets->all && !left)
		return false;
	targets->nwords = left;
	return true;
}

bool paused_by_driver_refuse(const char *verb, const char *word)
{
	struct process process;

	if (!is_native(word, &process))
		return false;
	complain("%s %d: it does not run under cudaw, which a %s needs; 'cudaw pause --driver %d' "
		 "can pause it",
		 verb, process.pid, verb, process.pid);
	return true;
}
