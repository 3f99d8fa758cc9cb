/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/scan.h"

#include "common/processes/pidfd.h"
#include "common/processes/proc.h"
#include "common/settings.h"
#include "common/system/memfd.h"
#include "common/text.h"
#include "tools/process/limited.h"
#include "tools/process/criu/tree.h"
#include "tools/report/report.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define DIRECTORIES 16 /* that one process is looked for in */

/* The users of processes at which a child has hung, one entry for each. */
static struct {
	uid_t *uids;
	size_t n;
} hangs;

static bool is_slow(uid_t uid)
{
	size_t n = 0;

	for (size_t i = 0; i < hangs.n; i++)
		n += hangs.uids[i] == uid;
	return n >= SCAN_HANGS || hangs.n >= SCAN_HANGS_IN_ALL;
}

static void note_hang(const struct process *process)
{
	uid_t *uids = reallocarray(hangs.uids, hangs.n + 1, sizeof(*uids));

	if (uids) {
		hangs.uids = uids;
		uids[hangs.n++] = process->uid;
	}
	complain("process %d of user %u is left out: looking into its files or memory takes too "
		 "long%s",
		 process->pid, process->uid,
		 hangs.n >= SCAN_HANGS_IN_ALL ? "; all further processes are left out as well"
		 : is_slow(process->uid)      ? "; this user's other processes are left out as well"
					      : "");
}

/* What the child looks at, in memory that both processes see. */
struct glance {
	volatile unsigned int number; /* of looks, so that a new one is noticed */
	struct process process;
};

struct scout {
	const struct scan *scan;
	struct glance *glance;
	pid_t command, after;
};

static void setting_of(pid_t pid, enum setting_id setting, char *buf, size_t size)
{
	char value[256];

	host_environment(pid, settings[setting].name, value, sizeof(value));
	format_copy(buf, size, value);
}

/* CUDAW_RUNTIME_DIR of @pid as rundir_path() has it, without slashes at the end. */
static void directory_of(pid_t pid, char *buf, size_t size)
{
	size_t len;

	host_environment(pid, settings[SETTING_RUNTIME_DIR].name, buf, size);
	for (len = strlen(buf); len > 1 && buf[len - 1] == '/';)
		buf[--len] = '\0';
}

/* Whether @process itself listens in @directory. It does if it takes no more callers. */
static bool listens_in(const struct process *process, const char *directory)
{
	int fd = inside_connect(process, directory);
	struct ucred peer = {0};
	socklen_t size = sizeof(peer);
	bool listens = fd == -EAGAIN;

	if (fd < 0)
		return listens;
	listens = !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) &&
		  peer.pid == process->pid && process_is_there(process) && pidfd_peer_runs(fd);
	close(fd);
	return listens;
}

/* Find the directory in which @sighting listens. False: it listens in none. */
static bool find_directory(const struct scan *scan, struct sighting *sighting)
{
	const struct process *process = &sighting->process;
	char found[DIRECTORIES][INSIDE_PATH];
	size_t n = inside_listens(process, found, DIRECTORIES);

	for (size_t i = 0; i < n; i++) {
		/* The path did not fit into an address, so the job bound it by a descriptor. */
		if (*found[i])
			snprintf(sighting->directory, sizeof(sighting->directory), "%s", found[i]);
		else
			directory_of(process->pid, sighting->directory,
				     sizeof(sighting->directory));
		if ((!scan->only || !strcmp(sighting->directory, scan->only)) &&
		    listens_in(process, sighting->directory))
			return true;
	}
	return false;
}

/* Fill in the kind of @sighting. False: it is no job. */
static bool look_inside(const struct scan *scan, struct sighting *sighting)
{
	pid_t pid = sighting->process.pid;
	bool known = scan->is_known(scan->arg, &sighting->process);
	enum inside_face face = inside_face(pid, &sighting->drivers);

	if (known)
		return true;
	sighting->kind = SIGHTING_JOB;
	if (face == INSIDE_NONE)
		return false;
	if (find_directory(scan, sighting))
		return true;
	sighting->kind = *sighting->drivers.past ? SIGHTING_PAST : SIGHTING_STARTING;
	directory_of(pid, sighting->directory, sizeof(sighting->directory));
	return face == INSIDE_FACE && (!scan->only || !strcmp(sighting->directory, scan->only));
}

static bool look_at(const struct scout *scout, pid_t pid, int fd)
{
	const struct scan *scan = scout->scan;
	struct sighting s = {0};

	if (pid <= scout->after || pid == scout->command || pid == getpid() ||
	    !process_find(pid, &s.process) || !s.process.one_user ||
	    (scan->owner != RUNDIR_ANYONE && s.process.uid != scan->owner) ||
	    is_slow(s.process.uid))
		return true;
	scout->glance->process = s.process;
	scout->glance->number++;
	if (!look_inside(scan, &s))
		return true;
	setting_of(pid, SETTING_JOB, s.id, sizeof(s.id));
	setting_of(pid, SETTING_NAME, s.name, sizeof(s.name));
	inside_command(pid, s.command, sizeof(s.command));
	/* All this was of one process, unless another has its PID now. */
	return !process_is_there(&s.process) || send(fd, &s, sizeof(s), MSG_NOSIGNAL) == sizeof(s);
}

/* In the child. */
static void look_at_all(void *arg, int fd)
{
	const struct scout *scout = arg;
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	while (proc && (entry = readdir(proc)))
		if (atoi(entry->d_name) > 0 && !look_at(scout, atoi(entry->d_name), fd))
			break;
	if (proc)
		closedir(proc);
}

static int add(struct scan *scan, const struct sighting *sighting)
{
	struct sighting *found = scan->found;

	/* The room doubles. */
	if (!(scan->n & (scan->n - 1)))
		found = reallocarray(found, scan->n ? 2 * scan->n : 1, sizeof(*found));
	if (!found)
		return -ENOMEM;
	scan->found = found;
	found[scan->n++] = *sighting;
	return 0;
}

/* Take what the child sends. 0: it has looked at all; -ETIMEDOUT: it hangs. */
static int take_all(struct scan *scan, const struct limited *child, const struct glance *glance)
{
	struct sighting sighting;
	int err = 0;

	while (!err) {
		err = limited_wait(child, &glance->number);
		if (err)
			break;
		if (recv(child->fd, &sighting, sizeof(sighting), 0) != sizeof(sighting))
			return 0;
		err = add(scan, &sighting);
	}
	return err;
}

/* Whether @it was forked with the mappings of a process above it, and has opened no driver itself. */
static bool is_copy(const struct scan *scan, const struct sighting *it)
{
	for (size_t i = 0; i < scan->n; i++)
		if (scan->found[i].drivers.where == it->drivers.where &&
		    tree_is_below(it->process.pid, scan->found[i].process.pid))
			return true;
	return false;
}

int scan_run(struct scan *scan)
{
	struct glance *glance = mmap(NULL, sizeof(*glance), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct scout scout = {.scan = scan, .glance = glance, .command = getpid()};
	struct limited child;
	int err;

	if (glance == MAP_FAILED)
		return -errno;
	do {
		glance->process.pid = 0;
		err = limited_begin(&child, look_at_all, &scout);
		if (err)
			break;
		err = take_all(scan, &child, glance);
		limited_end(&child);
		scout.after = glance->process.pid;
		if (err == -ETIMEDOUT && scout.after)
			note_hang(&glance->process);
	} while (err == -ETIMEDOUT && scout.after);
	munmap(glance, sizeof(*glance));
	for (size_t i = 0; i < scan->n; i++) {
		struct sighting *it = &scan->found[i];

		if (it->kind != SIGHTING_PAST || !is_copy(scan, it))
			continue;
		it->kind = SIGHTING_STARTING;
		*it->drivers.past = '\0';
	}
	return err;
}

static bool same_id(const struct sighting *a, const struct sighting *b)
{
	return *a->id && !strcmp(a->id, b->id) && a->process.uid == b->process.uid;
}

bool scan_stands_alone(const struct scan *scan, size_t i)
{
	const struct sighting *it = &scan->found[i];

	for (size_t k = 0; k < scan->n; k++) {
		const struct sighting *other = &scan->found[k];
		bool above = tree_is_below(it->process.pid, other->process.pid);
		bool below = tree_is_below(other->process.pid, it->process.pid);

		if (k == i)
			continue;
		if (other->kind != SIGHTING_STARTING
			    ? same_id(it, other) || above || below
			    : above || (same_id(it, other) && k < i && !below))
			return false;
	}
	return true;
}

const char *scan_past_text(const char *past, bool starting, char buf[SCAN_PAST_TEXT])
{
	if (starting)
		snprintf(
			buf, SCAN_PAST_TEXT,
			"has called CUDA, but no cuInit() has succeeded: there may be no GPU for it, it may use the "
			"driver past cudaw (%s), or it could not make its socket (with CUDAW_LOG=warn its stderr has "
			"the error)",
			past);
	else
		snprintf(buf, SCAN_PAST_TEXT, "uses the driver past cudaw (%s)", past);
	return buf;
}

struct connection {
	const struct process *process;
	const char *directory;
};

static int connect_in_child(void *arg)
{
	const struct connection *c = arg;

	return inside_connect(c->process, c->directory);
}

/* limited_open() for @process, unless its user has had enough time. */
static int open_for(const struct process *process, int (*work)(void *arg), void *arg)
{
	int fd = is_slow(process->uid) ? -ETIMEDOUT : limited_open(work, arg);

	if (fd == -ETIMEDOUT && !is_slow(process->uid))
		note_hang(process);
	return fd;
}

int scan_connect(const struct process *process, const char *directory)
{
	struct connection connection = {process, directory};

	return open_for(process, connect_in_child, &connection);
}

struct variable {
	pid_t pid;
	const char *name;
	size_t size;
};

/* The value as the contents of a file in memory. */
static int read_in_child(void *arg)
{
	const struct variable *variable = arg;
	int fd = memfd_make(variable->name);
	char *value = malloc(variable->size);

	if (fd < 0 || !value)
		return -ENOMEM;
	host_environment(variable->pid, variable->name, value, variable->size);
	return pwrite(fd, value, strlen(value), 0) < 0 ? -errno : fd;
}

/* No variable is empty; what is left of them is. */
static bool has_empty_variable(pid_t pid)
{
	char path[64], *line = NULL;
	size_t room = 0;
	bool empty = false;
	ssize_t len;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/environ", pid);
	file = fopen(path, "re");
	while (file && !empty && (len = getdelim(&line, &room, '\0', file)) > 0)
		empty = len == 1 && !*line;
	free(line);
	if (file)
		fclose(file);
	return empty;
}

/* A file if it is. */
static int look_in_child(void *arg)
{
	const struct process *process = arg;
	struct inside_drivers drivers;

	return has_empty_variable(process->pid) &&
			       inside_face(process->pid, &drivers) == INSIDE_FACE
		       ? memfd_make("overwritten")
		       : -ENOENT;
}

bool scan_is_overwritten(const struct process *process)
{
	int fd = open_for(process, look_in_child, (void *)process);

	if (fd >= 0)
		close(fd);
	return fd >= 0 && process_is_there(process);
}

void scan_environment(const struct process *process, const char *name, char *buf, size_t size)
{
	struct variable variable = {process->pid, name, size};
	int fd = open_for(process, read_in_child, &variable);
	ssize_t len = fd < 0 ? 0 : pread(fd, buf, size - 1, 0);

	buf[len < 0 ? 0 : len] = '\0';
	if (fd >= 0)
		close(fd);
	if (!process_is_there(process))
		buf[0] = '\0';
}
