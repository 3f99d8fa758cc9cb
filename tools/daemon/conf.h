/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DAEMON_CONF_H
#define CUDAW_DAEMON_CONF_H
/*
 * The daemon's settings, and the file that gives them. The file has lines KEY = VALUE in sections;
 * libinih reads it, and this module checks every line:
 *
 *	[turns]
 *	quantum, ...		the keys of CONF_MAP
 *	join = node|off		for jobs, which read it themselves (common/conf_file.h)
 *	[user NAME]		a user or a UID
 *	weight = N		the most that the user's jobs may claim
 *	classes = CLASS...	which classes they may claim; the others get batch
 *	[group @NAME]		the same for the users of a group, or of a GID
 *	[gpu UUID]
 *	turns = yes|no		no: nobody takes turns there
 *	[hooks]			programs that are run for events (hooks.h)
 *	user = NAME		as whom
 *	timeout = SECONDS	one that takes longer is killed
 *	on_EVENT = PATH		the program for this kind of event
 *
 * What is not expected is an error: unknown sections and keys, values out of bounds, a section or a
 * key that is there twice, users that the machine does not know.
 */
#include "common/gpu/nvml.h"
#include "tools/daemon/turns/turns.h"

#include <stdbool.h>

/* X(id, name, unit, preset) */
#define CONF_MAP(X)                                                                       \
	X(QUANTUM, "quantum", CONF_SECONDS, 0) /* 0: 20 hand-overs (turns.h) */           \
	X(IDLE, "idle", CONF_SECONDS, 0)       /* 0: as idleness.h says */                \
	X(REST, "rest", CONF_SECONDS, 16000)                                              \
	X(RESCUE, "rescue", CONF_DELAY, 20)              /* 0: never */                   \
	X(CONTEXT_AFTER, "context-after", CONF_DELAY, 0) /* 0: never */                   \
	X(LINGER, "linger", CONF_SECONDS, 5000)                                           \
	X(MARGIN, "margin", CONF_BYTES, 256UL << 20)                                      \
	X(JOBS_PER_USER, "jobs-per-user", CONF_COUNT, 32) /* of a daemon for everybody */ \
	X(RESIDENCE, "residence", CONF_SECONDS, 0)        /* 0: 5 hand-overs (turns.h) */ \
	X(BATCH_AFTER, "batch-after", CONF_DELAY, 0)      /* 0: never */                  \
	X(SILENCE, "silence", CONF_SECONDS, 10000)

#define CONF_ID(id, ...) CONF_##id,
enum conf_key { CONF_MAP(CONF_ID) CONF_KEYS };
#undef CONF_ID

/* The keys before this one are options of cudawd, too. */
#define CONF_OPTIONS CONF_RESIDENCE

enum conf_unit {
	CONF_SECONDS, /* kept as milliseconds */
	CONF_DELAY,   /* the same, or never, which is 0 */
	CONF_BYTES,   /* up to CONF_BYTES_MAX */
	CONF_COUNT,   /* from 1 to CONF_COUNT_MAX */
};

#define CONF_BYTES_MAX (1UL << 50) /* as many as a line may speak of (lines.h) */
#define CONF_COUNT_MAX 256         /* as many connections as there can be */
#define CONF_LIMITS    256         /* [user] and [group] sections, together */
#define CONF_WHY       512
#define CONF_HOOK_MS   10000 /* the preset of a hook's time */

extern const char *const conf_names[CONF_KEYS];
extern const double conf_presets[CONF_KEYS];

struct conf_values {
	bool given[CONF_KEYS];
	double value[CONF_KEYS];
};

/* What the jobs of a user may claim. */
struct conf_limit {
	bool group;
	unsigned int id; /* a UID or GID */
	int weight;      /* at most */
	bool interactive;
};

struct conf_gpu {
	char uuid[NVML_UUID_SIZE];
	bool turns;
};

/* The kinds of events: EVENTS_MAP's, and those of JOURNAL_MAP that differ from them. */
#define CONF_EVENTS  32
#define CONF_PROGRAM 256 /* a path, with its NUL */

struct conf_hooks {
	bool any;  /* a program is given */
	bool user; /* and as whom it runs */
	uid_t uid; /* of the user */
	double limit_ms;
	/* By the kind of the event, as conf_event() counts them; empty: none. */
	char programs[CONF_EVENTS][CONF_PROGRAM];
};

struct conf {
	struct conf_values values;
	bool joins; /* jobs join the machine's daemon; they read it themselves */
	struct conf_limit limits[CONF_LIMITS]; /* in the order of the file */
	int nlimits;
	struct conf_gpu gpus[TURNS_GPUS];
	int ngpus;
	struct conf_hooks hooks;
};

/* The key @name; CONF_KEYS: there is none. */
enum conf_key conf_find(const char *name);

/* Take @text as the value of @key. False: it is none, and *@values stays as it is. */
bool conf_take(struct conf_values *values, enum conf_key key, const char *text);

/* What a value of @key is, for "expected ...". */
const char *conf_expected(enum conf_key key);

/* The number of a kind of events; a negative one: there is none of this name. */
int conf_event(const char *kind);

/*
 * Parse @text into @conf. Returns 0, or the line of the first error; @why, of CONF_WHY bytes, then
 * says what was expected and found there. Looks users and groups up.
 */
int conf_parse(const char *text, struct conf *conf, char *why);

/*
 * Read the file at @path into @conf. A file that is missing is empty, unless it @must_exist. Returns 0
 * or a negative errno, with "PATH:LINE: ..." or "PATH: ..." in @why, of CONF_WHY bytes; *@conf is
 * then undefined.
 */
int conf_read(const char *path, bool must_exist, struct conf *conf, char *why);

#endif
