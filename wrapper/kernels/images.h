/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_IMAGES_H
#define CUDAW_WRAPPER_IMAGES_H
/*
 * images: the GPU code that the program has loaded, and the parameters of each kernel.
 *
 * hooks/images.c reports every module and library, and every kernel that the program got from one.
 * The parameters of a kernel are found at its first launch, and kept:
 *
 *  - offsets and sizes from the driver (cuFuncGetParamInfo and cuKernelGetParamInfo, 12.4 and
 *    later), and their types from the kernel's name, if it is a C++ name: in microseconds;
 *  - types that the name does not have, and all of it with older drivers, from the image that the
 *    kernel's module or library was loaded from (source.h), by kparams. Images are compressed as a
 *    whole: it takes 1 ms for each MiB of the largest code for the device [NCCL 2.28: 100 MiB]. If
 *    the driver has other parameters, the driver is right, and a warning says so.
 *
 * With debug logs on, images are read for every kernel and compared with the driver's answers.
 *
 * Older CUDA runtimes load the program's code by functions of the driver that have no name. Then
 * only the kernels' names are known, by the cuModuleGetFunction() that follows, and the driver's
 * answers. For a function that only the driver knows, as in the node of a graph, the driver gives
 * the name and the module. The end of such a function is not seen either, so the driver is asked
 * again after an unload.
 *
 * Locking: one mutex, and calls into the real driver are made without it. images_layout() takes it
 * only for a kernel that it does not know yet: handles are in a table of chains whose links are
 * never returned to the system, so that they can be followed at any time. Layouts of unloaded code
 * are freed at once: to launch a kernel then is an error of the program, as it is for the driver.
 * To look up a known kernel again is not an error, and keeps its layout.
 */
#include <cuda.h>
#include <stdbool.h>

struct kp_kernel;

enum images_kind { IMAGES_MODULE, IMAGES_LIBRARY, IMAGES_FUNCTION, IMAGES_KERNEL };

/*
 * A module or library was loaded as @handle from the image at @data (a fatbin, its wrapper, a
 * cubin or PTX), or from a file of that.
 */
void images_load(enum images_kind kind, const void *handle, const void *data);
void images_load_file(enum images_kind kind, const void *handle, const char *path);

/* The module or library @handle is about to be unloaded. */
void images_unload(const void *handle);

/* @handle is @name of the module or library @owner. */
void images_name(enum images_kind kind, const void *handle, const void *owner, const char *name);

/* @handle is the module of a library or function, or the function of a kernel, which is @of. */
void images_share(enum images_kind kind, const void *handle, const void *of);

/*
 * The parameters of @function, which may be a CUkernel, as for the launches. For an unknown kernel
 * the layout has no parameters, and its name may be empty. Valid until the kernel is unloaded. To
 * be called inside the gate.
 */
const struct kp_kernel *images_layout(CUfunction function);

/*
 * True if @function, as above, ends with @owner, a module or library that is not unloaded yet. If
 * the load of @function was not seen, the driver is asked in the current context. To be called
 * inside the gate.
 */
bool images_is_of(CUfunction function, const void *owner);

#endif
