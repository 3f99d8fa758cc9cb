/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_RUNDIR_H
#define CUDAW_RUNDIR_H
/*
 * The runtime directory: where a job's processes listen and the cudaw command finds them (see
 * protocol.h for what they say). Used by the injected library and by the command.
 *
 *	CUDAW_RUNTIME_DIR, or /tmp/cudaw-UID	mode 0700, owned by the user, not a symbolic link
 *	    PID.sock				mode 0600, one for each process that uses CUDA
 *	    GPU-UUID.lock			mode 0600, empty; see release_lock()
 *	    host-memory.lock			mode 0600, empty; see claims.h
 *
 * /tmp is open to everybody, so a directory that another user made, or can change, is refused: who
 * controls it could take the place of a job. Sockets are reached through the descriptor of the
 * directory that was checked (/proc/self/fd/N/PID.sock), which also frees the path from the 108
 * bytes of sockaddr_un.
 *
 * Lock files are never removed: a process could lock one that another cannot find any more.
 *
 * Nothing here keeps state or prints, except the errors of rundir_listen().
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RUNDIR_TMP     "/tmp"
#define RUNDIR_PREFIX  "cudaw-" /* RUNDIR_TMP/RUNDIR_PREFIX<uid> */
#define RUNDIR_SUFFIX  ".sock"
#define RUNDIR_CLAIMS  "host-memory.lock"
#define RUNDIR_ID_SIZE 7           /* a job id with its terminating zero */
#define RUNDIR_ANYONE  ((uid_t)-1) /* for a reader that is root */

/*
 * Write the path of @uid's runtime directory to @path. Returns 0; -EINVAL where CUDAW_RUNTIME_DIR
 * is not an absolute path; -ENAMETOOLONG. @why is then a reason to print after the path.
 */
int rundir_path(uid_t uid, char *path, size_t size, const char **why);

/*
 * Open the directory at @path if it is safe to use: a real directory, of @owner, closed to others.
 * Returns a descriptor that the caller closes, or a negative errno with *@why set: a text that is
 * valid until the thread's next call. It names the owner of a path that is somebody else's.
 */
int rundir_open(const char *path, uid_t owner, const char **why);

/* The same, making the directory first where it is not there. */
int rundir_create(const char *path, uid_t owner, const char **why);

/*
 * Make the calling process's socket in its user's runtime directory, and listen. Returns the
 * descriptor (blocking, close-on-exec) or a negative errno, after one pr_err that says why, unless
 * @quiet.
 * A socket that a dead process with the same PID left behind is replaced.
 */
int rundir_listen(bool quiet);

/* Remove the socket of @pid, on exit; harmless where there is none. */
void rundir_unlink(pid_t pid);

/*
 * Connect to the socket of @pid in the directory @dir. Returns a non-blocking, close-on-exec
 * descriptor or a negative errno: -ENOENT no socket, -ECONNREFUSED nobody listens, -EAGAIN too
 * many callers wait already.
 */
int rundir_connect(int dir, pid_t pid);

/*
 * Open the file @name in the directory @dir to lock it; it is made where it is not there. Returns a
 * close-on-exec descriptor or a negative errno.
 */
int rundir_open_lock(int dir, const char *name);

/*
 * The same, and lock the whole file by flock(2), without waiting.
 * Returns a close-on-exec descriptor for rundir_unlock(); -EAGAIN where somebody else has the lock;
 * or another negative errno. Two calls of one process exclude each other too.
 */
int rundir_lock(int dir, const char *name);

/* Unlock and close, even where a forked child still has the descriptor. */
void rundir_unlock(int fd);

/*
 * Make a job id of @seed: six hexadecimal digits, the first of them a letter, so that the command
 * cannot mistake an id for a PID.
 */
void rundir_make_id(uint64_t seed, char id[RUNDIR_ID_SIZE]);

struct rundir_process {
	char state; /* as in ps(1), 'T' where it is stopped */
	pid_t parent;
	long threads;
	uint64_t start; /* clock ticks since boot */
};

/*
 * What the kernel says of a process or thread. False where there is none; or with errno set where
 * no descriptor or memory is left to ask with (shortage.h).
 */
bool rundir_process(pid_t pid, struct rundir_process *process);

/*
 * When @pid was started, in clock ticks since boot; 0 where there is none, or it has ended;
 * RUNDIR_START_UNKNOWN where no descriptor or memory is left to ask with.
 */
#define RUNDIR_START_UNKNOWN UINT64_MAX
uint64_t rundir_start_time(pid_t pid);

/* The job that this process belongs to: CUDAW_JOB, or one of its own from its PID and start. */
void rundir_job_id(char id[RUNDIR_ID_SIZE]);

#endif
