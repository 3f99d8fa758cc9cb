/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_TRACE_CALLS_H
#define CUDAW_WRAPPER_TRACE_CALLS_H
/*
 * The calls that a trace shows (common/trace/trace.h). gen_trace.py makes a function trace_NAME for
 * each from cuda.h and trace.calls. It runs before the gate, so that the duration of a call
 * includes its wait for a resume. The functions are bound only if CUDAW_TRACE is set.
 *
 * This header has the functions that write arguments, by type, and the names of kernels.
 */
#include "common/trace/trace.h"
#include "wrapper/real.h"

/* In the order of the export list (generated); fn is NULL for a function that is not shown. */
extern const struct driver_call trace_calls[];

/* [x,y,z] */
struct traced_dim {
	unsigned int x, y, z;
};
#define DIM(x, y, z) ((struct traced_dim){x, y, z})

/* A kernel that was launched, with @result. */
struct traced_launch {
	CUfunction f;
	CUresult result;
};
#define LAUNCHED(f, result) ((struct traced_launch){f, result})

/* What a launch gives its kernel: by an array of pointers, or by the buffer in @extra. */
struct traced_params {
	struct traced_launch launch;
	void **params;
	void **extra;
};
#define PARAMS(f, params, extra, result) \
	((struct traced_params){LAUNCHED(f, result), params, extra})

/* The driver has given out the handle of a kernel. */
struct traced_found {
	const void *handle;
	const char *name;
	bool library; /* a CUkernel, not a CUfunction */
};
#define FUNCTION(f, name)    ((struct traced_found){f, name, false})
#define KERNEL(kernel, name) ((struct traced_found){kernel, name, true})

void traced_dim(struct trace_event *event, const char *key, struct traced_dim dim);
void traced_params(struct trace_event *event, const char *key, struct traced_params params);
void traced_found(struct trace_event *event, const char *key, struct traced_found found);

/* An address; if vmem has it, with the number of its allocation and the offset in it. */
void traced_pointer(struct trace_event *event, const char *key, unsigned long long ptr);
void traced_put_pointer(struct trace_event *event, unsigned long long ptr);

/* A handle, or an address of the host. */
void traced_handle(struct trace_event *event, const char *key, const void *handle);

/* The event gets the name of the kernel. */
void traced_kernel(struct trace_event *event, const char *key, struct traced_launch launch);

#define traced_arg(event, key, value) \
	_Generic((value),                            \
		 char *: trace_text,                 \
		 const char *: trace_text,           \
		 int: trace_number,                  \
		 unsigned char: trace_number,        \
		 unsigned short: trace_number,       \
		 unsigned int: trace_number,         \
		 unsigned long: trace_number,        \
		 unsigned long long: traced_pointer,  \
		 struct traced_launch: traced_kernel,  \
		 struct traced_dim: traced_dim,        \
		 struct traced_params: traced_params,  \
		 struct traced_found: traced_found,    \
		 default: traced_handle)(event, key, value)

/* The ends of a copy between @from and @to, whose kind (CUmemorytype) may be 0 for unknown. */
const char *traced_copy_kind(unsigned int from_type, unsigned long long from, unsigned int to_type,
			     unsigned long long to);
size_t traced_sum(const size_t *sizes, size_t count);
/* Without those from or to an array, the size of whose elements is not known. */
size_t traced_sum_boxes(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count);

/* Of a CUDA_MEMCPY2D, CUDA_MEMCPY3D or CUDA_MEMCPY3D_PEER. */
#define COPY_KIND(p) \
	traced_copy_kind((p)->srcMemoryType, (p)->srcDevice, (p)->dstMemoryType, (p)->dstDevice)
#define COPY_END(p, end)                                          \
	((p)->end##MemoryType == CU_MEMORYTYPE_HOST               \
		 ? (unsigned long long)(uintptr_t)(p)->end##Host  \
	 : (p)->end##MemoryType == CU_MEMORYTYPE_ARRAY            \
		 ? (unsigned long long)(uintptr_t)(p)->end##Array \
		 : (p)->end##Device)
#define COPY_SRC(p)      COPY_END(p, src)
#define COPY_DST(p)      COPY_END(p, dst)
#define COPY_BYTES_2D(p) ((p)->WidthInBytes * (p)->Height)
#define COPY_BYTES_3D(p) ((p)->WidthInBytes * (p)->Height * (p)->Depth)

/*
 * A module, a library or a context goes: the driver may give out the handles of its kernels anew.
 */
void traced_kernels_forget(void);

#endif
