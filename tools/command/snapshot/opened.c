/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/snapshot/opened.h"

#include "tools/report/report.h"

#include <errno.h>

int opened_refuse(const char *path, int code, const struct snapshot_error *error)
{
	complain("%s: %s", path, error->text);
	return code == -ENOTSUP ? EXIT_UNSUPPORTED : EXIT_FAILED;
}

int opened_open(const char *path, struct snapshot *snapshot)
{
	struct snapshot_error error;
	int ret = snapshot_open(path, snapshot, &error);

	return ret ? opened_refuse(path, ret, &error) : EXIT_DONE;
}
