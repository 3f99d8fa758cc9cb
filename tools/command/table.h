/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TABLE_H
#define CUDAW_TABLE_H
/*
 * Tables for people: each column is as wide as its widest cell, and two blanks lie between columns. A cell
 * that nobody fills is "-".
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TABLE_COLUMNS 16 /* at most */
/* Bytes of a cell, with the terminating zero; longer texts are cut by the caller. */
#define TABLE_CELL 64

struct table {
	const char *const *titles; /* the caller's */
	int columns;
	size_t rows; /* the rest is table.c's, and zero at first */
	char (*cells)[TABLE_CELL];
	bool lacks_memory;
};

/* The cells of a new row, for the caller to fill; valid until the next one. NULL if there is no memory. */
char (*table_row(struct table *table))[TABLE_CELL];

/* To stdout; then the table is empty. False after a message: there was no memory for a row. */
bool table_print(struct table *table);

/* The name of a user, or the number of one who has none. Returns @cell. */
const char *table_user(uid_t uid, char cell[TABLE_CELL]);

#endif
