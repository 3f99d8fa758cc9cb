/* SPDX-License-Identifier: Apache-2.0 */
/* The lines that jobs, cudawd and commands send each other. */
#include "tests/fuzz/fuzz.h"
#include "common/lines.h"

#include <stdlib.h>
#include <string.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/lines";

static void check_line(const struct line_table *table, const char *text)
{
	const char *end = text + strlen(text);
	struct line line;

	if (line_parse(table, text, &line))
		return;
	if (line.id < 0 || line.id > table->n || line.numbers > LINE_NUMBERS ||
	    line.words > LINE_WORDS)
		__builtin_trap();
	for (int i = 0; i < LINE_NUMBERS; i++)
		if (line.number[i] > (i < line.numbers ? table->most : 0))
			__builtin_trap();
	for (int i = 0; i < LINE_WORDS; i++)
		if ((line.word[i][0] != '\0') != (i < line.words) || strchr(line.word[i], ' '))
			__builtin_trap();
	if (*line.text && (line.text <= text || line.text + strlen(line.text) != end))
		__builtin_trap();
}

/* Line by line; each in a block of its own size. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	while (size) {
		const uint8_t *newline = memchr(data, '\n', size);
		size_t len = newline ? (size_t)(newline - data) : size;
		char *text = strndup((const char *)data, len);

		if (!text)
			return 0;
		check_line(&lines_to_daemon, text);
		free(text);
		size -= newline ? len + 1 : len;
		data += newline ? len + 1 : len;
	}
	return 0;
}
