/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_RUNDIR_H
#define CUDAW_RUNDIR_H
/*
 * The runtime directory, in which a job's processes listen and the cudaw command finds them
 * (protocol.h has their conversation). The injected library and the command use it.
 *
 *	CUDAW_RUNTIME_DIR, or /tmp/cudaw-UID	mode 0700, owned by the user, not a symbolic link
 *	    PID.sock				mode 0600, one for each process that uses CUDA
 *	    PID.sharing				mode 0600, one for each process that shares GPU memory
 *	    GPU-UUID.lock			mode 0600, empty; see release_lock()
 *	    PID.driver				mode 0600; see tools/process/record.h
 *	    host-memory.lock			mode 0600, empty; see claims.h
 *	    ID.memory				mode 0600; see quota_file.h
 *
 * /tmp is open to everybody, so a directory that another user made or can change is refused: that
 * user could impersonate a job. Sockets are reached through the descriptor of the checked directory
 * (/proc/thread-self/fd/N/PID.sock), which also lifts the limit of 108 bytes of sockaddr_un.
 *
 * Empty lock files are never removed: a process could hold a lock on a file that another can no
 * longer find.
 *
 * This module keeps no state and prints nothing, except the errors of rundir_listen().
 */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RUNDIR_TMP            "/tmp"
#define RUNDIR_PREFIX         "cudaw-" /* RUNDIR_TMP/RUNDIR_PREFIX<uid> */
#define RUNDIR_SUFFIX         ".sock"
#define RUNDIR_SHARING_SUFFIX ".sharing"
#define RUNDIR_CLAIMS         "host-memory.lock"
#define RUNDIR_QUOTA_SUFFIX   ".memory"
#define RUNDIR_ID_SIZE        7           /* a job id with its terminating zero */
#define RUNDIR_ANYONE         ((uid_t)-1) /* for a reader that is root */

/*
 * Write the path of @uid's runtime directory to @path. Returns 0; -EINVAL if CUDAW_RUNTIME_DIR is
 * not an absolute path; -ENAMETOOLONG. On failure @why is a reason to print after the path.
 */
int rundir_path(uid_t uid, char *path, size_t size, const char **why);

/*
 * Open the directory at @path if it is safe to use: a real directory that @owner owns, closed to
 * others. Returns a descriptor that the caller closes, or a negative errno with *@why set: a text
 * that is valid until the thread's next call. If another user owns the path, it names that user.
 */
int rundir_open(const char *path, uid_t owner, const char **why);

/* The same, after making the directory if it does not exist; the second: of the calling process's user. */
int rundir_create(const char *path, uid_t owner, const char **why);
int rundir_open_own(const char **why);

/*
 * Where a process has its sockets from its beginning to its end: its program may become another user, or change
 * its environment, and others look for the sockets where they were.
 */
struct rundir_home {
	uid_t user;
	char path[PATH_MAX];
	/* From where @path is looked up: the root directory, and the mount namespace; 0: it is not known. */
	dev_t root_dev;
	ino_t root, mounts;
};

/* As of now, for the calling process. Returns and @why as rundir_path(). */
int rundir_find_home(struct rundir_home *home, const char **why);

/* rundir_create() of @home. -EPERM also if the process is another user by now. */
int rundir_create_home(const struct rundir_home *home, const char **why);

/* What the calling process sees at the path of @home is its home: it may have been restored elsewhere. */
void rundir_see_home(struct rundir_home *home);

/* False in a process that has changed its root directory or mount namespace since: its paths lead elsewhere. */
bool rundir_sees_home(const struct rundir_home *home);

/*
 * RUNDIR_CONTROL: the stream socket PID.sock, for the command. RUNDIR_SHARING: PID.sharing, for other
 * processes that share GPU memory (checkpoint/sharing/sharers.h), which keeps messages apart.
 */
enum rundir_socket { RUNDIR_CONTROL, RUNDIR_SHARING };

/*
 * Make the calling process's socket in @home, with the directory, and listen. Returns the descriptor
 * (blocking, close-on-exec) or a negative errno, after one pr_err with the reason unless @quiet: -EPERM also
 * if the process is another user by now. It replaces a socket that a dead process with the same PID left
 * behind.
 */
int rundir_listen(enum rundir_socket kind, const struct rundir_home *home, bool quiet);

/*
 * True if the calling process's socket has no name in @home, so that nobody finds it. False if that cannot be
 * known, as in a process that has changed its root directory or mount namespace: others may still see the name.
 */
bool rundir_is_unnamed(enum rundir_socket kind, const struct rundir_home *home);

/* Remove the name of the calling process's socket, on exit. Harmless if there is none. */
void rundir_unlink(enum rundir_socket kind, const struct rundir_home *home);

/*
 * Connect to the socket of @pid in the directory @dir. Returns a non-blocking, close-on-exec
 * descriptor or a negative errno: -ENOENT no socket, -ECONNREFUSED no process listens, -EAGAIN too
 * many callers already wait.
 */
int rundir_connect(enum rundir_socket kind, int dir, pid_t pid);

/*
 * Open the file @name in the directory @dir to lock it, after making it if it does not exist.
 * Returns a close-on-exec descriptor or a negative errno.
 */
int rundir_open_lock(int dir, const char *name);

/*
 * The same, and lock the whole file by flock(2), without waiting. Returns a close-on-exec
 * descriptor for rundir_unlock(); -EAGAIN if the file is locked; or another negative errno. Two
 * calls of one process exclude each other too.
 */
int rundir_lock(int dir, const char *name);

/* Unlock and close, even where a forked child still has the descriptor. */
void rundir_unlock(int fd);

/*
 * Make a job id from @seed: six hexadecimal digits, the first of which is a letter, so that the
 * command cannot mistake an id for a PID.
 */
void rundir_make_id(uint64_t seed, char id[RUNDIR_ID_SIZE]);

/* Whether @id has the form of a job's id: six hexadecimal digits, of either case. */
bool rundir_is_id(const char *id);

struct rundir_process {
	char state; /* as in ps(1), 'T' if it is stopped */
	bool exits; /* it has begun to end, and may still have memory */
	bool ended; /* and has none; it stays until its parent waits for it */
	pid_t parent;
	long threads;
	uint64_t start; /* clock ticks since boot, as this process's time namespace counts */
};

/*
 * Read the state of a process or thread from the kernel. False if there is none; or, with errno
 * set, if this process lacks the descriptor or memory to find out (shortage.h).
 */
bool rundir_process(pid_t pid, struct rundir_process *process);

/*
 * The start time of @pid in clock ticks since boot; 0 if there is no such process, or it has ended;
 * RUNDIR_START_UNKNOWN if this process lacks the descriptor or memory to find out.
 */
#define RUNDIR_START_UNKNOWN UINT64_MAX
uint64_t rundir_start_time(pid_t pid);

/*
 * The same for others to compare. CRIU restores a process into a time namespace of its own, and there /proc shows
 * other start times: the kernel adds the namespace's offset to them (time_namespaces(7)). This takes it off again. Both
 * are rounded, so that of two processes which look at @pid one may find a tick more.
 */
uint64_t rundir_common_start(pid_t pid);

/* True if two processes may have found @a and @b for the same process. */
bool rundir_is_common_start(uint64_t a, uint64_t b);

/* The id of this process's job: CUDAW_JOB, or an id made from its PID and start time. */
void rundir_job_id(char id[RUNDIR_ID_SIZE]);

#endif
