/* SPDX-License-Identifier: Apache-2.0 */
#include "common/find_file.h"

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
	Elf64_Dyn dyn[MAX_DYNAMIC];
	uint64_t table = 0, name = UINT64_MAX;
	ssize_t len;

	*soname = '\0';
	for (size_t i = 0; i < nseg; i++) {
		size_t n = segs[i].p_filesz / sizeof(dyn[0]);

		if (segs[i].p_type != PT_DYNAMIC)
			continue;
		n = n < MAX_DYNAMIC ? n : MAX_DYNAMIC;
		if (!read_at(fd, segs[i].p_offset, dyn, n * sizeof(dyn[0])))
			return;
		for (size_t j = 0; j < n && dyn[j].d_tag != DT_NULL; j++) {
			if (dyn[j].d_tag == DT_STRTAB)
				table = dyn[j].d_un.d_ptr;
			else if (dyn[j].d_tag == DT_SONAME)
				name = dyn[j].d_un.d_val;
		}
	}
	table = file_offset(segs, nseg, table);
	if (table > INT64_MAX || name > INT32_MAX)
		return;
	len = pread(fd, soname, size - 1, (off_t)(table + name));
	soname[len > 0 ? len : 0] = '\0';
}

static enum find_state inspect(int fd, const char *soname)
{
	Elf64_Phdr segs[MAX_SEGMENTS];
	char found[64];
	Elf64_Ehdr header;

	if (!read_at(fd, 0, &header, sizeof(header)) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
	    header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
	    header.e_machine != EM_X86_64 || header.e_type != ET_DYN ||
	    header.e_phentsize != sizeof(segs[0]) || header.e_phnum > MAX_SEGMENTS ||
	    !read_at(fd, header.e_phoff, segs, header.e_phnum * sizeof(segs[0])))
		return FIND_UNUSABLE;
	for (size_t i = 0; i < header.e_phnum; i++)
		if (segs[i].p_type == PT_NOTE && segment_is_marked(fd, &segs[i]))
			return FIND_FACE;
	/* Only an override can lead to another major version: elsewhere the name says it. */
	read_soname(fd, segs, header.e_phnum, found, sizeof(found));
	if (find_is_runtime(soname) && find_is_runtime(found) && strcmp(found, soname) != 0)
		return FIND_OTHER;
	return FIND_REAL;
}

enum find_state find_file_state(const char *path, const char *soname)
{
	enum find_state state;
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? FIND_ABSENT : FIND_UNUSABLE;
	state = !fstat(fd, &st) && S_ISREG(st.st_mode) ? inspect(fd, soname) : FIND_UNUSABLE;
	close(fd);
	return state;
}
