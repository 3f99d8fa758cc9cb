/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DAEMON_LINES_H
#define CUDAW_DAEMON_LINES_H
/*
 * The lines that come to the daemon, from members (common/protocol.h) and from commands
 * (tools/daemon/commands.h). Pure: no I/O, no memory. Nothing in a line is trusted.
 */
#include "common/nvml.h"

#include <stddef.h>
#include <stdint.h>

/* X(id, word, form): the numbers and words that follow, see lines.c. */
#define LINE_MAP(X)                  \
	X(TURNS, "turns", "n")       \
	X(ID, "id", "t")             \
	X(NAME, "name", "t")         \
	X(COMMAND, "command", "t")   \
	X(CLASS, "class", "t")       \
	X(WEIGHT, "weight", "n")     \
	X(NEED, "need", "unn")       \
	X(STATE, "state", "t")       \
	X(JOINED, "joined", "")      \
	X(WANT, "want", "")          \
	X(IDLE, "idle", "n")         \
	X(BUSY, "busy", "")          \
	X(GROW, "grow", "nun")       \
	X(PINNED, "pinned", "nun")   \
	X(ENDS, "ends", "")          \
	X(PING, "ping", "")          \
	X(FREED, "freed", "n")       \
	X(MAPPED, "mapped", "n")     \
	X(READY, "ready", "")        \
	X(FILLED, "filled", "")      \
	X(HELD, "held", "t")         \
	X(COMMS, "comms", "t")       \
	X(END, "end", "t")           \
	X(PROGRESS, "progress", "t") \
	X(NOTE, "note", "t")         \
	X(LAUNCH, "launch", "")      \
	X(LIST, "list", "")          \
	X(EVENTS, "events", "o")     \
	X(GIVE, "give", "t")         \
	X(SET, "set", "t")           \
	X(DRAIN, "drain", "u")       \
	X(UNDRAIN, "undrain", "u")

#define LINE_ENUM(id, word, form) LINE_##id,
enum line_word { LINE_MAP(LINE_ENUM) LINE_WORDS };
#undef LINE_ENUM

/* The most bytes that a line may speak of: no GPU has so many. */
#define LINE_NUMBER_MAX (1UL << 50)

struct line {
	enum line_word word; /* LINE_WORDS: an unknown one, which the reader skips */
	uint64_t number[2];  /* in order */
	char uuid[NVML_UUID_SIZE];
	const char *text; /* the rest of the line, in the line itself; "" if there is none */
};

/*
 * Parse @text, a line without its newline, into @line. Returns 0, or -EBADMSG: a known word with
 * something else behind it than it takes.
 */
int line_parse(const char *text, struct line *line);

#endif
