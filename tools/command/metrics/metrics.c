/* SPDX-License-Identifier: Apache-2.0 */
/* cudaw metrics: for Prometheus, as a file or over HTTP. */
#include "tools/command/tools.h"

#include "tools/command/metrics/metrics_serve.h"
#include "tools/command/metrics/metrics_text.h"
#include "tools/command/output.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

const char help_metrics[] =
	"Usage: cudaw metrics [--output FILE | --listen [ADDR:]PORT]\n"
	"\n"
	"Print metrics of your jobs (of all users' jobs for root), and of turns, for Prometheus.\n"
	"docs/metrics.md lists the metrics.\n"
	"\n"
	"  -o, --output FILE  write them to FILE, which is replaced in one step, as for the textfile\n"
	"                     collector of node_exporter\n"
	"      --listen [ADDR:]PORT\n"
	"                     serve them at /metrics over HTTP, until interrupted. ADDR is 127.0.0.1\n"
	"                     if it is not given; an IPv6 address is in brackets: [::1]:9810. An\n"
	"                     unprivileged process talks to the network; if root runs the command,\n"
	"                     as the user nobody. Needs libmicrohttpd\n"
	"  -h, --help         this text\n"
	"\n"
	"Exit codes: 0 done; 1 failed; 2 wrong usage; 6 libmicrohttpd is missing.\n";

static int print(const char *path)
{
	char *text = NULL;
	size_t size;
	int code = metrics_text_make(&text, &size);

	if (code)
		return code;
	code = output_file(path, text, size);
	free(text);
	return code;
}

int cmd_metrics(int argc, char **argv)
{
	static const struct option options[] = {
		{"output", required_argument, NULL, 'o'},
		{"listen", required_argument, NULL, 'l'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	const char *path = NULL, *address = NULL;
	int opt;

	while ((opt = getopt_long(argc, argv, "o:h", options, NULL)) != -1) {
		switch (opt) {
		case 'o':
			path = optarg;
			break;
		case 'l':
			address = optarg;
			break;
		case 'h':
			fputs(help_metrics, stdout);
			return EXIT_DONE;
		default:
			return usage_error("metrics");
		}
	}
	if (optind < argc) {
		complain("metrics takes no argument: '%s'", argv[optind]);
		return usage_error("metrics");
	}
	if (path && address) {
		complain("--output and --listen exclude each other");
		return usage_error("metrics");
	}
	return address ? metrics_serve(address) : print(path);
}
