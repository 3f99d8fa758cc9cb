/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that finds CUDA, or the C library, past the usual order of symbols: by dlopen() with
 * RTLD_DEEPBIND, RTLD_LOCAL, into a namespace of its own, again after dlclose(), by dlvsym().
 * TEST_LIBRARY names libs/deep.so.
 */
#include "tests/guests/programs/guest.h"

#include <dlfcn.h>

static void *cuda;

static void *function(const char *name)
{
	void *fn = dlsym(cuda, name);

	if (!fn)
		step_die("loading: %s", dlerror());
	return fn;
}

#define FUNCTION(name) ((__typeof__(&(name)))function(#name))

static void open_cuda(int flags)
{
	cuda = dlopen("libcuda.so.1", flags);
	if (!cuda)
		step_die("loading: %s", dlerror());
}

static CUcontext context;

static CUdeviceptr fill(unsigned char value)
{
	CUdeviceptr data;

	CALL(FUNCTION(cuInit)(0));
	CALL(FUNCTION(cuDevicePrimaryCtxRetain)(&context, 0));
	CALL(FUNCTION(cuCtxSetCurrent)(context));
	CALL(FUNCTION(cuMemAlloc_v2)(&data, 1 << 20));
	CALL(FUNCTION(cuMemsetD8_v2)(data, value, 1 << 20));
	CALL(FUNCTION(cuCtxSynchronize)());
	return data;
}

static void check(CUdeviceptr data, unsigned char value)
{
	static unsigned char bytes[1 << 20];

	CALL(FUNCTION(cuMemcpyDtoH_v2)(bytes, data, sizeof(bytes)));
	for (size_t i = 0; i < sizeof(bytes); i++)
		if (bytes[i] != value)
			step_die("loading: byte %zu is %u", i, bytes[i]);
	puts("memory right");
}

static void with(int flags)
{
	CUdeviceptr data;

	open_cuda(flags);
	data = fill(7);
	guest_point();
	check(data, 7);
}

static void deepbind(void)
{
	with(RTLD_NOW | RTLD_DEEPBIND);
}

static void local(void)
{
	with(RTLD_LAZY | RTLD_LOCAL);
}

static void global(void)
{
	with(RTLD_NOW | RTLD_GLOBAL);
}

/* It closes what others, ours among them, still use. */
static void closed(void)
{
	CUdeviceptr data;

	open_cuda(RTLD_NOW);
	data = fill(7);
	for (int i = 0; i < 10; i++) {
		void *kept = cuda;

		open_cuda(RTLD_NOW);
		dlclose(kept);
	}
	guest_point();
	check(data, 7);
}

static volatile sig_atomic_t got;

static void on_signal(int sig)
{
	(void)sig;
	got++;
}

static const char *name_of(__sighandler_t handler)
{
	return handler == SIG_DFL ? "default" : handler == on_signal ? "ours" : "unknown";
}

/* A library that finds its own C library's sigaction() first: what it sets is what is there. */
static void handlers(void)
{
	static const int signals[] = {SIGTERM, SIGUSR1, SIGHUP};
	void *lib = dlopen(getenv("TEST_LIBRARY"), RTLD_NOW | RTLD_DEEPBIND);
	__sighandler_t (*set)(int sig, __sighandler_t handler);
	struct sigaction act;

	if (!lib)
		step_die("loading: %s", dlerror());
	set = (__typeof__(set))dlsym(lib, "deep_set");
	for (size_t i = 0; i < 3; i++) {
		got = 0;
		printf("signal %d: was %s", signals[i], name_of(set(signals[i], on_signal)));
		MUST(sigaction(signals[i], NULL, &act));
		printf(", is %s", name_of(act.sa_handler));
		raise(signals[i]);
		printf(", came %d times", (int)got);
		printf(", was %s", name_of(signal(signals[i], on_signal)));
		raise(signals[i]);
		printf(", came %d times", (int)got);
		printf(", was %s\n", name_of(set(signals[i], SIG_DFL)));
	}
	dlclose(lib);
	raise(SIGTERM);
}

/* The symbol of the C library itself, as sanitizers and profilers look for it. */
static void by_next(void)
{
	int (*next)(int, const struct sigaction *, struct sigaction *);
	struct sigaction act = {.sa_handler = on_signal}, old;

	next = (__typeof__(next))dlvsym(RTLD_NEXT, "sigaction", "GLIBC_2.2.5");
	if (!next)
		step_die("loading: %s", dlerror());
	MUST(next(SIGTERM, &act, NULL));
	raise(SIGTERM);
	MUST(sigaction(SIGTERM, NULL, &old));
	printf("came %d times, is %s\n", (int)got, name_of(old.sa_handler));
}

int main(int argc, char **argv)
{
	static const struct guest_way ways[] = {
		{"deepbind", deepbind}, {"local", local},       {"global", global},
		{"dlclose", closed},    {"handlers", handlers}, {"next", by_next},
	};

	GUEST_RUN(ways, argc, argv);
	return 0;
}
