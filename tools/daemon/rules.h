/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DAEMON_RULES_H
#define CUDAW_DAEMON_RULES_H
/*
 * The daemon's settings as they are in effect. `cudaw turns set` counts before cudawd's options, these
 * before the file (conf.h), and the file before the presets. Those who use a setting ask for it each
 * time, so that a change needs no more than what is here.
 *
 * The file: /etc/cudaw.conf for the daemon of a machine; for others cudaw.conf in XDG_CONFIG_HOME, or
 * in ~/.config; or the one that --conf names, which must exist.
 */
#include "tools/daemon/conf.h"

#include <stdbool.h>

#define RULES_WHY CONF_WHY

struct member;
struct connection;

/*
 * Begin with @options, and the file: @path, or, for NULL, the machine's or the user's own, as
 * @node says. Returns 0 or a negative errno, after a message.
 */
int rules_init(const struct conf_values *options, const char *path, bool node);

/* Read the file again. If that fails, all stays as it is. The log and an event say what came of it. */
void rules_reread(void);

/*
 * Take @text, KEY=VALUE..., for @connection. Returns 0; or -EINVAL, and @why, of RULES_WHY bytes, says
 * what was expected: then nothing has changed.
 */
int rules_set(const struct connection *connection, const char *text, char *why);

/* Note an event of the kind @kind, a string constant, that @connection has asked for. */
void rules_note(const struct connection *connection, const char *kind, const char *text);

/* The value of a setting: milliseconds, bytes or a number. */
double rules_value(enum conf_key key);

/* Whether jobs take turns on the GPU @uuid. */
bool rules_has_turns(const char *uuid);

/*
 * Lower class and weight of @member, which is about to join, to what its user may claim: by the
 * user's section; or else by the first one of a group that its process belongs to. An event says so.
 */
void rules_limit(struct member *member);

#endif
