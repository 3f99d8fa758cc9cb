/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for the real libraries: the ld.so.cache reader on good and malformed bytes, the
 * overrides, search paths, and that no face of cudaw is ever taken for a real library.
 */
#include "common/find/find.h"
#include "common/find/find_file.h"
#include "common/find/machine.h"
#include "common/find/find_cache.h"

#include "tests/check_suite.h"

#include <check.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A major version that no machine has, so that nothing installed can answer. */
#define SONAME "libcudart.so.99"

static char root[64];

static void setup(void)
{
	strcpy(root, "/tmp/cudaw-test-find-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
	unsetenv("CUDAW_REAL_LIBCUDART");
	unsetenv("CUDAW_REAL_LIBCUDA");
	unsetenv("LD_LIBRARY_PATH");
	unsetenv("VIRTUAL_ENV");
}

__attribute__((format(printf, 1, 2))) static void shell(const char *fmt, ...)
{
	char command[4096];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	ck_assert_msg(system(command) == 0, "failed: %s", command);
}

static void teardown(void)
{
	shell("rm -rf %s", root);
}

/* ROOT/@name, in a buffer that the fourth next call overwrites. */
static const char *in_root(const char *name)
{
	static char paths[4][PATH_MAX];
	static int next;
	char *path = paths[next++ % 4];

	snprintf(path, PATH_MAX, "%s/%s", root, name);
	return path;
}

/* The smallest shared library that tells its soname, and whether it is a face. */
struct library {
	Elf64_Ehdr header;
	Elf64_Phdr segs[3];
	Elf64_Dyn dyn[3];
	char strings[64];
	Elf64_Nhdr note;
	char owner[8];
};

static struct library make_library(const char *soname, const char *owner)
{
	struct library lib = {
		.header = {.e_type = ET_DYN,
			   .e_machine = MACHINE_ELF,
			   .e_phoff = offsetof(struct library, segs),
			   .e_phentsize = sizeof(Elf64_Phdr),
			   .e_phnum = 3},
		.segs = {{.p_type = PT_LOAD, .p_vaddr = 0x10000, .p_filesz = sizeof(lib)},
			 {.p_type = PT_DYNAMIC,
			  .p_offset = offsetof(struct library, dyn),
			  .p_filesz = sizeof(lib.dyn)},
			 {.p_type = PT_NOTE,
			  .p_offset = offsetof(struct library, note),
			  .p_filesz = sizeof(lib.note) + sizeof(lib.owner),
			  .p_align = 4}},
		.dyn = {{.d_tag = DT_STRTAB,
			 .d_un.d_ptr = 0x10000 + offsetof(struct library, strings)},
			{.d_tag = DT_SONAME, .d_un.d_val = 1}},
		.note = {.n_namesz = strlen(owner) + 1, .n_type = 1},
	};

	memcpy(lib.header.e_ident, ELFMAG, SELFMAG);
	lib.header.e_ident[EI_CLASS] = ELFCLASS64;
	lib.header.e_ident[EI_DATA] = ELFDATA2LSB;
	strcpy(lib.strings + 1, soname);
	strcpy(lib.owner, owner);
	return lib;
}

static void write_file(const char *path, const void *data, size_t size)
{
	FILE *f;

	shell("mkdir -p $(dirname %s)", path);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(data, 1, size, f), size);
	ck_assert_int_eq(fclose(f), 0);
}

static void write_real(const char *path)
{
	struct library lib = make_library(SONAME, "GNU");

	write_file(path, &lib, sizeof(lib));
}

static void write_face(const char *path)
{
	struct library lib = make_library(SONAME, "cudaw");

	write_file(path, &lib, sizeof(lib));
}

static void assert_found(const char *expected)
{
	char path[PATH_MAX] = "";

	ck_assert_int_eq(find_real_runtime(SONAME, path, sizeof(path)), 0);
	ck_assert_str_eq(path, expected);
}

static void assert_not_found(const char *reason)
{
	char path[PATH_MAX] = "untouched", text[1024];

	ck_assert_int_eq(find_real_runtime(SONAME, path, sizeof(path)), -ENOENT);
	ck_assert_str_eq(path, "untouched");
	find_explain(SONAME, text, sizeof(text));
	ck_assert_msg(strstr(text, reason), "'%s' does not say '%s'", text, reason);
}

/* A cache of @count entries; strings lie behind them, and offsets count from the header. */
struct cache {
	char magic[20];
	uint32_t count, strings_size;
	uint8_t flags, padding[3];
	uint32_t extensions, unused[3];
	struct {
		int32_t flags;
		uint32_t key, value, os_version;
		uint64_t hwcap;
	} entries[4];
	char strings[64];
};

#define STRINGS   offsetof(struct cache, strings)
#define OTHER_KEY STRINGS
#define KEY       (STRINGS + 8)
#define PATH_A    (STRINGS + 16)
#define PATH_B    (STRINGS + 24)

static struct cache make_cache(void)
{
	struct cache cache = {
		.magic = "glibc-ld.so.cache1.",
		.count = 4,
		.flags = 2,
		.entries = {{MACHINE_CACHE, OTHER_KEY, PATH_B, 0, 0},
			    {0x803, KEY, PATH_B, 0, 0}, /* 32-bit */
			    {MACHINE_CACHE, KEY, PATH_A, 0, 0},
			    {MACHINE_CACHE, KEY, PATH_B, 0, 2}},
		.strings = "lib.so\0\0lib.so1\0/a/lib1\0/b/lib1",
	};

	cache.magic[19] = '1';
	return cache;
}

static char visited[256];

static void visit_path(const char *path, void *arg)
{
	ck_assert_ptr_eq(arg, visited);
	strcat(strcat(visited, path), " ");
}

/* Look up in a copy that ends where the heap's red zone begins. */
static int lookup(const void *data, size_t size)
{
	void *copy = malloc(size);
	int err;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, data, size);
	*visited = '\0';
	err = find_cache_lookup(copy, size, "lib.so1", visit_path, visited);
	free(copy);
	return err;
}

START_TEST(cache_gives_every_path_in_order)
{
	struct cache cache = make_cache();

	ck_assert_int_eq(lookup(&cache, sizeof(cache)), 0);
	ck_assert_str_eq(visited, "/a/lib1 /b/lib1 ");
}
END_TEST

START_TEST(cache_behind_old_format)
{
	struct cache cache = make_cache();
	char file[32 + sizeof(cache)] = "ld.so-1.7.0";

	/* One entry of 12 bytes behind the header of 16, then padding to a multiple of 8. */
	file[12] = 1;
	memcpy(file + 32, &cache, sizeof(cache));
	ck_assert_int_eq(lookup(file, sizeof(file)), 0);
	ck_assert_str_eq(visited, "/a/lib1 /b/lib1 ");
	memset(file + 12, 0xff, 4);
	ck_assert_int_eq(lookup(file, sizeof(file)), -EBADMSG);
}
END_TEST

START_TEST(cache_cut_short)
{
	struct cache cache = make_cache();

	for (size_t size = 1; size < STRINGS; size++)
		ck_assert_int_eq(lookup(&cache, size), -EBADMSG);
	for (size_t size = STRINGS; size < PATH_A + sizeof("/a/lib1"); size++) {
		ck_assert_int_eq(lookup(&cache, size), 0);
		ck_assert_str_eq(visited, "");
	}
	ck_assert_int_eq(lookup(&cache, PATH_A + sizeof("/a/lib1")), 0);
	ck_assert_str_eq(visited, "/a/lib1 ");
}
END_TEST

START_TEST(cache_with_bad_fields)
{
	struct cache cache = make_cache();

	cache.count = 7;
	ck_assert_int_eq(lookup(&cache, sizeof(cache)), -EBADMSG);
	cache.count = UINT32_MAX;
	ck_assert_int_eq(lookup(&cache, sizeof(cache)), -EBADMSG);
	cache = make_cache();
	cache.flags = 3; /* big endian */
	ck_assert_int_eq(lookup(&cache, sizeof(cache)), -EBADMSG);
	cache = make_cache();
	cache.magic[17] = '2';
	ck_assert_int_eq(lookup(&cache, sizeof(cache)), -EBADMSG);
	cache = make_cache();
	cache.entries[2].key = UINT32_MAX;
	cache.entries[3].value = sizeof(cache);
	ck_assert_int_eq(lookup(&cache, sizeof(cache)), 0);
	ck_assert_str_eq(visited, "");
}
END_TEST

static const char *expand(const char *entry, size_t size)
{
	static char buf[64];
	int err = find_expand(entry, strlen(entry), "/here", buf, size);

	return err == -ENOTSUP ? "unsupported" : err == -ENAMETOOLONG ? "too long" : buf;
}

START_TEST(expand_replaces_origin)
{
	ck_assert_str_eq(expand("/usr/lib", 64), "/usr/lib");
	ck_assert_str_eq(expand("$ORIGIN", 64), "/here");
	ck_assert_str_eq(expand("$ORIGIN/../lib", 64), "/here/../lib");
	ck_assert_str_eq(expand("${ORIGIN}/a:${ORIGIN}", 64), "/here/a:/here");
	ck_assert_str_eq(expand("", 64), ".");
	ck_assert_str_eq(expand("/usr/$LIB", 64), "unsupported");
	ck_assert_str_eq(expand("$ORIGI", 64), "unsupported");
	ck_assert_str_eq(expand("$ORIGIN/a", 8), "/here/a");
	ck_assert_str_eq(expand("$ORIGIN/a", 7), "too long");
	ck_assert_str_eq(expand("x$ORIGIN", 6), "too long");
	ck_assert_str_eq(expand("", 1), "too long");
}
END_TEST

START_TEST(override_is_taken_or_refused)
{
	struct library other = make_library("libcudart.so.98", "GNU");
	struct library arm = make_library(SONAME, "GNU");
	char small[8];

	write_real(in_root("first/" SONAME));
	setenv("LD_LIBRARY_PATH", in_root("first"), 1);
	write_real(in_root("real"));
	setenv("CUDAW_REAL_LIBCUDART", in_root("real"), 1);
	assert_found(in_root("real"));
	ck_assert_int_eq(find_real_runtime(SONAME, small, sizeof(small)), -ENAMETOOLONG);

	setenv("CUDAW_REAL_LIBCUDART", in_root("absent"), 1);
	assert_not_found("CUDAW_REAL_LIBCUDART=/tmp/");
	assert_not_found("/absent: no such file");
	setenv("CUDAW_REAL_LIBCUDART", root, 1);
	assert_not_found("not a readable x86-64 shared library");
	write_file(in_root("text"), "INPUT(libcudart.so)", 19);
	setenv("CUDAW_REAL_LIBCUDART", in_root("text"), 1);
	assert_not_found("not a readable x86-64 shared library");
	arm.header.e_machine = EM_AARCH64;
	write_file(in_root("arm"), &arm, sizeof(arm));
	setenv("CUDAW_REAL_LIBCUDART", in_root("arm"), 1);
	assert_not_found("not a readable x86-64 shared library");
	write_file(in_root("other"), &other, sizeof(other));
	setenv("CUDAW_REAL_LIBCUDART", in_root("other"), 1);
	assert_not_found("another major version");
	write_face(in_root("face"));
	setenv("CUDAW_REAL_LIBCUDART", in_root("face"), 1);
	assert_not_found("cudaw's own");
}
END_TEST

START_TEST(override_of_driver)
{
	char path[PATH_MAX], text[1024];

	write_real(in_root("driver"));
	ck_assert_int_eq(chdir(root), 0);
	setenv("CUDAW_REAL_LIBCUDA", "driver", 1);
	ck_assert_int_eq(find_real_driver(path, sizeof(path)), 0);
	ck_assert_str_eq(path, in_root("driver"));
	setenv("CUDAW_REAL_LIBCUDA", "/absent", 1);
	ck_assert_int_eq(find_real_driver(path, sizeof(path)), -ENOENT);
	find_explain(FIND_DRIVER, text, sizeof(text));
	ck_assert_str_eq(text, "CUDAW_REAL_LIBCUDA=/absent: no such file");
}
END_TEST

START_TEST(faces_are_passed_over)
{
	char list[PATH_MAX];

	write_face(in_root("face/" SONAME));
	shell("mkdir %s/link && ln -s ../face/" SONAME " %s/link/" SONAME, root, root);
	snprintf(list, sizeof(list), "%s:%s;%s", in_root("face"), in_root("link"), in_root("real"));
	setenv("LD_LIBRARY_PATH", list, 1);
	assert_not_found("/face/" SONAME " (one of cudaw's own libraries)");
	write_real(in_root("real/" SONAME));
	assert_found(in_root("real/" SONAME));
}
END_TEST

/* Its name may be any; whether it is a face does not matter. */
START_TEST(driver_is_known_by_its_soname)
{
	struct {
		struct library lib;
		Elf64_Dyn dyn[80];
	} large = {.lib = make_library(FIND_DRIVER, "other")};
	struct library face = make_library(FIND_DRIVER, "cudaw");
	struct library other = make_library("libcuda.so", "other");

	for (size_t i = 0; i < 70; i++)
		large.dyn[i].d_tag = DT_NEEDED;
	memcpy(large.dyn + 70, large.lib.dyn, sizeof(large.lib.dyn));
	large.lib.segs[1].p_offset = offsetof(__typeof__(large), dyn);
	large.lib.segs[1].p_filesz = sizeof(large.dyn);
	write_file(in_root("large"), &large, sizeof(large));
	write_file(in_root("face"), &face, sizeof(face));
	write_file(in_root(FIND_DRIVER), &other, sizeof(other));
	ck_assert(find_file_is_driver(in_root("large")));
	ck_assert(find_file_is_driver(in_root("face")));
	ck_assert(!find_file_is_driver(in_root(FIND_DRIVER)));
	ck_assert(!find_file_is_driver(in_root("absent")));
	ck_assert(!find_file_is_driver(root));
	ck_assert(!find_file_is_driver("/dev/zero"));
	for (size_t size = 0; size < sizeof(large.lib); size += 8) {
		write_file(in_root("cut"), &large, size);
		ck_assert(!find_file_is_driver(in_root("cut")));
	}
}
END_TEST

START_TEST(damaged_files_are_passed_over)
{
	struct library lib = make_library(SONAME, "cudaw");
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s", in_root(SONAME));
	setenv("LD_LIBRARY_PATH", root, 1);
	for (size_t size = 0; size < offsetof(struct library, dyn); size += 7) {
		write_file(path, &lib, size);
		assert_not_found("not a readable");
	}
	/* A note that claims more than there is must not hide that the search goes on. */
	lib.note.n_namesz = UINT32_MAX;
	lib.segs[2].p_filesz = UINT64_MAX;
	lib.segs[1].p_offset = UINT64_MAX;
	write_file(path, &lib, sizeof(lib));
	assert_found(path);
}
END_TEST

START_TEST(python_packages_come_after_the_library_path)
{
	const char *package = "venv/lib/python3.11/site-packages/nvidia/cu99/lib/" SONAME;

	write_real(in_root(package));
	setenv("VIRTUAL_ENV", in_root("venv"), 1);
	assert_found(in_root(package));
	write_real(in_root("lib/" SONAME));
	setenv("LD_LIBRARY_PATH", in_root("lib"), 1);
	assert_found(in_root("lib/" SONAME));
}
END_TEST

/* As under a drop-in installation: an object needs the library, and got the face. */
static void load_needer(const char *tags)
{
	shell("cd %s && mkdir real face && : >e.c && cc -shared -o face/" SONAME " -x c e.c "
	      "-Wl,-soname," SONAME " && cc -shared -o libneeder.so -x c e.c -x none "
	      "-Wl,--no-as-needed face/" SONAME " -Wl,-rpath,'$ORIGIN/real' -Wl,%s",
	      root, tags);
	ck_assert_ptr_nonnull(dlopen(in_root("face/" SONAME), RTLD_NOW));
	ck_assert_ptr_nonnull(dlopen(in_root("libneeder.so"), RTLD_NOW));
	/* In its place a file that says what it is; the loader has its own mapping of the old. */
	shell("rm %s", in_root("face/" SONAME));
	write_face(in_root("face/" SONAME));
}

START_TEST(rpath_of_a_needing_object)
{
	write_real(in_root("path/" SONAME));
	setenv("LD_LIBRARY_PATH", in_root("path"), 1);
	load_needer("--disable-new-dtags");
	assert_found(in_root("path/" SONAME));
	write_real(in_root("real/" SONAME));
	assert_found(in_root("real/" SONAME));
}
END_TEST

START_TEST(runpath_comes_after_the_library_path)
{
	load_needer("--enable-new-dtags");
	write_real(in_root("real/" SONAME));
	assert_found(in_root("real/" SONAME));
	write_real(in_root("path/" SONAME));
	setenv("LD_LIBRARY_PATH", in_root("path"), 1);
	assert_found(in_root("path/" SONAME));
}
END_TEST

static int first_place(const struct find_place *place, void *arg)
{
	struct find_place *first = arg;

	*first = *place;
	first->path = strdup(place->path);
	return 7;
}

START_TEST(loaded_library_comes_first)
{
	struct find_place first;

	ck_assert_int_eq(find_places("libc.so.6", first_place, &first), 7);
	ck_assert_int_eq(first.state, FIND_REAL);
	ck_assert_str_eq(first.origin, "loaded already");
	ck_assert_ptr_nonnull(strstr(first.path, "/libc.so.6"));
	free((char *)first.path);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("find");
	TCase *cache = tcase_create("cache");
	TCase *search = tcase_create("search");

	tcase_add_test(cache, cache_gives_every_path_in_order);
	tcase_add_test(cache, cache_behind_old_format);
	tcase_add_test(cache, cache_cut_short);
	tcase_add_test(cache, cache_with_bad_fields);
	tcase_add_test(cache, expand_replaces_origin);
	suite_add_tcase(suite, cache);

	tcase_add_checked_fixture(search, setup, teardown);
	tcase_set_timeout(search, 30);
	tcase_add_test(search, override_is_taken_or_refused);
	tcase_add_test(search, override_of_driver);
	tcase_add_test(search, faces_are_passed_over);
	tcase_add_test(search, driver_is_known_by_its_soname);
	tcase_add_test(search, damaged_files_are_passed_over);
	tcase_add_test(search, python_packages_come_after_the_library_path);
	tcase_add_test(search, rpath_of_a_needing_object);
	tcase_add_test(search, runpath_comes_after_the_library_path);
	tcase_add_test(search, loaded_library_comes_first);
	suite_add_tcase(suite, search);

	return check_suite_run(suite);
}
