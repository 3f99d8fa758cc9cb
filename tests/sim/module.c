/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules, libraries and launches. An image is PTX text. Of kernels.c's kernels a module has those
 * whose name occurs in the text as a word; their code is the host function. Variables are declared
 * as in PTX: ".global .b8 name[1024];", or .const.
 */
#include "tests/sim/sim.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_KERNELS 32
#define MAX_PACKED  32768 /* bytes of parameters */

struct sim_global {
	struct sim_global *next;
	char *name;
	CUdeviceptr ptr;
	size_t size;
};

struct sim_module {
	struct sim_object obj;
	struct sim_ctx *ctx; /* NULL for a library */
	char *image;
	struct sim_global *globals;
	/*
	 * A function handle is the address of its kernel's cell; NULL where the image has it not.
	 */
	const struct sim_kernel *functions[MAX_KERNELS];
};

static bool word_char(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$';
}

/* The next occurrence of @word in @text, as a whole word. */
static const char *find_word(const char *text, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = text; (p = strstr(p, word)); p++)
		if ((p == text || !word_char(p[-1])) && !word_char(p[len]))
			return p;
	return NULL;
}

static bool is_text(const void *image)
{
	static const unsigned char fatbin[] = {0x50, 0xed, 0x55, 0xba};
	static const unsigned char wrapper[] = {0xb1, 0x43, 0x62, 0x46};

	return memcmp(image, "\177ELF", 4) && memcmp(image, fatbin, 4) && memcmp(image, wrapper, 4);
}

static CUresult module_new(const void *image, struct sim_ctx *ctx, struct sim_module **module)
{
	struct sim_module *m;
	const struct sim_kernel *kernels;
	size_t count;

	if (!image)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_text(image))
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	m = calloc(1, sizeof(*m));
	if (m)
		m->image = strdup(image);
	if (!m || !m->image) {
		free(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	m->ctx = ctx;
	kernels = kernel_table(&count);
	for (size_t i = 0; i < count && i < MAX_KERNELS; i++)
		if (find_word(image, kernels[i].name))
			m->functions[i] = &kernels[i];
	object_add(KIND_MODULE, &m->obj);
	*module = m;
	return CUDA_SUCCESS;
}

/* A module with a context, or a library without one. */
static struct sim_module *module_find(const void *handle, bool library)
{
	struct sim_module *m = (struct sim_module *)handle;

	return object_known(KIND_MODULE, m) && !m->ctx == library ? m : NULL;
}

static void module_free(struct sim_module *m)
{
	while (m->globals) {
		struct sim_global *g = m->globals;
		struct sim_map *map = map_find(g->ptr);

		/* The end of the context, if that came first, has freed the memory already. */
		if (map && (map->kind == MAP_GLOBAL || map->kind == MAP_MANAGED) &&
		    map->start == g->ptr && map->ctx == m->ctx)
			memory_free(map);
		m->globals = g->next;
		free(g->name);
		free(g);
	}
	object_remove(&m->obj);
	free(m->image);
	free(m);
}

static CUresult function_get(struct sim_module *m, const char *name, void *handle)
{
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	for (size_t i = 0; i < MAX_KERNELS; i++) {
		if (!m->functions[i] || strcmp(m->functions[i]->name, name))
			continue;
		*(const struct sim_kernel ***)handle = &m->functions[i];
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NOT_FOUND;
}

/* The kernel behind a CUfunction or a CUkernel; NULL where it is neither. */
static const struct sim_kernel *function_find(const void *handle)
{
	for (struct sim_object *o = sim.objects[KIND_MODULE]; o; o = o->next) {
		struct sim_module *m = (struct sim_module *)o;

		for (size_t i = 0; i < MAX_KERNELS; i++)
			if (handle == &m->functions[i])
				return m->functions[i];
	}
	return NULL;
}

static CUresult module_load(CUmodule *module, const void *image)
{
	return module_new(image, ctx_current(), (struct sim_module **)module);
}

SIM_EXPORT cuModuleLoadData(CUmodule *module, const void *image)
{
	SIM_ENTER(cuModuleLoadData, NEED_CONTEXT);
	return module_load(module, image);
}

SIM_EXPORT cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count,
			      CUjit_option *options, void **values)
{
	SIM_ENTER(cuModuleLoadDataEx, NEED_CONTEXT);
	(void)count;
	(void)options;
	(void)values;
	return module_load(module, image);
}

SIM_EXPORT cuModuleUnload(CUmodule handle)
{
	struct sim_module *m;

	SIM_ENTER(cuModuleUnload, NEED_CONTEXT);
	m = module_find(handle, false);
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	module_free(m);
	return CUDA_SUCCESS;
}

SIM_EXPORT cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	SIM_ENTER(cuModuleGetFunction, NEED_CONTEXT);
	return function_get(module_find(module, false), name, function);
}

/*
 * Bytes of the variable that the image declares, and whether that is managed memory; 0 where it
 * declares none of that name.
 */
static size_t global_size(const char *image, const char *name, bool *managed)
{
	for (const char *p = image; (p = find_word(p, name)); p++) {
		const char *line = p, *type;
		size_t bits = 0, count = 1;

		while (line > image && !strchr(";{}\n", line[-1]))
			line--;
		type = strstr(line, ".global");
		if (!type || type > p)
			type = strstr(line, ".const");
		if (!type || type > p)
			continue;
		for (type++; (type = strchr(type, '.')) && type < p; type++)
			if (strchr("busf", type[1]) && isdigit((unsigned char)type[2]))
				bits = strtoul(type + 2, NULL, 10);
		type = strstr(line, ".attribute(.managed)");
		*managed = type && type < p;
		if (p[strlen(name)] == '[')
			count = strtoul(p + strlen(name) + 1, NULL, 10);
		return bits / 8 * count;
	}
	return 0;
}

SIM_EXPORT cuModuleGetGlobal_v2(CUdeviceptr *ptr, size_t *size, CUmodule handle, const char *name)
{
	struct sim_global *g;
	struct sim_module *m;
	bool managed = false;
	CUresult result;

	SIM_ENTER(cuModuleGetGlobal_v2, NEED_CONTEXT);
	m = module_find(handle, false);
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	for (g = m->globals; g && strcmp(g->name, name); g = g->next)
		;
	if (!g && !global_size(m->image, name, &managed))
		return CUDA_ERROR_NOT_FOUND;
	if (!g) {
		g = calloc(1, sizeof(*g));
		if (g)
			g->name = strdup(name);
		if (!g || !g->name) {
			free(g);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		g->size = global_size(m->image, name, &managed);
		result = memory_new(m->ctx, g->size, managed ? MAP_MANAGED : MAP_GLOBAL, &g->ptr);
		if (result != CUDA_SUCCESS) {
			free(g->name);
			free(g);
			return result;
		}
		memset((void *)g->ptr, 0, g->size);
		g->next = m->globals;
		m->globals = g;
	}
	if (ptr)
		*ptr = g->ptr;
	if (size)
		*size = g->size;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit,
			     void **jit_values, unsigned int jit_count, CUlibraryOption *options,
			     void **values, unsigned int count)
{
	SIM_ENTER(cuLibraryLoadData, NEED_HEALTHY);
	(void)jit;
	(void)jit_values;
	(void)jit_count;
	(void)options;
	(void)values;
	(void)count;
	return module_new(code, NULL, (struct sim_module **)library);
}

SIM_EXPORT cuLibraryUnload(CUlibrary library)
{
	struct sim_module *m;

	SIM_ENTER(cuLibraryUnload, NEED_HEALTHY);
	m = module_find(library, true);
	if (!m)
		return CUDA_ERROR_INVALID_HANDLE;
	module_free(m);
	return CUDA_SUCCESS;
}

SIM_EXPORT cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	SIM_ENTER(cuLibraryGetKernel, NEED_HEALTHY);
	return function_get(module_find(library, true), name, kernel);
}

SIM_EXPORT cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	SIM_ENTER(cuKernelGetFunction, NEED_CONTEXT);
	if (!function_find(kernel))
		return CUDA_ERROR_INVALID_HANDLE;
	*function = (CUfunction)kernel;
	return CUDA_SUCCESS;
}

static CUresult function_name(const char **name, const void *handle)
{
	const struct sim_kernel *k = function_find(handle);

	if (!k)
		return CUDA_ERROR_INVALID_HANDLE;
	*name = k->name;
	return CUDA_SUCCESS;
}

SIM_EXPORT cuFuncGetName(const char **name, CUfunction function)
{
	SIM_ENTER(cuFuncGetName, NEED_CONTEXT);
	return function_name(name, function);
}

SIM_EXPORT cuKernelGetName(const char **name, CUkernel kernel)
{
	SIM_ENTER(cuKernelGetName, NEED_HEALTHY);
	return function_name(name, kernel);
}

/* Parameters lie one after the other, each aligned to its size. */
static size_t param_offset(const struct sim_kernel *k, size_t index)
{
	size_t offset = 0;

	for (size_t i = 0; i < index; i++)
		offset = SIM_ROUND(offset, k->sizes[i]) + k->sizes[i];
	return index < k->nparams ? SIM_ROUND(offset, k->sizes[index]) : offset;
}

static CUresult param_info(const void *handle, size_t index, size_t *offset, size_t *size)
{
	const struct sim_kernel *k = function_find(handle);

	if (!k)
		return CUDA_ERROR_INVALID_HANDLE;
	if (index >= k->nparams)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = param_offset(k, index);
	if (size)
		*size = k->sizes[index];
	return CUDA_SUCCESS;
}

SIM_EXPORT cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size)
{
	SIM_ENTER(cuFuncGetParamInfo, NEED_CONTEXT);
	return param_info(function, index, offset, size);
}

SIM_EXPORT cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
	SIM_ENTER(cuKernelGetParamInfo, NEED_HEALTHY);
	return param_info(kernel, index, offset, size);
}

/* Copy the arguments from an array of pointers, or from the buffer that @extra describes. */
static CUresult copy_arguments(const struct sim_kernel *k, void **params, void **extra, void *args)
{
	const void *buffer = NULL;
	size_t size = 0, need = param_offset(k, k->nparams);

	for (unsigned int i = 0; params && i < k->nparams; i++)
		memcpy((char *)args + param_offset(k, i), params[i], k->sizes[i]);
	if (params)
		return CUDA_SUCCESS;
	for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[1];
		else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			size = *(size_t *)extra[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (!buffer || size < need || size > MAX_PACKED)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(args, buffer, need);
	return CUDA_SUCCESS;
}

CUresult kernel_op(CUfunction function, uint64_t grid, uint64_t block, void **params, void **extra,
		   struct sim_op **op)
{
	const struct sim_kernel *k = function_find(function);
	CUresult result;

	if (!k)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!grid || !block || block > 1024 || (params && extra))
		return CUDA_ERROR_INVALID_VALUE;
	*op = op_new(OP_KERNEL);
	if (!*op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*op)->kernel.code = k;
	(*op)->kernel.function = function;
	(*op)->kernel.grid = (unsigned int)grid;
	(*op)->kernel.block = (unsigned int)block;
	result = copy_arguments(k, params, extra, (*op)->kernel.args);
	if (result != CUDA_SUCCESS)
		op_free(*op);
	return result;
}

unsigned int kernel_op_params(struct sim_op *op, void **params)
{
	const struct sim_kernel *k = op->kernel.code;

	for (unsigned int i = 0; i < k->nparams; i++)
		params[i] = op->kernel.args + param_offset(k, i);
	return k->nparams;
}

bool kernel_reaches(const struct sim_ctx *ctx, const struct sim_op *op)
{
	const struct sim_kernel *k = op->kernel.code;
	CUdeviceptr ptr;

	for (unsigned int i = 0; i < k->nparams; i++) {
		if (k->sizes[i] != sizeof(ptr))
			continue;
		memcpy(&ptr, op->kernel.args + param_offset(k, i), sizeof(ptr));
		if (map_find(ptr) && !map_reached(ctx, ptr, 1, false))
			return false;
	}
	return true;
}

static CUresult launch_kernel(bool ptds, CUfunction f, uint64_t grid, uint64_t block,
			      CUstream stream, void **params, void **extra)
{
	struct sim_stream *s;
	struct sim_op *op;
	CUresult result = stream_get(stream, ptds, &s);

	if (result == CUDA_SUCCESS)
		result = kernel_op(f, grid, block, params, extra, &op);
	return result ? result : stream_submit(s, op);
}

SIM_TWINS(cuLaunchKernel, _ptsz, launch_kernel,
	  (CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
	   unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
	   CUstream stream, void **params, void **extra),
	  f, ((void)shared, (uint64_t)grid_x *grid_y *grid_z), (uint64_t)block_x *block_y *block_z,
	  stream, params, extra)

static CUresult launch_kernel_ex(bool ptds, const CUlaunchConfig *c, CUfunction f, void **params,
				 void **extra)
{
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	return launch_kernel(ptds, f, (uint64_t)c->gridDimX * c->gridDimY * c->gridDimZ,
			     (uint64_t)c->blockDimX * c->blockDimY * c->blockDimZ, c->hStream,
			     params, extra);
}

SIM_TWINS(cuLaunchKernelEx, _ptsz, launch_kernel_ex,
	  (const CUlaunchConfig *config, CUfunction f, void **params, void **extra), config, f,
	  params, extra)

SIM_TWINS(cuLaunchCooperativeKernel, _ptsz, launch_kernel,
	  (CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
	   unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
	   CUstream stream, void **params),
	  f, ((void)shared, (uint64_t)grid_x *grid_y *grid_z), (uint64_t)block_x *block_y *block_z,
	  stream, params, NULL)
