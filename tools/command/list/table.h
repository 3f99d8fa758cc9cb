/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TABLE_H
#define CUDAW_TABLE_H
/*
 * Tables for people: each column is as wide as its widest cell, and two blanks lie between columns. A cell
 * that nobody fills is "-". On a terminal the lines fit if they can: of the columns that may be cut, the
 * widest loses most, and a cell that is cut ends in "+". Elsewhere nothing is cut.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TABLE_COLUMNS 16 /* at most */
/* Bytes of a cell, with the terminating zero; longer texts are cut by the caller. */
#define TABLE_CELL 512

/* Which columns are printed, in this order. */
struct table_shown {
	int columns[TABLE_COLUMNS];
	int n;
};

struct table {
	const char *const *titles; /* the caller's */
	int columns;
	const struct table_shown *shown; /* the caller's; NULL: all */
	unsigned int may_cut;            /* a bit for each column */
	bool uncut;                      /* also on a terminal */
	size_t rows;                     /* the rest is table.c's, and zero at first */
	char (*cells)[TABLE_CELL];
	bool lacks_memory;
};

/* The cells of a new row, for the caller to fill; valid until the next one. NULL if there is no memory. */
char (*table_row(struct table *table))[TABLE_CELL];

/* To stdout; then the table is empty. False after a message: there was no memory for a row. */
bool table_print(struct table *table);

/*
 * Take a list of columns, separated by commas: their titles in letters of any case, with "-" for a blank
 * ("last-pause"). False after a message.
 */
bool table_choose(const char *const *titles, int columns, const char *list,
		  struct table_shown *shown);

/* The name of a user, or the number of one who has none. Returns @cell. */
const char *table_user(uid_t uid, char cell[TABLE_CELL]);

#endif
