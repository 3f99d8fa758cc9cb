/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the sockets in runtime directories, and identifies the processes that listen. */
#include "tools/job/jobs.h"
#include "tools/job/directories.h"
#include "common/processes/pidfd.h"
#include "common/settings.h"
#include "tools/job/scan.h"
#include "tools/report/report.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define NO_JOBS_FOUND "%s cannot be used, and so jobs cannot be found: %s"

/* The number before @suffix in @name, at most @max; -1: it has another form. */
static long number_of(const char *name, const char *suffix, long max)
{
	char *end;
	long value;

	/* Without leading zeros, so that no two names mean the same number. */
	if (*name < '0' || *name > '9' || (*name == '0' && name[1] >= '0' && name[1] <= '9'))
		return -1;
	value = strtol(name, &end, 10);
	return strcmp(end, suffix) == 0 && value <= max ? value : -1;
}

/*
 * Whether the listener is not visible: its PID namespace is not ours or a descendant, or /proc
 * hides it (hidepid), though not from root.
 */
static bool is_hidden(pid_t peer)
{
	struct process process;

	if (!peer || !process_find(getpid(), &process))
		return true;
	return geteuid() != 0 && !process_find(peer, &process) && kill(peer, 0) == 0;
}

/*
 * Check that the listener at the other end of @fd is the process that @job's socket is named after,
 * and, if it was identified before, the same process. The PID of a hidden process is taken from the
 * name, as no action uses it. 0, -JOB_OTHER, or -ECONNREFUSED if it has just ended.
 */
static int identify(struct job *job, int fd)
{
	struct process process;
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		return -errno;
	if (is_hidden(peer.pid)) {
		/* Root may have restored it (CRIU), and is harmless here. */
		if (job->seen ||
		    (job->directory->owner && peer.uid && peer.uid != job->directory->owner))
			return -JOB_OTHER;
		job->pid = job->own_pid;
		job->uid = peer.uid ? peer.uid : job->directory->owner;
		return 0;
	}
	if (!process_find(peer.pid, &process) || !pidfd_peer_runs(fd))
		return -ECONNREFUSED;
	if (process.own_pid != job->own_pid || !process_is_of(&process, job->directory->owner) ||
	    (job->seen && (process.pid != job->process.pid || process.start != job->process.start)))
		return -JOB_OTHER;
	job->process = process;
	job->pid = process.pid;
	job->uid = process.uid;
	job->seen = true;
	return 0;
}

/*
 * For a socket with a full backlog, as of a job that was stopped a while ago: its listener cannot
 * be identified. A process of our PID namespace with the PID and the owner is taken for it; the
 * owner could do to this process without us whatever we do to it.
 */
static int guess(struct job *job)
{
	if (!process_find(job->own_pid, &job->process) || job->process.own_pid != job->own_pid ||
	    !process_is_of(&job->process, job->directory->owner))
		return -EAGAIN;
	job->pid = job->own_pid;
	job->uid = job->process.uid;
	job->seen = true;
	return 0;
}

static void remove_socket(int dir, pid_t pid, const char *suffix)
{
	char name[32];

	snprintf(name, sizeof(name), "%d%s", pid, suffix);
	unlinkat(dir, name, 0);
}

static bool has_ended(pid_t pid)
{
	return kill(pid, 0) && errno == ESRCH;
}

static int connect_in(int dir, const struct job *job)
{
	int fd = rundir_connect(RUNDIR_CONTROL, dir, job->own_pid);

	/* A root of few capabilities, such as a hook of cudawd, may connect only as the user. */
	if (fd == -EACCES && process_act_as(job->directory->owner)) {
		fd = rundir_connect(RUNDIR_CONTROL, dir, job->own_pid);
		process_act_as(geteuid());
	}
	if (fd == -ECONNREFUSED && has_ended(job->own_pid))
		remove_socket(dir, job->own_pid, RUNDIR_SUFFIX);
	return fd;
}

/* Processes of other PID namespaces, which may listen, are asked only if there is none here. */
static void tidy_sharing(int dir, pid_t pid)
{
	int fd = has_ended(pid) ? rundir_connect(RUNDIR_SHARING, dir, pid) : -ENOENT;

	if (fd == -ECONNREFUSED)
		remove_socket(dir, pid, RUNDIR_SHARING_SUFFIX);
	else if (fd >= 0)
		close(fd);
}

/* @fd, if its listener is the job; or a negative errno. */
static int checked(struct job *job, int fd)
{
	int err = fd < 0 ? 0 : identify(job, fd);

	if (!err)
		return fd;
	close(fd);
	return err;
}

int job_open_directory(const struct job *job)
{
	const char *why;

	if (job->directory->inside)
		return -EXDEV;
	return rundir_open(job->directory->path, job->directory->owner, &why);
}

int job_connect(struct job *job)
{
	int dir, fd;

	if (job->directory->inside)
		return checked(job, scan_connect(&job->process, job->directory->path));
	dir = job_open_directory(job);
	if (dir < 0)
		return dir;
	fd = connect_in(dir, job);
	/* If descriptors are short, identifying the listener can use this one. */
	close(dir);
	return checked(job, fd);
}

void job_unlink(const struct job *job)
{
	int dir = job_open_directory(job);

	if (dir < 0)
		return;
	remove_socket(dir, job->own_pid, RUNDIR_SUFFIX);
	remove_socket(dir, job->own_pid, RUNDIR_SHARING_SUFFIX);
	close(dir);
}

static int add_to(struct job **jobs, size_t *n, const struct job *job)
{
	struct job *more = *jobs;

	/* The room doubles. */
	if (!(*n & (*n - 1)))
		more = reallocarray(more, *n ? 2 * *n : 1, sizeof(*more));
	if (!more)
		return -ENOMEM;
	*jobs = more;
	more[(*n)++] = *job;
	return 0;
}

static int add_job(struct job_list *list, const struct job *job)
{
	return add_to(&list->jobs, &list->n, job);
}

/* Add the jobs of @directory, which is open as @dir. Ignored sockets are counted. */
static int add_jobs(struct job_list *list, const struct job_directory *directory, int dir)
{
	DIR *stream = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	size_t turn = 0, others = 0, denied = 0;
	struct dirent *entry;
	pid_t other = 0;
	int err = 0;

	if (!stream)
		return -errno;
	while (!err && turn < JOBS_IN_DIRECTORY && (entry = readdir(stream))) {
		long pid = number_of(entry->d_name, RUNDIR_SUFFIX, INT_MAX);
		long sharer = number_of(entry->d_name, RUNDIR_SHARING_SUFFIX, INT_MAX);
		struct job job = {
			.own_pid = pid, .pid = pid, .directory = directory, .turn = turn, .fd = -1};
		int fd = pid > 0 ? checked(&job, connect_in(dir, &job)) : -ENOENT;

		if (sharer > 0)
			tidy_sharing(dir, sharer);
		if (fd >= 0)
			close(fd);
		if (fd == -EAGAIN)
			fd = guess(&job);
		if (fd == -EACCES)
			denied++;
		else if (fd < 0 && fd != -ENOENT && fd != -ECONNREFUSED)
			other = others++ ? other : pid;
		if (fd >= 0) {
			err = add_job(list, &job);
			turn++;
		}
	}
	closedir(stream);
	if (others)
		complain("%s: %zu socket%s ignored, as %d" RUNDIR_SUFFIX
			 ": the process that listens has another PID, or is not the directory "
			 "owner's",
			 directory->path, others, others == 1 ? " is" : "s are", other);
	if (denied)
		complain("%s: %zu socket%s ignored: this command may not connect to %s",
			 directory->path, denied, denied == 1 ? " is" : "s are",
			 denied == 1 ? "it" : "them");
	list->denied |= denied > 0;
	if (turn == JOBS_IN_DIRECTORY)
		complain("%s: it has more than %d jobs; the others are ignored", directory->path,
			 JOBS_IN_DIRECTORY - 1);
	return err;
}

static struct job_directory *add_directory(struct job_list *list, const char *path, uid_t owner)
{
	struct job_directory **directories =
		reallocarray(list->directories, list->ndirectories + 1, sizeof(*directories));
	struct job_directory *directory = directories ? calloc(1, sizeof(*directory)) : NULL;

	if (directories)
		list->directories = directories;
	if (!directory || !(directory->path = strdup(path))) {
		free(directory);
		return NULL;
	}
	directory->owner = owner;
	list->directories[list->ndirectories++] = directory;
	return directory;
}

/*
 * Add the jobs of the directory @path of @owner. A missing directory is not an error: the first job
 * makes it.
 */
static int add_path(struct job_list *list, const char *path, uid_t owner)
{
	struct job_directory *directory;
	const char *why;
	struct stat st;
	int err;
	int dir = rundir_open(path, owner, &why);

	if (dir == -ENOENT)
		return EXIT_DONE;
	if (dir < 0) {
		complain(NO_JOBS_FOUND, path, why);
		return EXIT_FAILED;
	}
	directory = fstat(dir, &st) ? NULL : add_directory(list, path, st.st_uid);
	err = directory ? add_jobs(list, directory, dir) : -ENOMEM;
	close(dir);
	if (!err)
		return EXIT_DONE;
	complain("%s: %s", path, strerror(-err));
	return EXIT_FAILED;
}

struct finding {
	struct job_list *list;
	int err;
};

static void find_in(void *arg, const char *path, uid_t owner)
{
	struct finding *finding = arg;

	finding->err = add_path(finding->list, path, owner);
}

static int by_pid(const void *a, const void *b)
{
	const struct job *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

static bool is_known(const void *arg, const struct process *process)
{
	const struct job_list *list = arg;

	for (size_t i = 0; i < list->n; i++)
		if (list->jobs[i].seen && list->jobs[i].process.pid == process->pid &&
		    list->jobs[i].process.start == process->start)
			return true;
	return false;
}

/* The directory of @sighting as it sees it. NULL: out of memory. */
static struct job_directory *directory_of(struct job_list *list, const struct sighting *sighting)
{
	struct job_directory *directory;

	for (size_t i = 0; i < list->ndirectories; i++) {
		directory = list->directories[i];
		if (directory->inside && directory->owner == sighting->process.uid &&
		    !strcmp(directory->path, sighting->directory))
			return directory;
	}
	directory = add_directory(list, sighting->directory, sighting->process.uid);
	if (directory)
		directory->inside = true;
	return directory;
}

/* The jobs of a user take turns with those of another, in whatever directories they are. */
static size_t turn_of(const struct job_list *list, uid_t owner)
{
	size_t turn = 0;

	for (size_t i = 0; i < list->n; i++)
		turn += list->jobs[i].directory->inside && list->jobs[i].directory->owner == owner;
	return turn;
}

/* Take what was seen in a job that is listed. */
static void note_sighting(struct job_list *list, const struct sighting *sighting)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->jobs[i].seen && list->jobs[i].pid == sighting->process.pid)
			strcpy(list->jobs[i].past, sighting->drivers.past);
}

static int add_sighting(struct job_list *list, const struct sighting *sighting)
{
	const struct process *process = &sighting->process;
	struct job job = {
		.own_pid = process->own_pid,
		.pid = process->pid,
		.seen = true,
		.process = *process,
		.uid = process->uid,
		.directory = directory_of(list, sighting),
		.turn = turn_of(list, process->uid),
		.fd = -1,
	};

	if (!job.directory)
		return -ENOMEM;
	strcpy(job.past, sighting->drivers.past);
	if (sighting->kind == SIGHTING_JOB)
		return job.turn < JOBS_IN_DIRECTORY ? add_job(list, &job) : 0;
	job.described = true;
	strcpy(job.status.id, sighting->id);
	strcpy(job.status.name, sighting->name);
	strcpy(job.status.command, sighting->command);
	strcpy(job.status.state, JOB_STARTING);
	return add_to(&list->starting, &list->nstarting, &job);
}

/* Add the jobs that are found by their processes; with @only, those of this directory. */
static int add_by_processes(struct job_list *list, const char *only)
{
	struct scan scan = {
		.owner = geteuid() == 0 ? RUNDIR_ANYONE : geteuid(),
		.only = only,
		.is_known = is_known,
		.arg = list,
	};
	int err = scan_run(&scan);

	for (size_t i = 0; i < scan.n && !err; i++)
		if (scan.found[i].kind == SIGHTING_KNOWN)
			note_sighting(list, &scan.found[i]);
		else if (scan.found[i].kind != SIGHTING_STARTING || scan_stands_alone(&scan, i))
			err = add_sighting(list, &scan.found[i]);
	free(scan.found);
	if (!err)
		return EXIT_DONE;
	complain("looking for jobs among the processes: %s", strerror(-err));
	return EXIT_FAILED;
}

/* Of many users' directories one that is unusable is reported, and is no error: it is its owner's problem. */
int jobs_find(struct job_list *list)
{
	const char *dir = setting_text(SETTING_RUNTIME_DIR);
	struct finding finding = {.list = list};
	char path[PATH_MAX];
	const char *why;
	bool all;
	int err;

	*list = (struct job_list){0};
	if (directories_each(find_in, &finding, &all, path, &why)) {
		complain(NO_JOBS_FOUND, path, why);
		return EXIT_FAILED;
	}
	err = all ? EXIT_DONE : finding.err;
	if (!err)
		err = add_by_processes(list, dir ? path : NULL);
	/* A directory that the user has named may be misspelt. */
	if (!err && dir && !list->n && !list->nstarting && access(path, F_OK) && errno == ENOENT)
		complain("%s=%s: there is no such directory, and so there are no jobs",
			 settings[SETTING_RUNTIME_DIR].name, path);
	if (err)
		jobs_free(list);
	else if (list->n)
		qsort(list->jobs, list->n, sizeof(*list->jobs), by_pid);
	return err;
}

const char *job_past_text(const struct job *job, char buf[SCAN_PAST_TEXT])
{
	bool starting = job->described && !strcmp(job->status.state, JOB_STARTING);

	return scan_past_text(job->past, starting, buf);
}

void jobs_free(struct job_list *list)
{
	for (size_t i = 0; i < list->ndirectories; i++) {
		free(list->directories[i]->path);
		free(list->directories[i]);
	}
	free(list->directories);
	free(list->jobs);
	free(list->starting);
	*list = (struct job_list){0};
}
