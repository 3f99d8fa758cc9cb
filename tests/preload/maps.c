/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a job: it maps the file of TEST_MAPS shared and writable, before main(). */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

__attribute__((constructor)) static void map(void)
{
	const char *path = getenv("TEST_MAPS");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	if (path && mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED)
		abort();
	close(fd);
}
