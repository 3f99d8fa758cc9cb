/* SPDX-License-Identifier: Apache-2.0 */
#include "common/protocol/lines.h"
#include "common/ascii.h"
#include "common/gpu/nvml.h"
#include "common/size.h"
#include "common/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* CMSG_SPACE() has room for two descriptors, and nobody would close the second. */
static int token_of(struct msghdr *msg)
{
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg);
	int fd;

	if (!cmsg || cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS ||
	    cmsg->cmsg_len != CMSG_LEN(sizeof(fd)))
		return msg->msg_flags & MSG_CTRUNC ? -EMFILE : -ENOENT;
	memcpy(&fd, CMSG_DATA(cmsg), sizeof(fd));
	return fd;
}

int lines_read(struct lines *lines, int fd, int *token)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_LEN(sizeof(int))];
	} control;
	struct iovec room;
	struct msghdr msg = {.msg_iov = &room,
			     .msg_iovlen = 1,
			     .msg_control = token ? &control : NULL,
			     .msg_controllen = token ? sizeof(control.bytes) : 0};
	ssize_t came;

	lines->to -= lines->from;
	memmove(lines->bytes, lines->bytes + lines->from, lines->to);
	lines->from = 0;
	room = (struct iovec){lines->bytes + lines->to, sizeof(lines->bytes) - lines->to};
	came = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (token)
		*token = came < 0 ? -ENOENT : token_of(&msg);
	if (came < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	lines->to += came;
	return came ? (int)came : -ECONNRESET;
}

int lines_send(int fd, const char *text, int token, int flags)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(token))];
	} control = {.header = {.cmsg_len = CMSG_LEN(sizeof(token)),
				.cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS}};
	size_t len = strlen(text);
	struct iovec iov[] = {{(char *)text, len}, {"\n", 1}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
	ssize_t sent;

	memcpy(CMSG_DATA(&control.header), &token, sizeof(token));
	if (token > 0) {
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
	}
	sent = sendmsg(fd, &msg, flags | MSG_NOSIGNAL);
	if (sent < 0)
		return -errno;
	return sent == (ssize_t)len + 1 ? 0 : -EIO;
}

int lines_next(struct lines *lines, char **line)
{
	char *start = lines->bytes + lines->from;
	size_t came = lines->to - lines->from;
	char *newline = memchr(start, '\n', came);

	*line = NULL;
	if (memchr(start, '\0', newline ? (size_t)(newline - start) : came))
		return -EBADMSG;
	if (!newline)
		return came == sizeof(lines->bytes) ? -EMSGSIZE : 0;
	*newline = '\0';
	lines->from += newline + 1 - start;
	*line = start;
	return 0;
}

const char *lines_fault(int error)
{
	return error == -EBADMSG ? "a line contains a NUL byte"
				 : "a line is longer than 4096 bytes";
}

/* @line has the first @len bytes of a line, or what there was room for. */
static size_t finish(char line[PROTOCOL_LINE], size_t len)
{
	len = size_min(len, PROTOCOL_LINE - 2);
	for (size_t i = 0; i < len; i++)
		if (line[i] == '\n')
			line[i] = ' ';
	line[len] = '\n';
	return len + 1;
}

size_t lines_write(char line[PROTOCOL_LINE], const char *fmt, va_list ap)
{
	return finish(line, vsnprintf(line, PROTOCOL_LINE - 1, fmt, ap));
}

size_t lines_write_end(char line[PROTOCOL_LINE], enum end_code code, const char *fmt, va_list ap)
{
	size_t len = snprintf(line, PROTOCOL_LINE, "end %s ", end_names[code]);
	size_t text = fmt ? vsnprintf(line + len, PROTOCOL_LINE - 1 - len, fmt, ap) : 0;

	return finish(line, text ? len + text : len - 1);
}

#define NAME(id, text) text,
const char *const end_names[] = {"", END_MAP(NAME)};
const char *const state_names[] = {STATE_MAP(NAME)};

int name_find(const char *const *names, int n, const char *text)
{
	while (--n >= 0 && strcmp(names[n], text) != 0)
		;
	return n;
}

struct line_form {
	const char *word, *parts;
};

#define FORM(id, word, parts) {word, parts},
#define TABLE(n, most, ...)                                      \
	{                                                        \
		(const struct line_form[]){__VA_ARGS__}, n, most \
	}

const struct line_table lines_to_job =
	TABLE(TO_JOB, INT64_MAX, REQUEST_MAP(FORM) ORDER_MAP(FORM) TURN_MAP(FORM));
const struct line_table lines_from_job =
	TABLE(FROM_JOB, INT64_MAX, REPORT_MAP(FORM) STATUS_MAP(FORM));
/* No GPU has so many bytes. */
const struct line_table lines_to_daemon =
	TABLE(TO_DAEMON, UINT64_C(1) << 50, REPORT_MAP(FORM) MEMBER_MAP(FORM) COMMAND_MAP(FORM));
const struct line_table lines_from_daemon = TABLE(FROM_DAEMON, INT64_MAX, LISTED_MAP(FORM));

bool line_numbers(const char **text, uint64_t most, uint64_t *numbers, int n)
{
	const char *p = *text;

	for (int i = 0; i < n; i++) {
		if (i && *p++ != ':')
			return false;
		if (!ascii_is_digit(*p))
			return false;
		for (numbers[i] = 0; ascii_is_digit(*p); p++) {
			unsigned int digit = *p - '0';

			if (numbers[i] > (most - digit) / 10)
				return false;
			numbers[i] = numbers[i] * 10 + digit;
		}
	}
	*text = p;
	return true;
}

static const char *take_number(const char *text, uint64_t most, struct line *line)
{
	uint64_t number;

	if (line->numbers == LINE_NUMBERS || !line_numbers(&text, most, &number, 1) ||
	    (*text && *text != ' '))
		return NULL;
	line->number[line->numbers++] = number;
	return text;
}

static const char *take_word(char part, const char *text, struct line *line)
{
	size_t len = strcspn(text, " ");
	CUuuid uuid;
	char *word;
	int end;

	if (!len || len >= LINE_WORD || line->words == LINE_WORDS)
		return NULL;
	word = line->word[line->words];
	memcpy(word, text, len);
	word[len] = '\0';
	if (part == 'u' && !nvml_uuid_parse(word, &uuid))
		return NULL;
	if (part == 'e') {
		end = name_find(end_names, ENDS, word);
		line->end = end < 0 ? END_FAILED : (enum end_code)end;
	}
	line->words++;
	return text + len;
}

/* Returns what follows the part; NULL: it is not there. */
static const char *take_part(char part, const char *text, uint64_t most, struct line *line)
{
	switch (part) {
	case 'n':
	case 'N':
		return take_number(text, most, line);
	case 't':
		if (!*text)
			return NULL;
		/* fallthrough */
	case 'T':
		line->text = text;
		return text + strlen(text);
	default:
		return take_word(part, text, line);
	}
}

static bool take_parts(const char *parts, const char *text, uint64_t most, struct line *line)
{
	for (; *parts; parts++) {
		const char *end = *text == ' ' ? take_part(*parts, text + 1, most, line) : NULL;

		if (end)
			text = end;
		else if (ascii_is_lower(*parts))
			return false;
	}
	return !*text;
}

int line_parse(const struct line_table *table, const char *text, struct line *line)
{
	size_t len = strcspn(text, " ");

	*line = (struct line){.id = table->n, .text = ""};
	for (int i = 0; i < table->n; i++) {
		const struct line_form *form = &table->forms[i];

		if (strlen(form->word) != len || memcmp(form->word, text, len) != 0)
			continue;
		line->id = i;
		return take_parts(form->parts, text + len, table->most, line) ? 0 : -EBADMSG;
	}
	return len ? 0 : -EBADMSG;
}

void line_store(const struct line *line, const struct line_field *field, void *object)
{
	char *to = (char *)object + field->at;

	if (field->size && line->numbers)
		memcpy(to, &line->number[0], sizeof(uint64_t));
	else if (field->size)
		format_copy(to, field->size, line->text);
}
