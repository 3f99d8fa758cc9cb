/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/cudawd_errors.h"

#include "tools/process/cudawd.h"
#include "tools/report/report.h"

#include <errno.h>
#include <string.h>

int cudawd_explain(int err, const char *where)
{
	switch (-err) {
	case ECONNREFUSED:
		complain("%s: no cudawd answers; %s", where, cudawd_starter());
		return EXIT_FAILED;
	case ETIMEDOUT:
		complain("%s: no answer", where);
		return EXIT_TIMEOUT;
	case EACCES:
		complain("%s: it belongs to another user", where);
		return EXIT_DENIED;
	case EBUSY:
		complain("%s: you or others have too many connections to this cudawd; try later",
			 where);
		return EXIT_FAILED;
	case EPROTO:
	case ENOENT:
		complain("%s: this cudawd is of another version than this command", where);
		return EXIT_FAILED;
	default:
		complain("%s: %s", where, strerror(-err));
		return EXIT_FAILED;
	}
}
