/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_IMAGES_H
#define CUDAW_WRAPPER_IMAGES_H
/*
 * images: the GPU code that the program has loaded, and what the parameters of each kernel are.
 *
 * hooks/images.c tells of every module and library, and of every kernel that the program got from
 * one. What a kernel's parameters are is found out when it is first launched, and kept:
 *
 *  - offsets and sizes from the driver (cuFuncGetParamInfo and cuKernelGetParamInfo, 12.4 and
 *    later), and what they hold from the kernel's name, where it is C++'s: in microseconds;
 *  - what the name does not tell, and with older drivers all, from the image that the kernel's
 *    module or library was loaded from, by kparams. Images are compressed as a whole: it takes
 *    1 ms for each MiB of the largest code there is for the device [NCCL 2.28: 100 MiB]. Where
 *    the driver knows other parameters it is right, and it is said (warn).
 *
 * With debug logs on, images are read for every kernel and compared with what the driver says.
 *
 * Older CUDA runtimes load the program's code by functions of the driver that have no name: then
 * only the kernels' names are known, by the cuModuleGetFunction() that follows, and the driver. Of
 * a function that only the driver knows, as the node of a graph may have it, the driver tells the
 * name and the module. When such a one ends is not seen either: after an unload it is asked again.
 *
 * Locking: one mutex, and calls into the real driver are made without it. images_layout() takes it
 * only where it does not know the kernel yet: handles are in a table of chains whose links are
 * never given back to the system, so that they can be followed at any time. What is unloaded is
 * freed at once: as for the driver, to launch a kernel then is the program's error. To look a
 * kernel up again is none: what is known of it stays.
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

/* A module or library is about to be unloaded. */
void images_unload(const void *handle);

/* @handle is @name of the module or library @owner. */
void images_name(enum images_kind kind, const void *handle, const void *owner, const char *name);

/* @handle is the module of a library or function, or the function of a kernel, which is @of. */
void images_share(enum images_kind kind, const void *handle, const void *of);

/*
 * The parameters of @function, which may be a CUkernel, as for the launches. Without any, and with
 * an empty name where even that is not known, for one of which nothing is known. Valid until it is
 * unloaded. To be called inside the gate.
 */
const struct kp_kernel *images_layout(CUfunction function);

/*
 * True where @function, as above, ends with @owner, a module or library that is not unloaded yet.
 * Of one that came unseen the driver is asked, in the current context. To be called inside the
 * gate.
 */
bool images_is_of(CUfunction function, const void *owner);

#endif
