/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU code that is loaded, over a driver that knows nothing but parameters. */
#include "calls.h"
#include "kparams/kparams.h"
#include "tests/check_suite.h"
#include "vmem/context_gone.h"
#include "wrapper/kernels/images.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FIXTURES  "tests/kparams/fixtures/"
#define HANDLE(n) ((void *)(uintptr_t)(0x1000 + 16 * (n)))
#define MODULE    HANDLE(1)
#define LIBRARY   HANDLE(2)
#define FUNCTION  HANDLE(3)
#define KERNEL    HANDLE(4)

/* What the driver says of every function: sizes, 0 behind the last; offsets as C has them. */
static size_t sizes[8];
static unsigned int asked; /* how often */
static CUcontext current = HANDLE(100);

static CUresult param_info(size_t i, size_t *offset, size_t *size)
{
	__atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED);
	*offset = 0;
	for (size_t k = 0; k <= i; k++) {
		if (!sizes[k])
			return CUDA_ERROR_INVALID_VALUE;
		*offset = (*offset + sizes[k] - 1) / sizes[k] * sizes[k];
		*size = sizes[k];
		if (k < i)
			*offset += sizes[k];
	}
	return CUDA_SUCCESS;
}

static CUresult func_param_info(CUfunction f, size_t i, size_t *offset, size_t *size)
{
	ck_assert_ptr_ne(f, KERNEL);
	return param_info(i, offset, size);
}

static CUresult kernel_param_info(CUkernel kernel, size_t i, size_t *offset, size_t *size)
{
	ck_assert_ptr_eq(kernel, KERNEL);
	return param_info(i, offset, size);
}

static const char *name_in_driver = "_Z1fPiS_";

static CUresult func_name(const char **name, CUfunction f)
{
	(void)f;
	*name = name_in_driver;
	return CUDA_SUCCESS;
}

static CUresult func_module(CUmodule *module, CUfunction f)
{
	(void)f;
	*module = MODULE;
	return CUDA_SUCCESS;
}

/* What another thread does while the driver is asked. */
static void (*meanwhile)(void);

static CUresult get_current(CUcontext *ctx)
{
	void (*other)(void) = __atomic_exchange_n(&meanwhile, NULL, __ATOMIC_RELAXED);

	if (other)
		other();
	*ctx = current;
	return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *dev)
{
	*dev = 0;
	return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
	(void)dev;
	*value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0;
	return CUDA_SUCCESS;
}

/* A digit for each parameter; G is 16. */
static void driver_says(const char *digits)
{
	size_t n = strlen(digits);

	ck_assert_uint_lt(n, sizeof(sizes) / sizeof(sizes[0]));
	for (size_t i = 0; i < n; i++)
		sizes[i] = digits[i] == 'G' ? 16 : digits[i] - '0';
	sizes[n] = 0;
}

static char *load(const char *name)
{
	char path[256];
	char *data = calloc(1, 1 << 20);
	FILE *file;

	snprintf(path, sizeof(path), FIXTURES "%s", name);
	file = fopen(path, "rb");
	ck_assert_msg(file != NULL, "%s: run me in the top directory", path);
	ck_assert_uint_gt(fread(data, 1, 1 << 20, file), 0);
	fclose(file);
	return data;
}

/* What the loader is taken to have mapped besides. */
static ElfW(Phdr) mapped = {.p_type = PT_LOAD, .p_flags = PF_R};

int dl_iterate_phdr(int (*visit)(struct dl_phdr_info *, size_t, void *), void *arg)
{
	__typeof__(dl_iterate_phdr) *next = (__typeof__(next))dlsym(RTLD_NEXT, "dl_iterate_phdr");
	struct dl_phdr_info object = {.dlpi_name = "", .dlpi_phdr = &mapped, .dlpi_phnum = 1};
	int ret = mapped.p_memsz ? visit(&object, sizeof(object), arg) : 0;

	return ret ? ret : next(visit, arg);
}

static void setup(void)
{
	real.cuFuncGetParamInfo = func_param_info;
	real.cuKernelGetParamInfo = kernel_param_info;
	real.cuFuncGetName = func_name;
	real.cuCtxGetCurrent = get_current;
	real.cuCtxGetDevice = get_device;
	real.cuDeviceGetAttribute = get_attribute;
	driver_says("88888");
}

/* Load a fixture as @handle; the memory that it was in is gone then. */
static void load_fixture(enum images_kind kind, void *handle, const char *name)
{
	char *data = load(name);

	images_load(kind, handle, data);
	memset(data, 'x', 1 << 20);
	free(data);
}

static const struct kp_kernel *layout_of(void *function)
{
	return images_layout(function);
}

static void check_params(const struct kp_kernel *kernel, const char *name, const char *holds)
{
	ck_assert_str_eq(kernel->name, name);
	ck_assert_uint_eq(kernel->nparams, strlen(holds));
	for (uint32_t i = 0; i < kernel->nparams; i++)
		ck_assert_msg(".Pn"[kernel->params[i].holds] == holds[i], "parameter %u of %s", i,
			      name);
}

START_TEST(every_kind_of_image)
{
	static const char *const files[] = {"small-stored.fatbin", "small-lz4.fatbin",
					    "small-zstd.fatbin", "small.cubin", "small.ptx"};

	driver_says("G8");
	load_fixture(IMAGES_MODULE, MODULE, files[_i]);
	images_name(IMAGES_FUNCTION, FUNCTION, MODULE, "_Z4fill4Pairl");
	check_params(layout_of(FUNCTION), "_Z4fill4Pairl", ".n");
	ck_assert_uint_eq(layout_of(FUNCTION)->params[1].offset, 16);
	ck_assert_uint_eq(layout_of(FUNCTION)->params[0].source, KP_FROM_NOBODY);
}
END_TEST

START_TEST(images_in_files)
{
	images_load_file(IMAGES_MODULE, MODULE, FIXTURES "kernels.fatbin");
	images_name(IMAGES_FUNCTION, FUNCTION, MODULE, "k_pointers");
	check_params(layout_of(FUNCTION), "k_pointers", "PPPP.");
	images_load_file(IMAGES_LIBRARY, LIBRARY, FIXTURES "missing");
	images_name(IMAGES_KERNEL, KERNEL, LIBRARY, "k_pointers");
	check_params(layout_of(KERNEL), "k_pointers", ".....");
}
END_TEST

/* What a program has of its own is not copied, and its wrapper tells where it is. */
START_TEST(wrappers)
{
	static char container[1 << 20];
	static struct {
		uint32_t magic, version;
		const void *data, *more;
	} wrapper = {0x466243b1, 1, container, NULL};
	void *heap = malloc(sizeof(wrapper));
	char *data = load("kernels.fatbin");

	memcpy(container, data, sizeof(container));
	images_load(IMAGES_LIBRARY, LIBRARY, &wrapper);
	images_name(IMAGES_KERNEL, KERNEL, LIBRARY, "k_pointers");
	check_params(layout_of(KERNEL), "k_pointers", "PPPP.");

	/* One of which nothing is the program's own. */
	wrapper.data = data;
	memcpy(heap, &wrapper, sizeof(wrapper));
	images_load(IMAGES_MODULE, MODULE, heap);
	free(heap);
	free(data);
	images_name(IMAGES_FUNCTION, FUNCTION, MODULE, "k_pointers");
	check_params(layout_of(FUNCTION), "k_pointers", "PPPP.");
}
END_TEST

/* As of a device-linked program of PTX alone: its own container is empty. */
START_TEST(prelinked_containers)
{
	static const char empty[16] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16};
	const size_t size = 1 << 20;
	void *lib = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const void *prelinked[2] = {lib, NULL};
	const struct {
		uint32_t magic, version;
		const void *data, *const *more;
	} wrapper = {0x466243b1, 2, empty, prelinked};
	char *data = load("kernels.fatbin");

	memcpy(lib, data, size);
	free(data);
	mprotect(lib, size, PROT_READ);
	if (_i) { /* where it lies */
		mapped.p_vaddr = (uintptr_t)lib;
		mapped.p_memsz = size;
	}
	real.cuKernelGetParamInfo = NULL;
	images_load(IMAGES_LIBRARY, LIBRARY, &wrapper);
	prelinked[0] = NULL;
	if (!_i)
		munmap(lib, size);
	images_name(IMAGES_KERNEL, KERNEL, LIBRARY, "k_pointers");
	check_params(layout_of(KERNEL), "k_pointers", "PPPP.");
	if (!_i)
		return;
	munmap(lib, size);
	mapped.p_memsz = 0;
	images_name(IMAGES_KERNEL, HANDLE(7), LIBRARY, "k_scalars");
	check_params(layout_of(HANDLE(7)), "", "");
}
END_TEST

/* Where a library has it, and goes without an unload. */
START_TEST(an_image_that_goes)
{
	const size_t size = 1 << 20;
	char *data = load("kernels.fatbin");
	void *lib = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(lib, data, size);
	free(data);
	mprotect(lib, size, PROT_READ);
	mapped.p_vaddr = (uintptr_t)lib;
	mapped.p_memsz = size;
	real.cuFuncGetParamInfo = NULL;
	images_load(IMAGES_MODULE, MODULE, lib);
	images_name(IMAGES_FUNCTION, FUNCTION, MODULE, "k_pointers");
	images_name(IMAGES_FUNCTION, HANDLE(7), MODULE, "k_scalars");
	images_name(IMAGES_FUNCTION, HANDLE(8), MODULE, "k_scalars");
	check_params(layout_of(FUNCTION), "k_pointers", "PPPP.");
	munmap(lib, size);
	mapped.p_memsz = 0;
	check_params(layout_of(HANDLE(7)), "", "");
	/* Another one lies there. */
	ck_assert_ptr_eq(mmap(lib, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 lib);
	mapped.p_memsz = size;
	check_params(layout_of(HANDLE(8)), "", "");
	munmap(lib, size);
	mapped.p_memsz = 0;
}
END_TEST

/* As by a program that loads one module after the other from one place. */
START_TEST(an_image_that_is_written_over)
{
	static char place[1 << 20];
	char *data = load("kernels.fatbin");

	memcpy(place, data, sizeof(place));
	free(data);
	images_load(IMAGES_MODULE, MODULE, place);
	memset(place, 'x', sizeof(place));
	images_name(IMAGES_FUNCTION, FUNCTION, MODULE, "k_pointers");
	check_params(layout_of(FUNCTION), "k_pointers", "PPPP.");
}
END_TEST

START_TEST(the_driver_is_right)
{
	load_fixture(IMAGES_MODULE, MODULE, "kernels.fatbin");
	images_name(IMAGES_FUNCTION, FUNCTION, MODULE, "k_pointers");
	driver_says("884");
	check_params(layout_of(FUNCTION), "k_pointers", "..n");
	ck_assert_uint_eq(layout_of(FUNCTION)->params[2].offset, 16);
}
END_TEST

/* The name says that it is a number, the image that it is a pointer: the image is not asked. */
START_TEST(debug_logs_change_nothing)
{
	static char ptx[] =
		".version 8.7\n"
		".target sm_90\n"
		".address_size 64\n"
		".visible .entry _Z1fm(.param .u64 .ptr .global .align 8 _Z1fm_param_0)\n"
		"{\n"
		"	ret;\n"
		"}\n";

	driver_says("8");
	if (_i) {
		setenv("CUDAW_LOG", "debug", 1);
		setenv("CUDAW_LOG_FILE", "/dev/null", 1);
	}
	images_load(IMAGES_MODULE, MODULE, ptx);
	images_name(IMAGES_FUNCTION, FUNCTION, MODULE, "_Z1fm");
	check_params(layout_of(FUNCTION), "_Z1fm", "n");
	/* It would be, and say so. */
	real.cuFuncGetParamInfo = NULL;
	images_name(IMAGES_FUNCTION, HANDLE(7), MODULE, "_Z1fm");
	check_params(layout_of(HANDLE(7)), "_Z1fm", "P");
}
END_TEST

START_TEST(without_the_driver)
{
	real.cuFuncGetParamInfo = NULL;
	load_fixture(IMAGES_MODULE, MODULE, "kernels.fatbin");
	images_name(IMAGES_FUNCTION, FUNCTION, MODULE, "k_pointers");
	check_params(layout_of(FUNCTION), "k_pointers", "PPPP.");
	images_name(IMAGES_FUNCTION, HANDLE(7), MODULE, "none");
	check_params(layout_of(HANDLE(7)), "", "");
}
END_TEST

/* Of a module that was loaded unseen the names are known, and of others what the driver says. */
START_TEST(without_an_image)
{
	driver_says("88");
	images_name(IMAGES_FUNCTION, FUNCTION, MODULE, "_Z1gPvm");
	check_params(layout_of(FUNCTION), "_Z1gPvm", "Pn");
	check_params(layout_of(HANDLE(8)), "_Z1fPiS_", "PP");
	real.cuFuncGetParamInfo = NULL;
	check_params(layout_of(HANDLE(9)), "", "");
}
END_TEST

START_TEST(damaged_images)
{
	char *data = load("small.cubin");

	data[4] = 7;
	images_load(IMAGES_MODULE, MODULE, data);
	images_name(IMAGES_FUNCTION, FUNCTION, MODULE, "k_pointers");
	check_params(layout_of(FUNCTION), "k_pointers", ".....");
	free(data);
}
END_TEST

START_TEST(kernels_and_functions_share)
{
	load_fixture(IMAGES_LIBRARY, LIBRARY, "kernels.fatbin");
	images_share(IMAGES_MODULE, MODULE, LIBRARY);
	images_name(IMAGES_KERNEL, KERNEL, LIBRARY, "k_pointers");
	images_share(IMAGES_FUNCTION, FUNCTION, KERNEL);
	images_name(IMAGES_FUNCTION, HANDLE(5), MODULE, "k_pointers");
	check_params(layout_of(KERNEL), "k_pointers", "PPPP.");
	check_params(layout_of(FUNCTION), "k_pointers", "PPPP.");
	check_params(layout_of(HANDLE(5)), "k_pointers", "PPPP.");
	/* A function that outlived its context may come again as another kernel's. */
	images_name(IMAGES_KERNEL, HANDLE(6), LIBRARY, "k_none");
	images_share(IMAGES_FUNCTION, FUNCTION, HANDLE(6));
	ck_assert_str_eq(layout_of(FUNCTION)->name, "k_none");
	images_share(IMAGES_FUNCTION, FUNCTION, KERNEL);
	check_params(layout_of(FUNCTION), "k_pointers", "PPPP.");
	/* The module ends with its context; the library does not. */
	images_load(IMAGES_MODULE, MODULE, NULL);
	images_name(IMAGES_KERNEL, KERNEL, LIBRARY, "k_scalars");
	real.cuKernelGetParamInfo = NULL;
	ck_assert_uint_eq(layout_of(KERNEL)->nparams, 7);
	images_unload(LIBRARY);
	driver_says("88");
	check_params(layout_of(FUNCTION), "_Z1fPiS_", "PP");
}
END_TEST

/* Another thread may be launching with the layout. */
START_TEST(what_is_looked_up_again_stays)
{
	const struct kp_kernel *layout, *of_unseen;

	load_fixture(IMAGES_LIBRARY, LIBRARY, "kernels.fatbin");
	images_name(IMAGES_KERNEL, KERNEL, LIBRARY, "k_pointers");
	images_share(IMAGES_FUNCTION, FUNCTION, KERNEL);
	layout = layout_of(FUNCTION);
	images_name(IMAGES_FUNCTION, HANDLE(7), HANDLE(6), "k_pointers");
	of_unseen = layout_of(HANDLE(7));
	check_params(of_unseen, "k_pointers", ".....");

	/* By a module that came by a way that is not seen: it is the library's, as is now known. */
	images_name(IMAGES_FUNCTION, FUNCTION, MODULE, "k_pointers");
	ck_assert_ptr_eq(layout_of(FUNCTION), layout);
	check_params(layout, "k_pointers", "PPPP.");
	images_name(IMAGES_FUNCTION, HANDLE(5), MODULE, "k_pointers");
	check_params(layout_of(HANDLE(5)), "k_pointers", "PPPP.");
	/* By a kernel, and its module by the library. */
	name_in_driver = "k_pointers";
	images_share(IMAGES_FUNCTION, HANDLE(7), KERNEL);
	ck_assert_ptr_eq(layout_of(HANDLE(7)), of_unseen);
	images_share(IMAGES_MODULE, HANDLE(6), LIBRARY);
	ck_assert_ptr_eq(layout_of(HANDLE(7)), of_unseen);
	check_params(of_unseen, "k_pointers", ".....");

	/* All of it ends with the library. */
	images_unload(LIBRARY);
	driver_says("88");
	name_in_driver = "_Z1fPiS_";
	for (int i = 0; i < 2; i++)
		check_params(layout_of(HANDLE(i ? 7 : 3)), "_Z1fPiS_", "PP");
}
END_TEST

static void unload_library(void)
{
	load_fixture(IMAGES_LIBRARY, LIBRARY, "kernels.fatbin");
	images_unload(LIBRARY);
}

static void unload_unseen_module(void)
{
	images_unload(MODULE);
}

static void end_context(void)
{
	context_gone(current);
}

/* One that only the driver knows, as the node of a graph may have it; its handle comes again. */
START_TEST(unseen_functions_end)
{
	static void (*const ends[])(void) = {unload_library, unload_unseen_module, end_context};
	const struct kp_kernel *layout;

	/* A driver that does not tell the module. */
	real.cuFuncGetModule = _i % 2 ? func_module : NULL;
	driver_says("88");
	layout = layout_of(FUNCTION);
	check_params(layout, "_Z1fPiS_", "PP");
	/* Another thread may be launching with the layout of one that goes on. */
	unload_library();
	ck_assert_ptr_eq(layout_of(FUNCTION), layout);
	asked = 0;
	layout_of(FUNCTION);
	ck_assert_uint_eq(asked, 0);

	ends[_i / 2]();
	name_in_driver = "_Z1gPvm";
	check_params(layout_of(FUNCTION), "_Z1gPvm", "Pn");
	ends[_i / 2]();
	name_in_driver = "k_one";
	driver_says("8");
	check_params(layout_of(FUNCTION), "k_one", ".");
}
END_TEST

START_TEST(unseen_functions_of_seen_modules)
{
	real.cuFuncGetModule = func_module;
	name_in_driver = "k_pointers";
	load_fixture(IMAGES_MODULE, MODULE, "kernels.fatbin");
	check_params(layout_of(FUNCTION), "k_pointers", "PPPP.");
	images_unload(MODULE);
	check_params(layout_of(FUNCTION), "k_pointers", ".....");
}
END_TEST

/* The library goes on without it. */
START_TEST(functions_end_with_their_context)
{
	load_fixture(IMAGES_LIBRARY, LIBRARY, "kernels.fatbin");
	images_name(IMAGES_KERNEL, KERNEL, LIBRARY, "k_pointers");
	images_share(IMAGES_FUNCTION, FUNCTION, KERNEL);
	check_params(layout_of(FUNCTION), "k_pointers", "PPPP.");
	check_params(layout_of(KERNEL), "k_pointers", "PPPP.");
	context_gone(current);
	driver_says("88");
	check_params(layout_of(FUNCTION), "_Z1fPiS_", "PP");
	check_params(layout_of(KERNEL), "k_pointers", "PPPP.");
}
END_TEST

static void name_and_launch(void)
{
	images_name(IMAGES_FUNCTION, FUNCTION, MODULE, "_Z1fPiS_");
	check_params(layout_of(FUNCTION), "_Z1fPiS_", "PP");
}

/* Two threads have the first function of a module whose load was not seen. */
START_TEST(a_module_that_two_see_first)
{
	driver_says("88");
	meanwhile = name_and_launch;
	images_name(IMAGES_FUNCTION, HANDLE(7), MODULE, "_Z1gPvm");
	asked = 0;
	check_params(layout_of(FUNCTION), "_Z1fPiS_", "PP");
	ck_assert_uint_eq(asked, 0);
	check_params(layout_of(HANDLE(7)), "_Z1gPvm", "Pn");
}
END_TEST

/* The module of a function is of the same image. */
START_TEST(modules_of_functions)
{
	load_fixture(IMAGES_LIBRARY, LIBRARY, "kernels.fatbin");
	images_name(IMAGES_KERNEL, KERNEL, LIBRARY, "k_scalars");
	images_share(IMAGES_FUNCTION, FUNCTION, KERNEL);
	images_share(IMAGES_MODULE, MODULE, FUNCTION);
	images_name(IMAGES_FUNCTION, HANDLE(5), MODULE, "k_pointers");
	check_params(layout_of(HANDLE(5)), "k_pointers", "PPPP.");
	/* And a module that was seen stays what it is. */
	load_fixture(IMAGES_MODULE, HANDLE(6), "kernels.fatbin");
	images_name(IMAGES_FUNCTION, HANDLE(7), HANDLE(6), "k_pointers");
	images_share(IMAGES_MODULE, HANDLE(6), HANDLE(7));
	images_unload(LIBRARY);
	check_params(layout_of(HANDLE(7)), "k_pointers", "PPPP.");
}
END_TEST

static CUresult library_module(CUmodule *module, CUlibrary library)
{
	ck_assert_ptr_eq(library, LIBRARY);
	*module = MODULE;
	return CUDA_SUCCESS;
}

/* Of a library's kernel the node of a graph has the function, which nobody asked for. */
START_TEST(whose_a_function_is)
{
	real.cuFuncGetModule = func_module;
	real.cuLibraryGetModule = library_module;
	load_fixture(IMAGES_LIBRARY, LIBRARY, "kernels.fatbin");
	load_fixture(IMAGES_MODULE, HANDLE(6), "kernels.fatbin");
	images_name(IMAGES_KERNEL, KERNEL, LIBRARY, "k_pointers");
	ck_assert(images_is_of((CUfunction)KERNEL, LIBRARY));
	ck_assert(!images_is_of((CUfunction)KERNEL, HANDLE(6)));
	ck_assert(images_is_of(FUNCTION, LIBRARY));
	ck_assert(images_is_of(FUNCTION, MODULE));
	ck_assert(!images_is_of(FUNCTION, HANDLE(6)));
	ck_assert(!images_is_of(FUNCTION, HANDLE(7)));
}
END_TEST

START_TEST(each_kernel_is_asked_for_once)
{
	load_fixture(IMAGES_MODULE, MODULE, "kernels.fatbin");
	images_name(IMAGES_FUNCTION, FUNCTION, MODULE, "k_pointers");
	ck_assert_uint_eq(asked, 0);
	layout_of(FUNCTION);
	ck_assert_uint_eq(asked, 6);
	/* The program asks for it again. */
	images_name(IMAGES_FUNCTION, FUNCTION, MODULE, "k_pointers");
	layout_of(FUNCTION);
	ck_assert_uint_eq(asked, 6);
}
END_TEST

/* A handle that is given out anew is of what it was given out for last. */
START_TEST(handles_come_again)
{
	load_fixture(IMAGES_MODULE, MODULE, "kernels.fatbin");
	images_name(IMAGES_FUNCTION, FUNCTION, MODULE, "k_pointers");
	check_params(layout_of(FUNCTION), "k_pointers", "PPPP.");
	for (int i = 0; i < 3; i++) {
		if (i == 0)
			images_unload(MODULE);
		else if (i == 1)
			context_gone(current);
		driver_says("888");
		images_load(IMAGES_MODULE, MODULE, NULL);
		images_name(IMAGES_FUNCTION, FUNCTION, MODULE, "k_pointers");
		check_params(layout_of(FUNCTION), "k_pointers", "...");
		driver_says("88888");
		load_fixture(IMAGES_MODULE, MODULE, "kernels.fatbin");
		images_name(IMAGES_FUNCTION, FUNCTION, MODULE, "k_pointers");
		check_params(layout_of(FUNCTION), "k_pointers", "PPPP.");
	}
	context_gone(HANDLE(101));
	asked = 0;
	layout_of(FUNCTION);
	ck_assert_uint_eq(asked, 0);
}
END_TEST

/* Launch what stays loaded, as FUNCTION. */
static void *launch_again(void *stop)
{
	while (!__atomic_load_n((bool *)stop, __ATOMIC_RELAXED))
		ck_assert_uint_eq(layout_of(FUNCTION)->nparams, 5);
	return NULL;
}

START_TEST(threads)
{
	pthread_t launchers[3];
	bool stop = false;

	load_fixture(IMAGES_MODULE, MODULE, "kernels.fatbin");
	images_name(IMAGES_FUNCTION, FUNCTION, MODULE, "k_pointers");
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&launchers[i], NULL, launch_again, &stop), 0);
	/* Enough handles that links of their chains are used again. */
	for (int round = 0; round < 20; round++) {
		load_fixture(IMAGES_MODULE, HANDLE(6), "kernels.fatbin");
		for (int i = 0; i < 3000; i++)
			images_name(IMAGES_FUNCTION, HANDLE(1000 + i), HANDLE(6), "k_pointers");
		ck_assert_uint_eq(layout_of(HANDLE(1000 + round))->nparams, 5);
		images_unload(HANDLE(6));
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 3; i++)
		pthread_join(launchers[i], NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("images");
	TCase *tc = tcase_create("images");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_loop_test(tc, every_kind_of_image, 0, 5);
	tcase_add_test(tc, images_in_files);
	tcase_add_test(tc, wrappers);
	tcase_add_loop_test(tc, prelinked_containers, 0, 2);
	tcase_add_test(tc, the_driver_is_right);
	tcase_add_loop_test(tc, debug_logs_change_nothing, 0, 2);
	tcase_add_test(tc, without_the_driver);
	tcase_add_test(tc, without_an_image);
	tcase_add_test(tc, damaged_images);
	tcase_add_test(tc, kernels_and_functions_share);
	tcase_add_test(tc, what_is_looked_up_again_stays);
	tcase_add_loop_test(tc, unseen_functions_end, 0, 6);
	tcase_add_test(tc, unseen_functions_of_seen_modules);
	tcase_add_test(tc, functions_end_with_their_context);
	tcase_add_test(tc, a_module_that_two_see_first);
	tcase_add_test(tc, modules_of_functions);
	tcase_add_test(tc, whose_a_function_is);
	tcase_add_test(tc, each_kernel_is_asked_for_once);
	tcase_add_test(tc, handles_come_again);
	tcase_add_test(tc, an_image_that_goes);
	tcase_add_test(tc, an_image_that_is_written_over);
	tcase_add_test(tc, threads);
	suite_add_tcase(s, tc);
	return check_suite_run(s);
}
