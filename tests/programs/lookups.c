/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How each NAME is found in the driver, which the program opens as LIBRARY: by dlsym() and dlvsym()
 * before the first call, by cuGetProcAddress, and by dlsym() after it.
 *
 *	lookups LIBRARY NAME...
 */
#include <cuda.h>

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>

static void *driver;

/* Whoever is not found has an error. */
static const char *found(void *address)
{
	bool failed = dlerror();

	return address ? failed ? "wrong" : "there" : failed ? "missing" : "silent";
}

int main(int argc, char **argv)
{
	CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

	driver = dlopen(argv[1], RTLD_NOW);
	if (!driver)
		return 1;
	for (int i = 2; i < argc; i++) {
		const char *plain = found(dlsym(driver, argv[i]));

		printf("%s: dlsym %s, dlvsym %s\n", argv[i], plain,
		       found(dlvsym(driver, argv[i], "libcuda.so.1")));
	}
	get = dlsym(driver, "cuGetProcAddress_v2");
	for (int i = 2; i < argc; i++) {
		void *address = NULL;
		CUresult result = get(argv[i], &address, 13000, CU_GET_PROC_ADDRESS_DEFAULT, NULL);

		printf("%s: cuGetProcAddress %d %s, dlsym %s\n", argv[i], result,
		       address ? "there" : "missing", found(dlsym(driver, argv[i])));
	}
	return 0;
}
