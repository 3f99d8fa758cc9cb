/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For each NAME: where cuGetProcAddress_v2(NAME) leads. "face" is the libcuda.so.1 that the program
 * was started with, "other" the real one, "none" neither.
 *
 *	procaddr NAME...
 */
#include <cuda.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char *file_of(void *address)
{
	Dl_info info;

	return address && dladdr(address, &info) ? info.dli_fname : "";
}

int main(int argc, char **argv)
{
	void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	const char *face = file_of(dlsym(self, "cuInit"));

	if (!*face || cuInit(0))
		return 1;
	for (int i = 1; i < argc; i++) {
		CUdriverProcAddressQueryResult status;
		void *fn = NULL;
		const char *file;

		if (cuGetProcAddress_v2(argv[i], &fn, 13000, CU_GET_PROC_ADDRESS_DEFAULT, &status))
			fn = NULL;
		file = file_of(fn);
		printf("%s %s\n", argv[i],
		       !*file ? "none" : (strcmp(file, face) ? "other" : "face"));
	}
	return 0;
}
