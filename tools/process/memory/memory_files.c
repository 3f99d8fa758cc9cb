/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/memory/memory_files.h"

#include "common/processes/maps.h"
#include "common/system/memory_fs.h"
#include "common/text.h"
#include "tools/process/memory/memory_file.h"
#include "tools/process/memory/memory_holders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* A shared, writable mapping of a file. */
struct mapping {
	const char *path, *link; /* the link leads to the file, also if nothing is at the path */
	bool hidden;             /* it may be a file in memory, and only root can look at it */
	struct stat st;
};

void memory_files_free(struct memory_files *files)
{
	free(files->list);
	*files = (struct memory_files){0};
}

static bool is_file(const struct maps *maps, const struct stat *st)
{
	return st->st_dev == maps->device && st->st_ino == maps->inode;
}

/* A name in the directory @link that the file has now replaces the directory. False: it has none there. */
static bool look_for_name(const struct maps *maps, struct mapping *m, char *link, size_t size)
{
	DIR *dir = opendir(link);
	struct dirent *entry;
	bool found = false;

	m->hidden = !dir;
	while (dir && !found && (entry = readdir(dir)))
		if (entry->d_ino == maps->inode &&
		    !fstatat(dirfd(dir), entry->d_name, &m->st, AT_SYMLINK_NOFOLLOW) &&
		    is_file(maps, &m->st)) {
			size_t length = strlen(link);

			found = true;
			snprintf(link + length, size - length, "/%s", entry->d_name);
		}
	if (dir)
		closedir(dir);
	return found;
}

/*
 * Look at the file by its names, in the directory where it was mapped, as the process sees that. One that has none there
 * has none at all, or CRIU refuses it. False: it is no named file in memory.
 */
static bool look_by_name(pid_t pid, const struct maps *maps, struct mapping *m, char *link,
			 size_t size)
{
	struct stat st;

	snprintf(link, size, "/proc/%d/root%s", pid, maps->path);
	if (!stat(link, &m->st)) {
		m->hidden = !is_file(maps, &m->st); /* as on an overlay */
		return S_ISREG(m->st.st_mode) && memory_fs(link);
	}
	*strrchr(link, '/') = '\0';
	if (stat(link, &st) || st.st_dev != maps->device || !memory_fs(link))
		return false;
	return look_for_name(maps, m, link, size) ? S_ISREG(m->st.st_mode) : m->hidden;
}

/*
 * Look at the file of a mapping. proc_pid_map_files(5): the link leads to the file that is mapped, whatever its name is
 * now; but only root may follow it, and who has CAP_CHECKPOINT_RESTORE. False: it is no named file in memory.
 */
static bool look(pid_t pid, const struct maps *maps, struct mapping *m, char *link, size_t size)
{
	snprintf(link, size, "/proc/%d/map_files/%lx-%lx", pid, maps->begin, maps->end);
	if (!stat(link, &m->st))
		return S_ISREG(m->st.st_mode) && m->st.st_nlink && memory_fs(link);
	return (errno == EPERM || errno == EACCES) && look_by_name(pid, maps, m, link, size);
}

/* Call @take for each such mapping of the process until it returns false; that is returned. */
static bool each_mapping(pid_t pid, bool (*take)(void *arg, const struct mapping *m), void *arg)
{
	char link[PATH_MAX + NAME_MAX + 32];
	bool goes_on = true;
	struct maps maps;

	maps_open(&maps, pid);
	while (goes_on && maps_next(&maps)) {
		struct mapping m = {.path = maps.path, .link = link};

		if (maps.path && maps.rights[1] == 'w' && maps.rights[3] == 's' &&
		    look(pid, &maps, &m, link, sizeof(link)))
			goes_on = take(arg, &m);
	}
	maps_close(&maps);
	return goes_on;
}

/*
 * All names that the file has in its directory. False: it has others elsewhere, or too many, or the process that maps
 * it has another file system there than we.
 */
static bool find_names(struct memory_file *f, size_t links)
{
	int fd = memory_file_open_directory(f->directory);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	bool good = dir;

	while (good && (entry = readdir(dir)))
		if (entry->d_ino == f->ino && memory_file_is(f, dirfd(dir), entry->d_name))
			good = memory_file_add_name(f, entry->d_name);
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
	return good && f->nnames == links;
}

struct search {
	struct memory_files *files;
	uid_t owner;
	const char *fault; /* why the one at @path cannot be carried */
	char path[256];
};

static bool refuse(struct search *s, const struct mapping *m, const char *fault)
{
	s->fault = fault;
	format_copy(s->path, sizeof(s->path), m->path);
	return false;
}

/* Whether the file at @link has extended attributes, as an ACL is one, except labels that the kernel gives itself. */
static bool has_attributes(const char *link)
{
	static const char label[] = "security.";
	char names[1024];
	ssize_t length = listxattr(link, names, sizeof(names));

	for (char *name = names; name < names + length; name += strlen(name) + 1)
		if (strncmp(name, label, strlen(label)) != 0)
			return true;
	return length < 0 && errno != ENOTSUP;
}

static bool add_file(struct search *s, const struct mapping *m, struct memory_file **added)
{
	struct memory_files *files = s->files;
	struct memory_file *list = realloc(files->list, (files->n + 1) * sizeof(*list)), *f;
	size_t length = strrchr(m->path, '/') - m->path;

	if (!list)
		return refuse(s, m, "out of memory");
	files->list = list;
	if (m->st.st_uid != s->owner)
		return refuse(s, m, "it belongs to another user than the job");
	f = &list[files->n];
	*f = (struct memory_file){.dev = m->st.st_dev,
				  .ino = m->st.st_ino,
				  .made = memory_file_made(AT_FDCWD, m->link, 0),
				  .mode = m->st.st_mode & 07777,
				  .uid = m->st.st_uid,
				  .gid = m->st.st_gid,
				  .written = m->st.st_mtim,
				  .size = m->st.st_size,
				  .reserved = m->st.st_size &&
					      m->st.st_blocks >= (m->st.st_size + 511) / 512};
	if (length >= sizeof(f->directory))
		return refuse(s, m, "its path is too long");
	memcpy(f->directory, m->path, length);
	if (!find_names(f, m->st.st_nlink))
		return refuse(
			s, m,
			"it does not lie directly in a tmpfs of root's with all of its names");
	if (f->mode & (S_ISUID | S_ISGID))
		return refuse(s, m, "it is a set-id file");
	if (has_attributes(m->link))
		return refuse(s, m, "it has an ACL or other attributes");
	files->n++;
	*added = f;
	return true;
}

/*
 * A mapping shows the name. If it is a former one and there all the same, a snapshot or restore that was killed has left
 * it; or somebody has chosen such a name for a file that has another: then it is lost. False: it cannot be carried.
 */
static bool add_shown(struct memory_file *f, const char *name)
{
	size_t names = f->nnames - f->nformer, all = f->nnames, i = 0;

	if (!memory_file_add_name(f, name))
		return false;
	if (f->nnames > all) {
		f->nformer++;
		return maps_is_former(name);
	}
	while (strcmp(f->names[i], name) != 0)
		i++;
	if (i < names && names > 1 && maps_is_former(name)) {
		memmove(f->names[i], f->names[i + 1], (names - 1 - i) * sizeof(f->names[0]));
		strcpy(f->names[names - 1], name);
		f->nformer++;
	}
	return true;
}

static bool take_mapping(void *arg, const struct mapping *m)
{
	struct search *s = arg;
	struct memory_file *f = memory_holders_file(s->files, m->st.st_dev, m->st.st_ino);
	const char *name = strrchr(m->path, '/') + 1;

	if (m->hidden)
		return refuse(s, m, "only root can carry it");
	if (!f && !add_file(s, m, &f))
		return false;
	if (strncmp(m->path, f->directory, strlen(f->directory)) ||
	    name != m->path + strlen(f->directory) + 1 || !add_shown(f, name))
		return refuse(s, m, "its former name cannot be carried");
	return true;
}

bool memory_files_alone(const struct memory_files *files, const struct tree *tree, char *why,
			size_t size)
{
	const struct memory_file *f = memory_holders_find(files, tree);

	if (f)
		snprintf(
			why, size,
			"process %d, which is not part of the job, has a file in memory that the job maps, %s/%s",
			f->holder, f->directory, f->names[0]);
	return !f;
}

bool memory_files_find(struct memory_files *files, const struct tree *tree, char *why, size_t size)
{
	struct search search = {.files = files, .owner = tree->owner};

	*files = (struct memory_files){0};
	for (size_t i = 0; i < tree->n; i++)
		if (!each_mapping(tree->pids[i], take_mapping, &search)) {
			snprintf(why, size, "%d maps %s, a file in memory: %s", tree->pids[i],
				 search.path, search.fault);
			return false;
		}
	return memory_files_alone(files, tree, why, size);
}

static int name_one(const struct memory_file *f, int dir, struct snapshot_error *error)
{
	int fd = f->nformer ? memory_file_open(f, dir, O_PATH) : -1, ret = 0;

	if (f->nformer && fd < 0)
		return memory_file_fail(error, f, 0, fd);
	for (size_t i = f->nnames - f->nformer; i < f->nnames && !ret; i++) {
		ret = memory_file_link(fd, dir, f->names[i]);
		if (ret)
			ret = memory_file_is(f, dir, f->names[i])
				      ? 0
				      : memory_file_fail(error, f, i, ret);
	}
	if (fd >= 0)
		close(fd);
	return ret;
}

static void unname_one(const struct memory_file *f, int dir)
{
	for (size_t i = f->nnames - f->nformer; i < f->nnames; i++)
		if (memory_file_is(f, dir, f->names[i]))
			unlinkat(dir, f->names[i], 0);
}

int memory_files_name(const struct memory_files *files, bool have, struct snapshot_error *error)
{
	int ret = 0;

	for (size_t i = 0; i < files->n && !ret; i++) {
		int dir = memory_file_open_directory(files->list[i].directory);

		if (dir < 0)
			ret = memory_file_fail(error, &files->list[i], 0, -ENOENT);
		else if (have)
			ret = name_one(&files->list[i], dir, error);
		else
			unname_one(&files->list[i], dir);
		if (dir >= 0)
			close(dir);
	}
	return ret;
}

/* Whether nobody has written or cut it since it was found, when all processes of the job were stopped. */
static bool is_unchanged(const struct memory_file *f, int fd)
{
	struct stat st;

	return !fstat(fd, &st) && (size_t)st.st_size == f->size &&
	       st.st_mtim.tv_sec == f->written.tv_sec && st.st_mtim.tv_nsec == f->written.tv_nsec;
}

static int save_one(const struct memory_file *f, int dir, int images, const char *name)
{
	int from = memory_file_open(f, dir, O_RDONLY), to, ret;

	if (from < 0)
		return from;
	to = openat(images, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ret = to < 0 ? -errno : memory_file_copy(from, to, f->size, false);
	if (!is_unchanged(f, from))
		ret = -EBUSY;
	close(from);
	if (to >= 0)
		close(to);
	return ret;
}

int memory_files_save(const struct memory_files *files, int images, struct snapshot_error *error)
{
	char name[32];

	for (size_t i = 0; i < files->n; i++) {
		const struct memory_file *f = &files->list[i];
		int dir = memory_file_open_directory(f->directory), ret;

		memory_file_content(i, name);
		ret = dir < 0 ? -ENOENT : save_one(f, dir, images, name);
		if (dir >= 0)
			close(dir);
		if (ret == -EBUSY)
			return snapshot_fail(
				error, ret,
				"%s/%s was written or cut by a process that is not part of the job",
				f->directory, f->names[0]);
		if (ret)
			return memory_file_fail(error, f, 0, ret);
	}
	return 0;
}

static void put_names(struct json_out *out, const char *key, const struct memory_file *f,
		      size_t from, size_t to)
{
	json_open(out, key, '[');
	for (; from < to; from++)
		json_text(out, NULL, f->names[from]);
	json_close(out, ']');
}

void memory_files_put(struct json_out *out, const void *arg)
{
	const struct memory_files *files = arg;
	char boot[MEMORY_FILE_BOOT];

	memory_file_boot(boot);
	json_text(out, "boot", boot);
	json_open(out, MEMORY_FILE_KEY, '[');
	for (const struct memory_file *f = files->list; f < files->list + files->n; f++) {
		json_open(out, NULL, '{');
		json_text(out, "directory", f->directory);
		put_names(out, "names", f, 0, f->nnames - f->nformer);
		put_names(out, "former", f, f->nnames - f->nformer, f->nnames);
		json_number(out, "device", f->dev);
		json_number(out, "inode", f->ino);
		json_number(out, "made", f->made);
		json_number(out, "mode", f->mode);
		json_number(out, "uid", f->uid);
		json_number(out, "gid", f->gid);
		json_number(out, "size", f->size);
		json_bool(out, "reserved", f->reserved);
		json_close(out, '}');
	}
	json_close(out, ']');
}
