/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/face/driver.h"
#include "wrapper/real.h"
#include "checkpoint/control/control.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/control/signals/signals.h"
#include "libcuda_names.h"
#include "vmem/addresses/addressing.h"
#include "common/environment.h"
#include "common/system/forks.h"
#include "vmem/addresses/translate.h"
#include "vmem/vmem.h"
#include "common/find/find.h"
#include "common/find/find_file.h"
#include "common/settings.h"
#include "wrapper/translated/graphs.h"
#include "wrapper/face/lacking.h"
#include "wrapper/face/modes.h"
#include "wrapper/trace/trace_calls.h"
#include "wrapper/face/tramp.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LOG_PREFIX "driver: "
#include "common/log.h"

static const char *const names[] = {LIBCUDA_EXPORTS(TRAMP_NAME)};
#define NEXPORTS (sizeof(names) / sizeof(names[0]))

/*
 * Real address -> ours, open addressing. Written while binding; cuInit() writes "ours" again.
 */
#define SWAP_SLOTS 2048
_Static_assert(SWAP_SLOTS >= 2 * NEXPORTS, "the table of swaps is too small");
static struct {
	void *real, *ours;
} swaps[SWAP_SLOTS];

/* What is bound. Each thread that comes while nothing is bound yet prepares its own. */
struct binding {
	void *found[NEXPORTS]; /* in the real driver */
	struct cuda_driver table;
	const char *missing; /* in the table, or NULL */
	bool have_driver, traced;
	bool relays; /* the found functions are those of the process's first face */
	unsigned int modes;
};
static struct binding binding;
static __thread const struct binding *binding_here __attribute__((tls_model("initial-exec")));
static bool table_ok;
static bool kept; /* the environment, as this process has set it by its first call */

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

/* Programs print this text without looking at the result. */
static CUresult no_driver_text(CUresult error, const char **text)
{
	*text = error ? "no CUDA driver was found" : "no error";
	return CUDA_SUCCESS;
}

static CUresult not_in_driver(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* The substitute for an export that the real driver lacks, or for all without a driver. */
static void *stand_in(const char *name, bool have_driver)
{
	if (have_driver)
		return (void *)not_in_driver;
	return strncmp(name, "cuGetError", 10) ? (void *)no_driver : (void *)no_driver_text;
}

/*
 * The first face of the process, if that is not this one: dlmopen() has loaded this one into a namespace of its
 * own, or it comes from another file than the first. A process has one gate, one control thread and one account
 * of its memory, so all calls go to the first. NULL: this is it.
 */
static void *first_face(void)
{
	struct link_map *here, *first;
	Dl_info info;

	if (!dladdr1(libcuda_targets, &info, (void **)&here, RTLD_DL_LINKMAP))
		return NULL;
	first = dlmopen(LM_ID_BASE, FIND_DRIVER, RTLD_NOW | RTLD_NOLOAD);
	if (!first || first == here || find_file_state(first->l_name, FIND_DRIVER) != FIND_FACE)
		return NULL;
	return first;
}

/*
 * The driver that the user has set, that which the program has asked for by a path, or that which the loader
 * would find. Threads that bind at once fail alike: report it once.
 */
static void *open_driver(void)
{
	char path[PATH_MAX], text[1024];
	struct link_map *map;
	void *lib = setting_text(SETTING_REAL_LIBCUDA) ? NULL : find_open_driver("");

	if (!lib && find_real_driver(path, sizeof(path))) {
		dlerror();
		find_explain(FIND_DRIVER, text, sizeof(text));
		pr_err_once("%s", text);
		return NULL;
	}
	if (!lib)
		lib = find_open_driver(path);
	if (!lib)
		pr_err_once("%s", dlerror());
	else if (!dlinfo(lib, RTLD_DI_LINKMAP, &map))
		pr_info("the real driver is %s", map->l_name);
	return lib;
}

/* Our function that takes the place of @fn, and will call it; or @fn itself. */
static void *put_before(void *fn, const struct driver_call *call)
{
	if (!call->fn)
		return fn;
	*call->real = fn;
	return call->fn;
}

static void *in_modes(void *fn, const struct mode_call *call, unsigned int modes)
{
	if (modes & MODE_MANAGED && call->managed)
		return call->managed;
	if (modes & MODE_TRANSLATED && call->translated)
		return call->translated;
	if (modes & MODE_CHECK && call->checked)
		return call->checked;
	return modes & MODE_IMAGES && call->images ? call->images : fn;
}

/* Bind export @i. cuGetProcAddress answers with the export too, as the driver does: who patches it sees all calls. */
static void bind_export(size_t i)
{
	const struct mode_call *modes = &mode_calls[i];
	void *found = binding.found[i], *fn = found;

	if (fn)
		fn = put_before(fn, &driver_calls[i]);
	if (fn)
		fn = in_modes(fn, modes, binding.modes);
	if (fn && binding.traced)
		fn = put_before(fn, &trace_calls[i]);
	if (fn != found) {
		size_t slot = swap_slot(found);

		swaps[slot].real = found;
		__atomic_store_n(&swaps[slot].ours, libcuda_exports[i], __ATOMIC_RELAXED);
	}
	tramp_set(&libcuda_targets[i], fn ? fn : stand_in(names[i], binding.have_driver));
}

static int start_translation(const char *why)
{
	if (translate_driver(&binding.table))
		return -ENOMEM;
	addressing_set_translated(why);
	graphs_start();
	pr_info("addresses are translated%s%s", *why ? ": " : "", why);
	return 0;
}

static void bind_here(void)
{
	binding = *binding_here;
	if (binding.have_driver)
		lacking_by_driver(binding.found);
	for (size_t i = 0; binding.relays && i < NEXPORTS; i++)
		tramp_set(&libcuda_targets[i],
			  binding.found[i] ? binding.found[i] : (void *)not_in_driver);
	if (binding.relays)
		return;
	binding.modes = modes_read();
	if (!binding.missing && ((binding.modes & MODE_TRANSLATED && start_translation("")) ||
				 vmem_init(&binding.table)))
		binding.missing = "memory for its tables";
	table_ok = !binding.missing;
	driver_table_set(table_ok ? &binding.table : NULL);
	if (table_ok && binding.modes & (MODE_CHECK | MODE_TRANSLATED))
		vmem_watch();
	if (binding.have_driver && !table_ok)
		pr_err("jobs run, but cannot be paused: the driver lacks %s", binding.missing);
	for (size_t i = 0; i < NEXPORTS; i++)
		bind_export(i);
}

static void keep_environment(void)
{
	if (__atomic_load_n(&kept, __ATOMIC_RELAXED))
		return;
	environment_keep();
	__atomic_store_n(&kept, true, __ATOMIC_RELAXED);
}

/* It may change its environment before its own cuInit(). */
static void forget_in_child(void)
{
	kept = false;
}
FORKS_CHILD(forget_in_child);

/*
 * The first call may come from a constructor, under the loader's lock, while another thread binds.
 * So everything that takes the loader's lock (dlopen, dlsym) is done before the wait for that
 * thread.
 *
 * If a fork comes in the middle of it, pthread_once() begins anew in the child.
 */
void libcuda_bind(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct binding here = {.missing = "all"};
	void *first, *lib;

	keep_environment();
	first = first_face();
	lib = first ? first : open_driver();
	here.have_driver = lib;
	here.traced = trace_is_wanted();
	here.relays = first;
	if (!first && lib && !cuda_driver_fill(&here.table, lib, &here.missing))
		here.missing = NULL;
	for (size_t i = 0; i < NEXPORTS; i++)
		here.found[i] = lib ? find_function(lib, names[i]) : NULL;
	binding_here = &here;
	pthread_once(&once, bind_here);
}

/*
 * Called after the real cuInit(), before ours returns: there is no context yet, and so neither
 * memory nor GPU code. If the devices cannot map, addresses are translated, unless the user chose
 * another addressing.
 */
static void decide_addressing(void)
{
	char why[160];

	if (!table_ok || addressing_asked() != ADDRESSING_ANY)
		return;
	if (addressing_cannot_map(&binding.table, why, sizeof(why)) && !start_translation(why)) {
		vmem_watch();
		binding.modes |= MODE_TRANSLATED | MODE_IMAGES;
	}
	for (size_t i = 0; i < NEXPORTS; i++)
		bind_export(i);
}

CUresult hook_cuInit(unsigned int flags)
{
	static pthread_once_t decided = PTHREAD_ONCE_INIT;
	CUresult result = real.cuInit(flags);

	if (result)
		pr_warn("cuInit: error %d", result);
	if (result || !forks_adopt())
		return result;
	keep_environment();
	pthread_once(&decided, decide_addressing);
	trace_start();
	if (table_ok)
		control_start(&binding.table);
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
	lacking_by_file();
	if (first_face())
		return;
	forks_watch();
	signals_init();
}
