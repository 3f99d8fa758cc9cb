/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/journals.h"
#include "common/json_out.h"
#include "common/protocol/lines.h"
#include "tools/job/directories.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHANGES                                                                              \
	(IN_MODIFY | IN_CLOSE_WRITE | IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_DELETE_SELF | \
	 IN_MOVE_SELF | IN_ONLYDIR)

/* One file, of which the lines before @at were read. */
struct reading {
	int fd; /* -1: none */
	off_t at;
};

struct journal_files {
	char *path;
	uid_t owner;
	int dir, watch; /* watch -1: none */
	/* A writer may still have the file that was put aside meanwhile. */
	struct reading now, before;
};

void journals_init(struct journals *journals, bool watch)
{
	*journals = (struct journals){
		.inotify = watch ? inotify_init1(IN_CLOEXEC | IN_NONBLOCK) : -1, .users = -1};
}

static void close_files(struct journal_files *files)
{
	if (files->now.fd >= 0)
		close(files->now.fd);
	if (files->before.fd >= 0)
		close(files->before.fd);
	close(files->dir);
	free(files->path);
}

static bool is_same(int a, int b)
{
	struct stat x, y;

	return !fstat(a, &x) && !fstat(b, &y) && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

static int watch(const struct journals *journals, int dir)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", dir);
	return journals->inotify < 0 ? -1 : inotify_add_watch(journals->inotify, path, CHANGES);
}

static void drop(struct journals *journals, struct journal_files *files)
{
	inotify_rm_watch(journals->inotify, files->watch);
	close_files(files);
	*files = journals->files[--journals->n];
}

/* Its directory may be another one by now. */
static struct journal_files *find(struct journals *journals, const char *path, int dir)
{
	for (size_t i = 0; i < journals->n; i++) {
		struct journal_files *files = &journals->files[i];

		if (strcmp(files->path, path) != 0)
			continue;
		if (is_same(files->dir, dir))
			return files;
		drop(journals, files);
		return NULL;
	}
	return NULL;
}

int journals_add(struct journals *journals, const char *path, uid_t owner)
{
	struct journal_files *more;
	struct stat st;
	const char *why;
	int dir = rundir_open(path, owner, &why);

	if (dir < 0)
		return dir;
	if (find(journals, path, dir) || fstat(dir, &st)) {
		close(dir);
		return 0;
	}
	more = reallocarray(journals->files, journals->n + 1, sizeof(*more));
	if (more)
		journals->files = more;
	if (!more || !(more[journals->n].path = strdup(path))) {
		close(dir);
		return -ENOMEM;
	}
	more += journals->n++;
	more->owner = st.st_uid;
	more->dir = dir;
	more->watch = watch(journals, dir);
	more->now.fd = -1;
	more->before = (struct reading){journal_open(dir, JOURNAL_OLD, st.st_uid, O_RDONLY), 0};
	return 0;
}

static void add_one(void *arg, const char *path, uid_t owner)
{
	journals_add(arg, path, owner);
}

int journals_add_all(struct journals *journals, const char **why)
{
	char path[PATH_MAX];
	bool all;
	int err = directories_each(add_one, journals, &all, path, why);

	if (all && journals->inotify >= 0)
		journals->users =
			inotify_add_watch(journals->inotify, RUNDIR_TMP,
					  IN_CREATE | IN_MOVED_TO | IN_ATTRIB); /* its owner */
	return err;
}

bool journals_are_watched(const struct journals *journals)
{
	for (size_t i = 0; i < journals->n; i++)
		if (journals->files[i].watch < 0)
			return false;
	return journals->n || journals->users >= 0;
}

/* The texts of one line, which has quotes and keys as well. */
struct texts {
	char bytes[2 * JOURNAL_LINE];
	size_t n;
};

static const char *text_of(const json_t *object, const char *key, struct texts *texts)
{
	const char *text = json_string_value(json_object_get(object, key));
	char *buf = texts->bytes + texts->n;

	if (!text)
		return "";
	json_decode(text, buf, sizeof(texts->bytes) - texts->n);
	texts->n += strlen(buf) + 1;
	return buf;
}

static uint64_t number_of(const json_t *object, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(object, key));

	return value > 0 ? (uint64_t)value : 0;
}

/* A line that is none, or of a later version, is passed over. */
static void take_line(const struct journal_files *files, const char *line, size_t len,
		      journals_take take, void *arg)
{
	json_t *object = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
	const json_t *by = json_object_get(object, "by");
	struct texts texts = {.n = 0};
	const char *id = text_of(object, "id", &texts);
	int kind = name_find(journal_words, JOURNAL_KINDS, text_of(object, "event", &texts));
	const struct journal_seen seen = {
		.unix_ms = number_of(object, "unix_ms"),
		.bytes = number_of(object, "bytes"),
		.ran = number_of(object, "ran"),
		.kind = kind,
		.pid = (pid_t)number_of(object, "pid"),
		.uid = files->owner,
		.id = rundir_is_id(id) ? id : "",
		.name = text_of(object, "name", &texts),
		.operation = text_of(object, "operation", &texts),
		.text = text_of(object, "text", &texts),
		.asked = json_is_object(by),
		.by_uid = (uid_t)number_of(by, "uid"),
		.by_pid = (pid_t)number_of(by, "pid"),
		.by_command = text_of(by, "command", &texts),
	};

	if (kind >= 0)
		take(arg, &seen);
	json_decref(object);
}

/* Hand on the whole lines in @text, and return how many bytes they have. */
static size_t take_lines(const struct journal_files *files, const char *text, size_t len,
			 journals_take take, void *arg)
{
	const char *begin = text, *end;

	while ((end = memchr(begin, '\n', text + len - begin))) {
		take_line(files, begin, end - begin, take, arg);
		begin = end + 1;
	}
	return begin - text;
}

/* The end of a line may come later; of one that is too long nothing is understood. */
static void read_on(const struct journal_files *files, struct reading *reading, journals_take take,
		    void *arg)
{
	static char text[2 * JOURNAL_LINE];
	struct stat st;
	ssize_t len;

	if (reading->fd < 0 || fstat(reading->fd, &st))
		return;
	if (st.st_size < reading->at)
		reading->at = 0;
	/* The writers keep it below that. */
	if (st.st_size - reading->at > 2 * JOURNAL_BYTES)
		reading->at = st.st_size - JOURNAL_BYTES;
	/* And no further than it is now: its owner could let it grow as fast as it is read. */
	while (reading->at < st.st_size &&
	       (len = pread(reading->fd, text, sizeof(text), reading->at)) > 0) {
		size_t taken = take_lines(files, text, len, take, arg);

		if (!taken && len < (ssize_t)sizeof(text))
			return;
		reading->at += taken ? taken : (size_t)len;
	}
}

static void read_files(struct journal_files *files, journals_take take, void *arg)
{
	int fd = journal_open(files->dir, JOURNAL, files->owner, O_RDONLY);

	read_on(files, &files->before, take, arg);
	read_on(files, &files->now, take, arg);
	if (fd < 0 || is_same(fd, files->now.fd)) {
		if (fd >= 0)
			close(fd);
		return;
	}
	if (files->now.fd >= 0) {
		if (files->before.fd >= 0)
			close(files->before.fd);
		files->before = files->now;
	}
	files->now = (struct reading){fd, 0};
	read_on(files, &files->now, take, arg);
}

/* While we have it open, inotify(7) does not say that it was removed. */
static bool is_removed(int dir)
{
	struct stat st;

	return !fstat(dir, &st) && !st.st_nlink;
}

void journals_read(struct journals *journals, journals_take take, void *arg)
{
	for (size_t i = journals->n; i-- > 0;) {
		struct journal_files *files = &journals->files[i];

		read_files(files, take, arg);
		if (is_removed(files->dir))
			drop(journals, files);
	}
}

static bool matters(const struct journals *journals, const struct inotify_event *event)
{
	const char *dot = event->len ? strrchr(event->name, '.') : NULL;

	if (event->wd == journals->users && event->len)
		return !strncmp(event->name, RUNDIR_PREFIX, strlen(RUNDIR_PREFIX));
	return !event->len || !strcmp(event->name, JOURNAL) || (dot && !strcmp(dot, RUNDIR_SUFFIX));
}

bool journals_drain(struct journals *journals)
{
	char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	bool any = false;
	ssize_t len;

	while ((len = read(journals->inotify, events, sizeof(events))) > 0)
		for (char *p = events; p < events + len;) {
			const struct inotify_event *event = (const struct inotify_event *)p;

			any |= matters(journals, event);
			p += sizeof(*event) + event->len;
		}
	return any;
}

void journals_free(struct journals *journals)
{
	for (size_t i = 0; i < journals->n; i++)
		close_files(&journals->files[i]);
	free(journals->files);
	if (journals->inotify >= 0)
		close(journals->inotify);
	*journals = (struct journals){.inotify = -1};
}
