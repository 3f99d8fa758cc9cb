/* SPDX-License-Identifier: Apache-2.0 */
#include "common/find.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CACHE_FILE   "/etc/ld.so.cache"
#define CACHE_LIMIT  (64UL << 20)
#define RUNTIME_STEM "libcudart.so."

/* How much of a candidate is read; the real libraries have a tenth of it. */
#define MAX_SEGMENTS 64
#define MAX_NOTES    4096
#define MAX_DYNAMIC  512

/*
 * The distributions' directories, WSL's, those of NVIDIA's containers, and forward compatibility.
 */
static const char *const driver_directories[] = {
	"/usr/lib/x86_64-linux-gnu",
	"/usr/lib64",
	"/usr/lib",
	"/usr/lib/wsl/lib",
	"/usr/local/nvidia/lib64",
	"/usr/local/cuda/compat",
};

/* Patterns, since several toolkits may be installed side by side. */
static const char *const runtime_directories[] = {
	"/usr/local/cuda*/lib64",
	"/usr/local/cuda*/targets/x86_64-linux/lib",
	"/usr/lib/x86_64-linux-gnu",
	"/usr/lib64",
	"/usr/lib",
};

struct file {
	const char *origin;
	char *path;
};

/* The files to look at for one soname, each path once. */
struct search {
	const char *soname;
	struct file *files;
	size_t count;
	bool no_memory;
};

static bool is_runtime(const char *soname)
{
	return !strncmp(soname, RUNTIME_STEM, strlen(RUNTIME_STEM));
}

static const char *override_variable(const char *soname)
{
	return is_runtime(soname) ? "CUDAW_REAL_LIBCUDART" : "CUDAW_REAL_LIBCUDA";
}

/* The environment, unless the program runs with the rights of another user. */
static const char *environment(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}

static bool read_at(int fd, uint64_t offset, void *buf, size_t size)
{
	return offset <= INT64_MAX && pread(fd, buf, size, (off_t)offset) == (ssize_t)size;
}

/* True where the notes of segment @seg hold one of cudaw's. */
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

/* The offset in the file of what is loaded at @addr; UINT64_MAX where nothing is. */
static uint64_t file_offset(const Elf64_Phdr *segs, size_t nseg, uint64_t addr)
{
	for (size_t i = 0; i < nseg; i++)
		if (segs[i].p_type == PT_LOAD && addr >= segs[i].p_vaddr &&
		    addr - segs[i].p_vaddr < segs[i].p_filesz)
			return segs[i].p_offset + (addr - segs[i].p_vaddr);
	return UINT64_MAX;
}

/* Put DT_SONAME in @soname, or "" where the file has none that fits. */
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
	if (is_runtime(soname) && is_runtime(found) && strcmp(found, soname) != 0)
		return FIND_OTHER;
	return FIND_REAL;
}

static enum find_state classify(const char *path, const char *soname)
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

static void add_file(struct search *s, const char *origin, const char *path)
{
	char cwd[PATH_MAX] = "";
	struct file *files;
	char *copy;

	if (*path != '/' && !getcwd(cwd, sizeof(cwd)))
		return;
	if (asprintf(&copy, "%s%s%s", cwd, *cwd ? "/" : "", path) < 0)
		goto err_none;
	for (size_t i = 0; i < s->count; i++) {
		if (!strcmp(s->files[i].path, copy)) {
			free(copy);
			return;
		}
	}
	files = reallocarray(s->files, s->count + 1, sizeof(*files));
	if (!files)
		goto err_copy;
	s->files = files;
	files[s->count].origin = origin;
	files[s->count++].path = copy;
	return;

err_copy:
	free(copy);
err_none:
	s->no_memory = true;
}

static void add_directory(struct search *s, const char *origin, const char *directory)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", directory, s->soname) < (int)sizeof(path))
		add_file(s, origin, path);
}

/* Directories by a pattern of glob(7); those without the library are left out. */
static void add_pattern(struct search *s, const char *origin, const char *pattern)
{
	char path[PATH_MAX];
	glob_t found;

	if (snprintf(path, sizeof(path), "%s/%s", pattern, s->soname) >= (int)sizeof(path))
		return;
	if (!glob(path, GLOB_BRACE, NULL, &found))
		for (size_t i = 0; i < found.gl_pathc; i++)
			add_file(s, origin, found.gl_pathv[i]);
	globfree(&found);
}

int find_expand(const char *entry, size_t len, const char *origin, char *buf, size_t size)
{
	static const char *const tokens[] = {"$ORIGIN", "${ORIGIN}"};
	size_t out = 0;

	if (!len) {
		entry = ".";
		len = 1;
	}
	for (size_t pos = 0; pos < len;) {
		const char *text = entry + pos;
		size_t step = 1, add = 1;

		for (size_t i = 0; *text == '$' && i < 2; i++) {
			size_t n = strlen(tokens[i]);
			if (n <= len - pos && !strncmp(entry + pos, tokens[i], n)) {
				text = origin;
				step = n;
				add = strlen(origin);
			}
		}
		if (step == 1 && *text == '$')
			return -ENOTSUP;
		if (add >= size - out)
			return -ENAMETOOLONG;
		memcpy(buf + out, text, add);
		out += add;
		pos += step;
	}
	buf[out] = '\0';
	return 0;
}

static void add_list(struct search *s, const char *origin, const char *list, const char *separators,
		     const char *base)
{
	for (;;) {
		size_t len = strcspn(list, separators);
		char directory[PATH_MAX];

		if (!find_expand(list, len, base, directory, sizeof(directory)))
			add_directory(s, origin, directory);
		if (!list[len])
			return;
		list += len + 1;
	}
}

/* The directory of the program's executable; "" where /proc is not mounted. */
static void program_directory(char *buf, size_t size)
{
	ssize_t len = readlink("/proc/self/exe", buf, size - 1);
	char *slash;

	buf[len > 0 ? len : 0] = '\0';
	slash = strrchr(buf, '/');
	if (slash)
		*slash = '\0';
}

/* What the dynamic section of a loaded object says; strings are the object's own. */
struct object {
	const char *path;   /* "" for the program */
	const char *soname; /* NULL where there is none, as the next two */
	const char *rpath;
	const char *runpath;
	bool needs; /* the library that is searched for */
};

static void read_object(const struct dl_phdr_info *info, const char *soname, struct object *obj)
{
	const ElfW(Dyn) *dyn = NULL, *d;
	const char *strings = NULL;
	uintptr_t addr;

	*obj = (struct object){.path = info->dlpi_name};
	for (size_t i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dyn = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	for (d = dyn; d && d->d_tag != DT_NULL; d++) {
		if (d->d_tag != DT_STRTAB)
			continue;
		/*
		 * The loader relocates this in place, but for objects that it cannot write (vDSO).
		 */
		addr = d->d_un.d_ptr < info->dlpi_addr ? info->dlpi_addr : 0;
		strings = (const char *)(addr + d->d_un.d_ptr);
	}
	for (d = dyn; strings && d->d_tag != DT_NULL; d++) {
		const char *text = strings + d->d_un.d_val;

		if (d->d_tag == DT_SONAME)
			obj->soname = text;
		else if (d->d_tag == DT_RPATH)
			obj->rpath = text;
		else if (d->d_tag == DT_RUNPATH)
			obj->runpath = text;
		else if (d->d_tag == DT_NEEDED && !strcmp(text, soname))
			obj->needs = true;
	}
}

static void add_loaded(struct search *s, const struct object *obj)
{
	if (*obj->path && obj->soname && !strcmp(obj->soname, s->soname))
		add_file(s, "loaded already", obj->path);
}

static void add_search_path(struct search *s, const struct object *obj, const char *origin,
			    const char *list)
{
	char base[PATH_MAX];
	char *slash;

	if (!list || (*obj->path && !obj->needs))
		return;
	if (!*obj->path) {
		program_directory(base, sizeof(base));
	} else if (snprintf(base, sizeof(base), "%s", obj->path) < (int)sizeof(base)) {
		slash = strrchr(base, '/');
		*(slash ? slash : base) = '\0';
	}
	add_list(s, origin, list, ":", base);
}

static void add_rpath(struct search *s, const struct object *obj)
{
	/* The loader ignores DT_RPATH beside a DT_RUNPATH. */
	add_search_path(s, obj, "DT_RPATH", obj->runpath ? NULL : obj->rpath);
}

static void add_runpath(struct search *s, const struct object *obj)
{
	add_search_path(s, obj, "DT_RUNPATH", obj->runpath);
}

/* NVIDIA's packages: nvidia/cuda_runtime/lib up to CUDA 12, nvidia/cuMAJOR/lib from 13 on. */
static void add_packages(struct search *s, const char *site)
{
	const char *version = s->soname + strlen(RUNTIME_STEM);
	char pattern[PATH_MAX];

	if (snprintf(pattern, sizeof(pattern), "%s/nvidia/{cuda_runtime,cu%.*s}/lib", site,
		     (int)strspn(version, "0123456789"), version) < (int)sizeof(pattern))
		add_pattern(s, "Python packages", pattern);
}

static void add_module_packages(struct search *s, const struct object *obj)
{
	static const char *const names[] = {"/site-packages/", "/dist-packages/"};
	char site[PATH_MAX];

	for (size_t i = 0; i < 2; i++) {
		const char *at = strstr(obj->path, names[i]);

		if (at && snprintf(site, sizeof(site), "%.*s",
				   (int)(at - obj->path + strlen(names[i]) - 1),
				   obj->path) < (int)sizeof(site))
			add_packages(s, site);
	}
}

struct visit {
	struct search *search;
	void (*add)(struct search *s, const struct object *obj);
};

static int visit_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct visit *visit = arg;
	struct object obj;

	(void)size;
	read_object(info, visit->search->soname, &obj);
	visit->add(visit->search, &obj);
	return 0;
}

static void for_loaded_objects(struct search *s,
			       void (*add)(struct search *s, const struct object *obj))
{
	struct visit visit = {s, add};

	dl_iterate_phdr(visit_object, &visit);
}

static void add_python(struct search *s, const char *program)
{
	const char *venv = environment("VIRTUAL_ENV");
	char site[PATH_MAX];

	for_loaded_objects(s, add_module_packages);
	if (venv && snprintf(site, sizeof(site), "%s/lib*/python3*/site-packages", venv) <
			    (int)sizeof(site))
		add_packages(s, site);
	if (snprintf(site, sizeof(site), "%s/../lib*/python3*/{site,dist}-packages", program) <
	    (int)sizeof(site))
		add_packages(s, site);
}

/*
 * The cache, as ldconfig of glibc 2.2 and later writes it. Offsets of strings count from the
 * header. A file of the old format ("ld.so-1.7.0", 12-byte entries) may stand before it, for
 * loaders that read nothing else; the new one then starts at the next multiple of 8.
 */
struct cache_header {
	char magic[20];
	uint32_t count;
	uint32_t strings_size;
	uint8_t flags; /* byte order in the low bits: 0 unknown, 2 little */
	uint8_t padding[3];
	uint32_t extensions;
	uint32_t unused[3];
};
_Static_assert(sizeof(struct cache_header) == 48, "as in the file");

struct cache_entry {
	int32_t flags;
	uint32_t key;   /* offset of the soname */
	uint32_t value; /* offset of the path */
	uint32_t os_version;
	uint64_t hwcap;
};
_Static_assert(sizeof(struct cache_entry) == 24, "as in the file");

#define CACHE_MAGIC      "glibc-ld.so.cache1.1"
#define CACHE_OLD_MAGIC  "ld.so-1.7.0"
#define CACHE_OLD_HEADER 16
#define CACHE_OLD_ENTRY  12
#define CACHE_X86_64     0x303 /* FLAG_X8664_LIB64 | FLAG_ELF_LIBC6 */

/* The string at @offset of @data, or NULL where it does not end inside. */
static const char *cache_string(const char *data, size_t size, uint32_t offset)
{
	if (offset >= size || !memchr(data + offset, '\0', size - offset))
		return NULL;
	return data + offset;
}

/* Step over the old format, if it is there. */
static void skip_old_cache(const char **data, size_t *size)
{
	uint32_t count;
	size_t skip;

	if (*size < CACHE_OLD_HEADER ||
	    memcmp(*data, CACHE_OLD_MAGIC, sizeof(CACHE_OLD_MAGIC) - 1) != 0)
		return;
	memcpy(&count, *data + 12, sizeof(count));
	skip = (CACHE_OLD_HEADER + (size_t)count * CACHE_OLD_ENTRY + 7) & ~(size_t)7;
	skip = skip < *size ? skip : *size;
	*data += skip;
	*size -= skip;
}

int find_cache_lookup(const void *data, size_t size, const char *soname,
		      void (*visit)(const char *path, void *arg), void *arg)
{
	const char *bytes = data, *key, *path;
	struct cache_header header;
	struct cache_entry entry;

	skip_old_cache(&bytes, &size);
	if (size < sizeof(header))
		return -EBADMSG;
	memcpy(&header, bytes, sizeof(header));
	if (memcmp(header.magic, CACHE_MAGIC, sizeof(header.magic)) != 0 ||
	    ((header.flags & 3) != 0 && (header.flags & 3) != 2) ||
	    header.count > (size - sizeof(header)) / sizeof(entry))
		return -EBADMSG;
	for (uint32_t i = 0; i < header.count; i++) {
		memcpy(&entry, bytes + sizeof(header) + i * sizeof(entry), sizeof(entry));
		if (entry.flags != CACHE_X86_64)
			continue;
		key = cache_string(bytes, size, entry.key);
		path = cache_string(bytes, size, entry.value);
		if (key && path && !strcmp(key, soname))
			visit(path, arg);
	}
	return 0;
}

static void add_cached(const char *path, void *arg)
{
	add_file(arg, CACHE_FILE, path);
}

static void add_cache(struct search *s)
{
	int fd = open(CACHE_FILE, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char *data;

	if (fd < 0)
		return;
	if (fstat(fd, &st) || st.st_size <= 0 || (size_t)st.st_size > CACHE_LIMIT)
		goto out_close;
	data = malloc(st.st_size);
	if (!data) {
		s->no_memory = true;
		goto out_close;
	}
	if (read_at(fd, 0, data, st.st_size))
		find_cache_lookup(data, st.st_size, s->soname, add_cached, s);
	free(data);
out_close:
	close(fd);
}

/* Fill @s; its files are to be freed whatever the result. Returns 0 or -ENOMEM. */
static int search_init(struct search *s, const char *soname)
{
	const char *override = environment(override_variable(soname));
	const char *path = environment("LD_LIBRARY_PATH");
	char program[PATH_MAX];

	*s = (struct search){.soname = soname};
	if (override) {
		add_file(s, override_variable(soname), override);
		return s->no_memory ? -ENOMEM : 0;
	}
	program_directory(program, sizeof(program));
	for_loaded_objects(s, add_loaded);
	for_loaded_objects(s, add_rpath);
	if (path)
		add_list(s, "LD_LIBRARY_PATH", path, ":;", program);
	for_loaded_objects(s, add_runpath);
	add_cache(s);
	if (is_runtime(soname)) {
		add_python(s, program);
		for (size_t i = 0; i < sizeof(runtime_directories) / sizeof(*runtime_directories);
		     i++)
			add_pattern(s, "usual directories", runtime_directories[i]);
	} else {
		for (size_t i = 0; i < sizeof(driver_directories) / sizeof(*driver_directories);
		     i++)
			add_directory(s, "usual directories", driver_directories[i]);
	}
	return s->no_memory ? -ENOMEM : 0;
}

int find_places(const char *soname, int (*visit)(const struct find_place *place, void *arg),
		void *arg)
{
	struct search s;
	int result = search_init(&s, soname);

	for (size_t i = 0; !result && i < s.count; i++) {
		struct find_place place = {
			.origin = s.files[i].origin,
			.path = s.files[i].path,
			.state = classify(s.files[i].path, soname),
		};
		result = visit(&place, arg);
	}
	for (size_t i = 0; i < s.count; i++)
		free(s.files[i].path);
	free(s.files);
	return result;
}

struct answer {
	char *path;
	size_t size;
};

static int take_real(const struct find_place *place, void *arg)
{
	struct answer *answer = arg;

	if (place->state != FIND_REAL)
		return 0;
	if (strlen(place->path) >= answer->size)
		return -ENAMETOOLONG;
	strcpy(answer->path, place->path);
	return 1;
}

static int find_real(const char *soname, char *path, size_t size)
{
	struct answer answer = {path, size};
	int result = find_places(soname, take_real, &answer);

	if (!result)
		return -ENOENT;
	return result < 0 ? result : 0;
}

int find_real_driver(char *path, size_t size)
{
	return find_real(FIND_DRIVER, path, size);
}

int find_real_runtime(const char *soname, char *path, size_t size)
{
	return find_real(soname, path, size);
}

const char *find_state_text(enum find_state state)
{
	static const char *const texts[] = {
		[FIND_REAL] = "the real library",
		[FIND_ABSENT] = "no such file",
		[FIND_UNUSABLE] = "not a readable x86-64 shared library",
		[FIND_FACE] = "one of cudaw's own libraries",
		[FIND_OTHER] = "the runtime of another major version",
	};

	return texts[state];
}

/* A message under construction; what does not fit is cut off. */
struct message {
	char *text;
	size_t size;
};

__attribute__((format(printf, 2, 3))) static void append(struct message *m, const char *fmt, ...)
{
	size_t len = strlen(m->text);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(m->text + len, m->size - len, fmt, ap);
	va_end(ap);
}

static int append_place(const struct find_place *place, void *arg)
{
	append(arg, ", %s", place->path);
	if (place->state != FIND_ABSENT)
		append(arg, " (%s)", find_state_text(place->state));
	return 0;
}

void find_explain(const char *soname, char *text, size_t size)
{
	const char *variable = override_variable(soname);
	const char *override = environment(variable);
	struct message m = {text, size};

	*text = '\0';
	if (override) {
		append(&m, "%s=%s: %s", variable, override,
		       find_state_text(classify(override, soname)));
		return;
	}
	append(&m, "no real %s (set %s to its path); looked in " CACHE_FILE, soname, variable);
	if (find_places(soname, append_place, &m))
		append(&m, " and ran out of memory");
}
