/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/criu.h"

#include "checkpoint/snapshot/files/dir.h"
#include "common/text.h"
#include "common/processes/proc.h"
#include "common/settings.h"
#include "tools/report/progress.h"
#include "tools/report/report.h"
#include "tools/process/faces.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define LOG       "criu.log"
#define OUTPUT    "criu.out" /* its messages before it has a log */
#define SAYS      "CRIU: "   /* before its own messages */
#define ARGS_MAX  32
#define MIN_MAJOR 4
#define MIN_MINOR 1
#define WORK      "cudaw-criu-XXXXXX"
#define HOW       "Debian 13 has one that will do; docs/snapshots.md says how to build it elsewhere"
#define GRACE_MS  1000 /* for CRIU to end by itself after the process of its image has ended */
/*
 * What CRIU says of a connection, as by a 'cudaw ps': which the job has, or is yet to accept; and of TCP connections
 * that the last look has not seen.
 */
static const char *const passing[] = {"External socket is used", "in-flight socket",
				      "Connected TCP socket", "In-flight connection"};
#define GHOST_SIZE "1G" /* of deleted files that are still open: the image holds them */

/* The program in PATH; false: it is not there. */
static bool find_in_path(const char *name, char *path, size_t size)
{
	const char *p = getenv("PATH");

	for (; p && *p; p += strcspn(p, ":"), p += *p == ':') {
		int len = strcspn(p, ":");

		if (len && snprintf(path, size, "%.*s/%s", len, p, name) < (int)size &&
		    !access(path, X_OK))
			return true;
	}
	return false;
}

static uint64_t own_capabilities(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	uint64_t capabilities = 0;
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "CapEff: %" SCNx64, &capabilities);
	if (file)
		fclose(file);
	return capabilities;
}

/* Those that the file has in effect, as setcap(8) writes them. */
static uint64_t file_capabilities(const char *path)
{
	struct vfs_ns_cap_data data = {0};

	if (getxattr(path, "security.capability", &data, sizeof(data)) < (ssize_t)XATTR_CAPS_SZ_2 ||
	    !(le32toh(data.magic_etc) & VFS_CAP_FLAGS_EFFECTIVE))
		return 0;
	return le32toh(data.data[0].permitted) | (uint64_t)le32toh(data.data[1].permitted) << 32;
}

/* Those that CRIU runs with. A user's own do not count if its file has any; root's always do: capabilities(7). */
static uint64_t capabilities(const struct criu *criu)
{
	uint64_t of_file = file_capabilities(criu->path);

	return of_file && geteuid() ? of_file : own_capabilities();
}

/*
 * The capability that CRIU needs and lacks, NULL if it has all; in a container even root may lack them. CRIU 4.2
 * waits for ever in a restore if it may not drop what a process has dropped from its bounding set (CAP_SETPCAP).
 */
static const char *missing(const struct criu *criu)
{
	uint64_t has = capabilities(criu);

	if (!(has & (1ULL << CAP_SYS_ADMIN | 1ULL << CAP_CHECKPOINT_RESTORE)))
		return "CAP_CHECKPOINT_RESTORE";
	return has & 1ULL << CAP_SETPCAP ? NULL : "CAP_SETPCAP";
}

bool criu_may_repair(struct criu *criu)
{
	if (capabilities(criu) & 1ULL << CAP_NET_ADMIN)
		return true;
	snprintf(criu->why, sizeof(criu->why),
		 "%.300s is not permitted to carry TCP connections, which needs CAP_NET_ADMIN",
		 criu->path);
	return false;
}

bool criu_may_carry_all(struct criu *criu)
{
	uint64_t has = capabilities(criu);
	bool repairs = has & 1ULL << CAP_NET_ADMIN;
	bool others = geteuid() || has & 1ULL << CAP_SYS_RESOURCE;

	snprintf(criu->why, sizeof(criu->why), "%.300s is not permitted to carry %s%s%s",
		 criu->path, repairs ? "" : "TCP connections, which needs CAP_NET_ADMIN",
		 repairs || others ? "" : ", and ",
		 others ? "" : "jobs of other users, which needs CAP_SYS_RESOURCE");
	return repairs && others;
}

/* CRIU asks for the limits of each process, which takes its user and group, or CAP_SYS_RESOURCE (prlimit(2)). */
static bool may_ask_limits(struct criu *criu, const struct tree *tree)
{
	char name[PROCESS_NAME];
	struct rlimit limit;

	if (capabilities(criu) & 1ULL << CAP_SYS_RESOURCE)
		return true;
	for (size_t i = 0; i < tree->n; i++) {
		if (!prlimit(tree->pids[i], RLIMIT_CPU, NULL, &limit) || errno != EPERM)
			continue;
		snprintf(
			criu->why, sizeof(criu->why),
			"its process %d (%s) has another user or group, and %.200s is not permitted to "
			"carry it: expected CAP_SYS_RESOURCE",
			tree->pids[i], process_name(tree->pids[i], name), criu->path);
		return false;
	}
	return true;
}

static bool has_filter(pid_t pid)
{
	char path[64], task[sizeof(path) + 16];
	bool filtered = false;
	struct dirent *entry;
	DIR *threads;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	threads = opendir(path);
	while (threads && !filtered && (entry = readdir(threads))) {
		snprintf(task, sizeof(task), "%s/%d", path, atoi(entry->d_name));
		filtered = host_is_filtered(task);
	}
	if (threads)
		closedir(threads);
	return filtered;
}

bool criu_may_take(struct criu *criu, const struct tree *tree)
{
	char name[PROCESS_NAME];

	if (!may_ask_limits(criu, tree))
		return false;
	if (capabilities(criu) & 1ULL << CAP_SYS_ADMIN && !host_is_filtered("/proc/thread-self"))
		return true;
	for (size_t i = 0; i < tree->n; i++) {
		if (!has_filter(tree->pids[i]))
			continue;
		snprintf(
			criu->why, sizeof(criu->why),
			"its process %d (%s) has a filter of system calls (seccomp), which %.200s is not "
			"permitted to carry: expected CAP_SYS_ADMIN, and no such filter for CRIU itself",
			tree->pids[i], process_name(tree->pids[i], name), criu->path);
		return false;
	}
	return true;
}

/* Its version is known; false with why if the version or the permissions do not suffice. */
static bool is_suitable(struct criu *criu)
{
	const char *lacks = missing(criu);

	if (criu->major < MIN_MAJOR || (criu->major == MIN_MAJOR && criu->minor < MIN_MINOR)) {
		snprintf(criu->why, sizeof(criu->why),
			 "%.300s is version %d.%d; expected %d.%d or later: " HOW, criu->path,
			 criu->major, criu->minor, MIN_MAJOR, MIN_MINOR);
		return false;
	}
	if (!lacks)
		return true;
	snprintf(
		criu->why, sizeof(criu->why),
		"%.300s is not permitted to make process images, which needs %s: root has it, except in "
		"some containers; users need a CRIU that has it (docs/slurm.md)",
		criu->path, lacks);
	return false;
}

/* Ask its version; it stays 0.0 if CRIU prints none. 0, or the errno of running it. */
static int ask_version(struct criu *criu)
{
	char *argv[] = {"criu", "--version", NULL}, line[128];
	posix_spawn_file_actions_t actions;
	int fds[2], err;
	FILE *out;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return errno;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
	err = posix_spawn(&pid, criu->path, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	out = fdopen(fds[0], "r");
	if (!err && out && fgets(line, sizeof(line), out))
		sscanf(line, "Version: %d.%d", &criu->major, &criu->minor);
	if (out)
		fclose(out);
	if (!err)
		waitpid(pid, NULL, 0);
	return err;
}

bool criu_find(struct criu *criu)
{
	const char *given = setting_text(SETTING_CRIU);
	int err;

	*criu = (struct criu){0};
	if (given) {
		snprintf(criu->path, sizeof(criu->path), "%s", given);
	} else if (!find_in_path("criu", criu->path, sizeof(criu->path))) {
		snprintf(criu->why, sizeof(criu->why),
			 "there is no 'criu' in PATH: the process image needs CRIU %d.%d or later "
			 "(CUDAW_CRIU sets its path): " HOW,
			 MIN_MAJOR, MIN_MINOR);
		return false;
	}
	err = ask_version(criu);
	if (!err && criu->major)
		return is_suitable(criu);
	if (err)
		snprintf(criu->why, sizeof(criu->why), "%.300s cannot be run: %s", criu->path,
			 strerror(err));
	else
		snprintf(criu->why, sizeof(criu->why), "%.300s --version prints no version",
			 criu->path);
	return false;
}

/* The first line of its output, if it wrote no log. */
static void read_output(const struct criu *criu, char *said, size_t size)
{
	char path[sizeof(criu->work) + sizeof(OUTPUT)], line[256];

	snprintf(path, sizeof(path), "%s/" OUTPUT, criu->work);
	if (!host_read_line(path, line, sizeof(line)))
		format_copy(said, size, line);
	else
		snprintf(said, size, "it failed without a message");
}

/* The first error in its log that is fatal. */
static void read_log(const struct criu *criu, char *said, size_t size)
{
	char path[sizeof(criu->work) + sizeof(LOG)], line[512];
	FILE *log;

	snprintf(path, sizeof(path), "%s/" LOG, criu->work);
	log = fopen(path, "re");
	if (log)
		snprintf(said, size, "see %s", path);
	else
		read_output(criu, said, size);
	while (log && fgets(line, sizeof(line), log)) {
		/* "(00.030019) Error (criu/page-pipe.c:203): what is wrong" */
		char *error = strstr(line, "Error (");
		char *text = error ? strstr(error, "): ") : NULL;

		if (!text || strstr(text, "RLIMIT_NOFILE"))
			continue;
		text[strcspn(text, "\n")] = '\0';
		format_copy(said, size - sizeof(path) - 8, text + 3);
		snprintf(said + strlen(said), sizeof(path) + 8, " (see %s)", path);
		break;
	}
	if (log)
		fclose(log);
}

/*
 * Root must not accept a directory of images of another user, because processes are made from it.
 * CRIU gets it as an open descriptor, because its parent directory may belong to the job's owner.
 * False with why.
 */
static bool are_ours(struct criu *criu, int images, const char *name)
{
	struct stat st;

	if (fstat(images, &st))
		snprintf(criu->why, sizeof(criu->why), "%.300s: %s", name, strerror(errno));
	else if (st.st_uid != geteuid())
		snprintf(criu->why, sizeof(criu->why),
			 "%.300s: it belongs to user %u; expected user %u", name, st.st_uid,
			 geteuid());
	else
		return true;
	return false;
}

static void remove_work(const struct criu *criu)
{
	static const char *const files[] = {LOG, OUTPUT, "stats-dump", "stats-restore"};
	char path[sizeof(criu->work) + 32];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", criu->work, files[i]);
		unlink(path);
	}
	rmdir(criu->work);
}

/* Whether one has ended that should not. No pidfd reports it, as nobody has waited for its threads. */
static bool any_ended(const struct criu_what *what)
{
	if (!what->stopped)
		return host_await_end(what->job, 0);
	for (size_t i = 0; i < what->stopped->n; i++)
		/* It was a zombie before. */
		if (what->stopped->runs[i] && host_await_end(what->stopped->pids[i], 0))
			return true;
	return false;
}

/*
 * Wait until CRIU, the process @pid, has ended, and show how long it has worked in @path. If one of @what
 * (NULL: none) is killed while CRIU traces it, CRIU may wait for ever: then its process group is
 * killed.
 */
static void wait_for(pid_t pid, const struct criu_what *what, const char *path, int *status)
{
	struct pollfd end = {.fd = pid > 0 ? syscall(SYS_pidfd_open, pid, 0) : -1,
			     .events = POLLIN};
	int grace = GRACE_MS;

	while (end.fd >= 0 && poll(&end, 1, PROGRESS_MS) <= 0) {
		progress_time(path);
		if (!what || !any_ended(what))
			continue;
		grace -= PROGRESS_MS;
		if (grace <= 0)
			kill(-pid, SIGKILL);
	}
	if (end.fd >= 0)
		close(end.fd);
	while (pid > 0 && waitpid(pid, status, 0) < 0 && errno == EINTR)
		;
}

/* In the child. @image: it writes one. */
static void execute(const struct criu *criu, const char *const *argv, bool image)
	__attribute__((noreturn));

static void execute(const struct criu *criu, const char *const *argv, bool image)
{
	char path[sizeof(criu->work) + sizeof(OUTPUT)];
	int output;

	/*
	 * Restored processes may use our terminal, which belongs to our session. For an image
	 * CRIU has its own: at our end the kernel continues what is stopped in groups that lose
	 * their last parent in the session (setpgid(2)), and CRIU, which waits for a process of
	 * its own that has stopped itself, would wait for ever [CRIU 4.2, seen].
	 */
	if (image)
		setsid();
	signal(SIGPIPE, SIG_DFL);
	/* A limit of the file size is an error, and does not end CRIU while it is inside the processes. */
	signal(SIGXFSZ, SIG_IGN);
	snprintf(path, sizeof(path), "%s/" OUTPUT, criu->work);
	output = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	dup2(output, STDOUT_FILENO);
	dup2(output, STDERR_FILENO);
	execv(criu->path, (char *const *)argv);
	_exit(127);
}

/* Run it with the common arguments and @args; for an image of @what, or NULL. */
static bool run(struct criu *criu, const char *verb, int images, const char *shown,
		const struct criu_what *what, bool connected, const char *const *args)
{
	char faces[PATH_MAX], directory[64];
	static const char *const for_tcp[] = {"--tcp-established", "--network-lock", "skip"};
	const char *tmp = getenv("TMPDIR");
	const char *argv[ARGS_MAX] = {"criu",        verb,          "--images-dir", directory,
				      "--work-dir",  NULL,          "--log-file",   LOG,
				      "--shell-job", "--file-locks"};
	size_t n = 10;
	int status = -1;
	pid_t pid;

	if (!are_ours(criu, images, strrchr(shown, '/') + 1))
		return false;
	if (snprintf(criu->work, sizeof(criu->work), "%s/" WORK, tmp && *tmp ? tmp : "/tmp") >=
		    (int)sizeof(criu->work) ||
	    !mkdtemp(criu->work)) {
		snprintf(criu->why, sizeof(criu->why), "cannot make the directory %s: %s",
			 criu->work, strerror(errno));
		return false;
	}
	snprintf(directory, sizeof(directory), "/proc/%d/fd/%d", getpid(), images);
	argv[5] = criu->work;
	/* A directory without plugins. */
	if (!faces_directory(faces, sizeof(faces)) && !access(faces, F_OK)) {
		argv[n++] = "--libdir";
		argv[n++] = faces;
	}
	if (geteuid() != 0)
		argv[n++] = "--unprivileged";
	/* No lock: tcp.h. */
	for (size_t i = 0; connected && i < sizeof(for_tcp) / sizeof(for_tcp[0]); i++)
		argv[n++] = for_tcp[i];
	while (*args)
		argv[n++] = *args++;
	pid = fork();
	if (pid == 0)
		execute(criu, argv, what != NULL);
	wait_for(pid, what, shown, &status);
	criu->killed = pid > 0 && WIFSIGNALED(status);
	if (pid > 0 && WIFEXITED(status) && !WEXITSTATUS(status)) {
		remove_work(criu);
		return true;
	}
	strcpy(criu->why, SAYS);
	read_log(criu, criu->why + strlen(SAYS), sizeof(criu->why) - strlen(SAYS));
	return false;
}

bool criu_dump(struct criu *criu, int images, const char *path, const struct criu_what *what)
{
	char number[16];
	const char *const args[] = {"--tree",          number, "--ghost-limit", GHOST_SIZE,
				    "--leave-running", NULL};
	bool done;

	snprintf(number, sizeof(number), "%d", what->root);
	progress_begin("CRIU writes");
	done = run(criu, "dump", images, path, what, what->connected, args);
	progress_end();
	criu->again = false;
	for (size_t i = 0; !done && i < sizeof(passing) / sizeof(passing[0]); i++)
		criu->again |= strstr(criu->why, passing[i]) != NULL;
	if (criu->again) {
		remove_work(criu);
		snapshot_dir_empty(images);
	}
	return done;
}

static const int held_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

void criu_hold_signals(bool hold)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(held_signals) / sizeof(held_signals[0]); i++)
		sigaddset(&set, held_signals[i]);
	sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

/* As by nohup(1). */
static bool is_ignored(int signal)
{
	struct sigaction action;

	return sigaction(signal, NULL, &action) || action.sa_handler == SIG_IGN;
}

bool criu_is_interrupted(void)
{
	sigset_t set;
	bool is = false;

	sigpending(&set);
	/* What is ignored is pending, too, while it is blocked. */
	for (size_t i = 0; i < sizeof(held_signals) / sizeof(held_signals[0]); i++)
		is |= sigismember(&set, held_signals[i]) == 1 && !is_ignored(held_signals[i]);
	return is;
}

void criu_handle_signals(void (*handler)(int signal))
{
	for (size_t i = 0; i < sizeof(held_signals) / sizeof(held_signals[0]); i++)
		if (!is_ignored(held_signals[i]))
			signal(held_signals[i], handler);
}

bool criu_restore(struct criu *criu, int images, const char *path, bool connected)
{
	const char *const args[] = {"--restore-detached", "--leave-stopped", NULL};
	bool done;

	progress_begin("CRIU reads");
	done = run(criu, "restore", images, path, NULL, connected, args);
	progress_end();
	return done;
}
