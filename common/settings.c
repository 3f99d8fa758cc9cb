/* SPDX-License-Identifier: Apache-2.0 */
#include "common/settings.h"
#include "common/ascii.h"
#include "common/environment.h"
#include "common/system/signal_name.h"
#include "common/size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_PREFIX "settings: "
#include "common/log.h"

#define WORDS(...)          \
	{                   \
		__VA_ARGS__ \
	}
#define NO_WORDS     \
	{            \
		NULL \
	}
#define SETTING(id, name, kind, words, preset, instead, reader, text) \
	{name, kind, words, preset, instead, reader, text},

const struct setting settings[SETTINGS] = {SETTINGS_MAP(SETTING)};

const char *setting_text(enum setting_id id)
{
	const char *value = environment_get(settings[id].name);

	return value && *value ? value : NULL;
}

static bool has_word(const char *const *words, const char *value, size_t len)
{
	for (; *words; words++)
		if (strlen(*words) == len && !memcmp(value, *words, len))
			return true;
	return false;
}

/* True if a word of the list @value is among @words; with @among false, if one is not. */
static bool any_word(const char *value, const char *const *words, bool among)
{
	bool any = false;

	for (size_t len; !any && *value; value += len + (value[len] == ',')) {
		len = strcspn(value, ",");
		any = has_word(words, value, len) == among;
	}
	return any;
}

static bool is_right(const struct setting *setting, const char *value)
{
	return setting->kind == A_WORD ? has_word(setting->words, value, strlen(value))
				       : !any_word(value, setting->words, false);
}

static bool check_words(const struct setting *setting, const char *value, char *why)
{
	const char *first = setting->kind == A_LIST ? "expected some of " : "expected ";
	size_t len = 0;

	if (is_right(setting, value))
		return true;
	for (int i = 0; setting->words[i]; i++) {
		const char *lead = !i ? first : setting->words[i + 1] ? ", " : " or ";

		len += snprintf(why + len, SETTING_WHY - len, "%s%s", lead, setting->words[i]);
	}
	if (setting->kind == A_LIST)
		snprintf(why + len, SETTING_WHY - len, ", separated by commas; %s",
			 setting->instead);
	else
		snprintf(why + len, SETTING_WHY - len, "; %s is used",
			 setting->instead ? setting->instead : "the default");
	return false;
}

/* 0: @value is no weight. */
static int parse_weight(const char *value)
{
	size_t weight;

	/* No size of so few bytes ends with a letter. */
	if (!size_parse(value, &weight) || weight > SETTING_WEIGHT_MAX)
		return 0;
	return weight;
}

/* Seconds; 0: never. */
static bool parse_time(const char *value, unsigned long *seconds)
{
	char *end;

	*seconds = strtoul(value, &end, 10);
	if (!strcmp(value, "never"))
		return true;
	return ascii_is_digit(*value) && !*end && *seconds && *seconds <= SETTING_TIME_MAX;
}

static bool is_socket(const char *value)
{
	return !strcmp(value, "off") || !strcmp(value, "user") || !strcmp(value, "node") ||
	       *value == '/';
}

bool setting_check(const struct setting *setting, const char *value, char *why)
{
	const char *expected = NULL;
	unsigned long seconds;
	size_t size;

	if (setting->kind == A_WORD || setting->kind == A_LIST)
		return check_words(setting, value, why);
	if (setting->kind == A_SIZE && !size_parse(value, &size))
		expected = "a number of bytes, as 8G";
	if (setting->kind == A_MEMORY && (!size_parse(value, &size) || size < SETTING_MEMORY_MIN))
		expected = "a number of bytes from 2M on, as 20G";
	if (setting->kind == A_SOCKET && !is_socket(value))
		expected = "off, user, node or an absolute path";
	if (setting->kind == A_WEIGHT && !parse_weight(value))
		expected = "a whole number from 1 to 100";
	if (setting->kind == A_TIME && !parse_time(value, &seconds))
		expected = "a whole number of seconds from 1 to 1000000, or never";
	if (setting->kind == A_SIGNAL && signal_parse(value) < 0)
		expected = "a signal's name, a number or none";
	if (expected)
		snprintf(why, SETTING_WHY, "expected %s; %s", expected, setting->instead);
	return !expected;
}

/* False if @value cannot be used; the first time, the log says why. */
static bool is_usable(enum setting_id id, const char *value)
{
	static bool said[SETTINGS];
	char why[SETTING_WHY];

	if (setting_check(&settings[id], value, why))
		return true;
	if (!__atomic_exchange_n(&said[id], true, __ATOMIC_RELAXED))
		pr_err("%s=%s: %s", settings[id].name, value, why);
	return false;
}

const char *setting_word(enum setting_id id)
{
	const char *value = setting_text(id);

	return !value || is_usable(id, value) ? value : settings[id].instead;
}

bool setting_lists(enum setting_id id, const char *word)
{
	const char *value = setting_text(id), *const words[] = {word, NULL};

	if (!value)
		return false;
	is_usable(id, value);
	return any_word(value, words, true);
}

bool setting_enabled(enum setting_id id)
{
	const char *word = setting_word(id);

	return strcmp(word ? word : settings[id].preset, "0") != 0;
}

void setting_size(enum setting_id id, size_t *size)
{
	const char *value = setting_text(id);

	if (value && is_usable(id, value))
		size_parse(value, size);
}

const char *setting_socket(enum setting_id id)
{
	const char *value = setting_text(id);

	return value && is_usable(id, value) && strcmp(value, "off") != 0 ? value : NULL;
}

int setting_weight(enum setting_id id)
{
	const char *value = setting_text(id);

	return parse_weight(value && is_usable(id, value) ? value : settings[id].preset);
}

bool setting_time(enum setting_id id, unsigned long *seconds)
{
	const char *value = setting_text(id);

	return value && is_usable(id, value) && parse_time(value, seconds);
}

bool setting_is_given(enum setting_id id)
{
	const char *value = setting_text(id);

	return value && is_usable(id, value);
}

int setting_signal(enum setting_id id)
{
	const char *value = environment_get(settings[id].name);

	return signal_parse(value && is_usable(id, value) ? value : settings[id].preset);
}
