/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PS_TABLE_H
#define CUDAW_PS_TABLE_H
/* The table of 'cudaw ps', and the lines below it. */
#include "tools/command/list/table.h"
#include "tools/job/jobs.h"

struct ps_table {
	bool wide;                 /* all columns, and nothing is cut */
	struct table_shown chosen; /* these alone, without lines below; n is 0: none */
};

/* Take a list of columns. False after a message. */
bool ps_table_choose(struct ps_table *how, const char *columns);

/* Returns an exit code. */
int ps_table_print(const struct ps_table *how, struct job **jobs, size_t n);

/* Its state; a job that takes turns has its lease, and runs, while an allocation of it waits. */
const char *ps_state(const struct job *job);

#endif
