/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/tools.h"

#include "common/conf_file.h"
#include "common/environment.h"
#include "common/find/find.h"
#include "common/find/find_file.h"
#include "common/protocol/quota.h"
#include "common/protocol/rundir.h"
#include "common/settings.h"
#include "tools/command/run/run_checks.h"
#include "tools/command/run/settings_check.h"
#include "tools/process/cudawd.h"
#include "tools/process/faces.h"

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_SIZE 65

const char help_run[] =
	"Usage: cudaw run [OPTION]... [--] CMD [ARGUMENT]...\n"
	"\n"
	"Start CMD so that it can be paused and resumed. CMD may be any program: one that uses\n"
	"CUDA itself, or a script that starts such programs. All its processes are one job, with an\n"
	"ID of six hexadecimal digits (CUDAW_JOB); 'cudaw ps' shows it.\n"
	"\n"
	"  -n, --name NAME   a name for the job (letters, digits, '.', '_' and '-')\n"
	"  -t, --trace FILE  write what the job does with the GPU to FILE, in JSON for Perfetto and\n"
	"                    chrome://tracing. Replaces FILE. The job's first process that uses\n"
	"                    CUDA writes FILE, the others FILE.PID\n"
	"      --require     do not start CMD if the job could never be paused, and say why\n"
	"      --snapshot    prepare the job for 'cudaw snapshot': it finds no io_uring (without\n"
	"                    CAP_SYS_ADMIN it cannot gain rights then, as by sudo), NCCL and gloo\n"
	"                    use 127.0.0.1; warn if stdin, stdout or stderr is a terminal, pipe or\n"
	"                    socket\n"
	"      --turns       take turns on the GPU with your other jobs that have --turns, if they\n"
	"                    do not fit together. Starts cudawd, which decides whose turn it is,\n"
	"                    and which ends after the last job. 'cudaw turns' shows who runs\n"
	"      --mem SIZE    the most memory that the job may have on each GPU, for all its processes\n"
	"                    together, as 20G: allocations beyond it fail, as on a smaller GPU\n"
	"      --class C     with --turns: 'interactive' jobs come before 'batch' ones (batch)\n"
	"      --weight N    with --turns: 1 to 100; a job of weight 2 gets the GPU for twice as\n"
	"                    long as one of weight 1 (1)\n"
	"      --context-after S  with --turns: this job gives its CUDA context, too, if another job\n"
	"                    that can only run without it has waited for S seconds. From then on\n"
	"                    this job runs beside no other. 'never': it keeps its context\n"
	"  -h, --help        this text\n"
	"\n"
	"CMD replaces cudaw: PID and terminal stay, and the exit code is that of CMD.\n"
	"\n"
	"'cudaw help settings' lists the environment variables that the job reads.\n"
	"\n"
	"Exit codes: those of CMD; 2 wrong usage, 125 cudaw's library is missing, or --require is\n"
	"not met, 126 CMD cannot be run, 127 CMD is not found.\n";

static bool valid_name(const char *name)
{
	size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				  "._-");

	return len > 0 && len < NAME_SIZE && !name[len];
}

/* Set the variable @name to both lists, of which one may be empty. Returns an exit code, 0 for success. */
static int set_joined(const char *name, const char *first, const char *second)
{
	char *value;

	if (asprintf(&value, "%s%s%s", first, *first && *second ? ":" : "", second) < 0) {
		complain("out of memory");
		return EXIT_NO_FACE;
	}
	setenv(name, value, 1);
	free(value);
	return 0;
}

static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value ? value : "";
}

/* Of a library in LD_PRELOAD: the path that the loader has found for its name in this process, which has it, too. */
static const char *path_of(const char *library)
{
	void *handle = strchr(library, '/') ? NULL : dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
	struct link_map *map;

	return handle && !dlinfo(handle, RTLD_DI_LINKMAP, &map) ? map->l_name : library;
}

/*
 * Whether another library may stay in LD_PRELOAD. The face of this installation or another is there if 'cudaw
 * run' starts itself, and is not wanted twice. Returns 1, 0 to leave it out, or -1 after a message.
 */
static int may_stay(const char *library)
{
	const char *path = path_of(library);
	bool plain = !strchr(path, '/');

	if (!plain && find_file_state(path, FIND_DRIVER) == FIND_FACE)
		return 0;
	if (plain ? strcmp(path, FIND_DRIVER) != 0 : !find_file_is_driver(path))
		return 1;
	complain("LD_PRELOAD=%s: programs would get this library, whose DT_SONAME is " FIND_DRIVER
		 ", in the place of cudaw's; take it out",
		 library);
	return -1;
}

/*
 * Put the faces at @path behind other preloaded libraries: a hook of theirs calls the next function of its name,
 * which is ours. Returns an exit code, 0 for success.
 */
static int preload(const char *path)
{
	const char *old = variable("LD_PRELOAD");
	size_t size = strlen(old) + 1;
	char *kept = calloc(2, size), *rest, *library;
	int stay = 0, code = EXIT_NO_FACE;

	if (!kept) {
		complain("out of memory");
		return code;
	}
	rest = strcpy(kept + size, old);
	while (stay >= 0 && (library = strsep(&rest, ": "))) {
		stay = *library ? may_stay(library) : 0;
		if (stay > 0)
			strcat(strcat(kept, *kept ? ":" : ""), library);
	}
	if (stay >= 0)
		code = set_joined("LD_PRELOAD", kept, path);
	free(kept);
	return code;
}

/* As quota_is_on() in the job, which says so of wrong values. */
static bool is_limited(void)
{
	const char *mem = variable(settings[SETTING_MEM].name);
	struct quota_variable hami;
	char why[SETTING_WHY];

	for (int i = 0; i < QUOTA_VARIABLES; i++) {
		quota_variable(i, &hami);
		if (hami.quota)
			return true;
	}
	return *mem && setting_check(&settings[SETTING_MEM], mem, why);
}

/* Put the auditor at @path before others, unless it is first. Returns an exit code, 0 for success. */
static int audit(const char *path)
{
	const char *old = variable("LD_AUDIT");
	size_t len = strlen(path);

	if (!strncmp(old, path, len) && (!old[len] || old[len] == ':'))
		return 0;
	return set_joined("LD_AUDIT", path, old);
}

/*
 * With an auditor the loader sets the size of the static TLS before it loads the program's libraries. Those that
 * need some must then find it in the reserve for later ones, in which libjemalloc, for one, has no room. The
 * reserve comes out of each thread's stack, which may be as small as 16 KiB.
 */
#define STATIC_TLS "glibc.rtld.optional_static_tls="

static int reserve_tls(void)
{
	const char *old = variable("GLIBC_TUNABLES");

	return strstr(old, STATIC_TLS) ? 0 : set_joined("GLIBC_TUNABLES", old, STATIC_TLS "4096");
}

/*
 * Let the loader put our driver face into the program (LD_PRELOAD), with a memory limit also the NVML face if there is
 * an NVML, and give it to who opens the driver by another name than libcuda.so.1 (LD_AUDIT). Returns an exit code, 0
 * for success.
 */
static int preload_face(void)
{
	static const char *const files[] = {"libcuda.so.1", "cudaw-audit.so", "limited/" FIND_NVML};
	char directory[PATH_MAX - 32], paths[3][PATH_MAX], both[2 * PATH_MAX + 1], nvml[PATH_MAX];
	int code, err = faces_directory(directory, sizeof(directory));
	const char *why;

	if (err) {
		complain("cannot find where cudaw is installed: %s", strerror(-err));
		return EXIT_NO_FACE;
	}
	for (size_t i = 0; i < 3; i++) {
		snprintf(paths[i], sizeof(paths[i]), "%s/%s", directory, files[i]);
		if (access(paths[i], R_OK) < 0) {
			complain("%s: %s; the installation of cudaw is incomplete", paths[i],
				 strerror(errno));
			return EXIT_NO_FACE;
		}
	}
	why = not_preloadable(directory);
	if (why) {
		complain("%s: %s", paths[0], why);
		return EXIT_NO_FACE;
	}
	snprintf(both, sizeof(both), "%s:%s", paths[0], paths[2]);
	code = preload(is_limited() && !find_real_nvml(nvml, sizeof(nvml)) ? both : paths[0]);
	if (!code)
		code = audit(paths[1]);
	return code ? code : reserve_tls();
}

static void set_fresh_job(void)
{
	char id[RUNDIR_ID_SIZE];
	uint64_t seed;

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		seed = getpid();
	rundir_make_id(seed, id);
	setenv(settings[SETTING_JOB].name, id, 1);
	/* Python's setproctitle then leaves the environment readable, which others know the job by. */
	setenv("SPT_NOENV", "1", 0);
}

/*
 * Let the job write a trace to @file, whatever directory its processes run in. An old file is
 * removed if there is a program @cmd to run: a process that finds the file takes it for that of
 * another process of the job.
 */
static bool set_trace(const char *file, const char *cmd)
{
	char cwd[PATH_MAX] = "", path[PATH_MAX], directory[PATH_MAX], program[PATH_MAX];
	struct stat st;

	if (*file != '/' && !getcwd(cwd, sizeof(cwd))) {
		complain("the current directory: %s", strerror(errno));
		return false;
	}
	if (snprintf(path, sizeof(path), "%s%s%s", cwd, *cwd ? "/" : "", file) >= PATH_MAX) {
		complain("%s: %s", file, strerror(ENAMETOOLONG));
		return false;
	}
	if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
		complain("--trace '%s': expected a regular file", file);
		return false;
	}
	if (access(dirname(strcpy(directory, path)), F_OK)) {
		complain("--trace %s: %s: %s", file, directory, strerror(errno));
		return false;
	}
	/* If this fails, the job reports it, and runs without a trace. */
	if (run_find_program(cmd, program, sizeof(program)))
		unlink(path);
	setenv(settings[SETTING_TRACE].name, path, 1);
	return true;
}

/* The program may change its directory before it loads our libraries, or start others elsewhere. */
static void fix_paths(void)
{
	char path[PATH_MAX];

	for (int id = 0; id < SETTINGS; id++) {
		const char *value = getenv(settings[id].name);

		if (value && environment_from_here(id, value, path) == path)
			setenv(settings[id].name, path, 1);
	}
}

static void warn_of_setting(void *arg, const char *variable, const char *value, const char *why)
{
	(void)arg;
	complain("warning: %s=%s: %s", variable, value, why);
}

/* False after a message. */
static bool set_checked(enum setting_id id, const char *option, const char *value)
{
	char why[SETTING_WHY] = "it is empty";

	if (!*value || !setting_check(&settings[id], value, why)) {
		why[strcspn(why, ";")] = '\0'; /* what is used in place of a variable's value */
		complain("%s '%s': %s", option, value, why);
		return false;
	}
	setenv(settings[id].name, value, 1);
	return true;
}

/*
 * With @turns the job is to take turns, with @claims it says how. A daemon that the user or the
 * machine has chosen stays. Without one, the job runs as ever.
 */
static void join_others(bool turns, bool claims)
{
	const char *chosen = conf_file_daemon(), *reason;
	char why[CUDAWD_WHY];

	if (turns && (!chosen || !strcmp(chosen, "user"))) {
		setenv(settings[SETTING_TURNS].name, "user", 1);
		if (cudawd_launch(&reason))
			complain("warning: cudawd cannot be started: %s; the job takes no turns",
				 reason);
	} else if (turns && cudawd_is_missing(why)) {
		complain("warning: %s; until then the job takes no turns", why);
	} else if (claims && !chosen) {
		complain(
			"warning: --class, --weight and --context-after are for jobs that take turns; "
			"add --turns");
	}
}

/* What the options say that is no setting of the job. */
struct asked {
	const char *trace, *name; /* NULL: none given */
	bool turns, claims, require, memory, snapshot;
};

/* False after a message, or without one of an option that is unknown. */
static bool take_option(struct asked *asked, int opt)
{
	switch (opt) {
	case 'n':
		if (!valid_name(optarg)) {
			complain("--name '%s': expected 1 to %d letters, digits, '.', '_' or '-'",
				 optarg, NAME_SIZE - 1);
			return false;
		}
		asked->name = optarg;
		setenv(settings[SETTING_NAME].name, optarg, 1);
		return true;
	case 't':
		asked->trace = optarg;
		return true;
	case 'r':
		asked->require = true;
		return true;
	case 'S':
		asked->snapshot = true;
		return true;
	case 's':
		asked->turns = true;
		return true;
	case 'c':
		asked->claims = true;
		return set_checked(SETTING_TURNS_CLASS, "--class", optarg);
	case 'w':
		asked->claims = true;
		return set_checked(SETTING_TURNS_WEIGHT, "--weight", optarg);
	case 'a':
		asked->claims = true;
		return set_checked(SETTING_TURNS_CONTEXT_AFTER, "--context-after", optarg);
	case 'm':
		asked->memory = true;
		return set_checked(SETTING_MEM, "--mem", optarg);
	default:
		return false;
	}
}

/* Start the program @cmd[0]. Returns an exit code, if that fails. */
static int start(const struct asked *asked, char **cmd)
{
	int err;

	if (asked->require && !run_can_be_paused(cmd[0]))
		return EXIT_NO_FACE;
	if (asked->name)
		run_warn_of_name(asked->name);
	if (asked->memory)
		run_warn_of_memory();
	join_others(asked->turns, asked->claims);
	err = preload_face();
	if (err)
		return err;
	if (asked->trace && !set_trace(asked->trace, cmd[0]))
		return usage_error("run");
	set_fresh_job();
	if (!asked->require)
		run_warn_of_program(cmd[0]);
	settings_check(warn_of_setting, NULL);
	fix_paths();
	/* Last: what this command starts for all jobs does not get the filter. */
	if (asked->snapshot)
		run_prepare_snapshots();
	execvp(cmd[0], cmd);
	err = errno;
	complain("%s: %s", cmd[0], strerror(err));
	return err == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
}

int cmd_run(int argc, char **argv)
{
	static const struct option options[] = {
		{"name", required_argument, NULL, 'n'},
		{"trace", required_argument, NULL, 't'},
		{"require", no_argument, NULL, 'r'},
		{"snapshot", no_argument, NULL, 'S'},
		{"turns", no_argument, NULL, 's'},
		{"class", required_argument, NULL, 'c'},
		{"weight", required_argument, NULL, 'w'},
		{"context-after", required_argument, NULL, 'a'},
		{"mem", required_argument, NULL, 'm'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct asked asked = {0};
	int opt;

	/* '+': the words after CMD belong to CMD. */
	while ((opt = getopt_long(argc, argv, "+n:t:h", options, NULL)) != -1) {
		if (opt == 'h') {
			fputs(help_run, stdout);
			return EXIT_DONE;
		}
		if (!take_option(&asked, opt))
			return usage_error("run");
	}
	if (optind == argc) {
		complain("expected a program to run");
		return usage_error("run");
	}
	return start(&asked, argv + optind);
}
