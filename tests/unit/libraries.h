/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_LIBRARIES_H
#define CUDAW_LIBRARIES_H
/* The libraries of the CUDA toolkit, $CUDA_HOME/lib64, for tests that read them. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static inline void library_path(const char *name, char *path, size_t size)
{
	const char *home = getenv("CUDA_HOME");

	snprintf(path, size, "%s/lib64/lib%s.so", home ? home : "/usr/local/cuda", name);
}

/* Map lib@name.so, of *@size bytes; NULL where it is not installed. */
static inline const uint8_t *map_library(const char *name, size_t *size)
{
	struct stat st;
	char path[512];
	void *data = MAP_FAILED;
	int fd;

	library_path(name, path, sizeof(path));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (!fstat(fd, &st))
		data = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	*size = st.st_size;
	return data == MAP_FAILED ? NULL : data;
}

#endif
