/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/table.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct table {
	const char *const *titles;
	int columns;
	size_t rows;
	char (*cells)[TABLE_CELL];
};

struct table *table_new(const char *const *titles, int columns)
{
	struct table *table = calloc(1, sizeof(*table));

	if (table)
		*table = (struct table){.titles = titles, .columns = columns};
	return table;
}

void table_free(struct table *table)
{
	if (table)
		free(table->cells);
	free(table);
}

char (*table_row(struct table *table))[TABLE_CELL]
{
	char(*row)[TABLE_CELL] = reallocarray(table->cells, (table->rows + 1) * table->columns,
					      sizeof(*table->cells));

	if (!row)
		return NULL;
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

static int width_of(const struct table *table, int c)
{
	size_t width = 0;

	for (size_t i = 0; i <= table->rows; i++)
		if (strlen(text(table, i, c)) > width)
			width = strlen(text(table, i, c));
	return (int)width;
}

void table_print(const struct table *table)
{
	int last = table->columns - 1;

	for (size_t i = 0; i <= table->rows; i++) {
		for (int c = 0; c < last; c++)
			printf("%-*s  ", width_of(table, c), text(table, i, c));
		puts(text(table, i, last));
	}
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
