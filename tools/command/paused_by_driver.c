/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/paused_by_driver.h"

#include "common/processes/beside.h"
#include "common/clock.h"
#include "common/patience.h"
#include "common/gpu/nvml.h"
#include "common/protocol/rundir.h"
#include "common/text.h"
#include "tools/command/result.h"
#include "tools/job/scan.h"
#include "tools/job/select.h"
#include "tools/process/cuda_use.h"
#include "tools/process/driver_child.h"
#include "tools/report/progress.h"
#include "tools/report/report.h"

#include <ctype.h>
#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ASK_MS        10000 /* for the driver's answer; more than cuInit takes */
#define SHARER_MS     20000 /* with processes that cannot be looked at */
#define GPUS_MS       60000 /* cuInit on a machine with many GPUs */
#define TIMEOUT_MS    30000 /* of a pause */
#define RECORD_MS     2000  /* for another command on the same process */
#define LOOK_MS       200   /* between questions for free GPU memory */
#define CONTEXT_GUESS (1UL << 30)
#define WARNING       "by the driver's checkpoint, at its speed and without cudaw's guarantees"

/* Note why it failed. Returns @code. */
__attribute__((format(printf, 3, 4))) static int failed(struct result *o, int code, const char *fmt,
							...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(o->why, sizeof(o->why), fmt, ap);
	va_end(ap);
	o->word = "failed";
	return o->code = code;
}

/* It succeeded, with the remark @note. */
static int succeeded(struct result *o, const char *note)
{
	snprintf(o->note, sizeof(o->note), "%s", note);
	return EXIT_DONE;
}

static void report(struct targets *targets, const struct by_driver *how, struct result *r)
{
	targets_fail(targets, r->code);
	r->unsized = !r->moved.bytes;
	result_print(r, how->rows);
}

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

/* Note why the driver failed. Returns the exit code; 0 if it did not fail. */
static int driver_failed(struct result *o, const struct driver_answer *answer)
{
	if (*answer->failure)
		return failed(o,
			      answer->unsupported ? EXIT_UNSUPPORTED
			      : answer->silent    ? EXIT_TIMEOUT
						  : EXIT_FAILED,
			      "%s%s", answer->failure,
			      answer->state == DRIVER_RUNNING ? "; it runs on" : "");
	if (!*answer->call)
		return EXIT_DONE;
	if (answer->error == CUDA_ERROR_NOT_READY)
		return failed(o, EXIT_TIMEOUT, "its kernels did not end in time; %s",
			      state_text(answer->state));
	return failed(o, answer->error == CUDA_ERROR_NOT_SUPPORTED ? EXIT_UNSUPPORTED : EXIT_FAILED,
		      "%s fails with %s (%d); %s", answer->call, answer->error_name, answer->error,
		      state_text(answer->state));
}

/* Do @work, with the time shown. False: it goes on without us. */
static bool work_through(struct driver_work *work, struct result *o, bool no_wait)
{
	char label[16], goes_on[64];

	snprintf(label, sizeof(label), "%d", work->pid);
	snprintf(goes_on, sizeof(goes_on), "the %s goes on", o->verb->name);
	if (!driver_child_begin(work))
		return true;
	if (no_wait) {
		o->word = "begun";
		return false;
	}
	progress_begin(o->verb->doing);
	progress_on_interrupt(goes_on, NULL);
	while (!driver_child_await(work, PROGRESS_MS))
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

static int refuse_stopped(struct result *o)
{
	return failed(o, EXIT_FAILED,
		      "it is stopped, and the driver cannot work on it; SIGCONT continues it");
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
	case CUDA_USE_SLOW:
		complain("process %d cannot be looked into: it takes too long", pid);
		return EXIT_TIMEOUT;
	case CUDA_USE_CUDAW:
		complain("process %d runs under cudaw: 'cudaw pause %d' pauses it", pid, pid);
		return EXIT_UNSUPPORTED;
	case CUDA_USE_NATIVE:
		break;
	}
	return EXIT_DONE;
}

/* Whether the driver's checkpoint would break the work of a library: 0, or an exit code. */
static int check_library(struct result *o, bool dry_run)
{
	char library[BESIDE_SIZE];
	int found = beside_driver(o->pid, library);

	if (found < 0)
		return failed(o, EXIT_FAILED, "it cannot be looked into: %s", strerror(-found));
	if (!found)
		return EXIT_DONE;
	return failed(o, EXIT_UNSUPPORTED,
		      "it has loaded %s, whose work on the GPU the driver's checkpoint would "
		      "break%s",
		      library, dry_run ? "" : "; it runs on");
}

/* Whether the driver's checkpoint would break another process: 0, or an exit code. */
static int check_sharer(struct result *o)
{
	struct driver_answer answer;

	driver_child_ask(DRIVER_SHARER, o->pid, SHARER_MS, &answer);
	if (*answer.failure)
		return driver_failed(o, &answer);
	if (!answer.sharer)
		return EXIT_DONE;
	return failed(o, EXIT_UNSUPPORTED,
		      "it may share GPU memory with process %d (%s), and the driver's checkpoint "
		      "would break both; it runs on",
		      answer.sharer, answer.sharer_how);
}

/*
 * Open and lock the record of @process. A command that was interrupted may be about to end its work.
 * 0, or an exit code.
 */
static int open_record(struct result *o, const struct process *process, struct record *record)
{
	struct patience patience = {0};
	const char *why;
	int err;

	while ((err = record_open(record, process, &why)) == -EAGAIN &&
	       patience_ms(&patience) < RECORD_MS)
		usleep(PATIENCE_SLICE_MS * 1000);
	if (err == -EAGAIN)
		return failed(o, EXIT_FAILED, "another command works on it");
	if (err)
		return failed(o, EXIT_FAILED, "%s cannot be used: %s", record->path, why);
	return EXIT_DONE;
}

/* Whether the driver can pause it now: -1, or an exit code. */
static int check_state(struct result *o)
{
	struct driver_answer answer;

	driver_child_ask(DRIVER_ASK, o->pid, ASK_MS, &answer);
	switch (answer.state) {
	case DRIVER_RUNNING:
		return -1;
	case DRIVER_CHECKPOINTED:
		return succeeded(o, "already paused");
	case DRIVER_UNKNOWN:
		if (*answer.failure)
			return driver_failed(o, &answer);
		return failed(o, EXIT_UNSUPPORTED,
			      "the driver does not know it as a process that uses CUDA, or does "
			      "not let you ask");
	case DRIVER_LOCKED:
	case DRIVER_FAILED:
		break;
	}
	return failed(o, EXIT_FAILED, "%s", state_text(answer.state));
}

static int pause_recorded(struct result *o, const struct record *record,
			  const struct by_driver *how)
{
	struct driver_work work = {.op = DRIVER_PAUSE,
				   .pid = o->pid,
				   .timeout_ms = how->timeout_ms ? how->timeout_ms : TIMEOUT_MS,
				   .record = record};
	int code = check_state(o);

	if (code >= 0)
		return code;
	code = check_library(o, false);
	if (!code)
		code = check_sharer(o);
	if (code)
		return code;
	record_prune(record);
	if (work_through(&work, o, how->no_wait))
		code = driver_failed(o, work.answer);
	if (!code && strcmp(o->word, "begun") != 0) {
		o->moved = (struct job_transfer){
			.known = true, .ms = work.answer->ms, .bytes = sum_of(&work.answer->held)};
		succeeded(o, WARNING);
	}
	driver_child_end(&work);
	return code;
}

static void pause_process(struct result *o, const struct process *process,
			  const struct by_driver *how)
{
	struct record record;

	if (is_stopped(process)) {
		refuse_stopped(o);
	} else if (!open_record(o, process, &record)) {
		pause_recorded(o, &record, how);
		record_close(&record, strcmp(o->word, "begun") != 0);
	}
}

int paused_by_driver_pause(struct targets *targets, const struct by_driver *how)
{
	for (int i = 0; i < targets->nwords; i++) {
		struct process process;
		struct result o = {.verb = &result_pause, .id = "", .name = "", .word = "done"};
		int code = find_native(targets->words[i], &process);

		if (code) {
			targets_fail(targets, code);
			continue;
		}
		o.pid = process.pid;
		if (!targets->dry_run)
			pause_process(&o, &process, how);
		else if (!check_library(&o, true))
			o.word = "meant";
		report(targets, how, &o);
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

/*
 * Whether all of the GPU can be had. A driver keeps some for itself, so what is free is less than @total;
 * in a container NVML may list no process.
 */
static bool is_idle(const char *uuid, size_t total, size_t free)
{
	struct nvml_holder holders[NVML_HOLDERS];

	return total && free >= total - total / 16 && nvml_holders(uuid, holders) <= 0;
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
		size_t total, bytes;
		int fd;

		snprintf(name, sizeof(name), "%s.lock", gpu->uuid);
		fd = rundir_lock(dir, name);
		if (fd >= 0)
			claim->fds[claim->n++] = fd;
		snprintf(why, size, "another job resumes on %s", gpu->uuid);
		if (fd == -EAGAIN || (fd >= 0 && is_promised(fd)))
			goto err_drop;
		if (nvml_memory(gpu->uuid, &total, &bytes) || bytes >= gpu->bytes ||
		    (held->at_most && is_idle(gpu->uuid, total, bytes)))
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
 * The GPUs that the process may have used: those that it was started to see, or, if it saw none or is in
 * a container, where numbers mean other GPUs, all.
 */
static void find_gpus(const struct process *process, struct held *gpus)
{
	struct driver_sight sight = {0};
	struct driver_answer answer;

	if (process->own_pid == process->pid) {
		scan_environment(process, "CUDA_VISIBLE_DEVICES", sight.visible,
				 sizeof(sight.visible));
		scan_environment(process, "CUDA_DEVICE_ORDER", sight.order, sizeof(sight.order));
	}
	driver_child_gpus(&sight, GPUS_MS, &answer);
	if (!answer.held.n && *sight.visible) {
		sight = (struct driver_sight){0};
		driver_child_gpus(&sight, GPUS_MS, &answer);
	}
	*gpus = answer.held;
}

/* The most that it may have had of the GPU, as no driver call tells: its host memory and a context. */
static size_t guess(const struct process *process, const char *uuid)
{
	size_t bytes = host_bytes(process->pid) + CONTEXT_GUESS, total, free;

	return !nvml_memory(uuid, &total, &free) && total && total < bytes ? total : bytes;
}

/*
 * What the restore of @process takes of which GPUs: as the user says; as the pause recorded it; or, if
 * another program has paused it, by a guess. False: nobody says which GPUs there are.
 */
static bool find_needs(const struct process *process, const struct record *record,
		       const struct by_driver *how, struct held *needs)
{
	bool recorded = record_read(record, needs) && needs->n;

	if (!recorded)
		find_gpus(process, needs);
	needs->at_most = !recorded && how->need == BY_DRIVER_GUESS;
	for (int i = 0; i < needs->n; i++) {
		struct held_gpu *gpu = &needs->gpus[i];

		if (how->need != BY_DRIVER_GUESS)
			gpu->bytes = how->need;
		else if (!recorded)
			gpu->bytes = guess(process, gpu->uuid);
	}
	return needs->n > 0;
}

/* Wait until @needs can be claimed. 0, or an exit code. */
static int await_memory(struct result *o, const struct record *record, const struct held *needs,
			const struct by_driver *how, struct claim *claim)
{
	double begin = clock_ms();
	char why[256], label[32];
	bool claimed;

	snprintf(label, sizeof(label), "%d", o->pid);
	progress_begin("waiting for GPU memory for");
	progress_on_interrupt("the process stays paused", NULL);
	for (;;) {
		claimed = claim_take(claim, record->dir, needs, why, sizeof(why));
		if (claimed || how->no_wait ||
		    (how->timeout_ms && clock_ms() - begin >= how->timeout_ms))
			break;
		progress_time(label);
		usleep(LOOK_MS * 1000);
	}
	progress_end();
	return claimed ? EXIT_DONE
		       : failed(o, EXIT_TIMEOUT, "not enough GPU memory: %s; it stays paused", why);
}

static int resume_recorded(struct result *o, const struct process *process,
			   const struct record *record, const struct by_driver *how)
{
	struct driver_work work = {.op = DRIVER_RESUME, .pid = o->pid, .record = record};
	struct driver_answer before;
	struct claim claim = {.n = 0};
	struct held needs = {0};
	bool ended;
	int code;

	/* An earlier answer may be old: only now is the record locked. */
	driver_child_ask(DRIVER_ASK, o->pid, ASK_MS, &before);
	switch (before.state) {
	case DRIVER_RUNNING:
		return succeeded(o, "it runs already");
	case DRIVER_UNKNOWN:
	case DRIVER_FAILED:
		return failed(o, EXIT_FAILED, "%s",
			      *before.failure ? before.failure : state_text(before.state));
	case DRIVER_CHECKPOINTED:
		if (!find_needs(process, record, how, &needs))
			return failed(o, EXIT_FAILED,
				      "cannot ask which GPUs there are; it stays paused");
		code = await_memory(o, record, &needs, how, &claim);
		if (code)
			return code;
		break;
	case DRIVER_LOCKED:
		break;
	}
	ended = work_through(&work, o, how->no_wait);
	code = ended ? driver_failed(o, work.answer) : EXIT_DONE;
	if (ended && !code && before.state == DRIVER_LOCKED) {
		succeeded(o, "it was only locked");
	} else if (ended && !code) {
		o->moved = (struct job_transfer){
			.known = true,
			.ms = work.answer->ms,
			.bytes =
				needs.at_most || how->need != BY_DRIVER_GUESS ? 0 : sum_of(&needs)};
		succeeded(o, "by the driver's restore");
	}
	claim_drop(&claim, ended);
	driver_child_end(&work);
	return code;
}

static void resume_process(struct result *o, const struct process *process,
			   const struct by_driver *how)
{
	struct record record;

	if (is_stopped(process)) {
		refuse_stopped(o);
	} else if (!open_record(o, process, &record)) {
		resume_recorded(o, process, &record, how);
		record_close(&record, strcmp(o->word, "begun") != 0);
	}
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
	driver_child_ask(DRIVER_ASK, process->pid, ASK_MS, &answer);
	return answer.state > DRIVER_RUNNING;
}

bool paused_by_driver_resume(struct targets *targets, const struct by_driver *how)
{
	struct process process;
	int left = 0;

	for (int i = 0; i < targets->nwords; i++) {
		struct result o = {.verb = &result_resume, .id = "", .name = "", .word = "done"};

		if (!is_for_driver(targets->words[i], &process)) {
			targets->words[left++] = targets->words[i];
			continue;
		}
		o.pid = process.pid;
		if (targets->dry_run)
			o.word = "meant";
		else
			resume_process(&o, &process, how);
		report(targets, how, &o);
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
