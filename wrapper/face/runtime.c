/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A runtime face: libcudart.so.13, .12 or .11.0 (CUDART_SONAME says which), every function of
 * which is a trampoline (tramp.h) to the program's real libcudart of the same major version.
 *
 * The face uses nothing of the driver face, but is linked to it: the loader brings both in, and
 * the real runtime's dlopen("libcuda.so.1") then gets the driver face.
 */
#define LOG_PREFIX "cudart: "
#include "libcudart_names.h"
#include "common/environment.h"
#include "common/log.h"
#include "common/find/find.h"
#include "wrapper/face/tramp.h"

#include <dlfcn.h>
#include <driver_types.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

#ifndef CUDART_SONAME
#error "CUDART_SONAME must be the name of the library that this face replaces"
#endif

static const char *const names[] = {LIBCUDART_EXPORTS(TRAMP_NAME)};

/*
 * The substitutes for functions that are missing. Without a real runtime all of them fail as on a
 * machine without a driver, which programs know how to handle. A function that the real runtime is
 * too old for fails as on a machine that does not support it.
 */
static cudaError_t no_runtime(void)
{
	return cudaErrorInsufficientDriver;
}

static cudaError_t not_in_runtime(void)
{
	return cudaErrorNotSupported;
}

static void do_nothing(void)
{
}

static const char *error_name(cudaError_t error)
{
	return error ? "cudaErrorInsufficientDriver" : "cudaSuccess";
}

static const char *error_string(cudaError_t error)
{
	return error ? "no CUDA runtime was found (" CUDART_SONAME ")" : "no error";
}

/* The compiler's constructors store the handle and hand it back, but never look inside. */
static void **register_fatbin(void)
{
	static void *handle;

	return &handle;
}

static struct cudaChannelFormatDesc create_channel_desc(int x, int y, int z, int w,
							enum cudaChannelFormatKind kind)
{
	return (struct cudaChannelFormatDesc){x, y, z, w, kind};
}

/* The functions that do not return an error code. */
static const struct fallback {
	const char *name;
	void *function;
} fallbacks[] = {
	{"cudaGetErrorName", (void *)error_name},
	{"cudaGetErrorString", (void *)error_string},
	{"cudaCreateChannelDesc", (void *)create_channel_desc},
	{"__cudaRegisterFatBinary", (void *)register_fatbin},
	{"__cudaRegisterFatBinaryEnd", (void *)do_nothing},
	{"__cudaUnregisterFatBinary", (void *)do_nothing},
	{"__cudaRegisterFunction", (void *)do_nothing},
	{"__cudaRegisterHostVar", (void *)do_nothing},
	{"__cudaRegisterManagedVar", (void *)do_nothing},
	{"__cudaRegisterSurface", (void *)do_nothing},
	{"__cudaRegisterTexture", (void *)do_nothing},
	{"__cudaRegisterUnifiedTable", (void *)do_nothing},
	{"__cudaRegisterVar", (void *)do_nothing},
};

static void *fallback(const char *name, bool have_runtime)
{
	for (size_t i = 0; i < sizeof(fallbacks) / sizeof(*fallbacks); i++)
		if (!strcmp(fallbacks[i].name, name))
			return fallbacks[i].function;
	return have_runtime ? (void *)not_in_runtime : (void *)no_runtime;
}

/* Threads that bind at the same time fail alike. */
static void *open_real_runtime(void)
{
	char path[PATH_MAX], why[768];
	void *real;

	if (find_real_runtime(CUDART_SONAME, path, sizeof(path))) {
		find_explain(CUDART_SONAME, why, sizeof(why));
		pr_err_once("%s", why);
		return NULL;
	}
	/* An absolute path: the loader does not compare it with the sonames of what is loaded. */
	real = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!real)
		pr_err_once("%s", dlerror());
	else
		pr_info("%s is %s", CUDART_SONAME, path);
	return real;
}

/*
 * No lock, and the library is never closed. The first call may come from a constructor, under the
 * loader's lock, while another thread binds and waits for that very lock in dlopen(); a lock of
 * our own around dlopen() would make that a deadlock. Threads that meet here do the same work and
 * store the same pointers.
 */
void libcudart_bind(void)
{
	size_t missing = 0;
	void *real;

	environment_keep();
	real = open_real_runtime();
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		void *function = real ? find_function(real, names[i]) : NULL;

		if (!function) {
			function = fallback(names[i], real);
			missing++;
		}
		tramp_set(&libcudart_targets[i], function);
	}
	if (real && missing)
		pr_info("%s lacks %zu of %zu functions", CUDART_SONAME, missing,
			sizeof(names) / sizeof(*names));
}
