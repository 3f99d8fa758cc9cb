/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/kernels/driver_facts.h"
#include "wrapper/real.h"

/*
 * Returns how many @params there are, or -1. The questions need no current context, and a capture of
 * the global mode goes on beside them [H200, driver 580.159].
 */
static int ask_params(enum images_kind kind, CUfunction function, struct kp_param *params)
{
	CUkernel kernel = (CUkernel)function;
	bool by_kernel = kind == IMAGES_KERNEL;
	int n;

	if (by_kernel ? !real.cuKernelGetParamInfo : !real.cuFuncGetParamInfo)
		return -1;
	for (n = 0; n < DRIVER_FACTS_PARAMS; n++) {
		size_t offset, size;
		CUresult end = by_kernel ? real.cuKernelGetParamInfo(kernel, n, &offset, &size)
					 : real.cuFuncGetParamInfo(function, n, &offset, &size);

		if (end)
			return end == CUDA_ERROR_INVALID_VALUE ? n : -1;
		params[n] = (struct kp_param){.offset = offset, .size = size};
	}
	return -1;
}

/* 90 for compute capability 9.0, of the current context's device. */
static uint32_t current_arch(void)
{
	int major = 0, minor = 0;
	CUdevice dev;

	if (!real.cuCtxGetDevice(&dev)) {
		real.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
					  dev);
		real.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
					  dev);
	}
	return 10 * major + minor;
}

void driver_facts_ask(struct driver_facts *facts, enum images_kind kind, CUfunction function)
{
	facts->nparams = ask_params(kind, function, facts->params);
	facts->name = "";
	facts->module = NULL;
	facts->ctx = NULL;
	facts->arch = current_arch();
	if (kind == IMAGES_KERNEL)
		return;
	if (!real.cuFuncGetName || real.cuFuncGetName(&facts->name, function))
		facts->name = "";
	if (!real.cuFuncGetModule || real.cuFuncGetModule(&facts->module, function))
		facts->module = NULL;
	real.cuCtxGetCurrent(&facts->ctx);
}
