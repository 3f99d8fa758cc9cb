/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/driver.h"
#include "calls.h"
#include "checkpoint/control.h"
#include "checkpoint/gate.h"
#include "checkpoint/signals.h"
#include "libcuda_names.h"
#include "vmem/addressing.h"
#include "vmem/translate.h"
#include "vmem/vmem.h"
#include "wrapper/find.h"
#include "wrapper/graphs.h"
#include "wrapper/modes.h"
#include "wrapper/trace_calls.h"
#include "wrapper/tramp.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LOG_PREFIX "driver: "
#include "vmem/log.h"

static const char *const names[] = {LIBCUDA_EXPORTS(TRAMP_NAME)};
#define NEXPORTS (sizeof(names) / sizeof(names[0]))

/* Real address -> ours, open addressing; written while binding, and "ours" once more by cuInit(). */
#define SWAP_SLOTS 2048
_Static_assert(SWAP_SLOTS >= 2 * NEXPORTS, "the table of swaps is too small");
static struct {
	void *real, *ours;
} swaps[SWAP_SLOTS];

static pthread_mutex_t bind_lock = PTHREAD_MUTEX_INITIALIZER;
static bool bound; /* under bind_lock */
static struct cuda_driver table;
static bool table_ok;

/* What was bound. */
static struct {
	void *found[NEXPORTS]; /* in the real driver */
	bool have_driver, traced;
	unsigned int modes;
} binding;

static size_t swap_slot(const void *fn)
{
	size_t slot = ((uintptr_t)fn >> 4) * 0x9e3779b97f4a7c15UL >> 32;

	while (swaps[slot % SWAP_SLOTS].real && swaps[slot % SWAP_SLOTS].real != fn)
		slot++;
	return slot % SWAP_SLOTS;
}

void *driver_swap(void *fn)
{
	void *ours = fn ? __atomic_load_n(&swaps[swap_slot(fn)].ours, __ATOMIC_RELAXED) : NULL;

	return ours ? ours : fn;
}

static CUresult no_driver(void)
{
	return CUDA_ERROR_NO_DEVICE;
}

/* Programs print what this returns without looking at the result. */
static CUresult no_driver_text(CUresult error, const char **text)
{
	*text = error ? "no CUDA driver was found" : "no error";
	return CUDA_SUCCESS;
}

static CUresult not_in_driver(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* What stands in for an export that the real driver lacks, or for all without a driver. */
static void *stand_in(const char *name, bool have_driver)
{
	if (have_driver)
		return (void *)not_in_driver;
	return strncmp(name, "cuGetError", 10) ? (void *)no_driver : (void *)no_driver_text;
}

/* Threads that bind at once fail alike: say it once. */
static void report(const char *text)
{
	static bool reported;

	if (!__atomic_exchange_n(&reported, true, __ATOMIC_RELAXED))
		pr_err("%s", text);
}

static void *open_driver(void)
{
	char path[PATH_MAX], text[1024];
	void *lib;

	if (find_real_driver(path, sizeof(path))) {
		find_explain(FIND_DRIVER, text, sizeof(text));
		report(text);
		return NULL;
	}
	/* An absolute path: the loader does not take our own soname for it. */
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		report(dlerror());
	else
		pr_info("the real driver is %s", path);
	return lib;
}

/* The function of ours that answers in place of @fn, which it will call; or @fn itself. */
static void *put_before(void *fn, const struct driver_call *call)
{
	if (!call->fn)
		return fn;
	*call->real = fn;
	return call->fn;
}

static void *in_modes(void *fn, const struct mode_call *call, unsigned int modes)
{
	if (modes & MODE_TRANSLATED && call->translated)
		return call->translated;
	if (modes & MODE_CHECK && call->checked)
		return call->checked;
	return modes & MODE_IMAGES && call->images ? call->images : fn;
}

/* Bind export @i; as long as that is not @final, pointers to it are to what may change. */
static void bind_export(size_t i, bool final)
{
	const struct mode_call *modes = &mode_calls[i];
	void *found = binding.found[i], *fn = found, *given;

	if (fn)
		fn = put_before(fn, &driver_calls[i]);
	if (fn)
		fn = in_modes(fn, modes, binding.modes);
	if (fn && binding.traced)
		fn = put_before(fn, &trace_calls[i]);
	given = !final && (modes->images || modes->translated) ? libcuda_exports[i] : fn;
	if (found && given != found) {
		size_t slot = swap_slot(found);

		swaps[slot].real = found;
		__atomic_store_n(&swaps[slot].ours, given, __ATOMIC_RELAXED);
	}
	tramp_set(&libcuda_targets[i], fn ? fn : stand_in(names[i], binding.have_driver));
}

static int start_translation(const char *why)
{
	if (translate_driver(&table))
		return -ENOMEM;
	addressing_set_translated(why);
	engine_set_moves(&graphs_moves);
	pr_info("addresses are translated%s%s", *why ? ": " : "", why);
	return 0;
}

/*
 * The first call may come from a constructor, under the loader's lock, while another thread binds:
 * so everything that takes the loader's lock (dlopen, dlsym) is done before bind_lock is taken.
 */
void libcuda_bind(void)
{
	const char *missing = "memory for its tables";
	struct cuda_driver drv;
	void *lib = open_driver();
	bool can_pause = lib && !cuda_driver_fill(&drv, lib, &missing);
	bool traced = trace_is_wanted();
	void *found[NEXPORTS];

	for (size_t i = 0; i < NEXPORTS; i++)
		found[i] = lib ? dlsym(lib, names[i]) : NULL;
	pthread_mutex_lock(&bind_lock);
	if (bound) {
		pthread_mutex_unlock(&bind_lock);
		return;
	}
	memcpy(binding.found, found, sizeof(found));
	binding.have_driver = lib;
	binding.traced = traced;
	binding.modes = modes_read();
	if (can_pause) {
		table = drv;
		table_ok = !(binding.modes & MODE_TRANSLATED && start_translation("")) &&
			   !vmem_init(&table);
		if (binding.modes & (MODE_CHECK | MODE_TRANSLATED))
			vmem_watch();
	}
	if (lib && !table_ok)
		pr_err("jobs run, but cannot be paused: the driver lacks %s", missing);
	for (size_t i = 0; i < NEXPORTS; i++)
		bind_export(i, !table_ok || addressing_asked() != ADDRESSING_ANY);
	bound = true;
	pthread_mutex_unlock(&bind_lock);
}

/*
 * After cuInit() and before it returns: there is no context yet, and so neither memory nor GPU code.
 * Where the devices cannot map, addresses are translated, unless the user asked for others.
 */
static void decide_addressing(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static bool decided;
	char why[160];

	if (!table_ok || addressing_asked() != ADDRESSING_ANY)
		return;
	pthread_mutex_lock(&lock);
	if (!decided && addressing_cannot_map(&table, why, sizeof(why)) &&
	    !start_translation(why)) {
		vmem_watch();
		binding.modes |= MODE_TRANSLATED | MODE_IMAGES;
	}
	for (size_t i = 0; i < NEXPORTS && !decided; i++)
		bind_export(i, true);
	decided = true;
	pthread_mutex_unlock(&lock);
}

const struct cuda_driver *driver_table(void)
{
	return table_ok ? &table : NULL;
}

CUresult hook_cuInit(unsigned int flags)
{
	CUresult result = real.cuInit(flags);

	if (!result) {
		decide_addressing();
		trace_start();
	}
	if (!result && table_ok)
		control_start(&table);
	return result;
}

CUresult hook_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
				  CUdriverProcAddressQueryResult *symbolStatus)
{
	CUresult result = real.cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, symbolStatus);

	if (!result && pfn)
		*pfn = driver_swap(*pfn);
	return result;
}

CUresult hook_cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	CUresult result = real.cuGetProcAddress(symbol, pfn, cudaVersion, flags);

	if (!result && pfn)
		*pfn = driver_swap(*pfn);
	return result;
}

__attribute__((constructor)) static void on_load(void)
{
	signals_init();
}
