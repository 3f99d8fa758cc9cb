/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/rules.h"
#include "common/conf_file.h"
#include "tools/daemon/hooks/events.h"
#include "tools/daemon/hooks/hooks.h"
#include "tools/daemon/members.h"
#include "tools/daemon/connections.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOG_PREFIX "cudawd: "
#include "common/log.h"

#define GROUPS_MAX 1024 /* of a process; further ones are not looked at */

static char path[PATH_MAX]; /* of the file; empty: there is none */
static bool must_exist;
static struct conf conf;
static struct conf_values options, set;

/* False: it is too long, or there is no such directory. */
static bool find_file(bool node)
{
	const char *xdg = secure_getenv("XDG_CONFIG_HOME"), *home = secure_getenv("HOME");
	int len;

	if (node)
		len = snprintf(path, sizeof(path), CONF_FILE_NODE);
	else if (xdg && *xdg == '/')
		len = snprintf(path, sizeof(path), "%s/cudaw.conf", xdg);
	else if (home && *home == '/')
		len = snprintf(path, sizeof(path), "%s/.config/cudaw.conf", home);
	else
		return false;
	return len < (int)sizeof(path);
}

/* Returns 0 or a negative errno, with the reason in @why. */
static int read_file(char *why)
{
	static struct conf fresh;
	int err = conf_read(path, must_exist, &fresh, why);

	if (!err && !hooks_check(&fresh.hooks, why))
		err = -EINVAL;
	if (err)
		return err;
	conf = fresh;
	hooks_set(&conf.hooks);
	return 0;
}

int rules_init(const struct conf_values *with, const char *file, bool node)
{
	char why[CONF_WHY];
	int err;

	options = *with;
	must_exist = file;
	if (!file && !find_file(node))
		path[0] = '\0';
	if (file && snprintf(path, sizeof(path), "%s", file) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	err = path[0] ? read_file(why) : 0;
	if (err)
		pr_err("%s", why);
	return err;
}

/* Of the daemon itself; @by: who asked for it, or NULL. */
static struct event_subject subject(const struct connection *by)
{
	return (struct event_subject){.uid = by ? by->uid : geteuid(),
				      .pid = by ? by->pid : getpid(),
				      .id = "-",
				      .name = ""};
}

void rules_reread(void)
{
	const struct event_subject of = subject(NULL);
	char why[CONF_WHY];

	if (!path[0])
		return;
	if (read_file(why)) {
		pr_err("%s; the settings stay as they are", why);
		events_add("rejected", &of, "%s", why);
		return;
	}
	pr_info("%s was read again", path);
	events_add("set", &of, "%s was read again", path);
}

void rules_note(const struct connection *connection, const char *kind, const char *text)
{
	const struct event_subject of = subject(connection);

	events_add(kind, &of, "%s", text);
}

/* Take KEY=VALUE, of @len bytes. False, with the reason in @why. */
static bool take_word(struct conf_values *values, const char *text, size_t len, char *why)
{
	char word[128], *value;
	enum conf_key key;

	snprintf(word, sizeof(word), "%.*s", (int)len, text);
	value = strchr(word, '=');
	if (len >= sizeof(word) || !value) {
		snprintf(why, RULES_WHY, "expected KEY=VALUE, found '%s'", word);
		return false;
	}
	*value++ = '\0';
	key = conf_find(word);
	if (key == CONF_KEYS) {
		len = snprintf(why, RULES_WHY, "expected ");
		for (int i = 0; i < CONF_KEYS; i++)
			len += snprintf(why + len, RULES_WHY - len, "%s%s", i ? ", " : "",
					conf_names[i]);
		snprintf(why + len, RULES_WHY - len, ", found '%s'", word);
		return false;
	}
	if (conf_take(values, key, value))
		return true;
	snprintf(why, RULES_WHY, "%s: expected %s, found '%s'", word, conf_expected(key), value);
	return false;
}

int rules_set(const struct connection *connection, const char *text, char *why)
{
	struct conf_values fresh = set;

	for (const char *p = text; *p; p += strspn(p, " ")) {
		size_t len = strcspn(p, " ");

		if (!take_word(&fresh, p, len, why))
			return -EINVAL;
		p += len;
	}
	set = fresh;
	rules_note(connection, "set", text);
	return 0;
}

double rules_value(enum conf_key key)
{
	const struct conf_values *layers[] = {&set, &options, &conf.values};

	for (size_t i = 0; i < sizeof(layers) / sizeof(layers[0]); i++)
		if (layers[i]->given[key])
			return layers[i]->value[key];
	return conf_presets[key];
}

bool rules_has_turns(const char *uuid)
{
	for (int i = 0; i < conf.ngpus; i++)
		if (!strcmp(conf.gpus[i].uuid, uuid))
			return conf.gpus[i].turns;
	return true;
}

/* The groups of the process at the other end, as it connected. Returns how many. */
static int groups_of(int fd, gid_t groups[GROUPS_MAX])
{
	socklen_t len = (GROUPS_MAX - 1) * sizeof(gid_t), size = sizeof(struct ucred);
	struct ucred ucred;
	int count = 0;

	if (!getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len))
		count = (int)(len / sizeof(gid_t));
	if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &ucred, &size))
		groups[count++] = ucred.gid;
	return count;
}

static bool is_member_of(gid_t group, const gid_t *groups, int count)
{
	for (int i = 0; i < count; i++)
		if (groups[i] == group)
			return true;
	return false;
}

static const struct conf_limit *limit_of(const struct connection *connection)
{
	const struct conf_limit *found = NULL;
	gid_t groups[GROUPS_MAX];
	int count = groups_of(connection->fd, groups);

	for (int i = 0; i < conf.nlimits; i++) {
		const struct conf_limit *limit = &conf.limits[i];

		if (!limit->group && limit->id == connection->uid)
			return limit;
		if (limit->group && !found && is_member_of(limit->id, groups, count))
			found = limit;
	}
	return found;
}

void rules_limit(struct member *m)
{
	const struct conf_limit *limit = limit_of(m->connection);
	const struct event_subject of = {.uid = m->connection->uid,
					 .pid = m->connection->pid,
					 .id = m->job,
					 .name = m->name};

	if (limit && m->class == TURNS_INTERACTIVE && !limit->interactive) {
		events_add("limited", &of, "its user may not claim the class interactive: batch");
		m->class = TURNS_BATCH;
	}
	if (limit && m->weight > limit->weight) {
		events_add("limited", &of, "its user may claim at most the weight %d, not %d",
			   limit->weight, m->weight);
		m->weight = limit->weight;
	}
}
