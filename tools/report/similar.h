/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SIMILAR_H
#define CUDAW_SIMILAR_H
/* The word that a user may have meant by a word that does not exist. */
#include <stddef.h>

#define SIMILAR_MAX 64 /* letters of a known word; longer ones are passed over */

/*
 * The one of @words that differs least from @name: by two letters at most, and by fewer than @name
 * has; NULL: there is none. A letter is changed, added or left out.
 */
const char *similar_word(const char *name, const char *const *words, size_t count);

#endif
