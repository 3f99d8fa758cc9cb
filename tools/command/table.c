/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/table.h"

#include "tools/report/report.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int width_of(const struct table *table, int c)
{
	size_t width = 0;

	for (size_t i = 0; i <= table->rows; i++)
		if (strlen(text(table, i, c)) > width)
			width = strlen(text(table, i, c));
	return (int)width;
}

static void print_rows(const struct table *table, int last)
{
	int widths[TABLE_COLUMNS];

	for (int c = 0; c < last; c++)
		widths[c] = width_of(table, c);
	for (size_t i = 0; i <= table->rows; i++) {
		for (int c = 0; c < last; c++)
			printf("%-*s  ", widths[c], text(table, i, c));
		puts(text(table, i, last));
	}
}

bool table_print(struct table *table)
{
	bool whole = !table->lacks_memory;

	if (whole)
		print_rows(table, table->columns - 1);
	else
		complain("out of memory");
	free(table->cells);
	*table = (struct table){.titles = table->titles, .columns = table->columns};
	return whole;
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
