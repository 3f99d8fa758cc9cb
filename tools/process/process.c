/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/process.h"

#include "common/protocol/rundir.h"
#include "common/processes/proc.h"
#include "common/system/shortage.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/*
 * The first and the last number of "NSpid: 4711 12 1": those in the namespace of /proc and in the
 * process's own. proc_pid_status(5) has the format. Returns how many there are.
 */
static int take_ids(char *text, pid_t *first, pid_t *last)
{
	int n = 0;

	for (char *end; *text && *text != '\n'; text = end, n++) {
		*last = strtol(text, &end, 10);
		if (end == text)
			break;
		if (!n)
			*first = *last;
		while (*end == '\t' || *end == ' ')
			end++;
	}
	return n;
}

/* Read /proc/@name/status. Returns the number of PIDs of the process; 0: not readable. */
static int read_status(const char *name, struct process *process)
{
	char path[64], line[512];
	uid_t users[4] = {0};
	FILE *status;
	int n = 0;

	snprintf(path, sizeof(path), "/proc/%s/status", name);
	status = fopen(path, "re");
	while (status && fgets(line, sizeof(line), status))
		if (!strncmp(line, "NSpid:", 6))
			n = take_ids(line + 6, &process->pid, &process->own_pid);
		else
			sscanf(line, "Uid: %u %u %u %u", &users[0], &users[1], &users[2],
			       &users[3]);
	if (status)
		fclose(status);
	process->uid = users[0];
	process->one_user = users[1] == users[0] && users[2] == users[0] && users[3] == users[0];
	return n;
}

/* If /proc belongs to another PID namespace, this process has several PIDs there, or none. */
static bool proc_is_ours(void)
{
	static int known = -1;
	struct process self;

	if (known < 0)
		known = read_status("self", &self) == 1 && self.pid == getpid();
	return known;
}

static bool read_start(pid_t pid, struct process *process)
{
	struct rundir_process p;

	/* Nothing can be done to a zombie. */
	if (!rundir_process(pid, &p) || p.ended)
		return false;
	process->start = p.start;
	process->state = p.state;
	return true;
}

bool process_find(pid_t pid, struct process *process)
{
	struct process after;
	char name[16];

	snprintf(name, sizeof(name), "%d", pid);
	/* Another process may get the PID between two files: the start is read twice. */
	return pid > 0 && proc_is_ours() && read_start(pid, process) &&
	       read_status(name, process) > 0 && process->pid == pid && read_start(pid, &after) &&
	       after.start == process->start;
}

bool process_is_among(pid_t pid, const pid_t *pids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (pids[i] == pid)
			return true;
	return false;
}

bool process_id_is_taken(pid_t id)
{
	int fd = eventfd(0, EFD_CLOEXEC);
	/* An owner must have an id that the kernel has in use, of whatever kind: Linux 4.13 and later say ESRCH else. */
	bool taken = fd < 0 || !fcntl(fd, F_SETOWN, id) || errno != ESRCH;

	if (fd >= 0)
		close(fd);
	return taken;
}

const char *process_name(pid_t pid, char name[PROCESS_NAME])
{
	char path[64], comm[PROCESS_NAME] = "?";

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	host_read_line(path, comm, sizeof(comm));
	format_copy(name, PROCESS_NAME, comm);
	return name;
}

bool process_is_there(const struct process *process)
{
	struct process now;

	return read_start(process->pid, &now) && now.start == process->start;
}

bool process_ends(const struct process *process)
{
	struct rundir_process p;

	return !rundir_process(process->pid, &p) || p.exits || p.start != process->start;
}

double process_age_ms(const struct process *process)
{
	uint64_t started = process->start * 1000 / sysconf(_SC_CLK_TCK), now;
	struct timespec boot;

	clock_gettime(CLOCK_BOOTTIME, &boot);
	now = boot.tv_sec * 1000 + boot.tv_nsec / 1000000;
	return now > started ? now - started : 0;
}

bool process_is_of(const struct process *process, uid_t owner)
{
	return owner == 0 || (process->uid == owner && process->one_user);
}

/* Why a process was not found, after errno was 0: it has ended, or could not be looked for. */
static int why_not_found(void)
{
	return is_shortage(-errno) ? -errno : -ESRCH;
}

int process_open(const struct process *process)
{
	int fd = syscall(SYS_pidfd_open, process->pid, 0), err;

	if (fd < 0)
		return errno == EPERM ? -ENOSYS : -errno;
	/* The descriptor pins the process: this lookup is of the same process. */
	errno = 0;
	if (process_is_there(process))
		return fd;
	err = why_not_found();
	close(fd);
	return err;
}

int process_signal(const struct process *process, uid_t owner, int signal)
{
	int fd = process_open(process), err = 0;
	struct process now;

	if (fd < 0)
		return fd;
	errno = 0;
	if (!process_find(process->pid, &now))
		err = why_not_found();
	else if (!process_is_of(&now, owner))
		err = -EPERM;
	else if (syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0))
		err = -errno;
	close(fd);
	return err;
}

bool process_act_as(uid_t uid)
{
	setfsuid(uid);
	return setfsuid(-1) == (int)uid;
}

void process_allow_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

bool process_can_signal(void)
{
	struct process self;

	return process_find(getpid(), &self) && !process_signal(&self, self.uid, 0);
}
