/* SPDX-License-Identifier: Apache-2.0 */
#include "common/find/find.h"
#include "common/environment.h"
#include "common/settings.h"

#include "common/find/find_cache.h"
#include "common/find/find_file.h"
#include "common/find/find_loaded.h"
#include "common/find/machine.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * The distributions' directories, WSL's, those of NVIDIA's containers, and forward compatibility.
 */
static const char *const driver_directories[] = {
	"/usr/lib/" MACHINE_TRIPLET,
	"/usr/lib64",
	"/usr/lib",
	"/usr/lib/wsl/lib",
	"/usr/local/nvidia/lib64",
	"/usr/local/cuda/compat",
};

/* Patterns, since several toolkits may be installed side by side. */
static const char *const runtime_directories[] = {
	"/usr/local/cuda*/lib64",
	"/usr/local/cuda*/targets/" MACHINE_CUDA "/lib",
	"/usr/lib/" MACHINE_TRIPLET,
	"/usr/lib64",
	"/usr/lib",
};

struct file {
	const char *origin;
	char *path;
};

/* The candidates for one soname, each path once. */
struct search {
	const char *soname;
	struct file *files;
	size_t count;
	bool no_memory;
};

static enum setting_id override_setting(const char *soname)
{
	return find_is_runtime(soname) ? SETTING_REAL_LIBCUDART : SETTING_REAL_LIBCUDA;
}

/* The environment, unless the program runs with the rights of another user. */
static const char *environment(const char *name)
{
	const char *value = environment_get(name);

	return value && *value ? value : NULL;
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

/* Directories by a pattern of glob(7), without those that lack the library. */
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

/* The directory of the program's executable, or "" if /proc is not mounted. */
static void program_directory(char *buf, size_t size)
{
	ssize_t len = readlink("/proc/thread-self/exe", buf, size - 1);
	char *slash;

	buf[len > 0 ? len : 0] = '\0';
	slash = strrchr(buf, '/');
	if (slash)
		*slash = '\0';
}

static void add_loaded(const struct find_object *obj, void *search)
{
	struct search *s = search;

	if (*obj->path && obj->soname && !strcmp(obj->soname, s->soname))
		add_file(s, "loaded already", obj->path);
}

static void add_search_path(struct search *s, const struct find_object *obj, const char *origin,
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

static void add_rpath(const struct find_object *obj, void *search)
{
	/* The loader ignores DT_RPATH beside a DT_RUNPATH. */
	add_search_path(search, obj, "DT_RPATH", obj->runpath ? NULL : obj->rpath);
}

static void add_runpath(const struct find_object *obj, void *search)
{
	add_search_path(search, obj, "DT_RUNPATH", obj->runpath);
}

/* NVIDIA's packages: nvidia/cuda_runtime/lib up to CUDA 12, nvidia/cuMAJOR/lib from 13 on. */
static void add_packages(struct search *s, const char *site)
{
	const char *version = s->soname + strlen(FIND_RUNTIME_STEM);
	char pattern[PATH_MAX];

	if (snprintf(pattern, sizeof(pattern), "%s/nvidia/{cuda_runtime,cu%.*s}/lib", site,
		     (int)strspn(version, "0123456789"), version) < (int)sizeof(pattern))
		add_pattern(s, "Python packages", pattern);
}

static void add_module_packages(const struct find_object *obj, void *search)
{
	static const char *const names[] = {"/site-packages/", "/dist-packages/"};
	char site[PATH_MAX];

	for (size_t i = 0; i < 2; i++) {
		const char *at = strstr(obj->path, names[i]);

		if (at && snprintf(site, sizeof(site), "%.*s",
				   (int)(at - obj->path + strlen(names[i]) - 1),
				   obj->path) < (int)sizeof(site))
			add_packages(search, site);
	}
}

static void add_python(struct search *s, const char *program)
{
	const char *venv = environment("VIRTUAL_ENV");
	char site[PATH_MAX];

	find_loaded(s->soname, add_module_packages, s);
	if (venv && snprintf(site, sizeof(site), "%s/lib*/python3*/site-packages", venv) <
			    (int)sizeof(site))
		add_packages(s, site);
	if (snprintf(site, sizeof(site), "%s/../lib*/python3*/{site,dist}-packages", program) <
	    (int)sizeof(site))
		add_packages(s, site);
}

static void add_cached(const char *path, void *search)
{
	add_file(search, FIND_CACHE, path);
}

/* Fill @s. The caller frees its files whatever the result. Returns 0 or -ENOMEM. */
static int search_init(struct search *s, const char *soname)
{
	enum setting_id id = override_setting(soname);
	const char *override = strcmp(soname, FIND_NVML) ? setting_text(id) : NULL;
	const char *path = environment("LD_LIBRARY_PATH");
	char program[PATH_MAX];

	*s = (struct search){.soname = soname};
	if (override) {
		add_file(s, settings[id].name, override);
		return s->no_memory ? -ENOMEM : 0;
	}
	program_directory(program, sizeof(program));
	find_loaded(s->soname, add_loaded, s);
	find_loaded(s->soname, add_rpath, s);
	if (path)
		add_list(s, "LD_LIBRARY_PATH", path, ":;", program);
	find_loaded(s->soname, add_runpath, s);
	if (find_cache_visit(soname, add_cached, s))
		s->no_memory = true;
	if (find_is_runtime(soname)) {
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
			.state = find_file_state(s.files[i].path, soname),
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

int find_real_nvml(char *path, size_t size)
{
	return find_real(FIND_NVML, path, size);
}

void *find_function(void *library, const char *name)
{
	static void *(*of_libc)(void *, const char *);
	__typeof__(of_libc) look_up = __atomic_load_n(&of_libc, __ATOMIC_RELAXED);

	if (!look_up) {
		void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);

		look_up = libc ? (__typeof__(look_up))dlvsym(libc, "dlsym", "GLIBC_2.34") : NULL;
		if (!look_up)
			look_up = dlsym;
		__atomic_store_n(&of_libc, look_up, __ATOMIC_RELAXED);
	}
	return look_up(library, name);
}

void *find_open_driver(const char *path)
{
	char name[sizeof(FIND_ITSELF) + PATH_MAX];

	/* An absolute path, so that the loader does not match it with a face's soname. */
	snprintf(name, sizeof(name), FIND_ITSELF "%s", path);
	return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

int find_real_runtime(const char *soname, char *path, size_t size)
{
	return find_real(soname, path, size);
}

/* A text for messages, e.g. "one of cudaw's own libraries". */
static const char *state_text(enum find_state state)
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

/* A message under construction, cut off where its space ends. */
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
		append(arg, " (%s)", state_text(place->state));
	return 0;
}

void find_explain(const char *soname, char *text, size_t size)
{
	enum setting_id id = override_setting(soname);
	const char *variable = settings[id].name, *override = setting_text(id);
	struct message m = {text, size};

	*text = '\0';
	if (override) {
		append(&m, "%s=%s: %s", variable, override,
		       state_text(find_file_state(override, soname)));
		return;
	}
	append(&m, "no real %s (set %s to its path); looked in " FIND_CACHE, soname, variable);
	if (find_places(soname, append_place, &m))
		append(&m, " and ran out of memory");
}
