/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/face/modes.h"
#include "common/settings.h"
#include "vmem/addresses/addressing.h"
#include "wrapper/hooks/managed/managed.h"
#include "wrapper/kernels/check.h"

#include <string.h>

#define LOG_PREFIX "driver: "
#include "common/log.h"

static unsigned int read_check(void)
{
	const char *word = setting_word(SETTING_CHECK);

	if (!word || !strcmp(word, "0"))
		return 0;
	if (addressing_asked() == ADDRESSING_NATIVE) {
		pr_err("CUDAW_CHECK=%s: nothing is checked with CUDAW_TO_DRIVER=memory", word);
		return 0;
	}
	check_start(!strcmp(word, "warn")     ? CHECK_WARNS
		    : !strcmp(word, "strict") ? CHECK_STRICT
					      : CHECK_FAILS);
	return MODE_CHECK | MODE_IMAGES;
}

unsigned int modes_read(void)
{
	return read_check() | (managed_is_served() ? MODE_MANAGED : 0) |
	       (addressing_asked() == ADDRESSING_TRANSLATED ? MODE_TRANSLATED | MODE_IMAGES : 0);
}
