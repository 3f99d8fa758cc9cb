/* SPDX-License-Identifier: Apache-2.0 */
#include "common/find/buildid.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADERS_MAX 128
#define NOTES_MAX   16384

static size_t align4(size_t size)
{
	return (size + 3) & ~(size_t)3;
}

/* Find the note in @notes. False if it is not there. */
static bool find_note(const char *notes, size_t size, char text[BUILDID_TEXT_SIZE])
{
	Elf64_Nhdr note;

	while (size >= sizeof(note)) {
		size_t name, desc, whole;

		memcpy(&note, notes, sizeof(note));
		name = sizeof(note);
		desc = name + align4(note.n_namesz);
		whole = desc + align4(note.n_descsz);
		if (desc + note.n_descsz > size)
			return false;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof(ELF_NOTE_GNU) &&
		    !memcmp(notes + name, ELF_NOTE_GNU, sizeof(ELF_NOTE_GNU)) && note.n_descsz &&
		    2 * note.n_descsz < BUILDID_TEXT_SIZE) {
			for (uint32_t i = 0; i < note.n_descsz; i++)
				sprintf(text + 2 * i, "%02x", (uint8_t)notes[desc + i]);
			return true;
		}
		if (whole > size)
			return false;
		notes += whole;
		size -= whole;
	}
	return false;
}

static int read_buildid(int fd, char text[BUILDID_TEXT_SIZE])
{
	Elf64_Phdr headers[HEADERS_MAX];
	char notes[NOTES_MAX];
	Elf64_Ehdr elf;
	ssize_t n;

	if (pread(fd, &elf, sizeof(elf), 0) != sizeof(elf) ||
	    memcmp(elf.e_ident, ELFMAG, SELFMAG) || elf.e_ident[EI_CLASS] != ELFCLASS64 ||
	    elf.e_phentsize != sizeof(headers[0]) || elf.e_phnum > HEADERS_MAX)
		return -ENODATA;
	n = pread(fd, headers, elf.e_phnum * sizeof(headers[0]), elf.e_phoff);
	if (n != elf.e_phnum * (ssize_t)sizeof(headers[0]))
		return -ENODATA;
	for (int i = 0; i < elf.e_phnum; i++) {
		size_t size = headers[i].p_filesz;

		if (headers[i].p_type != PT_NOTE)
			continue;
		n = pread(fd, notes, size < sizeof(notes) ? size : sizeof(notes),
			  headers[i].p_offset);
		if (n > 0 && find_note(notes, n, text))
			return 0;
	}
	return -ENODATA;
}

/*
 * Open a regular file for reading, and fill @st. Other files are not opened: that can wake a
 * process that waits at a pipe, or make a device act, and a manifest can name any file.
 */
static int open_regular(const char *path, struct stat *st)
{
	int place = open(path, O_PATH | O_CLOEXEC), fd;
	char name[32];

	if (place < 0)
		return -errno;
	if (fstat(place, st)) {
		fd = -errno;
	} else if (!S_ISREG(st->st_mode)) {
		fd = -EINVAL;
	} else {
		snprintf(name, sizeof(name), "/proc/thread-self/fd/%d", place);
		fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0)
			fd = -errno;
	}
	close(place);
	return fd;
}

int buildid_of_file(const char *path, char text[BUILDID_TEXT_SIZE], off_t *size)
{
	struct stat st;
	int fd = open_regular(path, &st), ret;

	if (fd < 0)
		return fd;
	*size = st.st_size;
	ret = read_buildid(fd, text);
	close(fd);
	return ret;
}
