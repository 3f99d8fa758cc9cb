/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/settings.h"

#include "common/hostmem.h"
#include "common/signal_name.h"
#include "checkpoint/snapshot/dir.h"
#include "common/text.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORDS_MAX 4
#define WHY_SIZE  512

enum kind { A_WORD, A_SIZE, A_SIGNAL, A_DIRECTORY, A_NEW_DIRECTORY, A_FILE, A_NEW_FILE };

static const struct setting {
	const char *name;
	enum kind kind;
	/* Of A_WORD; the last one that is there is used instead. Else what happens instead. */
	const char *words[WORDS_MAX];
} settings[] = {
	{"CUDAW_RELEASE", A_WORD, {"memory", "all"}},
	{"CUDAW_ADDRESSING", A_WORD, {"translated", "native", "mapped"}},
	{"CUDAW_CHECK", A_WORD, {"0", "warn", "1"}},
	{"CUDAW_VERIFY", A_WORD, {"0", "1"}},
	{"CUDAW_PREPARE", A_WORD, {"0", "1"}},
	{"CUDAW_SNAPSHOT_COMPRESS", A_WORD, {"zstd", "lz4", "none"}},
	{"CUDAW_LOG", A_WORD, {"debug", "info", "warn", "error"}},
	{"CUDAW_HOST_POOL", A_SIZE, {"the default is used"}},
	{"CUDAW_SIGNAL_PAUSE", A_SIGNAL, {"USR1 is used"}},
	{"CUDAW_SIGNAL_RESUME", A_SIGNAL, {"USR2 is used"}},
	{"CUDAW_SPILL_DIR", A_DIRECTORY, {"nothing is written there"}},
	{"CUDAW_SNAPSHOT_DIR", A_NEW_DIRECTORY, {"no snapshot is written"}},
	{"CUDAW_LOG_FILE", A_FILE, {"stderr is used"}},
	{"CUDAW_TRACE", A_NEW_FILE, {"the program runs without a trace"}},
};

/* Others that are there, and, by their beginnings, those of the simulated driver and of tests. */
static const char *const others[] = {"CUDAW_CRIU",           "CUDAW_JOB",
				     "CUDAW_NAME",           "CUDAW_REAL_LIBCUDA",
				     "CUDAW_REAL_LIBCUDART", "CUDAW_RUNTIME_DIR"};
#define SIMULATED "CUDAW_SIM_"
#define TESTS     "CUDAW_TEST_"

/* False with @why where @value is none of the words. */
static bool check_word(const struct setting *setting, const char *value, char *why)
{
	const char *last = NULL;
	size_t len = 0;

	for (int i = 0; i < WORDS_MAX && setting->words[i]; i++) {
		last = setting->words[i];
		if (!strcmp(value, last))
			return true;
		len += snprintf(why + len, WHY_SIZE - len, "%s%s", i ? ", " : "expected ", last);
	}
	snprintf(why + len, WHY_SIZE - len, "; %s is used", last);
	return false;
}

/* Why a job cannot write to @path; NULL where it can. */
static const char *check_path(enum kind kind, const char *path)
{
	char parent[PATH_MAX];
	struct stat st;

	if (kind == A_FILE && !stat(path, &st) && S_ISDIR(st.st_mode))
		return strerror(EISDIR);
	/* Where the file of a trace is there, another one is made beside it. */
	if (kind != A_NEW_FILE) {
		if (!access(path, kind == A_FILE ? W_OK : W_OK | X_OK))
			return NULL;
		if (kind == A_DIRECTORY || errno != ENOENT)
			return strerror(errno);
	}
	if (snprintf(parent, sizeof(parent), "%s", path) >= (int)sizeof(parent))
		return strerror(ENAMETOOLONG);
	if (!access(dirname(parent), W_OK | X_OK))
		return NULL;
	return errno == ENOENT ? "the directory that it is to be in is not there" : strerror(errno);
}

static bool check(const struct setting *setting, const char *value, char *why)
{
	const char *wrong = NULL;
	struct snapshot_error error;
	size_t size;

	switch (setting->kind) {
	case A_WORD:
		return check_word(setting, value, why);
	case A_SIZE:
		if (!hostmem_parse(value, &size))
			wrong = "expected a number of bytes, as 8G";
		break;
	case A_SIGNAL:
		if (signal_parse(value) < 0)
			wrong = "expected a signal's name, a number or none";
		break;
	case A_NEW_DIRECTORY:
		if (snapshot_dir_check_path(value, 0, &error)) {
			wrong = error.text;
			break;
		}
		/* fall through */
	default:
		wrong = check_path(setting->kind, value);
	}
	if (wrong)
		snprintf(why, WHY_SIZE, "%.400s; %s", wrong, setting->words[0]);
	return !wrong;
}

/* The signal of @variable as a job takes it, with its name in @text. */
static int signal_of(const char *variable, int fallback, const char **text)
{
	*text = getenv(variable);
	if (*text && signal_parse(*text) >= 0)
		return signal_parse(*text);
	*text = sigabbrev_np(fallback);
	return fallback;
}

static bool is_known(const char *name)
{
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		if (!strcmp(name, settings[i].name))
			return true;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (!strcmp(name, others[i]))
			return true;
	return !strncmp(name, SIMULATED, strlen(SIMULATED)) || !strncmp(name, TESTS, strlen(TESTS));
}

/* A program inherits what its caller blocks. */
static void check_blocked(void (*say)(void *arg, const char *variable, const char *value,
				      const char *why),
			  void *arg, const char *variable, int fallback)
{
	const char *text;
	int sig = signal_of(variable, fallback, &text);
	sigset_t blocked;

	sigprocmask(SIG_BLOCK, NULL, &blocked);
	if (sig && sigismember(&blocked, sig))
		say(arg, variable, text,
		    "this signal is blocked here, and in programs started from here");
}

void settings_check(void (*say)(void *arg, const char *variable, const char *value,
				const char *why),
		    void *arg)
{
	char why[WHY_SIZE], clean[128];
	const char *text;
	int sig;

	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		const char *value = getenv(settings[i].name);

		if (!value || (!*value && settings[i].kind != A_SIGNAL) ||
		    check(&settings[i], value, why))
			continue;
		format_copy(clean, sizeof(clean), value);
		say(arg, settings[i].name, clean, why);
	}
	sig = signal_of("CUDAW_SIGNAL_PAUSE", SIGUSR1, &text);
	if (sig && sig == signal_of("CUDAW_SIGNAL_RESUME", SIGUSR2, &text))
		say(arg, "CUDAW_SIGNAL_RESUME", text, "this signal pauses; none resumes");
	check_blocked(say, arg, "CUDAW_SIGNAL_PAUSE", SIGUSR1);
	check_blocked(say, arg, "CUDAW_SIGNAL_RESUME", SIGUSR2);
	for (char **entry = environ; *entry; entry++) {
		char name[32], *value = strchr(*entry, '=');

		if (strncmp(*entry, "CUDAW_", strlen("CUDAW_")) != 0 || !value)
			continue;
		snprintf(clean, sizeof(clean), "%.*s", (int)(value - *entry), *entry);
		format_copy(name, sizeof(name), clean);
		if (is_known(name))
			continue;
		format_copy(clean, sizeof(clean), value + 1);
		say(arg, name, clean, "there is no such setting");
	}
}
