/* SPDX-License-Identifier: Apache-2.0 */
#include "common/protocol/journal.h"
#include "common/clock.h"
#include "common/json_out.h"
#include "common/processes/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define ONE_LINE 3 /* a depth at which json_out.h breaks no lines */

#define JOURNAL_WORD(id, word) word,
const char *const journal_words[JOURNAL_KINDS] = {JOURNAL_MAP(JOURNAL_WORD)};

static void put_by(struct json_out *out, const struct journal_by *by)
{
	json_open(out, "by", '{');
	json_number(out, "uid", by->uid);
	json_number(out, "pid", by->pid);
	json_text(out, "command", *by->command ? by->command : NULL);
	json_close(out, '}');
}

/* Returns the length of the line in @line, with its newline; or 0: it does not fit. */
static size_t format(char line[JOURNAL_LINE + 1], const struct journal_event *event)
{
	struct json_out out = {.file = fmemopen(line, JOURNAL_LINE, "w"), .depth = ONE_LINE};
	bool fits;

	line[JOURNAL_LINE] = '\0';
	if (!out.file)
		return 0;
	json_open(&out, NULL, '{');
	json_number(&out, "unix_ms", clock_unix_ms());
	json_text(&out, "event", journal_words[event->kind]);
	json_number(&out, "pid", event->pid);
	json_text(&out, "id", event->id);
	json_text(&out, "name", event->name);
	if (event->operation)
		json_text(&out, "operation", event->operation);
	if (event->kind == JOURNAL_PAUSED)
		json_number(&out, "bytes", event->bytes);
	if (event->ran)
		json_number(&out, "ran", 1);
	if (event->by)
		put_by(&out, event->by);
	json_text(&out, "text", event->text);
	json_close(&out, '}');
	fputc('\n', out.file);
	fits = !fflush(out.file) && !ferror(out.file);
	fclose(out.file);
	return fits ? strlen(line) : 0;
}

/*
 * Returns a descriptor or a negative errno. Root, in the directory of @owner, gives away what it has made itself, and
 * no file that was put there. umask(2) may have removed permissions.
 */
static int make(int dir, const char *name, uid_t owner, int flags)
{
	int fd = openat(dir, name, flags | O_CREAT | O_EXCL, 0600), err;

	if (fd < 0)
		return -errno;
	if (!fchmod(fd, 0600) && (geteuid() == owner || !fchown(fd, owner, -1)))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

static int open_or_make(int dir, const char *name, uid_t owner, int flags)
{
	const int safe = (flags & ~O_CREAT) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
	int fd = openat(dir, name, safe);

	if (fd >= 0)
		return fd;
	if (errno != ENOENT || !(flags & O_CREAT))
		return -errno;
	fd = make(dir, name, owner, safe);
	if (fd != -EEXIST)
		return fd;
	/* Another writer has made it meanwhile. */
	fd = openat(dir, name, safe);
	return fd < 0 ? -errno : fd;
}

/* A pipe, a hard link or a symbolic link there would have root wait, or write elsewhere. */
int journal_open(int dir, const char *name, uid_t owner, int flags)
{
	int fd = open_or_make(dir, name, owner, flags);
	struct stat st;
	int err = 0;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st))
		err = -errno;
	else if (!S_ISREG(st.st_mode) || st.st_nlink > 1 || st.st_uid != owner)
		err = -EPERM;
	if (!err)
		return fd;
	close(fd);
	return err;
}

/* The new name, if no other writer is at it, or was just before. */
static void put_aside(int dir, int fd)
{
	struct stat ours, named;

	if (fstat(fd, &ours) || ours.st_size < JOURNAL_BYTES || flock(fd, LOCK_EX | LOCK_NB))
		return;
	if (!fstatat(dir, JOURNAL, &named, AT_SYMLINK_NOFOLLOW) && named.st_ino == ours.st_ino)
		renameat(dir, JOURNAL, dir, JOURNAL_OLD);
	flock(fd, LOCK_UN);
}

/* A write that found no more room may have left a part of a line. */
static bool ends_a_line(int fd)
{
	struct stat st;
	char last = '\n';

	return fstat(fd, &st) || !st.st_size || pread(fd, &last, 1, st.st_size - 1) < 1 ||
	       last == '\n';
}

int journal_append(int dir, uid_t owner, const struct journal_event *event)
{
	char line[1 + JOURNAL_LINE + 1] = "\n", *begin = line + 1;
	int fd = journal_open(dir, JOURNAL, owner, O_RDWR | O_APPEND | O_CREAT), err = 0;
	size_t len = format(line + 1, event);
	struct journal_event brief = *event;
	ssize_t done;

	if (fd < 0)
		return fd;
	if (!len) {
		brief.text = NULL;
		len = format(line + 1, &brief);
	}
	if (len && !ends_a_line(fd)) {
		begin--;
		len++;
	}
	done = write(fd, begin, len);
	if (done < 0)
		err = -errno;
	else if (!len || done != (ssize_t)len)
		err = -EMSGSIZE;
	put_aside(dir, fd);
	close(fd);
	return err;
}

void journal_find_command(struct journal_by *by)
{
	*by->command = '\0';
	if (by->pid)
		host_command(by->pid, by->command, sizeof(by->command));
}
