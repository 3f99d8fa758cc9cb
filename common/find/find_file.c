/* SPDX-License-Identifier: Apache-2.0 */
#include "common/find/find_file.h"
#include "common/find/machine.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* How much of a candidate is read. The real libraries have a tenth of it. */
#define MAX_SEGMENTS 64
#define MAX_NOTES    4096
#define MAX_DYNAMIC  512
/* Of them, how many at a time. */
#define DYNAMIC_BLOCK 32
#define SONAME_SIZE   64

bool find_is_runtime(const char *soname)
{
	return !strncmp(soname, FIND_RUNTIME_STEM, strlen(FIND_RUNTIME_STEM));
}

static bool read_at(int fd, uint64_t offset, void *buf, size_t size)
{
	return offset <= INT64_MAX && pread(fd, buf, size, (off_t)offset) == (ssize_t)size;
}

/* True if the notes of segment @seg include one of cudaw's. */
static bool segment_is_marked(int fd, const Elf64_Phdr *seg)
{
	size_t size = seg->p_filesz < MAX_NOTES ? seg->p_filesz : MAX_NOTES;
	size_t align = seg->p_align == 8 ? 8 : 4;
	char notes[MAX_NOTES];
	size_t pos = 0;

	if (!read_at(fd, seg->p_offset, notes, size))
		return false;
	while (size - pos >= sizeof(Elf64_Nhdr)) {
		Elf64_Nhdr note;
		size_t end;

		memcpy(&note, notes + pos, sizeof(note));
		pos += sizeof(note);
		if (note.n_namesz == sizeof("cudaw") && note.n_namesz <= size - pos &&
		    !memcmp(notes + pos, "cudaw", sizeof("cudaw")))
			return true;
		/* Both lengths are 32 bits wide: the sums below cannot wrap. */
		end = (pos + note.n_namesz + align - 1) & -align;
		end = (end + note.n_descsz + align - 1) & -align;
		if (end > size)
			return false;
		pos = end;
	}
	return false;
}

/* The file offset of the byte that is loaded at @addr; UINT64_MAX if nothing is loaded there. */
static uint64_t file_offset(const Elf64_Phdr *segs, size_t nseg, uint64_t addr)
{
	for (size_t i = 0; i < nseg; i++)
		if (segs[i].p_type == PT_LOAD && addr >= segs[i].p_vaddr &&
		    addr - segs[i].p_vaddr < segs[i].p_filesz)
			return segs[i].p_offset + (addr - segs[i].p_vaddr);
	return UINT64_MAX;
}

/* Put DT_SONAME in @soname, or "" if the file has none or it does not fit. */
static void read_soname(int fd, const Elf64_Phdr *segs, size_t nseg, char *soname, size_t size)
{
	Elf64_Dyn dyn[DYNAMIC_BLOCK];
	uint64_t table = 0, name = UINT64_MAX, at = 0;
	size_t n = 0;
	ssize_t len;

	*soname = '\0';
	for (size_t i = 0; i < nseg; i++) {
		if (segs[i].p_type != PT_DYNAMIC)
			continue;
		at = segs[i].p_offset;
		n = segs[i].p_filesz / sizeof(dyn[0]);
	}
	n = n < MAX_DYNAMIC ? n : MAX_DYNAMIC;
	for (size_t i = 0; i < n; i++) {
		const Elf64_Dyn *d = &dyn[i % DYNAMIC_BLOCK];
		size_t left = n - i < DYNAMIC_BLOCK ? n - i : DYNAMIC_BLOCK;

		if (d == dyn && !read_at(fd, at + i * sizeof(dyn[0]), dyn, left * sizeof(dyn[0])))
			return;
		if (d->d_tag == DT_NULL)
			break;
		if (d->d_tag == DT_STRTAB)
			table = d->d_un.d_ptr;
		else if (d->d_tag == DT_SONAME)
			name = d->d_un.d_val;
	}
	table = file_offset(segs, nseg, table);
	if (table > INT64_MAX || name > INT32_MAX)
		return;
	len = pread(fd, soname, size - 1, (off_t)(table + name));
	soname[len > 0 ? len : 0] = '\0';
}

/* Read the segments of a shared library for this kind of machine. False: it is none, or has too many. */
static bool read_segments(int fd, Elf64_Phdr segs[MAX_SEGMENTS], size_t *nseg)
{
	Elf64_Ehdr header;

	if (!read_at(fd, 0, &header, sizeof(header)) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
	    header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
	    header.e_machine != MACHINE_ELF || header.e_type != ET_DYN ||
	    header.e_phentsize != sizeof(segs[0]) || header.e_phnum > MAX_SEGMENTS ||
	    !read_at(fd, header.e_phoff, segs, header.e_phnum * sizeof(segs[0])))
		return false;
	*nseg = header.e_phnum;
	return true;
}

static enum find_state inspect(int fd, const char *soname)
{
	Elf64_Phdr segs[MAX_SEGMENTS];
	char found[SONAME_SIZE];
	size_t nseg;

	if (!read_segments(fd, segs, &nseg))
		return FIND_UNUSABLE;
	for (size_t i = 0; i < nseg; i++)
		if (segs[i].p_type == PT_NOTE && segment_is_marked(fd, &segs[i]))
			return FIND_FACE;
	/* Only an override can lead to another major version: elsewhere the name says it. */
	read_soname(fd, segs, nseg, found, sizeof(found));
	if (find_is_runtime(soname) && find_is_runtime(found) && strcmp(found, soname) != 0)
		return FIND_OTHER;
	return FIND_REAL;
}

/* Open the regular file at @path for reading. Never waits. Returns a descriptor, or -1 and errno. */
static int open_file(const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode))) {
		close(fd);
		errno = EACCES;
		return -1;
	}
	return fd;
}

enum find_state find_file_state(const char *path, const char *soname)
{
	enum find_state state;
	int fd = open_file(path);

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? FIND_ABSENT : FIND_UNUSABLE;
	state = inspect(fd, soname);
	close(fd);
	return state;
}

bool find_file_is_driver(const char *path)
{
	Elf64_Phdr segs[MAX_SEGMENTS];
	char soname[SONAME_SIZE] = "";
	size_t nseg;
	int fd = open_file(path);

	if (fd < 0)
		return false;
	if (read_segments(fd, segs, &nseg))
		read_soname(fd, segs, nseg, soname, sizeof(soname));
	close(fd);
	return !strcmp(soname, FIND_DRIVER);
}
