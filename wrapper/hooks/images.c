/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that load GPU code and find kernels in it, for images.h. The hooks run outside the
 * gate: their work before and after the call takes the loader's lock, under which another thread (a
 * constructor) may wait at the gate. Linked code (cuLink*) arrives by cuModuleLoadData().
 */
#include "wrapper/real.h"
#include "checkpoint/gate/gate.h"
#include "wrapper/translated/symbols.h"
#include "vmem/addresses/translate.h"
#include "wrapper/kernels/check.h"
#include "wrapper/translated/graphs.h"
#include "wrapper/kernels/images.h"

/* The program has @handle, which is @name of @owner, and may launch it. */
static void named(enum images_kind kind, const void *handle, const void *owner, const char *name)
{
	images_name(kind, handle, owner, name);
	check_find_demangler();
}

CUresult hook_cuModuleLoad(CUmodule *module, const char *fname)
{
	CUresult result = call_cuModuleLoad(module, fname);

	if (!result)
		images_load_file(IMAGES_MODULE, *module, fname);
	return result;
}

CUresult hook_cuModuleLoadData(CUmodule *module, const void *image)
{
	CUresult result = call_cuModuleLoadData(module, image);

	if (!result)
		images_load(IMAGES_MODULE, *module, image);
	return result;
}

CUresult hook_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
				 CUjit_option *options, void **optionValues)
{
	CUresult result = call_cuModuleLoadDataEx(module, image, numOptions, options, optionValues);

	if (!result)
		images_load(IMAGES_MODULE, *module, image);
	return result;
}

CUresult hook_cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
	CUresult result = call_cuModuleLoadFatBinary(module, fatCubin);

	if (!result)
		images_load(IMAGES_MODULE, *module, fatCubin);
	return result;
}

/* @owner is about to be unloaded, by the call that follows. */
static void unloading(const void *owner)
{
	if (translate_is_on() && gate_enter(GATE_HOLD)) {
		graphs_unload(owner);
		gate_exit();
	}
	images_unload(owner);
}

CUresult hook_cuModuleUnload(CUmodule hmod)
{
	unsigned long time = symbols_time();
	CUresult result;

	unloading(hmod);
	result = call_cuModuleUnload(hmod);
	if (!result)
		symbols_remove(hmod, time);
	return result;
}

CUresult hook_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
	CUresult result = call_cuModuleGetFunction(hfunc, hmod, name);

	if (!result)
		named(IMAGES_FUNCTION, *hfunc, hmod, name);
	return result;
}

CUresult hook_cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions,
					 CUmodule mod)
{
	CUresult result = call_cuModuleEnumerateFunctions(functions, numFunctions, mod);
	unsigned int count = 0;
	const char *name;

	/* Fewer are returned if the module has no more. */
	if (!result && !call_cuModuleGetFunctionCount(&count, mod) && count > numFunctions)
		count = numFunctions;
	for (unsigned int i = 0; i < count; i++)
		if (!call_cuFuncGetName(&name, functions[i]))
			named(IMAGES_FUNCTION, functions[i], mod, name);
	return result;
}

CUresult hook_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
				void **jitOptionsValues, unsigned int numJitOptions,
				CUlibraryOption *libraryOptions, void **libraryOptionValues,
				unsigned int numLibraryOptions)
{
	CUresult result =
		call_cuLibraryLoadData(library, code, jitOptions, jitOptionsValues, numJitOptions,
				       libraryOptions, libraryOptionValues, numLibraryOptions);

	if (!result)
		images_load(IMAGES_LIBRARY, *library, code);
	return result;
}

CUresult hook_cuLibraryLoadFromFile(CUlibrary *library, const char *fileName,
				    CUjit_option *jitOptions, void **jitOptionsValues,
				    unsigned int numJitOptions, CUlibraryOption *libraryOptions,
				    void **libraryOptionValues, unsigned int numLibraryOptions)
{
	CUresult result = call_cuLibraryLoadFromFile(
		library, fileName, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
		libraryOptionValues, numLibraryOptions);

	if (!result)
		images_load_file(IMAGES_LIBRARY, *library, fileName);
	return result;
}

CUresult hook_cuLibraryUnload(CUlibrary library)
{
	unsigned long time = symbols_time();
	CUresult result;

	unloading(library);
	result = call_cuLibraryUnload(library);
	if (!result)
		symbols_remove(library, time);
	return result;
}

CUresult hook_cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
	CUresult result = call_cuLibraryGetModule(pMod, library);

	if (!result)
		images_share(IMAGES_MODULE, *pMod, library);
	return result;
}

CUresult hook_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
	CUresult result = call_cuLibraryGetKernel(pKernel, library, name);

	if (!result)
		named(IMAGES_KERNEL, *pKernel, library, name);
	return result;
}

CUresult hook_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
	CUresult result = call_cuLibraryEnumerateKernels(kernels, numKernels, lib);
	unsigned int count = 0;
	const char *name;

	if (!result && !call_cuLibraryGetKernelCount(&count, lib) && count > numKernels)
		count = numKernels;
	for (unsigned int i = 0; i < count; i++)
		if (!call_cuKernelGetName(&name, kernels[i]))
			named(IMAGES_KERNEL, kernels[i], lib, name);
	return result;
}

CUresult hook_cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
	CUresult result = call_cuKernelGetFunction(pFunc, kernel);

	if (!result)
		images_share(IMAGES_FUNCTION, *pFunc, kernel);
	return result;
}

CUresult hook_cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
	CUresult result = call_cuFuncGetModule(hmod, hfunc);

	if (!result)
		images_share(IMAGES_MODULE, *hmod, hfunc);
	return result;
}
