/* SPDX-License-Identifier: Apache-2.0 */
/* cudaw cdi: what a container engine has to know to put cudaw into containers. */
#include "tools/command/tools.h"

#include "common/find/find.h"
#include "common/protocol/daemon.h"
#include "common/version.h"
#include "tools/command/output.h"
#include "tools/process/faces.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char help_cdi[] =
	"Usage: cudaw cdi [--output FILE]\n"
	"\n"
	"Print a description of two devices by the Container Device Interface, for Docker 25,\n"
	"Podman 4.1 and others. The engines read such files in /etc/cdi and /var/run/cdi.\n"
	"  cudaw.io/library=pause  programs in the container can be paused\n"
	"  cudaw.io/library=turns  and take turns by the machine's cudawd\n"
	"The container gets this command and its libraries in /opt/cudaw, and LD_PRELOAD.\n"
	"\n"
	"  -o, --output FILE  write it to FILE, as /etc/cdi/cudaw.json\n"
	"  -h, --help         this text\n"
	"\n"
	"Exit codes: 0 done; 1 the libraries are missing, or FILE cannot be written; 2 wrong usage.\n";

/* The first version of the interface has all that is used here. */
#define CDI_VERSION "0.3.0"
#define CDI_KIND    "cudaw.io/library"
#define INSIDE      "/opt/cudaw" /* bin and lib/cudaw-VERSION, as the command looks for it */

static json_t *mount_of(const char *from, const char *to)
{
	return json_pack("{s:s, s:s, s:[s, s, s, s]}", "hostPath", from, "containerPath", to,
			 "options", "bind", "nosuid", "nodev", "ro");
}

/* What is missing in any part makes the whole NULL. */
static json_t *device(const char *name, const char *libraries, const char *command, bool turns)
{
	char lib[PATH_MAX], preload[PATH_MAX];
	json_t *env, *mounts;

	snprintf(lib, sizeof(lib), INSIDE "/lib/cudaw-%s", cudaw_version);
	snprintf(preload, sizeof(preload), "LD_PRELOAD=" INSIDE "/lib/cudaw-%s/" FIND_DRIVER,
		 cudaw_version);
	env = turns ? json_pack("[s, s]", preload, "CUDAW_TURNS=node") : json_pack("[s]", preload);
	mounts = json_pack(turns ? "[o, o, o]" : "[o, o]", mount_of(libraries, lib),
			   mount_of(command, INSIDE "/bin/cudaw"),
			   turns ? mount_of(DAEMON_NODE_DIR, DAEMON_NODE_DIR) : NULL);
	return json_pack("{s:s, s:{s:o, s:o}}", "name", name, "containerEdits", "env", env,
			 "mounts", mounts);
}

/* Returns an exit code. */
static int find_parts(char libraries[PATH_MAX], char command[PATH_MAX])
{
	char face[PATH_MAX + sizeof(FIND_DRIVER)], found[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", command, PATH_MAX - 1);
	int err = faces_directory(found, sizeof(found));

	command[len > 0 ? len : 0] = '\0';
	if (len < 0 || err || !realpath(found, libraries)) {
		complain("cdi: %s: %s", err ? "the libraries" : found,
			 strerror(err ? -err : errno));
		return EXIT_FAILED;
	}
	snprintf(face, sizeof(face), "%s/" FIND_DRIVER, libraries);
	if (!access(face, R_OK))
		return EXIT_DONE;
	complain("cdi: %s: %s", face, strerror(errno));
	return EXIT_FAILED;
}

/* NULL on failure; for free(3). */
static char *lines_of(const json_t *root)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	bool good = out && !json_dumpf(root, out, JSON_INDENT(1)) && putc('\n', out) != EOF;

	if (out && !fclose(out) && good)
		return text;
	free(text);
	return NULL;
}

static int print(const char *path)
{
	char libraries[PATH_MAX], command[PATH_MAX], *text;
	int code = find_parts(libraries, command);
	json_t *root;

	if (code)
		return code;
	root = json_pack("{s:s, s:s, s:[o, o]}", "cdiVersion", CDI_VERSION, "kind", CDI_KIND,
			 "devices", device("pause", libraries, command, false),
			 device("turns", libraries, command, true));
	text = root ? lines_of(root) : NULL;
	json_decref(root);
	if (!text) {
		complain("cdi: expected paths in UTF-8: %s", libraries);
		return EXIT_FAILED;
	}
	code = output_file(path, text, strlen(text));
	free(text);
	return code;
}

int cmd_cdi(int argc, char **argv)
{
	static const struct option options[] = {
		{"output", required_argument, NULL, 'o'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	const char *path = NULL;
	int opt;

	while ((opt = getopt_long(argc, argv, "o:h", options, NULL)) != -1) {
		switch (opt) {
		case 'o':
			path = optarg;
			break;
		case 'h':
			fputs(help_cdi, stdout);
			return EXIT_DONE;
		default:
			return usage_error("cdi");
		}
	}
	if (optind < argc) {
		complain("cdi takes no argument: '%s'", argv[optind]);
		return usage_error("cdi");
	}
	return print(path);
}
