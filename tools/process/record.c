/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/record.h"

#include "common/protocol/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".driver"

/* Lock the file @name, and see that it still has this name. */
static int lock_named(int dir, const char *name)
{
	struct stat opened, named;
	int fd;

	for (;;) {
		fd = rundir_lock(dir, name);
		if (fd < 0 || (!fstat(fd, &opened) && !fstatat(dir, name, &named, 0) &&
			       opened.st_ino == named.st_ino))
			return fd;
		close(fd);
	}
}

/* Where commands of @owner keep the record of @process, with the path in @path. Returns and @why as rundir_path(). */
static int name_record(struct record *record, const struct process *process, uid_t owner,
		       char path[PATH_MAX], const char **why)
{
	int err;

	*path = '\0';
	err = rundir_path(owner, path, PATH_MAX, why);
	*record = (struct record){.dir = -1, .fd = -1, .start = process->start};
	snprintf(record->path, sizeof(record->path), "%.*s", (int)sizeof(record->path) - 1, path);
	snprintf(record->name, sizeof(record->name), "%d" SUFFIX, process->pid);
	return err;
}

/* Open and lock @record in the directory @path of @owner, who has what is made there. As record_open(). */
static int open_as(struct record *record, const char *path, uid_t owner, const char **why)
{
	if (!process_act_as(owner)) {
		*why = "this command may not make files for its user";
		return -EPERM;
	}
	record->dir = rundir_create(path, owner, why);
	record->fd = record->dir < 0 ? record->dir : lock_named(record->dir, record->name);
	process_act_as(geteuid());
	if (record->dir < 0 || record->fd >= 0)
		return record->dir < 0 ? record->dir : 0;
	*why = strerrordesc_np(-record->fd);
	close(record->dir);
	return record->fd;
}

int record_open(struct record *record, const struct process *process, const char **why)
{
	char path[PATH_MAX];
	int err = name_record(record, process, geteuid(), path, why);

	return err ? err : open_as(record, path, geteuid(), why);
}

/*
 * As record_open(), for commands of @user. The directory may be that of root or, for root, of the user of @process.
 * -ENOENT: a third user, who has paused neither, has it, or nobody can have one.
 */
static int open_for(struct record *record, const struct process *process, uid_t user,
		    const char **why)
{
	char path[PATH_MAX];
	struct stat st;
	int err = name_record(record, process, user, path, why);

	if (err)
		return err;
	if (!geteuid() && !stat(path, &st))
		user = st.st_uid;
	if (user != geteuid() && user != process->uid)
		return -ENOENT;
	return open_as(record, path, user, why);
}

/* Add the record that commands of @user keep. */
static int add(struct record_claim *claim, uid_t user, const struct process *process, char *why,
	       size_t size)
{
	struct record *record = &claim->records[claim->n];
	const char *reason;
	struct held held;
	int err = open_for(record, process, user, &reason);

	if (err == -ENOENT)
		return 0;
	if (err == -EAGAIN)
		snprintf(why, size, "another command works on it");
	else if (err)
		snprintf(why, size, "%s/%s cannot be used: %s", record->path, record->name, reason);
	if (err)
		return err;
	claim->n++;
	if (!record_read(record, &held))
		return 0;
	snprintf(why, size, "'cudaw pause --driver' has paused it");
	return -EBUSY;
}

int record_claim(struct record_claim *claim, const struct process *process, char *why, size_t size)
{
	struct record of_user;
	const char *ignored;
	char path[PATH_MAX];
	int err;

	claim->n = 0;
	err = add(claim, geteuid(), process, why, size);
	/* With CUDAW_RUNTIME_DIR all users have the same one. */
	if (!err && !geteuid() && process->uid &&
	    !name_record(&of_user, process, process->uid, path, &ignored) &&
	    !(claim->n && !strcmp(of_user.path, claim->records[0].path)))
		err = add(claim, process->uid, process, why, size);
	if (err)
		record_release(claim);
	return err;
}

void record_release(struct record_claim *claim)
{
	while (claim->n > 0)
		record_close(&claim->records[--claim->n], true);
}

int record_write(const struct record *record, const struct held *held)
{
	char text[GPU_MAX * (NVML_UUID_SIZE + 32) + 64];
	int len = snprintf(text, sizeof(text), "start %" PRIu64 "\n", record->start);

	for (int i = 0; i < held->n; i++)
		len += snprintf(text + len, sizeof(text) - len, "%s %zu\n", held->gpus[i].uuid,
				held->gpus[i].bytes);
	if (ftruncate(record->fd, 0) || pwrite(record->fd, text, len, 0) != len)
		return errno ? -errno : -EIO;
	return 0;
}

bool record_read(const struct record *record, struct held *held)
{
	char text[GPU_MAX * (NVML_UUID_SIZE + 32) + 64], *line = text, *end;
	ssize_t len = pread(record->fd, text, sizeof(text) - 1, 0);
	uint64_t start;

	*held = (struct held){0};
	text[len > 0 ? len : 0] = '\0';
	if (sscanf(text, "start %" SCNu64, &start) != 1 || start != record->start)
		return false;
	while ((end = strchr(line, '\n')) && held->n < GPU_MAX) {
		struct held_gpu *gpu = &held->gpus[held->n];

		line = end + 1;
		if (sscanf(line, "%40s %zu", gpu->uuid, &gpu->bytes) != 2)
			break;
		held->n++;
	}
	return true;
}

void record_remove(const struct record *record)
{
	unlinkat(record->dir, record->name, 0);
}

void record_close(const struct record *record, bool clean)
{
	struct stat st;

	if (clean && !fstat(record->fd, &st) && !st.st_size && st.st_nlink)
		record_remove(record);
	close(record->fd);
	close(record->dir);
}

static pid_t pid_of(const char *name)
{
	char *end;
	long pid = strtol(name, &end, 10);

	return end != name && !strcmp(end, SUFFIX) && pid > 0 && pid <= INT_MAX ? pid : 0;
}

void record_prune(const struct record *record)
{
	int fd = openat(record->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		pid_t pid = pid_of(entry->d_name);
		int lock;

		if (!pid || rundir_start_time(pid))
			continue;
		lock = rundir_lock(record->dir, entry->d_name);
		if (lock < 0)
			continue;
		unlinkat(record->dir, entry->d_name, 0);
		close(lock);
	}
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
}
