/* SPDX-License-Identifier: Apache-2.0 */
/* cudaw yield: a job gives its turn to those who wait. */
#include "tools/command/tools.h"

#include "common/protocol/protocol.h"
#include "tools/command/output.h"
#include "tools/process/cudawd.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

const char help_yield[] =
	"Usage: cudaw yield [--json] ID|NAME|PID...\n"
	"\n"
	"Let jobs that take turns ('cudaw run --turns') give their turn to jobs that wait for the\n"
	"GPU, if any do. Later they get another turn. Programs that do not need the GPU for a while\n"
	"can call this for themselves.\n"
	"\n"
	"  -j, --json  the outcome for each argument, as a JSON array\n"
	"  -h, --help  this text\n"
	"\n"
	"Exit codes: 0 done; 1 no cudawd answers; 2 wrong usage; 3 no such job takes turns; 4 not\n"
	"permitted; 5 no answer in time. Of several failures, the first decides.\n";

/* Returns an exit code. */
static int give(const char *word, const char **message)
{
	char request[PROTOCOL_LINE], where[PATH_MAX] = "";
	int err = -ENAMETOOLONG;

	if (snprintf(request, sizeof(request), "give %s", word) < (int)sizeof(request))
		err = cudawd_ask(request, CUDAWD_MS, NULL, NULL, where);
	*message = NULL;
	switch (-err) {
	case 0:
		return EXIT_DONE;
	case ENOENT:
		*message = "no such job takes turns";
		complain("%s: %s", word, *message);
		return EXIT_NO_JOB;
	case EACCES:
		*message = "the job belongs to another user";
		complain("%s: %s", word, *message);
		return EXIT_DENIED;
	case ETIME:
		*message = "the job gives no answer: it may be stopped";
		complain("%s: %s", word, *message);
		return EXIT_TIMEOUT;
	default:
		*message = "no answer of cudawd";
		return cudawd_explain(err, where);
	}
}

int cmd_yield(int argc, char **argv)
{
	bool json = false;
	int code = json_option(argc, argv, "yield", help_yield, &json), first = EXIT_DONE;
	json_t *rows;

	if (code >= 0)
		return code;
	if (!names_given(argc, argv, "job", false))
		return usage_error("yield");
	report_by_code();
	rows = json_array();
	for (int i = optind; i < argc; i++) {
		const char *message;

		code = give(argv[i], &message);
		first = first ? first : code;
		json_array_append_new(rows,
				      json_pack("{s:o, s:i, s:s?}", "job", output_text(argv[i]),
						"code", code, "message", message));
	}
	if (json)
		output_json(rows);
	json_decref(rows);
	return first;
}
