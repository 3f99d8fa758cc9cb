/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program under one low limit (setrlimit(2)), from before its first CUDA call or from after it,
 * or from its start on. That of addresses is beyond what the program has.
 */
#include "tests/guests/programs/guest.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

static const struct {
	const char *name;
	int resource;
} limits[] = {
	{"AS", RLIMIT_AS},         {"CORE", RLIMIT_CORE},         {"DATA", RLIMIT_DATA},
	{"FSIZE", RLIMIT_FSIZE},   {"LOCKS", RLIMIT_LOCKS},       {"MEMLOCK", RLIMIT_MEMLOCK},
	{"NICE", RLIMIT_NICE},     {"NOFILE", RLIMIT_NOFILE},     {"NPROC", RLIMIT_NPROC},
	{"RTPRIO", RLIMIT_RTPRIO}, {"RTTIME", RLIMIT_RTTIME},     {"SIGPENDING", RLIMIT_SIGPENDING},
	{"STACK", RLIMIT_STACK},   {"MSGQUEUE", RLIMIT_MSGQUEUE},
};

static rlim_t wanted;

static rlim_t bytes_now(void)
{
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	if (!file || fscanf(file, "%lu", &pages) != 1)
		step_die("limits: /proc/self/statm");
	fclose(file);
	return pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void set_limit(const char *name)
{
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		struct rlimit limit;

		if (strcmp(limits[i].name, name))
			continue;
		MUST(getrlimit(limits[i].resource, &limit));
		limit.rlim_cur = wanted;
		if (limits[i].resource == RLIMIT_AS)
			limit.rlim_cur += bytes_now();
		/* Root has no limit of processes. */
		if (limits[i].resource == RLIMIT_NPROC && !geteuid())
			MUST(setuid(65534));
		MUST(setrlimit(limits[i].resource, &limit));
		return;
	}
	step_die("limits: there is no %s", name);
}

static void on_signal(int sig)
{
	(void)sig;
	puts("handled");
}

/* What takes none of what the limits are about. */
static void without_cuda(const char *name)
{
	set_limit(name);
	signal(SIGTERM, on_signal);
	raise(SIGTERM);
	signal(SIGUSR1, on_signal);
	raise(SIGUSR1);
}

static void before_cuda(const char *name)
{
	struct guest_memory memory;

	set_limit(name);
	guest_memory_init(&memory);
	guest_memory_point(&memory);
}

static void after_cuda(const char *name)
{
	struct guest_memory memory;

	guest_memory_init(&memory);
	guest_memory_step(&memory);
	set_limit(name);
	guest_memory_point(&memory);
}

/* By exec, as of a shell's ulimit: the libraries are loaded under it, too. */
static void from_the_start(const char *name)
{
	set_limit(name);
	execl("/proc/self/exe", "limits", "none", name, "0", NULL);
	step_die("limits: /proc/self/exe: %s", strerror(errno));
}

static void as_it_is(const char *name)
{
	struct guest_memory memory;

	(void)name;
	guest_memory_init(&memory);
	guest_memory_point(&memory);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(const char *name);
	} when[] = {{"plain", without_cuda},
		    {"before", before_cuda},
		    {"after", after_cuda},
		    {"start", from_the_start},
		    {"none", as_it_is}};

	setlinebuf(stdout);
	if (argc > 3)
		wanted = strtoul(argv[3], NULL, 0);
	for (size_t i = 0; argc > 3 && i < sizeof(when) / sizeof(when[0]); i++)
		if (!strcmp(when[i].name, argv[1])) {
			when[i].run(argv[2]);
			return 0;
		}
	step_die("usage: limits plain|before|after|start NAME VALUE");
}
