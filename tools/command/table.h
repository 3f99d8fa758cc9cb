/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TABLE_H
#define CUDAW_TABLE_H
/*
 * Tables for people: each column is as wide as its widest cell, and two blanks lie between columns. A cell
 * that nobody fills is "-".
 */
#include <sys/types.h>

#define TABLE_CELL \
	64 /* bytes of a cell, with the terminating zero; longer texts are cut by the caller */

struct table;

/* A table with the @columns titles @titles, which the caller keeps. NULL if there is no memory. */
struct table *table_new(const char *const *titles, int columns);
void table_free(struct table *table);

/* The cells of a new row, for the caller to fill; valid until the next one. NULL if there is no memory. */
char (*table_row(struct table *table))[TABLE_CELL];

/* To stdout. */
void table_print(const struct table *table);

/* The name of a user, or the number of one who has none. Returns @cell. */
const char *table_user(uid_t uid, char cell[TABLE_CELL]);

#endif
