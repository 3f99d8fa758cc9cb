/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/modes.h"
#include "wrapper/check.h"

#include <stdlib.h>
#include <string.h>

#define LOG_PREFIX "driver: "
#include "vmem/log.h"

unsigned int modes_read(void)
{
	const char *check = secure_getenv("CUDAW_CHECK");

	if (!check || !*check || !strcmp(check, "0"))
		return 0;
	if (!strcmp(check, "warn"))
		check_only_warns();
	else if (strcmp(check, "1"))
		pr_err("CUDAW_CHECK=%s: expected 0, 1 or warn; using 1", check);
	return MODE_CHECK | MODE_IMAGES;
}
