/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FIND_H
#define CUDAW_FIND_H
/*
 * The search for the real CUDA libraries: the files that the dynamic loader would take without
 * cudaw. It tries places in the loader's order, and places that the loader does not know last:
 *
 *	1. $CUDAW_REAL_LIBCUDA or $CUDAW_REAL_LIBCUDART. If it is set, nothing else is tried. NVML has none.
 *	2. a library of that name that the process has already loaded
 *	3. DT_RPATH of the program, and of the loaded objects that need the library
 *	4. LD_LIBRARY_PATH, where containers put the driver
 *	5. DT_RUNPATH of the objects of 3
 *	6. /etc/ld.so.cache
 *	7. NVIDIA's Python packages beside the loaded extension modules, in $VIRTUAL_ENV and beside
 *	   the interpreter (runtime only). Rule 5 leads there from modules that need the library.
 *	8. the directories of the distributions, of WSL, of containers and of the toolkit
 *
 * A file counts if it is a shared library for this kind of machine and not one of cudaw's own.
 * Those carry the ELF note "cudaw" (tramp.h), so that a face recognises every copy of itself and of
 * the other faces, under any name or link.
 *
 *	find.c		the places, in order, and the answers
 *	find_loaded.c	the objects that the process has loaded
 *	find_cache.c	the loader's cache
 *	find_file.c	one candidate: whether it is the real library
 *
 * The faces and the cudaw command use it. It has no state and makes no CUDA call. Any thread may
 * call it, also under the loader's lock. In a setuid program it ignores the environment, as the
 * loader does.
 */
#include <stddef.h>

#define FIND_DRIVER "libcuda.so.1"
#define FIND_NVML   "libnvidia-ml.so.1"

/*
 * Under "cudaw run" the loader gives our face to everybody who opens a driver, by whatever path
 * (wrapper/audit/audit.c). This before its absolute path asks for the driver itself, and alone for the
 * driver that the program was the first to ask for.
 */
#define FIND_ITSELF "/./././."

enum find_state {
	FIND_REAL,
	FIND_ABSENT,
	FIND_UNUSABLE, /* not a shared library that this process can load */
	FIND_FACE,     /* one of cudaw's own */
	FIND_OTHER,    /* a runtime of another major version */
};

struct find_place {
	const char *origin; /* the rule that led here, e.g. "LD_LIBRARY_PATH" */
	const char *path;
	enum find_state state;
};

/*
 * Put the absolute path of the real libcuda.so.1, of the real libnvidia-ml.so.1, or of the real runtime with that
 * soname (e.g. "libcudart.so.13"), in @path. Returns 0, -ENOENT if there is none, -ENAMETOOLONG or -ENOMEM.
 */
int find_real_driver(char *path, size_t size);
int find_real_nvml(char *path, size_t size);
int find_real_runtime(const char *soname, char *path, size_t size);

/*
 * dlopen() the real driver at @path, as find_real_driver() has it, or with "" the one that the program was the
 * first to ask for by another name than FIND_DRIVER, under "cudaw run". NULL: dlerror() says why.
 */
void *find_open_driver(const char *path);

/*
 * The function of a real library. As dlsym(3) of the C library: a preloaded library that replaces dlsym() answers
 * with hooks of its own, which call us.
 */
void *find_function(void *library, const char *name);

/*
 * Call @visit for every candidate for @soname, in order, until it returns non-zero. Returns its
 * last result, or -ENOMEM.
 */
int find_places(const char *soname, int (*visit)(const struct find_place *place, void *arg),
		void *arg);

/* Say in one line why @soname was not found: the override's fault, or the places tried. */
void find_explain(const char *soname, char *text, size_t size);

/*
 * Copy one entry (@len bytes) of DT_RPATH, DT_RUNPATH or LD_LIBRARY_PATH to @buf, with $ORIGIN
 * replaced by @origin; an empty entry is ".". Returns 0, -ENAMETOOLONG, or -ENOTSUP for another
 * token of the loader ($LIB, $PLATFORM).
 */
int find_expand(const char *entry, size_t len, const char *origin, char *buf, size_t size);

#endif
