/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/conf.h"
#include "common/conf_file.h"
#include "common/protocol/journal.h"
#include "common/settings.h"
#include "common/size.h"
#include "tools/daemon/hooks/events.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <ini.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONF_NAME(id, name, unit, preset) name,
const char *const conf_names[CONF_KEYS] = {CONF_MAP(CONF_NAME)};
#define CONF_PRESET(id, name, unit, preset) preset,
const double conf_presets[CONF_KEYS] = {CONF_MAP(CONF_PRESET)};
#define CONF_UNIT(id, name, unit, preset) unit,
static const enum conf_unit conf_units[CONF_KEYS] = {CONF_MAP(CONF_UNIT)};

#define SHOWN 60 /* bytes of what was found, in messages */

enum section { NO_SECTION, TURNS, LIMIT, GPU, HOOKS };

struct parse {
	struct conf *conf;
	const char *next; /* what is still to be read of the text */
	int line;         /* that is read */
	enum section section;
	bool in_turns, in_hooks; /* [turns], [hooks] was there */
	unsigned long seen;      /* keys of the section: bits, in the order of their table */
	int error_line;          /* 0: no error */
	char *why;
};

enum conf_key conf_find(const char *name)
{
	int key = 0;

	while (key < CONF_KEYS && strcmp(conf_names[key], name) != 0)
		key++;
	return key;
}

#define EVENT_WORD(word)       word,
#define JOURNAL_WORD(id, word) word,
static const char *const event_kinds[] = {EVENTS_MAP(EVENT_WORD) JOURNAL_MAP(JOURNAL_WORD)};
#define EVENT_KINDS (int)(sizeof(event_kinds) / sizeof(event_kinds[0]))
_Static_assert(EVENT_KINDS <= CONF_EVENTS, "each kind has a program");

int conf_event(const char *kind)
{
	for (int i = 0; i < EVENT_KINDS; i++)
		if (!strcmp(event_kinds[i], kind))
			return i;
	return -1;
}

static bool take_seconds(const char *text, double *ms)
{
	char *end;
	double seconds = strtod(text, &end);

	*ms = seconds * 1000;
	return end != text && (!*end || !strcmp(end, "s")) && seconds >= 0.001 && seconds <= 1e6;
}

static bool take_delay(const char *text, double *ms)
{
	*ms = 0;
	return !strcmp(text, "never") || take_seconds(text, ms);
}

static bool take_bytes(const char *text, double *bytes)
{
	size_t size;
	bool good = size_parse(text, &size) && size <= CONF_BYTES_MAX;

	*bytes = good ? (double)size : 0;
	return good;
}

static bool take_number(const char *text, unsigned long max, unsigned long *number)
{
	char *end;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*number = strtoul(text, &end, 10);
	return !*end && !errno && *number <= max;
}

static bool take_count(const char *text, double *count)
{
	unsigned long number = 0;
	bool good = take_number(text, CONF_COUNT_MAX, &number) && number;

	*count = (double)number;
	return good;
}

static const struct {
	bool (*take)(const char *text, double *value);
	const char *expected;
} units[] = {
	[CONF_SECONDS] = {take_seconds, "a number of seconds from 0.001 to 1000000"},
	[CONF_DELAY] = {take_delay, "a number of seconds from 0.001 to 1000000, or never"},
	[CONF_BYTES] = {take_bytes, "a size of at most 1024T"},
	[CONF_COUNT] = {take_count, "a whole number from 1 to 256"},
};

bool conf_take(struct conf_values *values, enum conf_key key, const char *text)
{
	double value;

	if (!units[conf_units[key]].take(text, &value))
		return false;
	values->given[key] = true;
	values->value[key] = value;
	return true;
}

const char *conf_expected(enum conf_key key)
{
	return units[conf_units[key]].expected;
}

static bool fail(struct parse *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The first one counts. */
static bool fail(struct parse *p, const char *fmt, ...)
{
	va_list ap;

	if (p->error_line)
		return false;
	p->error_line = p->line;
	va_start(ap, fmt);
	vsnprintf(p->why, CONF_WHY, fmt, ap);
	va_end(ap);
	return false;
}

/* ---- sections */

/* A section that is there once, and has no name. */
static bool begin_only(struct parse *p, const char *word, const char *name, bool *seen)
{
	if (*name)
		return fail(p, "expected [%s], found '[%s %s]'", word, word, name);
	if (*seen)
		return fail(p, "[%s] is there twice", word);
	*seen = true;
	return true;
}

static bool begin_turns(struct parse *p, const char *name)
{
	return begin_only(p, "turns", name, &p->in_turns);
}

static bool begin_hooks(struct parse *p, const char *name)
{
	return begin_only(p, "hooks", name, &p->in_hooks);
}

static bool find_user(const char *name, unsigned long *id)
{
	struct passwd *pw = getpwnam(name);

	*id = pw ? pw->pw_uid : 0;
	return pw || take_number(name, (uid_t)-2, id);
}

static bool find_group(const char *name, unsigned long *id)
{
	struct group *gr = *name == '@' ? getgrnam(name + 1) : NULL;

	*id = gr ? gr->gr_gid : 0;
	return gr || (*name == '@' && take_number(name + 1, (gid_t)-2, id));
}

static bool begin_limit(struct parse *p, const char *name, bool group)
{
	struct conf *conf = p->conf;
	unsigned long id;

	if (!(group ? find_group : find_user)(name, &id))
		return fail(p, "expected %s of this machine, found '%s'",
			    group ? "'@' and a group" : "a user", name);
	for (int i = 0; i < conf->nlimits; i++)
		if (conf->limits[i].group == group && conf->limits[i].id == id)
			return fail(p, "a section of '%s' is there already", name);
	if (conf->nlimits == CONF_LIMITS)
		return fail(p, "there are more than %d sections of users and groups", CONF_LIMITS);
	conf->limits[conf->nlimits++] = (struct conf_limit){
		.group = group, .id = id, .weight = SETTING_WEIGHT_MAX, .interactive = true};
	return true;
}

static bool begin_user(struct parse *p, const char *name)
{
	return begin_limit(p, name, false);
}

static bool begin_group(struct parse *p, const char *name)
{
	return begin_limit(p, name, true);
}

static bool begin_gpu(struct parse *p, const char *name)
{
	struct conf *conf = p->conf;
	CUuuid uuid;

	if (!nvml_uuid_parse(name, &uuid))
		return fail(p, "expected the UUID of a GPU, found '%s'", name);
	for (int i = 0; i < conf->ngpus; i++)
		if (!strcmp(conf->gpus[i].uuid, name))
			return fail(p, "a section of '%s' is there already", name);
	if (conf->ngpus == TURNS_GPUS)
		return fail(p, "there are more than %d sections of GPUs", TURNS_GPUS);
	snprintf(conf->gpus[conf->ngpus].uuid, NVML_UUID_SIZE, "%s", name);
	conf->gpus[conf->ngpus++].turns = true;
	return true;
}

static const struct {
	const char *word;
	enum section section;
	bool (*begin)(struct parse *p, const char *name);
} sections[] = {
	{"turns", TURNS, begin_turns}, {"user", LIMIT, begin_user},   {"group", LIMIT, begin_group},
	{"gpu", GPU, begin_gpu},       {"hooks", HOOKS, begin_hooks},
};

static bool is_comment(const char *text)
{
	text += strspn(text, " \t\r");
	return !*text || *text == ';' || *text == '#';
}

/* Copy the text from @begin to @end, cut. */
static void copy_name(char name[SHOWN + 1], const char *begin, const char *end)
{
	snprintf(name, SHOWN + 1, "%.*s", end > begin ? (int)(end - begin) : 0, begin);
}

/* libinih tells of a section only with its first key. */
static bool begin_section(struct parse *p, const char *line)
{
	const char *end = strchr(line, ']');
	size_t len = strcspn(line, " ]");
	char name[SHOWN + 1];

	if (!end || !is_comment(end + 1))
		return fail(p, "expected a section alone in its line, found '%.*s'", SHOWN, line);
	copy_name(name, line + len + (line[len] == ' '), end);
	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
		if (strlen(sections[i].word) != len - 1 ||
		    memcmp(sections[i].word, line + 1, len - 1) != 0)
			continue;
		p->section = sections[i].section;
		p->seen = 0;
		return sections[i].begin(p, name);
	}
	return fail(
		p,
		"expected [turns], [user NAME], [group @NAME], [gpu UUID] or [hooks], found '%.*s'",
		SHOWN, line);
}

/* ---- keys */

static bool take_join(struct conf *conf, const char *value)
{
	conf->joins = !strcmp(value, "node");
	return conf->joins || !strcmp(value, "off");
}

static bool take_weight(struct conf *conf, const char *value)
{
	unsigned long weight;

	if (!take_number(value, SETTING_WEIGHT_MAX, &weight) || !weight)
		return false;
	conf->limits[conf->nlimits - 1].weight = (int)weight;
	return true;
}

static bool take_classes(struct conf *conf, const char *value)
{
	bool interactive = false;

	do {
		size_t len = strcspn(value, " \t,");

		if (len == 11 && !memcmp(value, "interactive", len))
			interactive = true;
		else if (len != 5 || memcmp(value, "batch", len) != 0)
			return false;
		value += len;
		value += strspn(value, " \t,");
	} while (*value);
	conf->limits[conf->nlimits - 1].interactive = interactive;
	return true;
}

static bool take_turns(struct conf *conf, const char *value)
{
	conf->gpus[conf->ngpus - 1].turns = !strcmp(value, "yes");
	return !strcmp(value, "yes") || !strcmp(value, "no");
}

static bool take_hook_user(struct conf *conf, const char *value)
{
	unsigned long id;

	conf->hooks.user = find_user(value, &id) && getpwuid(id);
	conf->hooks.uid = id;
	return conf->hooks.user;
}

static bool take_hook_limit(struct conf *conf, const char *value)
{
	return take_seconds(value, &conf->hooks.limit_ms);
}

static bool take_program(struct conf *conf, int event, const char *path)
{
	conf->hooks.any = true;
	return *path == '/' &&
	       snprintf(conf->hooks.programs[event], CONF_PROGRAM, "%s", path) < CONF_PROGRAM;
}

#define HOOK          "on_"
#define HOOK_EXPECTED "an absolute path, without arguments"

/* Beside those of CONF_MAP, which are of [turns]. */
static const struct {
	enum section section;
	const char *name;
	bool (*take)(struct conf *conf, const char *value);
	const char *expected;
} keys[] = {
	{TURNS, "join", take_join, "node or off"},
	{LIMIT, "weight", take_weight, "a whole number from 1 to 100"},
	{LIMIT, "classes", take_classes, "batch, interactive or both"},
	{GPU, "turns", take_turns, "yes or no"},
	{HOOKS, "user", take_hook_user, "a user of this machine"},
	{HOOKS, "timeout", take_hook_limit, "a number of seconds from 0.001 to 1000000"},
};

#define KEYS (int)(sizeof(keys) / sizeof(keys[0]))

static bool fail_key(struct parse *p, const char *name)
{
	char expected[CONF_WHY / 2] = "";
	size_t len = 0;

	for (int i = 0; i < CONF_KEYS + KEYS; i++) {
		const char *known = i < CONF_KEYS ? conf_names[i] : keys[i - CONF_KEYS].name;

		if (p->section == (i < CONF_KEYS ? TURNS : keys[i - CONF_KEYS].section))
			len += snprintf(expected + len, sizeof(expected) - len, "%s%s",
					len ? ", " : "", known);
	}
	if (p->section == HOOKS)
		snprintf(expected + len, sizeof(expected) - len,
			 ", or " HOOK " and a kind of events ('cudaw events --help')");
	return fail(p, "expected %s, found '%.*s'", len ? expected : "a section", SHOWN, name);
}

/* Each key of a section is there once. */
static bool mark_seen(struct parse *p, int key, const char *name)
{
	if (p->seen & 1UL << key)
		return fail(p, "'%s' is there twice", name);
	p->seen |= 1UL << key;
	return true;
}

static bool fail_value(struct parse *p, const char *name, const char *expected, const char *value)
{
	return fail(p, "%s: expected %s, found '%.*s'", name, expected, SHOWN, value);
}

/* For libinih: not 0 if all is well. Which section it is, begin_section() has noted. */
static int take_key(void *arg, const char *section, const char *name, const char *value)
{
	struct parse *p = arg;
	enum conf_key key = p->section == TURNS ? conf_find(name) : CONF_KEYS;
	int event = -1;

	(void)section;
	if (key < CONF_KEYS)
		return mark_seen(p, key, name) && (conf_take(&p->conf->values, key, value) ||
						   fail_value(p, name, conf_expected(key), value));
	for (int i = 0; i < KEYS; i++)
		if (keys[i].section == p->section && !strcmp(keys[i].name, name))
			return mark_seen(p, CONF_KEYS + i, name) &&
			       (keys[i].take(p->conf, value) ||
				fail_value(p, name, keys[i].expected, value));
	if (p->section == HOOKS && !strncmp(name, HOOK, strlen(HOOK)))
		event = conf_event(name + strlen(HOOK));
	if (event < 0)
		return fail_key(p, name);
	return mark_seen(p, CONF_KEYS + KEYS + event, name) &&
	       (take_program(p->conf, event, value) || fail_value(p, name, HOOK_EXPECTED, value));
}

/* ---- lines */

/*
 * For libinih: the next line, as fgets(3) gives it. Without leading space, by which libinih would take
 * it as more of the value above. Ends at the first error.
 */
static char *next_line(char *line, int size, void *arg)
{
	struct parse *p = arg;
	size_t len;

	if (p->error_line || !*p->next)
		return NULL;
	p->line++;
	p->next += strspn(p->next, " \t");
	len = strcspn(p->next, "\n");
	if ((int)len > size - 3) {
		fail(p, "expected a line of at most %d bytes, found %zu", size - 3, len);
		return NULL;
	}
	memcpy(line, p->next, len);
	line[len] = '\0';
	p->next += len + (p->next[len] == '\n');
	if (*line == '[' && !begin_section(p, line))
		return NULL;
	return line;
}

int conf_parse(const char *text, struct conf *conf, char *why)
{
	struct parse p = {.conf = conf, .next = text, .why = why};
	int line;

	*conf = (struct conf){.hooks.limit_ms = CONF_HOOK_MS};
	if (!strncmp(text, "\xef\xbb\xbf", 3))
		p.next += 3;
	line = ini_parse_stream(next_line, &p, take_key, &p);
	if (!line || line == p.error_line)
		return p.error_line;
	p.line = line;
	p.error_line = 0;
	fail(&p, "expected KEY = VALUE, or a section");
	return line;
}

static const char *reason(int err)
{
	switch (-err) {
	case EINVAL:
		return "it is no regular file";
	case EFBIG:
		return "it is larger than 64 KiB";
	case EBADMSG:
		return "it contains a NUL byte";
	default:
		return strerror(-err);
	}
}

int conf_read(const char *path, bool must_exist, struct conf *conf, char *why)
{
	char *text, what[CONF_WHY - SHOWN];
	int err = conf_file_read(path, &text), line;

	*conf = (struct conf){.nlimits = 0};
	if (err == -ENOENT && !must_exist)
		return 0;
	if (err) {
		snprintf(why, CONF_WHY, "%s: %s", path, reason(err));
		return err;
	}
	line = conf_parse(text, conf, what);
	free(text);
	if (line)
		snprintf(why, CONF_WHY, "%s:%d: %s", path, line, what);
	return line ? -EBADMSG : 0;
}
