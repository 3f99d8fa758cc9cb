/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TRACESTAT_H
#define CUDAW_TRACESTAT_H
/*
 * Summarises a trace of common/trace.h. The file is read line by line, and may be cut, damaged or
 * malicious: the limits below bound the memory that it takes, and unreadable lines are counted.
 * Files of other tools, which use other layouts of the same format, are refused.
 *
 * Times are microseconds.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <uthash.h>

#define TRACE_MAX_ROWS  100000  /* further names come under "(others)" */
#define TRACE_MAX_LIVE  4000000 /* allocations at a time; further ones are not followed */
#define TRACE_MAX_CALLS 16      /* that allocate */
#define TRACE_CLASSES   64      /* of sizes: 2^n up to the next */

/* All events of one category and name; for launches the kernel's, for copies their kind. */
struct trace_row {
	char *category;
	char *name;
	bool async; /* the call may return before the work is done */
	uint64_t calls, failed, bytes;
	double total, max;
	char *key;
	UT_hash_handle hh;
};

/* Live allocations of one call and size class. */
struct trace_class {
	uint64_t count, bytes;
};

struct trace_live;

struct trace_memory {
	struct trace_live *live;
	size_t nlive;
	uint64_t bytes;
	uint64_t unfollowed; /* allocations beyond TRACE_MAX_LIVE */
	char *calls[TRACE_MAX_CALLS];
	struct trace_class classes[TRACE_MAX_CALLS][TRACE_CLASSES];
	/* At the peak. */
	uint64_t peak_bytes, peak_count;
	double peak_at;
	bool peak_is_now;
	struct trace_class peak[TRACE_MAX_CALLS][TRACE_CLASSES];
};

struct trace_stat {
	char *command, *version; /* NULL: not in the file */
	int64_t pid;
	uint64_t unix_ns; /* at the time @begin */
	double begin, end;
	double first_launch, last_launch;
	uint64_t events;
	uint64_t bad_lines, first_bad;
	bool cut; /* the last line is incomplete */
	struct trace_row *rows;
	struct trace_memory memory;
};

/*
 * Read a trace. Returns 0, -EBADMSG if it is not a trace of cudaw, -ENOTSUP if a newer cudaw wrote
 * it, or another negative errno. The caller frees @stat in any case.
 */
int trace_stat_read(FILE *file, struct trace_stat *stat);
void trace_stat_free(struct trace_stat *stat);

#endif
