/* SPDX-License-Identifier: Apache-2.0 */
/* The lines that jobs, cudawd and commands send each other: how each side reads and parses them. */
#include "tests/fuzz/fuzz.h"
#include "checkpoint/control/request.h"
#include "common/protocol/lines.h"
#include "tools/job/jobs.h"
#include "tools/job/party/reach.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/lines";

/* False: it is malformed. */
static bool check_line(const struct line_table *table, const char *text, struct line *line)
{
	const char *end = text + strlen(text);

	if (line_parse(table, text, line))
		return false;
	if (line->id < 0 || line->id > table->n || line->numbers > LINE_NUMBERS ||
	    line->words > LINE_WORDS || line->end >= ENDS)
		__builtin_trap();
	for (int i = 0; i < LINE_NUMBERS; i++)
		if (line->number[i] > (i < line->numbers ? table->most : 0))
			__builtin_trap();
	for (int i = 0; i < LINE_WORDS; i++)
		if ((line->word[i][0] != '\0') != (i < line->words) || strchr(line->word[i], ' '))
			__builtin_trap();
	if (*line->text && (line->text <= text || line->text + strlen(line->text) != end))
		__builtin_trap();
	return true;
}

/* To a job. */
static void check_request(const char *text)
{
	static struct request r;

	request_parse(text, &r);
	if (r.id < 0 || r.id > TO_JOB || r.npairs > GPU_MAX || r.order.ntargets > RANKS_COMMS ||
	    (r.id < TO_JOB && r.timeout_ms < 0) || !memchr(r.plan.path, '\0', sizeof(r.plan.path)))
		__builtin_trap();
	if ((r.id == REQUEST_RECALL || r.id == REQUEST_DONE || r.id == REQUEST_MOVED) &&
	    *r.path != '/')
		__builtin_trap();
	if (r.id == REQUEST_SNAPSHOT && r.plan.path[0] != '/')
		__builtin_trap();
}

/* From a job, whose lines add to what those before it have said. */
static void check_report(const char *text, struct job *job, struct reach *reach)
{
	struct line line;

	if (!check_line(&lines_from_job, text, &line))
		return;
	job_take_field(job, &line);
	if (job->status.ngpus > JOB_GPUS || job->status.pause.nphases > JOB_PHASES ||
	    job->status.resume.nphases > JOB_PHASES)
		__builtin_trap();
	if (line.id == REPORT_COMMS)
		reach_take_comms(reach, 0, line.text, 1);
	if (reach->ranks[0].n > REACH_COMMS)
		__builtin_trap();
}

/* Line by line, each in a block of its own size. */
static void parse_all(const uint8_t *data, size_t size)
{
	static struct job job;
	struct reach_rank rank;
	struct reach reach;
	struct line line;

	job.status = (struct job_status){0};
	reach_begin(&reach, &rank, 1, 0);
	while (size) {
		const uint8_t *newline = memchr(data, '\n', size);
		size_t len = newline ? (size_t)(newline - data) : size;
		char *text = strndup((const char *)data, len);

		if (!text)
			return;
		check_line(&lines_to_job, text, &line);
		check_line(&lines_to_daemon, text, &line);
		check_line(&lines_from_daemon, text, &line);
		check_request(text);
		check_report(text, &job, &reach);
		free(text);
		size -= newline ? len + 1 : len;
		data += newline ? len + 1 : len;
	}
}

/* Take the lines that came of @data, from *@at on. False: one of them is refused, as it must be. */
static bool take_lines(struct lines *lines, const uint8_t *data, size_t came, size_t *at)
{
	char *line;
	int error;

	while (!(error = lines_next(lines, &line)) && line) {
		size_t len = strlen(line);

		if (*at + len >= came || memcmp(line, data + *at, len) || data[*at + len] != '\n')
			__builtin_trap();
		*at += len + 1;
	}
	if (error == -EMSGSIZE ? came - *at < PROTOCOL_LINE
			       : (error == -EBADMSG) != !!memchr(data + *at, '\0', came - *at))
		__builtin_trap();
	return !error;
}

/* In pieces of a size that the data decides: lines are the same, however they are cut. */
static void read_all(const uint8_t *data, size_t size)
{
	static struct lines lines;
	size_t piece = 1 + data[0] % 64 * 16, at = 0, came = 0;
	bool good = true;
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return;
	lines = (struct lines){0};
	while (good && came < size) {
		size_t len = size - came < piece ? size - came : piece;
		int got;

		if (send(ends[1], data + came, len, 0) != (ssize_t)len)
			__builtin_trap();
		for (size_t read = 0; good && read < len; read += got) {
			got = lines_read(&lines, ends[0], NULL);
			if (got <= 0)
				__builtin_trap();
			came += got;
			good = take_lines(&lines, data, came, &at);
		}
	}
	close(ends[0]);
	close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	parse_all(data, size);
	read_all(data, size);
	return 0;
}
