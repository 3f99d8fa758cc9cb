/* SPDX-License-Identifier: Apache-2.0 */
/* cudaw version, also as --version and -V. */
#include "tools/command/tools.h"

#include "checkpoint/snapshot/format.h"
#include "common/protocol/protocol.h"
#include "common/version.h"
#include "tools/command/output.h"

#include <getopt.h>
#include <stdio.h>

const char help_version[] = "Usage: cudaw version [--json]\n"
			    "\n"
			    "Print the version, also as 'cudaw --version' and 'cudaw -V'.\n"
			    "\n"
			    "  -j, --json  as a JSON object\n"
			    "  -h, --help  this text\n"
			    "\n"
			    "Exit codes: 0 done; 2 wrong usage.\n";

int cmd_version(int argc, char **argv)
{
	bool json = false;
	int code = json_option(argc, argv, "version", help_version, &json);
	json_t *object;

	if (code >= 0)
		return code;
	if (optind < argc) {
		complain("version takes no argument: '%s'", argv[optind]);
		return usage_error("version");
	}
	if (!json) {
		printf("cudaw %s\n", cudaw_version);
		return EXIT_DONE;
	}
	object = json_pack("{s:s, s:i, s:i, s:i}", "version", cudaw_version, "protocol",
			   PROTOCOL_VERSION, "turns", PROTOCOL_TURNS, "snapshot", SNAPSHOT_VERSION);
	code = output_json(object);
	json_decref(object);
	return code;
}
