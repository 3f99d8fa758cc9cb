/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/output.h"

#include "common/text.h"
#include "tools/command/tools.h"
#include "tools/job/jobs.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGITS 12
#define TEXT   4096
#define FLAGS  (JSON_INDENT(1) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(DIGITS))

json_t *output_text(const char *text)
{
	char clean[TEXT];

	format_copy(clean, sizeof(clean), text);
	return json_string(clean);
}

json_t *output_text_or_null(const char *text)
{
	return *text ? output_text(text) : json_null();
}

json_t *output_ms(double ms)
{
	/* A job may have sent any number. */
	return json_real(ms < 1e12 ? (int64_t)(ms * 1e3 + 0.5) / 1e3 : ms);
}

void output_stamp(json_t *object)
{
	json_object_set_new(object, "schema", json_integer(OUTPUT_SCHEMA));
}

static void set(json_t *object, const char *prefix, const char *key, json_t *value)
{
	char name[32];

	snprintf(name, sizeof(name), "%s%s", prefix, key);
	json_object_set_new(object, name, value);
}

void output_transfer(json_t *object, const char *prefix, const struct job_transfer *transfer)
{
	bool known = transfer->known;
	json_t *phases = json_object();

	for (int i = 0; i < transfer->nphases; i++)
		json_object_set_new(phases, transfer->phases[i].name,
				    json_real(transfer->phases[i].ms));
	set(object, prefix, "ms", known ? json_real(transfer->ms) : json_null());
	set(object, prefix, "bytes", known ? json_integer(transfer->bytes) : json_null());
	set(object, prefix, "gbps",
	    known ? json_real(rate_gbps(transfer->bytes, transfer->ms)) : json_null());
	set(object, prefix, "phases", phases);
}

void output_phases(json_t *phases, const struct job_transfer *transfer)
{
	for (int i = 0; i < transfer->nphases; i++)
		json_array_append_new(phases,
				      json_pack("{s:s, s:o}", "name", transfer->phases[i].name,
						"ms", output_ms(transfer->phases[i].ms)));
}

int output_json(json_t *root)
{
	int error;
	json_t *object;
	size_t i;

	if (json_is_object(root))
		output_stamp(root);
	json_array_foreach(root, i, object)
		output_stamp(object);
	error = json_dumpf(root, stdout, FLAGS);
	putchar('\n');
	return error ? EXIT_FAILED : EXIT_DONE;
}

/* Whoever collects it may be another user. */
#define FILE_MODE 0644

static int fail(const char *path, const char *part)
{
	complain("%s: %s", path, strerror(errno));
	if (part)
		unlink(part);
	return EXIT_FAILED;
}

/* The new file gets its name when it is whole. The name of a part has another end than what is collected. */
int output_file(const char *path, const char *text, size_t size)
{
	char part[PATH_MAX];
	struct stat st;
	FILE *file;
	int fd;

	if (!path) {
		fwrite(text, 1, size, stdout);
		return EXIT_DONE;
	}
	if (!stat(path, &st) && !S_ISREG(st.st_mode)) {
		complain("%s: expected a regular file, or a new name", path);
		return EXIT_FAILED;
	}
	if (snprintf(part, sizeof(part), "%s.XXXXXX", path) >= (int)sizeof(part)) {
		errno = ENAMETOOLONG;
		return fail(path, NULL);
	}
	fd = mkstemp(part);
	file = fd < 0 ? NULL : fdopen(fd, "w");
	if (!file)
		return fail(path, fd < 0 ? NULL : part);
	if (fchmod(fd, FILE_MODE) || fwrite(text, 1, size, file) != size || fflush(file)) {
		fclose(file);
		return fail(path, part);
	}
	if (fclose(file) || rename(part, path))
		return fail(path, part);
	return EXIT_DONE;
}
