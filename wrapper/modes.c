/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/modes.h"
#include "wrapper/check.h"

#include <stdlib.h>
#include <string.h>

#define LOG_PREFIX "driver: "
#include "vmem/log.h"

static unsigned int read_check(void)
{
	const char *check = secure_getenv("CUDAW_CHECK");

	if (!check || !*check || !strcmp(check, "0"))
		return 0;
	if (strcmp(check, "1") && strcmp(check, "warn"))
		pr_err("CUDAW_CHECK=%s: expected 0, 1 or warn; using 1", check);
	check_start(!strcmp(check, "warn"));
	return MODE_CHECK | MODE_IMAGES;
}

/* Other values are read where memory is first allocated. */
static unsigned int read_addressing(void)
{
	const char *addressing = secure_getenv("CUDAW_ADDRESSING");

	return addressing && !strcmp(addressing, "translated") ? MODE_TRANSLATED | MODE_IMAGES : 0;
}

unsigned int modes_read(void)
{
	return read_check() | read_addressing();
}
