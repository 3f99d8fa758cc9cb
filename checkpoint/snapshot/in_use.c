/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot/in_use.h"
#include "checkpoint/snapshot/files/io.h"
#include "common/processes/proc.h"
#include "common/protocol/rundir.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define FILE_MAX     4096
#define WORD_SIZE    65
#define MACHINE_SIZE 32 /* digits of /etc/machine-id */
#define UNKNOWN      "-"
#define FIRST_PID_NS 0xeffffffcUL /* PROC_PID_INIT_INO in the kernel's <linux/proc_ns.h> */
#define MAY_HAVE     "may have its memory in it; "
#define REMOVE_IT    "'cudaw resume %d' there first, or remove " SNAPSHOT_IN_USE " if it has ended"

/* Where a process runs. */
struct place {
	char boot[WORD_SIZE]; /* the kernel's random id of this boot */
	unsigned long ns_dev, ns_ino;
	char machine[WORD_SIZE], host[WORD_SIZE]; /* or UNKNOWN */
};

struct user {
	pid_t pid;
	unsigned long long start; /* rundir_common_start() */
	unsigned long dev, ino;   /* of the directory: a copy has no user */
	struct place place;       /* early writers noted none: @boot is empty */
};

enum presence {
	GONE,
	HERE,
	APART,     /* in another PID namespace */
	ELSEWHERE, /* on another machine, or before its last boot */
};

/* Make @word one word for a line of text, and for a message. */
static void clean(char *word)
{
	for (char *p = word; *p; p++)
		if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_",
			    *p))
			*p = '_';
	if (!*word)
		strcpy(word, UNKNOWN);
}

/* Where this process runs. 0 or a negative errno. */
static int find_place(struct place *place)
{
	struct utsname names;
	struct stat st;
	int ret =
		host_read_line("/proc/sys/kernel/random/boot_id", place->boot, sizeof(place->boot));

	if (ret)
		return ret;
	clean(place->boot);
	if (stat("/proc/thread-self/ns/pid", &st) || uname(&names))
		return -errno;
	place->ns_dev = st.st_dev;
	place->ns_ino = st.st_ino;
	if (host_read_line("/etc/machine-id", place->machine, sizeof(place->machine)) ||
	    strspn(place->machine, "0123456789abcdef") != MACHINE_SIZE)
		strcpy(place->machine, UNKNOWN);
	clean(place->machine);
	snprintf(place->host, sizeof(place->host), "%s", names.nodename);
	clean(place->host);
	return 0;
}

/* False if the directory has no such file, or the file is not a snapshot's. */
static bool read_user(int dir, struct user *user)
{
	struct snapshot_error ignored;
	struct place *place = &user->place;
	size_t size;
	char *text;
	int n;

	memset(user, 0, sizeof(*user));
	if (snapshot_io_read_file(dir, SNAPSHOT_IN_USE, FILE_MAX, &text, &size, &ignored))
		return false;
	n = sscanf(text, SNAPSHOT_FORMAT " %d %llu %lu %lu %64s %lu %lu %64s %64s\n", &user->pid,
		   &user->start, &user->dev, &user->ino, place->boot, &place->ns_dev,
		   &place->ns_ino, place->machine, place->host);
	free(text);
	if (n == 4)
		return true;
	clean(place->host);
	return n == 9;
}

/* True if both are of one machine for sure, whatever its boot. */
static bool is_same_machine(const struct place *a, const struct place *b)
{
	return a->ns_ino == FIRST_PID_NS && b->ns_ino == FIRST_PID_NS &&
	       strcmp(a->machine, UNKNOWN) && !strcmp(a->machine, b->machine) &&
	       !strcmp(a->host, b->host);
}

/*
 * True if the process has ended, or its id now belongs to another process. A process that cannot be
 * seen has not, nor has a process of which only the first thread has ended.
 */
static bool has_ended(const struct user *user)
{
	struct rundir_process p;
	uint64_t start;

	if (kill(user->pid, 0) && errno == ESRCH)
		return true;
	if (!rundir_process(user->pid, &p))
		return false;
	start = rundir_common_start(user->pid);
	return p.ended || (start && start != RUNDIR_START_UNKNOWN &&
			   !rundir_is_common_start(start, user->start));
}

/* Where the user of the directory @st is, as seen from @here. */
static enum presence find_user(const struct user *user, const struct stat *st,
			       const struct place *here)
{
	const struct place *place = &user->place;
	bool early = !*place->boot, same_boot = early || !strcmp(place->boot, here->boot);

	/* Another machine has another number for the same file system. */
	if (user->ino != st->st_ino || (same_boot && user->dev != st->st_dev))
		return GONE;
	if (!same_boot)
		return is_same_machine(place, here) ? GONE : ELSEWHERE;
	if (!early && (place->ns_dev != here->ns_dev || place->ns_ino != here->ns_ino))
		return APART;
	return has_ended(user) ? GONE : HERE;
}

/* 0 if the process has ended or is @pid, else a negative errno. */
static int check_user(int dir, const struct user *user, pid_t pid, bool *gone,
		      struct snapshot_error *error)
{
	struct place here;
	struct stat st;
	int ret = fstat(dir, &st) ? -errno : find_place(&here);
	enum presence presence;

	if (ret)
		return snapshot_fail(error, ret,
				     "cannot tell whether %d, which " SNAPSHOT_IN_USE
				     " names, has ended: %s",
				     user->pid, error_text(-ret));
	presence = find_user(user, &st, &here);
	*gone = presence == GONE;
	if (*gone || (presence == HERE && user->pid == pid))
		return 0;
	if (presence == HERE)
		return snapshot_fail(error, -EBUSY, "%d " MAY_HAVE "'cudaw resume %d' first",
				     user->pid, user->pid);
	if (presence == APART)
		return snapshot_fail(
			error, -EBUSY,
			"process %d of another PID namespace (a container) " MAY_HAVE REMOVE_IT,
			user->pid, user->pid);
	return snapshot_fail(
		error, -EBUSY,
		"process %d of another machine, or before a reboot, on %s, " MAY_HAVE REMOVE_IT,
		user->pid, user->place.host, user->pid);
}

int snapshot_in_use_check(int dir, pid_t pid, struct snapshot_error *error)
{
	struct user user;
	struct stat st;
	bool gone = true;
	int ret = 0;

	if (fstatat(dir, SNAPSHOT_IN_USE, &st, AT_SYMLINK_NOFOLLOW))
		return 0;
	if (read_user(dir, &user))
		ret = check_user(dir, &user, pid, &gone, error);
	else if (!S_ISREG(st.st_mode) || st.st_size)
		return snapshot_fail(error, -ENOTEMPTY,
				     "expected a new or empty directory or a snapshot, "
				     "found " SNAPSHOT_IN_USE " in it");
	/* The process has ended, or was killed right after it had made the file. */
	if (!ret && gone)
		unlinkat(dir, SNAPSHOT_IN_USE, 0);
	return ret;
}

int snapshot_in_use_set(int dir, struct snapshot_error *error)
{
	unsigned long long start = rundir_common_start(getpid());
	struct place here;
	struct stat st;
	char text[512];
	int size, ret;

	if (!start || start == RUNDIR_START_UNKNOWN)
		return snapshot_fail(error, -EAGAIN,
				     "/proc does not have the start time of this process");
	ret = find_place(&here);
	if (ret)
		return snapshot_fail(error, -EAGAIN,
				     "/proc does not have the id of this boot or PID namespace: %s",
				     error_text(-ret));
	if (fstat(dir, &st))
		return snapshot_fail(error, -errno, "%s", error_text(errno));
	size = snprintf(text, sizeof(text), SNAPSHOT_FORMAT " %d %llu %lu %lu %s %lu %lu %s %s\n",
			getpid(), start, (unsigned long)st.st_dev, (unsigned long)st.st_ino,
			here.boot, here.ns_dev, here.ns_ino, here.machine, here.host);
	return snapshot_io_write_file(dir, SNAPSHOT_IN_USE, text, size, error);
}

void snapshot_in_use_clear(int dir, pid_t pid)
{
	enum presence presence;
	struct place here;
	struct user user;
	struct stat st;

	if (!read_user(dir, &user) || user.pid != pid || fstat(dir, &st) || find_place(&here))
		return;
	presence = find_user(&user, &st, &here);
	if (presence == GONE || presence == HERE)
		unlinkat(dir, SNAPSHOT_IN_USE, 0);
}
