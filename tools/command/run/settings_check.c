/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/run/settings_check.h"

#include "common/system/memory_fs.h"
#include "common/protocol/quota.h"
#include "common/settings.h"
#include "common/system/signal_name.h"
#include "checkpoint/snapshot/files/dir.h"
#include "common/text.h"
#include "tools/report/similar.h"

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

#define PREFIX "CUDAW_"
/* Not settings: variables of the simulated driver and of tests begin so. */
#define SIMULATED PREFIX "SIM_"
#define TESTS     PREFIX "TEST_"

/* Why a job cannot write to @path; NULL if it can. */
static const char *check_path(enum setting_kind kind, const char *path)
{
	char parent[PATH_MAX];
	struct stat st;

	if (kind == A_FILE && !stat(path, &st) && S_ISDIR(st.st_mode))
		return strerror(EISDIR);
	/* If the file of a trace exists, the job makes another one beside it. */
	if (kind != A_NEW_FILE) {
		if (!access(path, kind == A_FILE ? W_OK : W_OK | X_OK))
			return kind == A_DISK_DIRECTORY && memory_fs(path) ? "its files are memory"
									   : NULL;
		if (kind == A_DISK_DIRECTORY || errno != ENOENT)
			return strerror(errno);
	}
	if (snprintf(parent, sizeof(parent), "%s", path) >= (int)sizeof(parent))
		return strerror(ENAMETOOLONG);
	if (!access(dirname(parent), W_OK | X_OK))
		return NULL;
	return errno == ENOENT ? "its directory does not exist" : strerror(errno);
}

static bool check(const struct setting *setting, const char *value, char *why)
{
	const char *wrong = NULL;
	struct snapshot_error error;

	switch (setting->kind) {
	case A_NEW_DIRECTORY:
		if (snapshot_dir_check_path(value, 0, &error)) {
			wrong = error.text;
			break;
		}
		/* fall through */
	case A_DISK_DIRECTORY:
	case A_FILE:
	case A_NEW_FILE:
		wrong = check_path(setting->kind, value);
		break;
	default:
		return setting_check(setting, value, why);
	}
	if (wrong)
		snprintf(why, SETTING_WHY, "%.400s; %s", wrong, setting->instead);
	return !wrong;
}

static bool is_known(const char *name)
{
	for (int id = 0; id < SETTINGS; id++)
		if (!strcmp(name, settings[id].name))
			return true;
	return !strncmp(name, SIMULATED, strlen(SIMULATED)) || !strncmp(name, TESTS, strlen(TESTS));
}

/* The signal of @id as a job takes it, with its name in @text; setting_signal() would log. */
static int signal_of(enum setting_id id, const char **text)
{
	char why[SETTING_WHY];

	*text = getenv(settings[id].name);
	if (!*text || !setting_check(&settings[id], *text, why))
		*text = settings[id].preset;
	return signal_parse(*text);
}

/* A program inherits the signals that its caller blocks. */
static void check_blocked(settings_say *say, void *arg, enum setting_id id)
{
	const char *text;
	int sig = signal_of(id, &text);
	sigset_t blocked;

	sigprocmask(SIG_BLOCK, NULL, &blocked);
	if (sig && sigismember(&blocked, sig))
		say(arg, settings[id].name, text,
		    "this signal is blocked here, and in programs started from here");
}

static void check_signals(settings_say *say, void *arg)
{
	const char *text;
	int sig = signal_of(SETTING_SIGNAL_PAUSE, &text);

	if (sig && sig == signal_of(SETTING_SIGNAL_RESUME, &text))
		say(arg, settings[SETTING_SIGNAL_RESUME].name, text,
		    "this signal pauses; no signal resumes");
	check_blocked(say, arg, SETTING_SIGNAL_PAUSE);
	check_blocked(say, arg, SETTING_SIGNAL_RESUME);
}

/* Why @name, which begins with PREFIX, is not a setting. */
static void explain_name(const char *name, char *why)
{
	const char *names[SETTINGS], *meant;

	for (int id = 0; id < SETTINGS; id++)
		names[id] = settings[id].name + strlen(PREFIX);
	meant = similar_word(name + strlen(PREFIX), names, SETTINGS);
	if (meant)
		snprintf(why, SETTING_WHY, "there is no such setting; did you mean " PREFIX "%s?",
			 meant);
	else
		snprintf(why, SETTING_WHY,
			 "there is no such setting; 'cudaw help settings' lists them");
}

/* Variables of others that set a memory limit. */
static void check_limits(settings_say *say, void *arg)
{
	struct quota_variable hami;
	char clean[128];

	for (int i = 0; i < QUOTA_VARIABLES; i++) {
		quota_variable(i, &hami);
		if (!hami.wrong)
			continue;
		format_copy(clean, sizeof(clean), hami.value);
		say(arg, hami.name, clean, QUOTA_HAMI_WHY);
	}
}

static void check_names(settings_say *say, void *arg)
{
	char why[SETTING_WHY], clean[128];

	for (char **entry = environ; *entry; entry++) {
		char name[32], *value = strchr(*entry, '=');

		if (strncmp(*entry, PREFIX, strlen(PREFIX)) != 0 || !value)
			continue;
		snprintf(clean, sizeof(clean), "%.*s", (int)(value - *entry), *entry);
		format_copy(name, sizeof(name), clean);
		if (is_known(name))
			continue;
		explain_name(name, why);
		format_copy(clean, sizeof(clean), value + 1);
		say(arg, name, clean, why);
	}
}

void settings_check(settings_say *say, void *arg)
{
	char why[SETTING_WHY], clean[128];

	for (int id = 0; id < SETTINGS; id++) {
		const char *value = getenv(settings[id].name);

		if (!value || (!*value && settings[id].kind != A_SIGNAL) ||
		    check(&settings[id], value, why))
			continue;
		format_copy(clean, sizeof(clean), value);
		say(arg, settings[id].name, clean, why);
	}
	check_signals(say, arg);
	check_limits(say, arg);
	check_names(say, arg);
}
