/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/run/settings_text.h"
#include "common/settings.h"

#include <stdbool.h>
#include <string.h>

#define ITEM_SIZE 1024

static const char *const readers[SETTING_READERS] = {
	[READ_BY_JOBS] = "Read by jobs",
	[READ_BY_COMMAND] = "Read by the command",
	[READ_BY_BOTH] = "Read by jobs and by the command",
	[SET_BY_RUN] = "Set by cudaw run",
};

static const struct layout {
	const char *heading; /* with a %s */
	const char *item;    /* before a setting's name */
	const char *named;   /* after it */
	const char *word[2]; /* around one of its words */
	const char *dash;    /* for a '-' in the text */
	const char *indent;  /* of lines after the first */
	size_t width;
} layouts[] = {
	[SETTINGS_PLAIN] = {"%s:\n", "  ", "", {"", ""}, "-", "      ", 90},
	[SETTINGS_MARKDOWN] = {"## %s\n\n", "- `", "`", {"`", "`"}, "-", "  ", 120},
	[SETTINGS_MAN] = {"%s:\n", ".TP\n.B ", "\n", {"\\fB", "\\fR"}, "\\-", "", 100},
};

/* Print @text on lines of at most the layout's width, the first of them from column @column on. */
static void print_wrapped(FILE *out, const struct layout *layout, size_t column, const char *text)
{
	for (bool first = true; *text; first = false) {
		size_t len = strcspn(text, " ");

		if (column + 1 + len > layout->width) {
			fprintf(out, "\n%s", layout->indent);
			column = strlen(layout->indent);
		} else if (!first) {
			column += fprintf(out, " ");
		}
		for (; len; len--, text++)
			column += *text == '-' ? fprintf(out, "%s", layout->dash)
					       : fprintf(out, "%c", *text);
		text += strspn(text, " ");
	}
	fputc('\n', out);
}

/* Its words and its default. */
static void put_values(const struct layout *layout, const struct setting *s, char *buf, size_t size)
{
	size_t len = 0;

	for (int i = 0; s->words[i]; i++)
		len += snprintf(buf + len, size - len, "%s%s%s%s", i ? ", " : "", layout->word[0],
				s->words[i], layout->word[1]);
	snprintf(buf + len, size - len, "%s(default: %s)", len ? " " : "", s->preset);
}

static void print_setting(FILE *out, enum settings_format format, const struct setting *s)
{
	const struct layout *layout = &layouts[format];
	char values[256], item[ITEM_SIZE];

	put_values(layout, s, values, sizeof(values));
	fprintf(out, "%s%s%s", layout->item, s->name, layout->named);
	switch (format) {
	case SETTINGS_PLAIN:
		fprintf(out, "%s%s\n%s", *s->words ? ": " : " ", values, layout->indent);
		print_wrapped(out, layout, strlen(layout->indent), s->text);
		break;
	case SETTINGS_MARKDOWN:
		snprintf(item, sizeof(item), "%s%s. %s", *s->words ? ": " : " ", values, s->text);
		print_wrapped(out, layout,
			      strlen(layout->item) + strlen(s->name) + strlen(layout->named), item);
		break;
	case SETTINGS_MAN:
		snprintf(item, sizeof(item), "%s. %s", values, s->text);
		print_wrapped(out, layout, 0, item);
		break;
	}
}

void settings_text_print(FILE *out, enum settings_format format)
{
	for (int reader = 0; reader < SETTING_READERS; reader++) {
		if (reader)
			fputs(format == SETTINGS_MAN ? ".PP\n" : "\n", out);
		fprintf(out, layouts[format].heading, readers[reader]);
		for (int id = 0; id < SETTINGS; id++)
			if ((int)settings[id].reader == reader)
				print_setting(out, format, &settings[id]);
	}
}
