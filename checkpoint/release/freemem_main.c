/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks NVML for a process in which NVML may block. freemem.c runs it. Exit status 1 if NVML does
 * not know.
 *
 *	cudaw-freemem UUID...			print the free bytes of each GPU, a line each
 *	cudaw-freemem --holders UUID PID	print a line that says which processes, except PID,
 *						have most of the GPU's memory
 */
#include "common/gpu/nvml.h"
#include "common/processes/proc.h"
#include "common/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SHOWN          3           /* holders */
#define INITIAL_PID_NS 0xeffffffcU /* PROC_PID_INIT_INO of the kernel */

static int print_free(char **uuids, int count)
{
	for (int i = 0; i < count; i++) {
		size_t bytes;

		if (nvml_free_memory(uuids[i], &bytes))
			return 1;
		printf("%zu\n", bytes);
	}
	return 0;
}

/*
 * " (NAME)"; empty if it is not known. In a container NVML may know only the host's PIDs, which are
 * other processes here.
 */
static const char *name_of(pid_t pid, char *buf, size_t size)
{
	char path[32], line[16], name[16];
	struct stat ns;

	buf[0] = '\0';
	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	if (stat("/proc/thread-self/ns/pid", &ns) || ns.st_ino != INITIAL_PID_NS ||
	    host_read_line(path, line, sizeof(line)))
		return buf;
	format_copy(name, sizeof(name), line);
	snprintf(buf, size, " (%s)", name);
	return buf;
}

static int print_holders(const char *uuid, pid_t except)
{
	struct nvml_holder holders[NVML_HOLDERS];
	int count = nvml_holders(uuid, holders), shown = 0, more = 0;
	char name[24], bytes[FORMAT_SIZE];

	for (int i = 0; i < count; i++) {
		if (holders[i].pid == except)
			continue;
		if (shown == SHOWN) {
			more++;
			continue;
		}
		printf("%s%d%s has %s", shown++ ? ", " : "", holders[i].pid,
		       name_of(holders[i].pid, name, sizeof(name)),
		       format_bytes(bytes, holders[i].bytes));
	}
	if (more)
		printf(", %d more have the rest", more);
	if (shown)
		putchar('\n');
	return !shown;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "--holders"))
		return print_holders(argv[2], atoi(argv[3]));
	return print_free(argv + 1, argc - 1);
}
