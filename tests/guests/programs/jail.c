/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that gives up what it was started with: the file system, by chroot(); root, by
 * setuid(); its directory; its session; its children's ends. Files that ours would open later are
 * not there any more, or not its own.
 */
#include "tests/guests/programs/guest.h"

#include <grp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Into a new and empty one. */
static void into_directory(char *path, size_t size)
{
	const char *directory = getenv("TMPDIR");

	snprintf(path, size, "%s/guest-XXXXXX", directory ? directory : "/tmp");
	if (!mkdtemp(path))
		step_die("jail: %s: %s", path, strerror(errno));
	MUST(chdir(path));
}

static void into_chroot(void)
{
	char path[4096];

	into_directory(path, sizeof(path));
	MUST(chroot("."));
	puts("in the chroot");
}

static void into_nobody(void)
{
	MUST(setgroups(0, NULL));
	MUST(setresgid(65534, 65534, 65534));
	MUST(setresuid(65534, 65534, 65534));
	printf("as user %d\n", (int)getuid());
}

static void into_nobody_for_now(void)
{
	MUST(seteuid(65534));
	printf("as user %d for now\n", (int)geteuid());
}

static void into_lost_directory(void)
{
	char path[4096];

	into_directory(path, sizeof(path));
	MUST(rmdir(path));
	puts("in a directory that is gone");
}

static void into_undumpable(void)
{
	MUST(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
	puts("not dumpable");
}

static void into_session(void)
{
	if (setsid() < 0 && errno != EPERM)
		step_die("jail: setsid: %s", strerror(errno));
	umask(0777);
	puts("in a session, with a umask that denies all");
}

static void into_childlessness(void)
{
	signal(SIGCHLD, SIG_IGN);
	puts("waiting for no child");
}

static void into_empty_environment(void)
{
	clearenv();
	puts("without an environment");
}

static const struct {
	const char *name;
	void (*enter)(void);
} jails[] = {
	{"chroot", into_chroot},           {"setuid", into_nobody},
	{"seteuid", into_nobody_for_now},  {"directory", into_lost_directory},
	{"undumpable", into_undumpable},   {"session", into_session},
	{"childless", into_childlessness}, {"environment", into_empty_environment},
};

static void on_signal(int sig)
{
	(void)sig;
	puts("handled");
}

int main(int argc, char **argv)
{
	struct guest_memory memory;
	const char *when = argc > 1 ? argv[1] : "";

	setlinebuf(stdout);
	if (!strcmp(when, "after"))
		guest_memory_init(&memory);
	for (size_t i = 0; argc > 2 && i < sizeof(jails) / sizeof(jails[0]); i++)
		if (!strcmp(jails[i].name, argv[2]))
			jails[i].enter();
	if (!strcmp(when, "before"))
		guest_memory_init(&memory);
	signal(SIGTERM, on_signal);
	raise(SIGTERM);
	if (strcmp(when, "plain")) {
		guest_memory_point(&memory);
	}
	return 0;
}
