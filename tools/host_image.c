/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/host_image.h"

#include "checkpoint/json_out.h"
#include "checkpoint/snapshot_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIST     "host.json"
#define LIST_MAX (64UL << 20)

int host_image_open(int dir, uint32_t number, struct snapshot_error *error)
{
	char name[SNAPSHOT_NAME_SIZE];
	int fd;

	snapshot_name(SNAPSHOT_HOST, number, name);
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? snapshot_fail(error, -errno, "%s: %s", name, strerror(errno)) : fd;
}

int host_image_make(int dir, uint32_t number, struct snapshot_error *error)
{
	char name[SNAPSHOT_NAME_SIZE];

	snapshot_name(SNAPSHOT_HOST, number, name);
	if (mkdirat(dir, name, 0700))
		return snapshot_fail(error, -errno, "%s: %s", name, strerror(errno));
	return 0;
}

/* Size and hash of a file of the folder; with @sync it is on disk afterwards, and 0600. */
static int take_file(int folder, const char *name, bool sync, size_t *size, struct hash128 *hash,
		     struct snapshot_error *error)
{
	int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	void *data = NULL;
	struct stat st;
	int ret = 0;

	if (fd < 0 || fstat(fd, &st))
		ret = -errno;
	else if (!S_ISREG(st.st_mode))
		ret = -EBADMSG;
	else if (sync && (fchmod(fd, 0600) || fsync(fd)))
		ret = -errno;
	if (!ret && st.st_size) {
		data = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (data == MAP_FAILED)
			ret = -errno;
	}
	if (!ret) {
		*size = st.st_size;
		*hash = hash_bytes(data, st.st_size);
		if (data)
			munmap(data, st.st_size);
	}
	if (fd >= 0)
		close(fd);
	return ret ? snapshot_fail(error, ret, "%s: %s", name,
				   ret == -EBADMSG ? "it is no file" : strerror(-ret))
		   : 0;
}

static void put_file(struct json_out *out, const char *name, size_t size, struct hash128 hash)
{
	char text[HASH_TEXT_SIZE];

	hash_text(hash, text);
	json_open(out, NULL, '{');
	json_text(out, "name", name);
	json_number(out, "size", size);
	json_text(out, "hash", text);
	json_close(out, '}');
}

static int put_files(struct json_out *out, int folder, size_t *bytes, struct snapshot_error *error)
{
	DIR *entries = fdopendir(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct dirent *entry;
	struct hash128 hash;
	size_t size;
	int ret = 0;

	if (!entries)
		return snapshot_fail(error, -errno, "%s", strerror(errno));
	json_open(out, "files", '[');
	while (!ret && (entry = readdir(entries))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		ret = take_file(folder, entry->d_name, true, &size, &hash, error);
		if (!ret) {
			put_file(out, entry->d_name, size, hash);
			*bytes += size;
		}
	}
	json_close(out, ']');
	closedir(entries);
	return ret;
}

int host_image_seal(int dir, uint32_t number, double ms, size_t *bytes,
		    struct snapshot_error *error)
{
	char seal[SNAPSHOT_SEAL_SIZE + 1], *text = NULL;
	size_t size = 0;
	struct json_out out = {.file = open_memstream(&text, &size)};
	int folder = host_image_open(dir, number, error), ret;
	struct stat st;

	if (folder < 0 || !out.file) {
		ret = folder < 0 ? folder : snapshot_fail(error, -ENOMEM, "out of memory");
		goto out;
	}
	/* Where root takes a user's job, the folder around it is the user's to change. */
	if (fstat(folder, &st) || st.st_uid != geteuid()) {
		ret = snapshot_fail(error, -EPERM, "the process image is not ours");
		goto out;
	}
	*bytes = 0;
	json_open(&out, NULL, '{');
	json_decimal(&out, "ms", ms);
	ret = put_files(&out, folder, bytes, error);
	if (!ret && fflush(out.file))
		ret = snapshot_fail(error, -ENOMEM, "out of memory");
	if (ret)
		goto out;
	snapshot_seal(text, size, seal);
	fputs(seal, out.file);
	fflush(out.file);
	ret = snapshot_io_write_file(folder, LIST, text, size, error);
	if (!ret && fsync(folder))
		ret = snapshot_fail(error, -errno, "%s", strerror(errno));
out:
	if (out.file)
		fclose(out.file);
	free(text);
	if (folder >= 0)
		close(folder);
	return ret;
}

/* What the list says of @name; NULL: nothing. */
static const json_t *find_file(const json_t *files, const char *name)
{
	const json_t *file;
	size_t i;

	json_array_foreach(files, i, file)
	{
		const char *listed = json_string_value(json_object_get(file, "name"));

		if (listed && !strcmp(listed, name))
			return file;
	}
	return NULL;
}

static int check_file(int folder, const char *name, const json_t *file, size_t *bytes,
		      struct snapshot_error *error)
{
	const char *expected = json_string_value(json_object_get(file, "hash"));
	json_int_t expected_size = json_integer_value(json_object_get(file, "size"));
	char found[HASH_TEXT_SIZE];
	struct hash128 hash;
	size_t size;
	int ret;

	if (!expected)
		return snapshot_fail(error, -EBADMSG, "%.100s: it is not in " LIST, name);
	ret = take_file(folder, name, false, &size, &hash, error);
	if (ret)
		return ret;
	if ((json_int_t)size != expected_size)
		return snapshot_fail(error, -EBADMSG,
				     "%s: expected %" JSON_INTEGER_FORMAT " bytes, found %zu", name,
				     expected_size, size);
	hash_text(hash, found);
	if (strcmp(found, expected))
		return snapshot_fail(error, -EBADMSG,
				     "%s: damaged: expected checksum %.32s, found %s", name,
				     expected, found);
	*bytes += size;
	return 0;
}

/* CRIU opens what it likes by name: the folder has the files of the list, and no others. */
static int check_files(int folder, const json_t *files, size_t *bytes, struct snapshot_error *error)
{
	DIR *entries = fdopendir(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct dirent *entry;
	size_t n = 0;
	int ret = 0;

	if (!entries)
		return snapshot_fail(error, -errno, "%s", strerror(errno));
	*bytes = 0;
	while (!ret && (entry = readdir(entries))) {
		const char *name = entry->d_name;

		if (!strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, LIST))
			continue;
		ret = check_file(folder, name, find_file(files, name), bytes, error);
		n++;
	}
	closedir(entries);
	if (!ret && n != json_array_size(files))
		ret = snapshot_fail(error, -EBADMSG, "expected %zu files, found %zu",
				    json_array_size(files), n);
	return ret;
}

static int check_list(int folder, const char *text, size_t size, size_t *bytes,
		      struct snapshot_error *error)
{
	char seal[SNAPSHOT_SEAL_SIZE + 1] = "";
	json_t *root, *files;
	int ret;

	if (size > SNAPSHOT_SEAL_SIZE)
		snapshot_seal(text, size - SNAPSHOT_SEAL_SIZE, seal);
	if (!*seal || strcmp(text + size - SNAPSHOT_SEAL_SIZE, seal))
		return snapshot_fail(error, -EBADMSG,
				     LIST ": damaged: its checksum is not that of its contents");
	root = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
	files = json_object_get(root, "files");
	if (json_is_array(files))
		ret = check_files(folder, files, bytes, error);
	else
		ret = snapshot_fail(error, -EBADMSG, LIST ": expected a list of files");
	json_decref(root);
	return ret;
}

int host_image_check(int dir, uint32_t number, size_t *bytes, struct snapshot_error *error)
{
	struct snapshot_error inner;
	char *text;
	size_t size;
	int folder = host_image_open(dir, number, error), ret;

	if (folder < 0)
		return folder;
	ret = snapshot_io_read_file(folder, LIST, LIST_MAX, &text, &size, &inner);
	if (!ret) {
		ret = check_list(folder, text, size, bytes, &inner);
		free(text);
	}
	close(folder);
	return ret ? snapshot_fail(error, ret, "host-%u: %.480s", number, inner.text) : 0;
}
