/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens libraries in each way that dlopen() has, and says what comes of it.
 *
 *	opening WAY NAME...	for a driver: makes a context and allocates, and says how many control threads of
 *				cudaw the process has; for another library: its path, or dlerror()
 *
 * TEST_LIBRARY names libs/opener.so. "exec NAME" does "now NAME" in a program without LD_LIBRARY_PATH.
 */
#include "tests/guests/programs/guest.h"

#include <dlfcn.h>
#include <link.h>

typedef void *(*open_fn)(const char *name, int flags);

static void use_driver(void *lib)
{
	CUcontext context;
	CUdeviceptr data;

#define FUNCTION(name) ((__typeof__(&(name)))dlsym(lib, #name))
	CALL(FUNCTION(cuInit)(0));
	CALL(FUNCTION(cuDevicePrimaryCtxRetain)(&context, 0));
	CALL(FUNCTION(cuCtxSetCurrent)(context));
	CALL(FUNCTION(cuMemAlloc_v2)(&data, 1 << 20));
	CALL(FUNCTION(cuMemsetD8_v2)(data, 7, 1 << 20));
	printf("a driver, %d control threads\n", guest_count_threads(NULL));
	if (getenv("TEST_POINT"))
		guest_point();
}

static void say(const char *name, void *lib)
{
	struct link_map *map;
	Lmid_t ns;

	if (!lib) {
		const char *error = dlerror();

		printf("%s: no library: %s\n", name, error ? error : "no error");
	} else if (dlsym(lib, "cuInit")) {
		use_driver(lib);
	} else {
		MUST(dlinfo(lib, RTLD_DI_LINKMAP, &map));
		MUST(dlinfo(lib, RTLD_DI_LMID, &ns));
		printf("%s: %s%s\n", name, map->l_name, ns == LM_ID_BASE ? "" : ", in a namespace");
	}
	if (dlerror())
		printf("%s: an error is left\n", name);
}

static void *in_namespace(const char *name, int flags)
{
	return dlmopen(LM_ID_NEWLM, name, flags);
}

static void *in_base(const char *name, int flags)
{
	return dlmopen(LM_ID_BASE, name, flags);
}

static open_fn library(int flags)
{
	void *lib = dlopen(getenv("TEST_LIBRARY"), RTLD_NOW | flags);

	if (!lib)
		step_die("opening: %s", dlerror());
	return (open_fn)dlsym(lib, "opener_open");
}

static open_fn way(const char *name, int *flags)
{
	*flags = RTLD_NOW;
	if (!strcmp(name, "deepbind"))
		*flags |= RTLD_DEEPBIND;
	else if (!strcmp(name, "global"))
		*flags = RTLD_LAZY | RTLD_GLOBAL;
	else if (!strcmp(name, "noload"))
		*flags |= RTLD_NOLOAD;
	else if (!strcmp(name, "namespace"))
		return in_namespace;
	else if (!strcmp(name, "base"))
		return in_base;
	else if (!strcmp(name, "library"))
		return library(0);
	else if (!strcmp(name, "deep-library"))
		return library(RTLD_DEEPBIND);
	else if (strcmp(name, "now") != 0)
		step_die("opening: expected a way, found '%s'", name);
	return dlopen;
}

int main(int argc, char **argv)
{
	open_fn fn;
	int flags;

	setlinebuf(stdout);
	if (argc > 2 && !strcmp(argv[1], "exec")) {
		char *args[] = {argv[0], "now", argv[2], NULL};

		setenv("LD_LIBRARY_PATH", "/nonexistent", 1);
		MUST(execv("/proc/self/exe", args));
	}
	if (argc < 3)
		step_die("usage: opening WAY NAME...");
	fn = way(argv[1], &flags);
	for (int i = 2; i < argc; i++) {
		void *lib;

		errno = 77;
		lib = fn(argv[i], flags);
		if (lib && errno != 77)
			printf("%s: errno was %d\n", argv[i], errno);
		say(argv[i], lib);
	}
	return 0;
}
