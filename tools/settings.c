/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/settings.h"

#include "checkpoint/hostmem.h"
#include "checkpoint/snapshot_dir.h"
#include "tools/format.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS_MAX 4
#define WHY_SIZE  512

enum kind { A_WORD, A_SIZE, A_FOLDER, A_NEW_FOLDER };

static const struct setting {
	const char *name;
	enum kind kind;
	const char *words[WORDS_MAX]; /* of A_WORD; the last one that is there is used instead */
} settings[] = {
	{"CUDAW_RELEASE", A_WORD, {"memory", "all"}},
	{"CUDAW_ADDRESSING", A_WORD, {"translated", "native", "mapped"}},
	{"CUDAW_CHECK", A_WORD, {"0", "warn", "1"}},
	{"CUDAW_VERIFY", A_WORD, {"0", "1"}},
	{"CUDAW_PREPARE", A_WORD, {"0", "1"}},
	{"CUDAW_SNAPSHOT_COMPRESS", A_WORD, {"zstd", "lz4", "none"}},
	{"CUDAW_LOG", A_WORD, {"debug", "info", "warn", "error"}},
	{"CUDAW_HOST_POOL", A_SIZE, {NULL}},
	{"CUDAW_SPILL_DIR", A_FOLDER, {NULL}},
	{"CUDAW_SNAPSHOT_DIR", A_NEW_FOLDER, {NULL}},
};

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

static bool check(const struct setting *setting, const char *value, char *why)
{
	struct snapshot_error error;
	size_t size;

	switch (setting->kind) {
	case A_WORD:
		return check_word(setting, value, why);
	case A_SIZE:
		snprintf(why, WHY_SIZE, "expected a number of bytes, as 8G; the default is used");
		return hostmem_parse(value, &size);
	case A_FOLDER:
		if (!access(value, W_OK | X_OK))
			return true;
		snprintf(why, WHY_SIZE, "%s; nothing is written there", strerror(errno));
		return false;
	default:
		if (!snapshot_dir_check_path(value, 0, &error))
			return true;
		snprintf(why, WHY_SIZE, "%.400s; no snapshot is written", error.text);
		return false;
	}
}

void settings_check(void (*say)(void *arg, const char *variable, const char *value,
				const char *why),
		    void *arg)
{
	char why[WHY_SIZE], clean[128];

	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		const char *value = getenv(settings[i].name);

		if (!value || !*value || check(&settings[i], value, why))
			continue;
		format_copy(clean, sizeof(clean), value);
		say(arg, settings[i].name, clean, why);
	}
}
