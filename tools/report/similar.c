/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/report/similar.h"
#include "common/size.h"

#include <string.h>

/* How many letters have to be changed, added or left out to make @b, a known word, of @a. */
static size_t distance(const char *a, const char *b)
{
	size_t row[SIMILAR_MAX + 1], n = strlen(b);

	for (size_t k = 0; k <= n; k++)
		row[k] = k;
	for (size_t i = 0; a[i]; i++) {
		size_t diagonal = row[0];

		row[0] = i + 1;
		for (size_t k = 1; k <= n; k++) {
			size_t changed = diagonal + (a[i] != b[k - 1]);

			diagonal = row[k];
			row[k] = size_min(changed, size_min(diagonal, row[k - 1]) + 1);
		}
	}
	return row[n];
}

const char *similar_word(const char *name, const char *const *words, size_t count)
{
	const char *best = NULL;
	size_t fewest = 3;

	for (size_t i = 0; i < count; i++) {
		size_t n = strlen(words[i]) > SIMILAR_MAX ? fewest : distance(name, words[i]);

		if (n >= fewest || n >= strlen(name))
			continue;
		fewest = n;
		best = words[i];
	}
	return best;
}
