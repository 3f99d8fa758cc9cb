/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_MEMORY_FILE_H
#define CUDAW_MEMORY_FILE_H
/* One file of the list of memory_files.h: its directory, its names, and its bytes. */
#include "tools/process/memory/memory_files.h"

#define MEMORY_FILE_KEY  "shared_files" /* of the list, in host.json */
#define MEMORY_FILE_BOOT 64             /* bytes of the text that names a boot of the machine */

/* Open a directory as memory_files.h says; -1: it is no such one. */
int memory_file_open_directory(const char *path);

/* When the file was made, in ns since 1970; 0: an older kernel does not say it of a tmpfs. As statx(2). */
uint64_t memory_file_made(int dir, const char *name, int flags);

/* The boot of the machine; "": it is not known. */
void memory_file_boot(char boot[MEMORY_FILE_BOOT]);

/* Whether @name in @dir is the file. */
bool memory_file_is(const struct memory_file *f, int dir, const char *name);

/* False: it has too many names, or the name is too long. */
bool memory_file_add_name(struct memory_file *f, const char *name);

/* Returns @code, a negative errno, of the name with that number. */
int memory_file_fail(struct snapshot_error *error, const struct memory_file *f, size_t name,
		     int code);

/* The file that has the first of the names now must be that of the list. A descriptor or a negative errno. */
int memory_file_open(const struct memory_file *f, int dir, int flags);

/* One more name for the file open as @fd. 0 or a negative errno. */
int memory_file_link(int fd, int dir, const char *name);

/* Copy @size bytes; @reserve: with memory for all of them. 0 or a negative errno. */
int memory_file_copy(int from, int to, off_t size, bool reserve);

/* What the copy of file @i of the list is called, beside CRIU's image. */
void memory_file_content(size_t i, char name[32]);

#endif
