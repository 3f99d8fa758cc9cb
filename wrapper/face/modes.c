/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/face/modes.h"
#include "vmem/addressing.h"
#include "wrapper/kernels/check.h"

#include <stdlib.h>
#include <string.h>

#define LOG_PREFIX "driver: "
#include "common/log.h"

static unsigned int read_check(void)
{
	const char *check = secure_getenv("CUDAW_CHECK");

	if (!check || !*check || !strcmp(check, "0"))
		return 0;
	if (strcmp(check, "1") && strcmp(check, "warn"))
		pr_err("CUDAW_CHECK=%s: expected 0, 1 or warn; using 1", check);
	if (addressing_asked() == ADDRESSING_NATIVE) {
		pr_err("CUDAW_CHECK=%s: nothing is checked with CUDAW_ADDRESSING=native", check);
		return 0;
	}
	check_start(!strcmp(check, "warn"));
	return MODE_CHECK | MODE_IMAGES;
}

unsigned int modes_read(void)
{
	return read_check() |
	       (addressing_asked() == ADDRESSING_TRANSLATED ? MODE_TRANSLATED | MODE_IMAGES : 0);
}
