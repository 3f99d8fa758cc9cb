/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/host.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int host_read_line(const char *path, char *buf, size_t size)
{
	FILE *file = fopen(path, "re");
	int err = 0;

	if (!file)
		return -errno;
	if (fgets(buf, size, file))
		buf[strcspn(buf, "\n")] = '\0';
	else
		err = -EIO;
	fclose(file);
	return err;
}

char host_process(pid_t pid, pid_t *parent)
{
	char path[64], line[512], state;
	const char *end;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	/* proc(5) has the format. The name, in brackets, may have brackets and spaces itself. */
	if (host_read_line(path, line, sizeof(line)) || !(end = strrchr(line, ')')) ||
	    sscanf(end + 1, " %c %d", &state, parent) != 2)
		return 0;
	return state;
}

bool host_has_membarrier(void)
{
	long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0);

	return commands > 0 && (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

void host_huge_pages(char *buf, size_t size)
{
	char line[128], *word;

	*buf = '\0';
	if (host_read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof(line)))
		return;
	word = strchr(line, '[');
	if (!word)
		return;
	word[strcspn(word, "]")] = '\0';
	snprintf(buf, size, "%s", word + 1);
}
