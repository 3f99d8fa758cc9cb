/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/snapshot/host_image.h"

#include "common/json_out.h"
#include "checkpoint/snapshot/files/dir.h"
#include "checkpoint/snapshot/files/io.h"
#include "common/text.h"
#include "common/system/private_dir.h"
#include "common/system/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIST     "host.json"
#define LIST_MAX (64UL << 20)
#define THREADS  16 /* readers, each of one file */

int host_image_open(int dir, uint32_t number, struct snapshot_error *error)
{
	char name[SNAPSHOT_NAME_SIZE];
	int fd;

	snapshot_name(SNAPSHOT_HOST, number, name);
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? snapshot_fail(error, -errno, "%s: %s", name, error_text(errno)) : fd;
}

int host_image_open_own(int dir, uint32_t number, struct snapshot_error *error)
{
	int fd = host_image_open(dir, number, error), ret = 0;
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st))
		ret = snapshot_fail(error, -errno, "host-%u: %s", number, error_text(errno));
	else if (st.st_uid != geteuid())
		ret = snapshot_fail(error, -EPERM,
				    "host-%u: it belongs to user %u; expected user %u", number,
				    st.st_uid, geteuid());
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

int host_image_make(int dir, uint32_t number, struct snapshot_error *error)
{
	char name[SNAPSHOT_NAME_SIZE];
	int ret;

	snapshot_name(SNAPSHOT_HOST, number, name);
	ret = private_dir_make(dir, name);
	return ret ? snapshot_fail(error, ret, "%s: %s", name, error_text(-ret)) : 0;
}

/* A file of the image. */
struct entry {
	char name[NAME_MAX + 1];
	size_t size;
	struct hash128 hash;
};

/* All files of the image. Several threads find their sizes and hashes. */
struct listing {
	int directory;
	bool sync, sizes; /* sizes: only sizes, no hashes */
	struct entry *entries;
	size_t n;
	size_t list; /* bytes of the list itself */
	struct workers workers;
	pthread_mutex_t lock; /* of error */
	struct snapshot_error *error;
};

static bool go_on(void *workers)
{
	return workers_go_on(workers);
}

/* Find size and hash of a file. With l->sync, sync it and set its mode to 0600. */
static int take_file(struct listing *l, struct entry *e, struct snapshot_error *error)
{
	int fd = openat(l->directory, e->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	int ret = 0;

	if (fd < 0 || fstat(fd, &st))
		ret = -errno;
	else if (!S_ISREG(st.st_mode))
		ret = -EBADMSG;
	else if (l->sync && (fchmod(fd, 0600) || fsync(fd)))
		ret = -errno;
	e->size = ret ? 0 : st.st_size;
	if (!ret && !l->sizes)
		ret = hash_file(fd, e->size, go_on, &l->workers, &e->hash);
	if (fd >= 0)
		close(fd);
	if (ret == -EBADMSG)
		return snapshot_fail(error, ret, "%s: it is not a regular file", e->name);
	if (ret == -ENODATA)
		return snapshot_fail(error, ret, "%s: it became shorter", e->name);
	return ret ? snapshot_fail(error, ret, "%s: %s", e->name, error_text(-ret)) : 0;
}

static int add_entry(struct listing *l, const char *name)
{
	struct entry *entries = realloc(l->entries, (l->n + 1) * sizeof(*entries));

	if (!entries)
		return -ENOMEM;
	l->entries = entries;
	entries[l->n] = (struct entry){0};
	snprintf(entries[l->n++].name, sizeof(entries->name), "%s", name);
	return 0;
}

/* The names of all files except host.json. */
static int read_names(struct listing *l)
{
	DIR *dir = snapshot_dir_list(l->directory);
	struct dirent *found;
	int ret = dir ? 0 : -errno;

	while (!ret && (found = readdir(dir)))
		if (strcmp(found->d_name, ".") && strcmp(found->d_name, "..") &&
		    strcmp(found->d_name, LIST))
			ret = add_entry(l, found->d_name);
	if (dir)
		closedir(dir);
	return ret;
}

static void *take_main(void *arg)
{
	struct listing *l = arg;
	struct snapshot_error error;
	size_t i;

	while (workers_next(&l->workers, &i)) {
		int ret = take_file(l, &l->entries[i], &error);

		if (!ret)
			continue;
		pthread_mutex_lock(&l->lock);
		if (workers_go_on(&l->workers))
			*l->error = error;
		workers_fail(&l->workers, ret);
		pthread_mutex_unlock(&l->lock);
	}
	return NULL;
}

/* List l->directory; with l->sync, sync its files. The caller frees the entries in any case. */
static int take_files(struct listing *l, struct snapshot_error *error)
{
	int ret;

	l->error = error;
	ret = read_names(l);
	if (ret)
		return snapshot_fail(error, ret, "%s", error_text(-ret));
	pthread_mutex_init(&l->lock, NULL);
	l->workers.count = l->n;
	ret = workers_run(&l->workers, THREADS, take_main, l);
	pthread_mutex_destroy(&l->lock);
	return ret == -ECANCELED ? snapshot_fail(error, ret, "%s", error_text(-ret)) : ret;
}

static void put_file(struct json_out *out, const struct entry *e)
{
	char text[HASH_TEXT_SIZE];

	hash_text(e->hash, text);
	json_open(out, NULL, '{');
	json_text(out, "name", e->name);
	json_number(out, "size", e->size);
	json_text(out, "hash", text);
	json_close(out, '}');
}

static int put_files(struct json_out *out, int directory, size_t *bytes,
		     struct snapshot_error *error)
{
	struct listing l = {.directory = directory, .sync = true};
	int ret = take_files(&l, error);

	json_open(out, "files", '[');
	for (size_t i = 0; i < l.n && !ret; i++) {
		put_file(out, &l.entries[i]);
		*bytes += l.entries[i].size;
	}
	json_close(out, ']');
	free(l.entries);
	return ret;
}

static void put_facts(struct json_out *out, const struct host_facts *facts)
{
	json_decimal(out, "ms", facts->ms);
	json_open(out, "stopped", '[');
	for (size_t i = 0; i < facts->nstopped; i++)
		json_number(out, NULL, facts->stopped[i]);
	json_close(out, ']');
	if (facts->put)
		facts->put(out);
}

int host_image_seal(int dir, uint32_t number, const struct host_facts *facts, size_t *bytes,
		    struct snapshot_error *error)
{
	char seal[SNAPSHOT_SEAL_SIZE + 1], *text = NULL;
	size_t size = 0;
	struct json_out out = {.file = open_memstream(&text, &size)};
	/* If root snapshots a user's job, that user can replace files in the directory around this one. */
	int directory = host_image_open_own(dir, number, error), ret;

	if (directory < 0 || !out.file) {
		ret = directory < 0 ? directory : snapshot_fail(error, -ENOMEM, "out of memory");
		goto out;
	}
	*bytes = 0;
	json_open(&out, NULL, '{');
	put_facts(&out, facts);
	ret = put_files(&out, directory, bytes, error);
	if (!ret && fflush(out.file))
		ret = snapshot_fail(error, -ENOMEM, "out of memory");
	if (ret)
		goto out;
	snapshot_seal(text, size, seal);
	fputs(seal, out.file);
	if (fflush(out.file) || ferror(out.file)) {
		ret = snapshot_fail(error, -ENOMEM, "out of memory");
		goto out;
	}
	ret = snapshot_io_write_file(directory, LIST, text, size, error);
	if (!ret && fsync(directory))
		ret = snapshot_fail(error, -errno, "%s", error_text(errno));
out:
	if (out.file)
		fclose(out.file);
	free(text);
	if (directory >= 0)
		close(directory);
	return ret;
}

/* The entry of @name in the list; NULL if there is none. */
static const json_t *find_file(const json_t *files, const char *name)
{
	const json_t *file;
	size_t i;

	json_array_foreach(files, i, file) {
		const char *listed = json_string_value(json_object_get(file, "name"));

		if (listed && !strcmp(listed, name))
			return file;
	}
	return NULL;
}

static int check_file(const struct listing *l, const struct entry *e, const json_t *file,
		      struct snapshot_error *error)
{
	const char *expected = json_string_value(json_object_get(file, "hash"));
	json_int_t size = json_integer_value(json_object_get(file, "size"));
	char found[HASH_TEXT_SIZE];

	if (!expected)
		return snapshot_fail(error, -EBADMSG, "%.100s: it is not in " LIST, e->name);
	if ((json_int_t)e->size != size)
		return snapshot_fail(error, -EBADMSG,
				     "%s: expected %" JSON_INTEGER_FORMAT " bytes, found %zu",
				     e->name, size, e->size);
	hash_text(e->hash, found);
	if (!l->sizes && strcmp(found, expected))
		return snapshot_fail(error, -EBADMSG,
				     "%s: damaged: expected checksum %.32s, found %s", e->name,
				     expected, found);
	return 0;
}

/* CRIU opens any file by name, so the directory must have the files of the list and no others. */
static int check_files(struct listing *l, const json_t *files, struct snapshot_error *error)
{
	int ret = take_files(l, error);

	for (size_t i = 0; i < l->n && !ret; i++)
		ret = check_file(l, &l->entries[i], find_file(files, l->entries[i].name), error);
	if (!ret && l->n != json_array_size(files))
		ret = snapshot_fail(error, -EBADMSG, "expected %zu files, found %zu",
				    json_array_size(files), l->n);
	return ret;
}

/* The object of host.json in @directory, and its *@size in bytes. */
static int load_list(int directory, json_t **root, size_t *size, struct snapshot_error *error)
{
	char *text;
	int ret = snapshot_io_read_file(directory, LIST, LIST_MAX, &text, size, error);

	if (ret)
		return ret;
	if (!snapshot_is_sealed(text, *size))
		ret = snapshot_fail(error, -EBADMSG,
				    LIST ": damaged: its checksum is not that of its contents");
	else
		*root = json_loadb(text, *size, JSON_REJECT_DUPLICATES, NULL);
	free(text);
	return ret;
}

static int check_list(struct listing *l, struct snapshot_error *error)
{
	json_t *root = NULL, *files;
	int ret = load_list(l->directory, &root, &l->list, error);

	files = json_object_get(root, "files");
	if (!ret && json_is_array(files))
		ret = check_files(l, files, error);
	else if (!ret)
		ret = snapshot_fail(error, -EBADMSG, LIST ": expected a list of files");
	json_decref(root);
	return ret;
}

int host_image_facts(int dir, uint32_t number, json_t **root, struct snapshot_error *error)
{
	struct snapshot_error inner;
	int directory = host_image_open(dir, number, error), ret;
	size_t size;

	if (directory < 0)
		return directory;
	*root = NULL;
	ret = load_list(directory, root, &size, &inner);
	close(directory);
	return ret ? snapshot_fail(error, ret, "host-%u: %.480s", number, inner.text) : 0;
}

/* Put the number of files and their bytes in *@files and *@bytes, without host.json. */
static int check(struct listing *l, int dir, uint32_t number, size_t *files, size_t *bytes,
		 struct snapshot_error *error)
{
	struct snapshot_error inner;
	int ret;

	l->directory = host_image_open(dir, number, error);
	if (l->directory < 0)
		return l->directory;
	ret = check_list(l, &inner);
	*files = l->n;
	*bytes = 0;
	for (size_t i = 0; i < l->n; i++)
		*bytes += l->entries[i].size;
	free(l->entries);
	close(l->directory);
	return ret ? snapshot_fail(error, ret, "host-%u: %.480s", number, inner.text) : 0;
}

int host_image_check(int dir, uint32_t number, const bool *cancel, size_t *bytes,
		     struct snapshot_error *error)
{
	struct listing l = {.workers.cancel = cancel};
	size_t files;

	return check(&l, dir, number, &files, bytes, error);
}

int host_image_size(int dir, uint32_t number, size_t *files, size_t *bytes,
		    struct snapshot_error *error)
{
	struct listing l = {.sizes = true};
	int ret = check(&l, dir, number, files, bytes, error);

	if (!ret) {
		*files += 1;
		*bytes += l.list;
	}
	return ret;
}
