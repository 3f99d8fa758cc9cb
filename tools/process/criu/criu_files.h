/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CRIU_FILES_H
#define CUDAW_CRIU_FILES_H
/*
 * Reads which files the processes of a CRIU image have open: files.img and remap-fpath.img, as CRIU 4 writes
 * them (its images/fdinfo.proto, regfile.proto, sk-unix.proto, remap-file-path.proto,
 * include/magic.h): two magic numbers, then entries of a 32-bit length and a Protocol Buffers
 * message.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct criu_file {
	char path[4096]; /* absolute */
	bool socket;     /* CRIU makes it, in a directory that must exist and belong to @uid */
	uid_t uid;
	mode_t mode; /* of the inode, with its type; 0: not known */
	bool sized;  /* CRIU requires the size to be the same */
	uint64_t size;
	bool written; /* it is open for writing */
};

struct criu_files {
	/* Files, directories, devices and bound sockets, without deleted ones. */
	struct criu_file *list;
	size_t n;
	bool terminal; /* a terminal is open */
};

/*
 * Read them from the directory of images that is open as @directory. 0 or a negative errno:
 * -EBADMSG if the format is not as described. criu_files_free() also accepts a zeroed @files.
 */
int criu_files_read(int directory, struct criu_files *files);
void criu_files_free(struct criu_files *files);

#endif
