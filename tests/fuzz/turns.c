/* SPDX-License-Identifier: Apache-2.0 */
/* The lines that come to cudawd. */
#include "tests/fuzz/fuzz.h"
#include "tools/daemon/lines.h"

#include <string.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/turns";

static void check_line(const char *text)
{
	const char *end = text + strlen(text);
	struct line line;
	CUuuid uuid;

	if (line_parse(text, &line))
		return;
	if (line.word > LINE_WORDS || line.number[0] > LINE_NUMBER_MAX ||
	    line.number[1] > LINE_NUMBER_MAX)
		__builtin_trap();
	if (*line.text && (line.text <= text || line.text >= end))
		__builtin_trap();
	if (line.uuid[0] && !nvml_uuid_parse(line.uuid, &uuid))
		__builtin_trap();
}

/* As the daemon does, line by line; each in a block of its own size. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	while (size) {
		const uint8_t *newline = memchr(data, '\n', size);
		size_t len = newline ? (size_t)(newline - data) : size;
		char *text = strndup((const char *)data, len);

		if (!text)
			return 0;
		check_line(text);
		free(text);
		size -= newline ? len + 1 : len;
		data += newline ? len + 1 : len;
	}
	return 0;
}
