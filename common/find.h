/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_FIND_H
#define CUDAW_FIND_H
/*
 * Where the real CUDA libraries are: the file that the dynamic loader would have taken, had cudaw
 * not been in its way. Places are tried in the loader's own order, and what no loader knows last:
 *
 *	1. $CUDAW_REAL_LIBCUDA or $CUDAW_REAL_LIBCUDART. Nothing else is tried where it is set.
 *	2. a library of that name which the process has loaded already
 *	3. DT_RPATH of the program, and of the loaded objects that need the library
 *	4. LD_LIBRARY_PATH, where containers put the driver
 *	5. DT_RUNPATH of the same objects as in 3
 *	6. /etc/ld.so.cache
 *	7. NVIDIA's Python packages beside the loaded extension modules, in $VIRTUAL_ENV and beside
 *	   the interpreter (runtime only). Modules that need the library lead there by rule 5.
 *	8. the directories of the distributions, of WSL, of containers and of the toolkit
 *
 * A file counts when it is a shared library of this machine's kind and not one of cudaw's own.
 * Those carry the ELF note "cudaw" (tramp.h), so that a face recognises every copy of itself and
 * of the other faces, under whatever name or link they were installed.
 *
 * No state, no CUDA call; used by the faces and by the cudaw command. Any thread may call it, also
 * under the loader's lock. In a setuid program the environment is ignored, as the loader does.
 */
#include <stddef.h>

#define FIND_DRIVER "libcuda.so.1"

enum find_state {
	FIND_REAL,
	FIND_ABSENT,
	FIND_UNUSABLE, /* not a shared library that this process can load */
	FIND_FACE,     /* one of cudaw's own */
	FIND_OTHER,    /* a runtime of another major version */
};

struct find_place {
	const char *origin; /* the rule that led here, as "LD_LIBRARY_PATH" */
	const char *path;
	enum find_state state;
};

/*
 * Put the absolute path of the real libcuda.so.1, or of the real runtime with that soname (as
 * "libcudart.so.13"), in @path. Returns 0, -ENOENT where there is none, -ENAMETOOLONG or -ENOMEM.
 */
int find_real_driver(char *path, size_t size);
int find_real_runtime(const char *soname, char *path, size_t size);

/*
 * Call @visit for every file that is looked at for @soname, in order, until it returns non-zero.
 * Returns what it returned last, or -ENOMEM.
 */
int find_places(const char *soname, int (*visit)(const struct find_place *place, void *arg),
		void *arg);

/* "one of cudaw's own libraries" and the like, for messages. */
const char *find_state_text(enum find_state state);

/* Say in one line why @soname was not found: the override's fault, or the places tried. */
void find_explain(const char *soname, char *text, size_t size);

/*
 * Call @visit for each path that a ld.so.cache of @size bytes holds for @soname. Returns 0, or
 * -EBADMSG where the bytes are not a cache of this machine's kind. Nothing is read outside @data,
 * and entries that point outside it are skipped.
 */
int find_cache_lookup(const void *data, size_t size, const char *soname,
		      void (*visit)(const char *path, void *arg), void *arg);

/*
 * Copy one entry (@len bytes) of DT_RPATH, DT_RUNPATH or LD_LIBRARY_PATH to @buf, with $ORIGIN
 * replaced by @origin; an empty entry is ".". Returns 0, -ENAMETOOLONG, or -ENOTSUP for another
 * token of the loader ($LIB, $PLATFORM).
 */
int find_expand(const char *entry, size_t len, const char *origin, char *buf, size_t size);

#endif
