/* SPDX-License-Identifier: Apache-2.0 */
#include "common/conf_file.h"
#include "common/settings.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_PREFIX "conf_file: "
#include "common/log.h"

/* As isspace(3) has it in the C locale, whatever the program's is. */
#define SPACE " \t\r\f\v"

/* Returns how much was read, or a negative errno. */
static ssize_t read_all(int fd, char *text, size_t size)
{
	size_t len = 0;
	ssize_t got = 1;

	while (got && len < size) {
		got = read(fd, text + len, size - len);
		if (got < 0 && errno != EINTR)
			return -errno;
		len += got > 0 ? got : 0;
	}
	return len;
}

static int read_fd(int fd, char **text)
{
	struct stat st;
	ssize_t len;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	*text = malloc(CONF_FILE_SIZE + 1);
	if (!*text)
		return -ENOMEM;
	len = read_all(fd, *text, CONF_FILE_SIZE + 1);
	if (len >= 0 && len <= CONF_FILE_SIZE) {
		(*text)[len] = '\0';
		if (strlen(*text) == (size_t)len)
			return 0;
		len = -EBADMSG;
	}
	free(*text);
	return len < 0 ? len : -EFBIG;
}

int conf_file_read(const char *path, char **text)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), err;

	if (fd < 0)
		return -errno;
	err = read_fd(fd, text);
	close(fd);
	return err;
}

/* A part of the text. */
struct span {
	const char *begin, *end;
};

static bool is(struct span span, const char *word)
{
	size_t len = span.end - span.begin;

	return strlen(word) == len && !memcmp(span.begin, word, len);
}

static struct span strip(struct span span)
{
	while (span.begin < span.end && strchr(SPACE, *span.begin))
		span.begin++;
	while (span.begin < span.end && strchr(SPACE, span.end[-1]))
		span.end--;
	return span;
}

/* Without a comment: from a ';' behind a space on. */
static struct span uncomment(struct span span)
{
	for (const char *p = span.begin; p + 1 < span.end; p++)
		if (strchr(SPACE, *p) && p[1] == ';')
			span.end = p;
	return strip(span);
}

static bool is_turns(struct span line)
{
	return line.end - line.begin >= 7 && !memcmp(line.begin, "[turns]", 7);
}

/* The value of "join"; false: @line has another key. */
static bool take_join(struct span line, struct span *value)
{
	struct span key = line;

	while (line.begin < line.end && *line.begin != '=' && *line.begin != ':')
		line.begin++;
	key.end = line.begin;
	if (line.begin == line.end || !is(strip(key), "join"))
		return false;
	line.begin++;
	*value = uncomment(line);
	return true;
}

int conf_file_joins(const char *text)
{
	bool in_turns = false, found = false;
	int joins = 0;

	if (!strncmp(text, "\xef\xbb\xbf", 3))
		text += 3;
	for (;; text++) {
		struct span line = strip((struct span){text, text + strcspn(text, "\n")}), value;

		if (line.begin < line.end && *line.begin == '[')
			in_turns = is_turns(line);
		else if (in_turns && take_join(line, &value)) {
			joins = is(value, "node");
			if (found || (!joins && !is(value, "off")))
				return -EBADMSG;
			found = true;
		}
		text += strcspn(text, "\n");
		if (!*text)
			return joins;
	}
}

const char *conf_file_daemon(void)
{
	char *text;
	int joins;

	if (setting_text(SETTING_TURNS))
		return setting_socket(SETTING_TURNS);
	joins = conf_file_read(CONF_FILE_NODE, &text);
	if (joins == -ENOENT)
		return NULL;
	if (!joins) {
		joins = conf_file_joins(text);
		free(text);
	}
	if (joins == -EBADMSG)
		pr_err(CONF_FILE_NODE ": [turns] join: expected node or off; off is used");
	else if (joins < 0)
		pr_warn(CONF_FILE_NODE ": %s: nobody joins a daemon by it", error_text(-joins));
	return joins > 0 ? "node" : NULL;
}
