/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/real.h"

static const struct cuda_driver *table; /* set before the functions that use it are bound */

void driver_table_set(const struct cuda_driver *driver)
{
	table = driver;
}

const struct cuda_driver *driver_table(void)
{
	return table;
}
