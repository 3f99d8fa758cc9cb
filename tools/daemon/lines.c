/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/daemon/lines.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *word;
	/* n: a number; u: a GPU; t: text to the end of the line; o: the same, or nothing */
	const char *form;
} words[] = {
#define LINE_WORD(id, word, form) {word, form},
	LINE_MAP(LINE_WORD)
#undef LINE_WORD
};

/* Skip the space before the next part. False if there is no next part. */
static bool skip_space(const char **text)
{
	if (**text != ' ')
		return false;
	++*text;
	return **text && **text != ' ';
}

static bool is_at_end(const char *text)
{
	return !*text || *text == ' ';
}

static bool take_number(const char **text, uint64_t *number)
{
	uint64_t value = 0;
	const char *p = *text;

	if (!isdigit((unsigned char)*p))
		return false;
	for (; isdigit((unsigned char)*p); p++) {
		value = value * 10 + (uint64_t)(*p - '0');
		if (value > LINE_NUMBER_MAX)
			return false;
	}
	*number = value;
	*text = p;
	return is_at_end(p);
}

static bool take_uuid(const char **text, char uuid[NVML_UUID_SIZE])
{
	size_t len = strcspn(*text, " ");
	CUuuid parsed;

	if (len != NVML_UUID_SIZE - 1)
		return false;
	memcpy(uuid, *text, len);
	uuid[len] = '\0';
	*text += len;
	return nvml_uuid_parse(uuid, &parsed);
}

static bool take_parts(const char *form, const char *text, struct line *line)
{
	int numbers = 0;

	for (; *form; form++) {
		if (!skip_space(&text))
			return *form == 'o' && !*text;
		if (*form == 'n' && !take_number(&text, &line->number[numbers++]))
			return false;
		if (*form == 'u' && !take_uuid(&text, line->uuid))
			return false;
		if (*form == 't' || *form == 'o') {
			line->text = text;
			return true;
		}
	}
	return !*text;
}

int line_parse(const char *text, struct line *line)
{
	size_t len = strcspn(text, " ");

	*line = (struct line){.word = LINE_WORDS, .text = ""};
	for (int i = 0; i < LINE_WORDS; i++) {
		if (strlen(words[i].word) != len || memcmp(words[i].word, text, len) != 0)
			continue;
		line->word = i;
		return take_parts(words[i].form, text + len, line) ? 0 : -EBADMSG;
	}
	return 0;
}
