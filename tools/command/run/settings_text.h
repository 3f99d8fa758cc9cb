/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SETTINGS_TEXT_H
#define CUDAW_SETTINGS_TEXT_H
/* The table of settings (common/settings.h) as text for people. */
#include <stdio.h>

enum settings_format {
	SETTINGS_PLAIN,    /* for a terminal */
	SETTINGS_MARKDOWN, /* for docs/settings.md */
	SETTINGS_MAN,      /* for tools/cudaw.1 */
};

void settings_text_print(FILE *out, enum settings_format format);

#endif
