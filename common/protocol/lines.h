/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_LINES_H
#define CUDAW_LINES_H
/*
 * Lines from a socket (protocol.h), and what is in them. Nothing in a line is trusted.
 */
#include "common/protocol/protocol.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What has come, and was not taken yet; zero at first. */
struct lines {
	char bytes[PROTOCOL_LINE];
	size_t from, to;
};

/*
 * Read what there is on the socket @fd, without waiting. Returns how many bytes came; 0: none yet; or a
 * negative errno: -ECONNRESET if the other side has closed it. *@token, if @token is not NULL, is the
 * descriptor that came with them: -ENOENT none, -EMFILE one for which no number is free.
 */
int lines_read(struct lines *lines, int fd, int *token);

/*
 * Send @text as a line on the socket @fd, and with the whole of it the descriptor @token; 0 or less: none. @flags are
 * those of send(2). Returns 0; or a negative errno, -EIO if not all was sent.
 */
int lines_send(int fd, const char *text, int token, int flags);

/*
 * Take the next line: *@line without its newline, valid until the next lines_read(); NULL: none has come.
 * Returns 0; or -EBADMSG or -EMSGSIZE, which lines_fault() has in words, and then again for each call.
 */
int lines_next(struct lines *lines, char **line);
const char *lines_fault(int error);

/*
 * Write a line into @line, newlines in it as blanks, and cut where it is too long. Returns its length, with the newline
 * at its end; no zero follows.
 */
size_t lines_write(char line[PROTOCOL_LINE], const char *fmt, va_list ap);

/* The same for an "end", with the text of @fmt, or NULL for none. */
size_t lines_write_end(char line[PROTOCOL_LINE], enum end_code code, const char *fmt, va_list ap);

/* The words of protocol.h for the codes of the last line, and for the states of a process. */
extern const char *const end_names[ENDS], *const state_names[STATES];

/* The place of @text among @names; -1: it is none of them. */
int name_find(const char *const *names, int n, const char *text);

/* The lines that one side reads. */
struct line_table {
	const struct line_form *forms;
	int n;
	uint64_t most; /* that a number may be */
};

extern const struct line_table lines_to_job, lines_from_job, lines_to_daemon, lines_from_daemon;

#define LINE_NUMBERS 4
#define LINE_WORDS   3
#define LINE_WORD    65 /* with the terminating zero */

struct line {
	int id; /* its place in the table; the number of lines there: an unknown one, which is skipped */
	uint64_t number[LINE_NUMBERS]; /* in order; 0 for one that is missing */
	int numbers;
	char word[LINE_WORDS][LINE_WORD]; /* in order, UUIDs as well; "" for one that is missing */
	int words;
	enum end_code end;
	const char *text; /* in the line itself; "": none */
};

/*
 * Parse @text, a line without its newline, into @line. Returns 0, or -EBADMSG: it begins with no word, or is
 * a known line with something else behind its word than it takes.
 */
int line_parse(const struct line_table *table, const char *text, struct line *line);

/* Where the text of a line goes, or its number if it has one, in a struct; a size of 0: nowhere. */
struct line_field {
	size_t at, size;
};

#define LINE_FIELD(type, field)                                                 \
	{                                                                       \
		offsetof(struct type, field), sizeof(((struct type *)0)->field) \
	}

/* Put what @line has to its field, in @object: a uint64_t, or text as format_copy() leaves it. */
void line_store(const struct line *line, const struct line_field *field, void *object);

/*
 * Read @n numbers with a ':' between each two, of at most @most, from the beginning of *@text, which then is
 * what follows. False: there are none.
 */
bool line_numbers(const char **text, uint64_t most, uint64_t *numbers, int n);

#endif
