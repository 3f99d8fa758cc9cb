/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways to the driver that are not the name libcuda.so.1: libcuda.so, the name of its file, a path, a link.
 *
 * "cudaw run" gives this library to the loader as an auditor (LD_AUDIT, rtld-audit(7)). The loader asks it
 * for each name that dlopen(), dlmopen() or a DT_NEEDED entry brings, and for each file that it is about
 * to try, whoever asks. If the file is a driver, which its DT_SONAME says, it gets the path of our face
 * instead, which is loaded already, unless a driver asks itself: that of WSL is two files, of which one
 * loads the other. All other names are given back as they came, so that search, results
 * and errors are the loader's own. A wrapper of dlopen() would not see calls of libraries that were loaded
 * with RTLD_DEEPBIND or into another namespace, and glibc would search the RUNPATH of the wrapper.
 *
 * A name that begins with FIND_ITSELF (common/find/find.h) is ours: it asks for the driver itself, or, with nothing
 * behind it, for the driver that the program asked for first.
 *
 * The loader gives an auditor a namespace of its own. So that a second C library does not have to be
 * loaded into each process of a job, this one needs none (syscalls.c), and knows no functions of the
 * process. It runs under the loader's lock, on whatever stack the program has.
 */
#include "common/find/find.h"
#include "common/find/find_file.h"

#include <limits.h>
#include <link.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* The face's path; NULL: the process has none, and so nothing is ours. */
static const char *face;

/* The absolute path of the first driver in whose place the program got the face; "": there is none. */
static char asked[PATH_MAX];

EXPORT unsigned int la_version(unsigned int version)
{
	/* What is used here is the same in all versions. Later ones may not be. */
	return version < LAV_CURRENT ? version : LAV_CURRENT;
}

static const char *last_part(const char *path)
{
	const char *last = path;

	for (; *path; path++)
		if (*path == '/')
			last = path + 1;
	return last;
}

/* The toolkit's driver for linkers, all of whose calls fail. */
static bool is_stub(const char *path)
{
	size_t size = last_part(path) - path;

	return size >= 7 && !memcmp(path + size - 7, "/stubs/", 7);
}

/* The face stays loaded, and so does its name. One in another namespace is not the first (driver.c). */
EXPORT unsigned int la_objopen(struct link_map *map, Lmid_t ns, uintptr_t *cookie)
{
	(void)cookie;
	if (!face && ns == LM_ID_BASE && !strcmp(last_part(map->l_name), FIND_DRIVER) &&
	    find_file_state(map->l_name, FIND_DRIVER) == FIND_FACE)
		face = map->l_name;
	return 0;
}

static bool is_driver(const char *name, unsigned int flag)
{
	if (flag != LA_SER_ORIG || strchr(name, '/'))
		return find_file_is_driver(name);
	/* Found or not: a driver's package has this name for those who build programs, if at all. */
	return !strcmp(name, "libcuda.so");
}

/* The loader sets the cookie of a library to its map (rtld-audit(7)). */
static bool is_of_driver(const uintptr_t *cookie)
{
	return find_file_is_driver(((const struct link_map *)*cookie)->l_name);
}

/* A path that is relative is one of now: the program may change its working directory. */
static void note_asked(const char *name)
{
	size_t size = strlen(name) + 1, before = 0;

	if (*name != '/' && getcwd(asked, sizeof(asked)) && *asked == '/') {
		before = strlen(asked);
		asked[before++] = '/';
	}
	if ((*name == '/' || before) && before + size <= sizeof(asked))
		memcpy(asked + before, name, size);
	else
		*asked = '\0';
}

EXPORT char *la_objsearch(const char *name, uintptr_t *cookie, unsigned int flag)
{
	size_t itself = sizeof(FIND_ITSELF) - 1;

	if (!strncmp(name, FIND_ITSELF, itself))
		return name[itself] ? (char *)name + itself : *asked ? asked : (char *)name;
	/* After a chroot() the face may have no path. */
	if (!face || !is_driver(name, flag) || !find_file_is_driver(face) || is_of_driver(cookie))
		return (char *)name;
	if (!*asked && strchr(name, '/') && !is_stub(name) &&
	    find_file_state(name, FIND_DRIVER) == FIND_REAL)
		note_asked(name);
	return (char *)face;
}
