/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/list/table.h"

#include "tools/report/similar.h"
#include "tools/report/report.h"
#include "tools/report/terminal.h"

#include <ctype.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GAP       2 /* blanks between columns */
#define LEAST_CUT 4 /* of a column that is cut */

char (*table_row(struct table *table))[TABLE_CELL]
{
	char(*row)[TABLE_CELL] = reallocarray(table->cells, (table->rows + 1) * table->columns,
					      sizeof(*table->cells));

	if (!row) {
		table->lacks_memory = true;
		return NULL;
	}
	table->cells = row;
	row += table->rows++ * table->columns;
	for (int c = 0; c < table->columns; c++)
		strcpy(row[c], "-");
	return row;
}

/* The cell in column @c of row @i, of which the first is that of the titles. */
static const char *text(const struct table *table, size_t i, int c)
{
	return i ? table->cells[(i - 1) * table->columns + c] : table->titles[c];
}

/* The bytes of the first @max characters of @text, at most; in *@count how many characters these are. */
static int measure(const char *text, int max, int *count)
{
	int bytes = 0;

	*count = 0;
	while (text[bytes] && *count < max) {
		++*count;
		do /* the rest of a character in UTF-8 */
			bytes++;
		while ((text[bytes] & 0xc0) == 0x80);
	}
	return bytes;
}

static int width_of(const struct table *table, int c)
{
	int widest = 0, width;

	for (size_t i = 0; i <= table->rows; i++) {
		measure(text(table, i, c), TABLE_CELL, &width);
		if (width > widest)
			widest = width;
	}
	return widest;
}

/* The widest of @shown that may be cut, or may be still; NULL: none. */
static int *widest_of(const struct table *table, const struct table_shown *shown, int *widths)
{
	int *widest = NULL;

	for (int k = 0; k < shown->n; k++)
		if (table->may_cut >> shown->columns[k] & 1 && widths[k] > LEAST_CUT &&
		    (!widest || widths[k] >= *widest))
			widest = &widths[k];
	return widest;
}

static void fit(const struct table *table, const struct table_shown *shown, int *widths)
{
	int left = table->uncut ? 0 : terminal_width(STDOUT_FILENO), *widest;

	if (!left)
		return;
	left += GAP;
	for (int k = 0; k < shown->n; k++)
		left -= widths[k] + GAP;
	for (; left < 0 && (widest = widest_of(table, shown, widths)); left++)
		--*widest;
}

/* Nothing follows the @last cell. */
static void print_cell(const char *cell, int width, bool last)
{
	int count, bytes = measure(cell, width, &count);
	bool cut = cell[bytes];

	if (cut)
		bytes = measure(cell, width - 1, &count);
	printf("%.*s%s", bytes, cell, cut ? "+" : "");
	if (last)
		putchar('\n');
	else
		printf("%*s", width - count - cut + GAP, "");
}

static void print_rows(const struct table *table, const struct table_shown *shown)
{
	int widths[TABLE_COLUMNS];

	for (int k = 0; k < shown->n; k++)
		widths[k] = width_of(table, shown->columns[k]);
	fit(table, shown, widths);
	for (size_t i = 0; i <= table->rows; i++)
		for (int k = 0; k < shown->n; k++)
			print_cell(text(table, i, shown->columns[k]), widths[k], k == shown->n - 1);
}

bool table_print(struct table *table)
{
	struct table_shown all = {.n = table->columns};
	bool whole = !table->lacks_memory;

	for (int c = 0; c < table->columns; c++)
		all.columns[c] = c;
	if (whole)
		print_rows(table, table->shown ? table->shown : &all);
	else
		complain("out of memory");
	free(table->cells);
	table->rows = 0;
	table->cells = NULL;
	table->lacks_memory = false;
	return whole;
}

/* The word of a column in the list that a user gives. */
static void word_of(const char *title, char word[TABLE_CELL])
{
	do
		*word++ = *title == ' ' ? '-' : (char)tolower((unsigned char)*title);
	while (*title++);
}

/* The column of @word; -1 after a message. */
static int find_column(const char *const *titles, int columns, const char *word)
{
	char words[TABLE_COLUMNS][TABLE_CELL];
	const char *known[TABLE_COLUMNS], *meant;

	for (int c = 0; c < columns; c++) {
		word_of(titles[c], words[c]);
		known[c] = words[c];
		if (!strcasecmp(words[c], word))
			return c;
	}
	meant = similar_word(word, known, columns);
	if (meant)
		complain("there is no column '%s'; did you mean '%s'?", word, meant);
	else
		complain("there is no column '%s'", word);
	return -1;
}

bool table_choose(const char *const *titles, int columns, const char *list,
		  struct table_shown *shown)
{
	char copy[TABLE_COLUMNS * TABLE_CELL], *rest = copy, *word;
	int c = 0;

	shown->n = 0;
	snprintf(copy, sizeof(copy), "%s", list);
	while (c >= 0 && (word = strsep(&rest, ","))) {
		if (shown->n == TABLE_COLUMNS) {
			complain("expected at most %d columns", TABLE_COLUMNS);
			return false;
		}
		c = find_column(titles, columns, word);
		shown->columns[shown->n++] = c;
	}
	return c >= 0;
}

const char *table_user(uid_t uid, char cell[TABLE_CELL])
{
	const struct passwd *pw = getpwuid(uid);

	if (pw)
		snprintf(cell, TABLE_CELL, "%s", pw->pw_name);
	else
		snprintf(cell, TABLE_CELL, "%u", uid);
	return cell;
}
