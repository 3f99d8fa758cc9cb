/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SIM_H
#define CUDAW_SIM_H
/*
 * A driver on the CPU: a libcuda.so.1 for tests on machines without a GPU. See README.md for what
 * it does and does not do, and for the CUDAW_SIM_* variables.
 *
 * Locking: one mutex, sim.lock. Every entry point takes it in SIM_ENTER and gives it back on
 * return, so all functions below are called with it held unless their comment says otherwise. A
 * wait (for a stream, an event, the end of a process checkpoint) sleeps on the one condition
 * sim.cond, which is broadcast whenever anything that someone may wait for has happened. Stream
 * workers let the lock go while they run a kernel, a copy or a host function.
 *
 * What lives how long: handles given to the program are kept in lists (struct sim_object), so that
 * a stale or foreign one is an error and not a crash. Contexts are never returned to the system,
 * because threads keep destroyed ones on their stacks; streams and event marks are counted.
 */
#include <cuda.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_VERSION      13000
#define SIM_MAX_DEVICES  16
#define SIM_MAX_STACK    16
#define SIM_MAX_ARGS     192 /* bytes of kernel parameters; kernels.c has none larger */
#define SIM_GRANULARITY  (2UL << 20)
#define SIM_SMALL        (1UL << 20) /* allocations up to this size share blocks */
#define SIM_PAGE         4096UL
#define SIM_ROUND(n, to) (((n) + (to)-1) / (to) * (to))

struct sim_config {
	int devices;              /* that the process sees */
	int gpus;                 /* of the machine */
	size_t memory;            /* bytes per device */
	bool told_memory;         /* by CUDAW_SIM_MEMORY */
	size_t context;           /* bytes that an active context uses */
	double copy_bytes_per_ns; /* 0: unlimited */
	bool no_vmm;
	bool no_peers;
	bool page_tables; /* of registered memory count */
	bool fresh;
	bool strict;
	char *shared;
	char *remote;  /* a directory */
	char *hold[3]; /* files, by the direction of a copy; the last one for the calls of: */
	char *held;    /* a function */
	char *faults;
	char *count;
};

/* Handles. */
enum sim_kind {
	KIND_CTX,
	KIND_STREAM,
	KIND_EVENT,
	KIND_MODULE,
	KIND_GRAPH,
	KIND_NODE,
	KIND_EXEC,
	KIND_ALLOC,
	KIND_POOL,
	KIND_ARRAY,
	KIND_MIPMAP,
	KIND_TEXTURE,
	KIND_SURFACE,
	KIND_EXTERNAL,
	KIND_LINK,
	KIND_GREEN,
	KIND_COUNT
};

struct sim_object {
	struct sim_object *next;
	struct sim_object **link;
	enum sim_kind kind;
};

/* A context whose memory another context may access. */
struct sim_peer {
	struct sim_peer *next;
	const struct sim_ctx *ctx;
	unsigned long long id; /* of the context, which may have ended since */
};

struct sim_ctx {
	struct sim_object obj;
	CUdevice dev;
	bool active; /* false: destroyed, or a primary context nobody retains */
	bool primary;
	unsigned int flags;
	unsigned int refs; /* retains of a primary context */
	unsigned long long id;
	CUresult error; /* sticky */
	struct sim_stream *streams;
	struct sim_block *blocks; /* of SIM_GRANULARITY, which its small allocations share */
	struct sim_peer *peers;
	struct sim_ctx *whole; /* of a green context: the primary one; else NULL */
};

/* What the processes that have an interprocess event share: how often it was recorded, and the latest
 * of these records that is complete. */
struct sim_records {
	uint64_t made, done;
};

/* An interprocess event, as this process has it mapped. */
struct sim_shared_event {
	int refs; /* the event's, and one for each mark */
	int fd;
	struct sim_records *records;
};

/* The completion of one event record. */
struct sim_mark {
	int refs;
	bool done;
	uint64_t ns;
	struct sim_shared_event *shared; /* of an interprocess event; else NULL */
	uint64_t number;                 /* there, the record that it stands for */
};

enum sim_op_kind {
	OP_KERNEL,
	OP_COPY,
	OP_SET,
	OP_HOST,
	OP_POLL,
	OP_CALLBACK,
	OP_RECORD,
	OP_WAIT,
	OP_FREE
};

struct sim_op {
	struct sim_op *next;
	enum sim_op_kind kind;
	uint64_t ticket;           /* order of submission, over all streams */
	unsigned long long node;   /* in an instantiated graph: the id of the node that it is of */
	const struct sim_ctx *ctx; /* of a copy or set: where it runs */
	union {
		struct {
			const struct sim_kernel *code;
			CUfunction function;
			unsigned int grid, block; /* threads in all dimensions */
			_Alignas(16) unsigned char args[SIM_MAX_ARGS];
		} kernel;
		struct {
			void *dst;
			const void *src;
			size_t size;
			int direction; /* of sim.copy_free_at; -1 on one device */
		} copy;
		struct {
			void *dst;
			uint64_t value;
			size_t width;
			size_t count;
		} set;
		struct {
			const void *ptr;
			uint64_t value;
			size_t width;
			unsigned int until; /* CUstreamWaitValue_flags */
		} poll;
		struct {
			CUhostFn fn;
			void *data;
		} host;
		struct {
			CUstreamCallback fn;
			void *data;
			CUstream stream;
		} callback;
		struct sim_mark *mark;
		CUdeviceptr free;
	};
};

struct sim_stream {
	struct sim_object obj;
	struct sim_stream *next; /* in the context */
	struct sim_ctx *ctx;
	struct sim_op *head, **tail; /* the head is the one that runs */
	int refs;                    /* the context's, and one for each waiting thread */
	bool legacy, blocking, started, closing;
	unsigned long thread; /* owner of a per-thread default stream, else 0 */
	unsigned int flags;
	int priority;
	unsigned long long id;
	struct sim_capture *capture;
	CUaccessPolicyWindow window;
};

struct sim_event {
	struct sim_object obj;
	struct sim_mark *mark;           /* NULL until recorded, and in an interprocess event */
	struct sim_shared_event *shared; /* NULL, except in an interprocess event */
	unsigned int flags;
	struct sim_capture *capture; /* last recorded in a capture that is still open */
};

/* What the allocation nodes of a graph have; the graph and those made of it share it. */
struct sim_graph_memory {
	int refs;
	struct sim_ctx *ctx;
	size_t count;
	CUdeviceptr ptrs[8];
};

struct sim_node {
	struct sim_object obj;
	struct sim_node *next; /* in its graph, in the order in which they were added */
	struct sim_graph *graph;
	unsigned long long id;
	unsigned long long origin; /* the id of the node that it was cloned from, or 0 */
	CUgraphNodeType type;
	struct sim_op *op;       /* what it does; NULL in an empty node and in a child's */
	struct sim_graph *child; /* that the node owns, or NULL */
	CUaccessPolicyWindow window;
	void *params[8]; /* what cuGraphKernelNodeGetParams returned last */
};

struct sim_graph {
	struct sim_object obj;
	struct sim_node *head, **tail;
	struct sim_graph_memory *memory; /* NULL: no allocation nodes */
	bool owned;                      /* by a node */
};

/* An instantiated graph: operations of its own. */
struct sim_exec {
	struct sim_object obj;
	struct sim_op *head, **tail;
	struct sim_graph_memory *memory;
};

struct sim_capture {
	struct sim_capture *next;
	struct sim_stream *origin;
	struct sim_graph *graph;
	CUstreamCaptureMode mode;
	unsigned long thread;
	unsigned long long id;
	bool invalid;
};

/* Physical memory: a run of bytes in the device's memfd. */
struct sim_alloc {
	struct sim_object obj;
	CUdevice dev;
	size_t size;
	off_t offset;
	unsigned int handles; /* references held by the program */
	unsigned int maps;
	struct sim_ctx *small; /* its bytes are in a block of this context; NULL: its own */
	struct sim_block *block;
	size_t first_unit; /* there */
	int fd; /* 0: the device's memfd; -1: no memory; else a memfd of its own, or another process's */
	bool imported; /* another process has made it: */
	int from, from_fd;
	bool exported; /* others may have it: its bytes stay when it is freed here */
	bool tainted;  /* cuIpcGetMemHandle() was called for it */
	CUmemAllocationProp prop;
};

/* A range of addresses that the device knows. */
enum sim_map_kind {
	MAP_VMM,
	MAP_DEVICE,
	MAP_GLOBAL,
	MAP_ARRAY,
	MAP_GRAPH,
	MAP_IMPORTED,
	MAP_MANAGED, /* from here on the host may touch it at any time */
	MAP_HOST,
	MAP_REGISTERED
};

struct sim_map {
	CUdeviceptr start;
	size_t size;
	enum sim_map_kind kind;
	struct sim_alloc *alloc; /* NULL for host memory */
	struct sim_ctx *ctx;     /* NULL for MAP_VMM */
	struct sim_pool *pool;   /* that it was allocated from, or NULL */
	CUdevice dev;
	unsigned int flags; /* of the call that made it; 0: a variable's */
	unsigned long long id;
	unsigned char access[SIM_MAX_DEVICES]; /* CUmemAccess_flags */
	unsigned char host_access;             /* of MAP_VMM */
	bool sync_memops;
	unsigned int opened; /* so many times (MAP_IMPORTED) */
};

struct sim_array {
	struct sim_object obj; /* unlisted where it is a level of a mipmap */
	struct sim_ctx *ctx;
	CUDA_ARRAY3D_DESCRIPTOR desc;
	size_t element; /* bytes */
	size_t row;     /* bytes */
	CUdeviceptr data;
};

/* A memory pool. */
struct sim_pool {
	struct sim_object obj; /* unlisted once it is destroyed; it lives on while allocations do */
	CUdevice dev;
	bool destroyed;
	bool exportable;
	bool imported;      /* of another process, which alone allocates from it */
	bool host;          /* of host memory */
	uint64_t threshold; /* CU_MEMPOOL_ATTR_RELEASE_THRESHOLD */
	int reuse[3];       /* the reuse policies, in the order of their numbers */
	unsigned char access[SIM_MAX_DEVICES]; /* CUmemAccess_flags of other devices */
	size_t used, high;
	size_t kept; /* bytes that no allocation has */
};

struct sim_kernel {
	const char *name;
	void (*run)(const void *args);
	unsigned int nparams;
	unsigned char sizes[8];
};

struct sim_thread {
	unsigned long id; /* 0 until first used */
	struct sim_ctx *stack[SIM_MAX_STACK];
	int depth;
	CUstreamCaptureMode capture_mode;
	bool worker;
	const char *call; /* the entry point that it is in, or was in last */
};

struct sim {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct sim_config config;
	bool initialised;
	bool forked;
	CUprocessState state;
	unsigned int inside;  /* threads in an entry point; the process checkpoint's excluded */
	unsigned int held;    /* part of them that wait for the end of a process checkpoint */
	unsigned int lockers; /* threads in cuCheckpointProcessLock */
	uint64_t ticket;
	unsigned long long next_id;
	/* when the copy engine of a direction is free, ns */
	uint64_t copy_free_at[SIM_MAX_DEVICES][2];
	int gpu[SIM_MAX_DEVICES]; /* the GPU that each device is on now */
	struct sim_ctx *primary[SIM_MAX_DEVICES];
	struct sim_pool *default_pool[SIM_MAX_DEVICES];
	struct sim_pool *current_pool[SIM_MAX_DEVICES]; /* NULL: the default one */
	struct sim_object *objects[KIND_COUNT];
	struct sim_capture *captures;
};

extern struct sim sim;
extern __thread struct sim_thread sim_thread;

/* call.c: what every entry point begins with. */
enum sim_need {
	NEED_NOTHING,    /* a table look-up: works before cuInit and during a process checkpoint */
	NEED_LOCK,       /* cuInit and the like: works before cuInit */
	NEED_CHECKPOINT, /* cuCheckpointProcess*: not stopped by a process checkpoint */
	NEED_INIT,       /* works with any context, or none, even one in error */
	NEED_HEALTHY,    /* the current context, if there is one, must not be in error */
	NEED_CONTEXT,    /* needs a current context */
	NEED_ANY,        /* needs a current context, which may be in error */
};

struct sim_site {
	const char *name;
	bool known;
	unsigned long calls;
	unsigned long held;   /* calls that a process checkpoint made wait */
	unsigned int waiting; /* of these, how many wait now */
	struct sim_site *next;
};

struct sim_scope {
	bool inside;
};

CUresult sim_enter(struct sim_site *site, struct sim_scope *scope, enum sim_need need);
void sim_leave(struct sim_scope *scope);

/* Not a result of the driver: the call does nothing and says that it did. */
#define SIM_LOST ((CUresult)-1)

/* The first line of every entry point: locks, counts, injects faults, checks the context. */
#define SIM_ENTER(function, need)                                              \
	static struct sim_site site_ = {.name = #function};                    \
	struct sim_scope scope_ __attribute__((cleanup(sim_leave))) = {false}; \
	CUresult entered_ = sim_enter(&site_, &scope_, need);                  \
	do {                                                                   \
		if (entered_ != CUDA_SUCCESS)                                  \
			return entered_ == SIM_LOST ? CUDA_SUCCESS : entered_; \
	} while (0)

/* Protected: the real driver's addresses are its own as well, whatever library was preloaded. */
#define SIM_EXPORT __attribute__((visibility("protected"))) CUresult

/*
 * An entry point whose null stream is the legacy one, and its twin, whose null stream is the
 * thread's own. @body is called with a bool (true in the twin) before the arguments.
 */
#define SIM_TWINS(name, suffix, body, params, ...)     \
	SIM_EXPORT name params                         \
	{                                              \
		SIM_ENTER(name, NEED_CONTEXT);         \
		return body(false, __VA_ARGS__);       \
	}                                              \
	SIM_EXPORT name##suffix params                 \
	{                                              \
		SIM_ENTER(name##suffix, NEED_CONTEXT); \
		return body(true, __VA_ARGS__);        \
	}

/* The names of the calls that wait for the end of a process checkpoint. */
size_t sim_held_names(char *buf, size_t size);
/* Sleep until something happens, at most until @deadline (sim_now() time) where it is not 0. */
void sim_wait(uint64_t deadline);
void sim_changed(void);
uint64_t sim_now(void);            /* ns; no lock */
unsigned long sim_thread_id(void); /* no lock */

/* checkpoint.c: a call of cuCheckpointProcess*, run in the process that it is about. */
enum checkpoint_op {
	CHECKPOINT_LOCK,
	CHECKPOINT_TAKE,
	CHECKPOINT_RESTORE,
	CHECKPOINT_UNLOCK,
	CHECKPOINT_STATE,
	CHECKPOINT_THREAD
};

struct checkpoint_call {
	enum checkpoint_op op;
	unsigned int timeout_ms;
	unsigned int pairs; /* of GPUs: how many */
	int value;          /* the answer to a question */
	CUresult result;
};

CUresult checkpoint_run(struct checkpoint_call *call, const CUcheckpointRestoreArgs *args);

/* remote.c: the same for another process, which must have called remote_listen(). */
CUresult remote_call(int pid, struct checkpoint_call *call);
/* Answer the calls of other processes, if CUDAW_SIM_REMOTE is set. 0 or a negative errno. */
int remote_listen(void);

/* object.c */
void object_add(enum sim_kind kind, struct sim_object *obj);
void object_remove(struct sim_object *obj);
bool object_known(enum sim_kind kind, const void *handle);
/* End the process: the call uses @what, as "a stream", that was destroyed. */
_Noreturn void object_misused(const char *what);

/* context.c */
struct sim_ctx *ctx_current(void);
struct sim_ctx *ctx_find(CUcontext handle);
/* The context that has the memory which is allocated in this one. */
struct sim_ctx *ctx_owner(const struct sim_ctx *ctx);
/* The context of a new green one, which retains the primary one; and its end. */
CUresult ctx_new_green(CUdevice dev, struct sim_ctx **ctx);
void ctx_end_green(struct sim_ctx *ctx);
/* True where the one may access the memory of the other. */
bool ctx_accesses(const struct sim_ctx *ctx, const struct sim_ctx *owner);
/* Bytes that active contexts use on @dev, in sum. */
size_t ctx_bytes(CUdevice dev);

/* memory.c: physical memory and the table of mapped ranges. */
#define SIM_HOST SIM_MAX_DEVICES /* instead of a device: memory of the host, of cuMemCreate() */
CUresult alloc_new(CUdevice dev, size_t size, struct sim_alloc **alloc);
/* The same in a memfd of its own, which other processes can map. */
/* Give the memory back where neither a handle nor a mapping is left. */
void alloc_put(struct sim_alloc *alloc);
int alloc_fd(CUdevice dev);
/* Where its bytes are, at its offset; -1: nowhere. */
int alloc_backing(const struct sim_alloc *alloc);
/* Map all of it somewhere, accessible. */
CUresult alloc_map(struct sim_ctx *ctx, struct sim_alloc *alloc, enum sim_map_kind kind,
		   CUdeviceptr *ptr);
struct sim_map *map_find(CUdeviceptr addr);
struct sim_map *map_next(const struct sim_map *map); /* by address; NULL: the first */
struct sim_map *map_insert(const struct sim_map *map);
void map_remove(struct sim_map *map);
/* True where whole mappings, and nothing else, make up the range. */
bool map_tiles(CUdeviceptr start, size_t size, enum sim_map_kind kind);
/* True where the devices know the whole range. */
bool map_covers(CUdeviceptr start, size_t size);
/*
 * True where work of @ctx may touch the whole range. A copy reaches the memory of other devices
 * without peer access, except memory that was mapped: that needs access for the device.
 */
bool map_reached(const struct sim_ctx *ctx, CUdeviceptr start, size_t size, bool copy);
/* True where any mapping overlaps the range. */
/* Host memory of cuMemCreate(); false for NULL. */
bool map_of_host(const struct sim_map *map);
bool map_overlaps(CUdeviceptr start, size_t size);
/* Make the range as accessible as its access flags say, or not at all. */
void map_protect(struct sim_map *map, bool accessible);
/* alloc.c: see that no registered host memory was unmapped. */
void registered_check(void);
/* alloc.c: the bytes on the GPU of the page tables of registered host memory; less is registered. */
size_t registered_tables(CUdevice dev);
void registered_less(CUdevice dev, size_t size);
CUresult memory_new(struct sim_ctx *ctx, size_t size, enum sim_map_kind kind, CUdeviceptr *ptr);
/* The same for cuMemAlloc: up to SIM_SMALL from blocks of the context, above that whole blocks. */
CUresult memory_new_small(struct sim_ctx *ctx, size_t size, CUdeviceptr *ptr);
void memory_free(struct sim_map *map);
void memory_release_context(struct sim_ctx *ctx);

/* blocks.c: place a small allocation in a block of its context, or take it out. False: no memory. */
bool block_take(struct sim_alloc *alloc);
void block_give(const struct sim_alloc *alloc);
size_t block_offset(const struct sim_alloc *alloc);
size_t blocks_bytes(const struct sim_ctx *ctx);

/* pool.c: what memory_free() tells of an allocation from a pool. */
void pool_freed(struct sim_pool *pool, size_t size);
/* The device's pools give back what they keep. */
void pools_trim(CUdevice dev);
size_t pools_kept(CUdevice dev);

/* graph.c: graphs and their nodes. */
struct sim_graph *graph_new(void);
void graph_free(struct sim_graph *graph);
struct sim_graph *graph_find(CUgraph handle);
struct sim_node *node_find(CUgraphNode handle);
/* Add a node that owns @op (may be NULL), which is freed on failure. */
CUresult node_new(struct sim_graph *graph, CUgraphNodeType type, struct sim_op *op,
		  struct sim_node **node);
/* What a node of @ctx does. */
CUresult node_op_copy(const struct sim_ctx *ctx, const CUDA_MEMCPY3D *copy, struct sim_op **op);
CUresult node_op_set(const struct sim_ctx *ctx, const CUDA_MEMSET_NODE_PARAMS *set,
		     struct sim_op **op);

/* module.c: a launch as an operation. The parameters as for cuLaunchKernel(). */
CUresult kernel_op(CUfunction function, uint64_t grid, uint64_t block, void **params, void **extra,
		   struct sim_op **op);
/* False: a parameter points to memory of another device, without peer access. */
bool kernel_reaches(const struct sim_ctx *ctx, const struct sim_op *op);
/* Where the parameters lie in the operation's arguments; returns how many there are. */
unsigned int kernel_op_params(struct sim_op *op, void **params);

/* graph_memory.c: allocations of stream captures. */
CUresult graph_memory_alloc(struct sim_capture *c, struct sim_ctx *ctx, size_t size,
			    CUdeviceptr *ptr);
CUresult graph_memory_free(struct sim_capture *c, CUdeviceptr ptr);
struct sim_graph_memory *graph_memory_get(struct sim_graph_memory *m); /* NULL stays NULL */
void graph_memory_put(struct sim_graph_memory *m);

/*
 * tensor_map.c: a word of the tensor that a map describes, which may lie anywhere; NULL outside of
 * it. No lock.
 */
const uint32_t *tensor_map_word(const void *map, uint32_t x, uint32_t y);

/* array.c */
struct sim_array *array_find(CUarray handle);

/* texture.c: where a texel or a surface's element is; for kernels. No lock. */
void *texture_element(CUtexObject texture, size_t x, size_t y);
void *surface_element(CUsurfObject surface, size_t x, size_t y);

/*
 * copy.c: one run of bytes, on the stream; waited for where @sync or the host's memory ask for it.
 */
enum sim_direction { TO_DEVICE, TO_HOST, IN_A_CALL, ON_DEVICE = -1 };
CUresult copy_linear(struct sim_stream *s, CUdeviceptr dst, CUdeviceptr src, size_t size,
		     enum sim_direction direction, bool sync);
/* The same; each side needs to be reached by its own context alone. */
CUresult copy_between(struct sim_stream *s, const struct sim_ctx *dst_ctx, CUdeviceptr dst,
		      const struct sim_ctx *src_ctx, CUdeviceptr src, size_t size,
		      enum sim_direction direction, bool sync);
/* Which way a copy goes whose caller leaves that to the addresses. */
enum sim_direction copy_direction(CUdeviceptr dst, CUdeviceptr src);

/* account.c: bytes used on each device, by all processes. */
void device_uuid(CUuuid *uuid, int gpu);
int account_init(const struct sim_config *config);
bool account_charge(CUdevice dev, size_t bytes); /* false: not enough */
void account_release(CUdevice dev, size_t bytes);
size_t account_used(CUdevice dev);

/* stream.c */
CUresult stream_get(CUstream handle, bool ptds, struct sim_stream **stream);
struct sim_stream *stream_new(struct sim_ctx *ctx, unsigned int flags, int priority);
/* The handle ends here; the stream leaves its context when its last operation is done. */
void stream_close(struct sim_stream *stream);
/* Take over @op: queue it, or capture it; it is freed on failure. */
CUresult stream_submit(struct sim_stream *stream, struct sim_op *op);
/* Wait until everything submitted so far is done. */
CUresult stream_wait(struct sim_stream *stream);
CUresult ctx_wait(struct sim_ctx *ctx);
bool stream_busy(const struct sim_stream *stream);
/* True where any stream of any context has something to do. */
bool streams_pending(void);
struct sim_op *op_new(enum sim_op_kind kind);
struct sim_op *op_copy(const struct sim_op *op);
void op_free(struct sim_op *op);

/* run.c */
/* Run a kernel, copy, set or host function; an illegal access is an error. No lock. */
CUresult op_run(struct sim_op *op, CUresult status);
/* Wait while the file exists that holds copies of the direction, or calls (README.md). No lock. */
void wait_while_held(int direction);
/* For a kernel: end it with @error, which is the context's from then on. */
_Noreturn void run_fail(CUresult error);
void run_init(void);

/* event.c */
struct sim_mark *mark_get(struct sim_mark *mark);
bool mark_is_done(const struct sim_mark *mark);
void mark_complete(struct sim_mark *mark);
/* When to look again at a mark that is not done; 0: no other process completes it. */
uint64_t mark_deadline(const struct sim_mark *mark);
void mark_put(struct sim_mark *mark);

/* capture.c */
/* For calls that are not allowed while a capture forbids them; invalidates the capture. */
CUresult capture_check_unsafe(void);
/* For a wait for the whole context, which no capture of it allows, whatever the thread's mode. */
CUresult capture_check_synchronize(const struct sim_ctx *ctx);
CUresult capture_add(struct sim_stream *stream, struct sim_op *op);
void capture_invalidate(struct sim_ctx *ctx);
/* The capture that began on the stream is over. */
void capture_stream_ends(struct sim_stream *s);
/* True where a blocking stream of the context captures: the legacy stream must not be used. */
bool capture_blocks_legacy(const struct sim_ctx *ctx);

/* bulk.c: dst and src may overlap; a width of 1, 2 or 4 bytes. No lock. */
void bulk_copy(void *dst, const void *src, size_t size);
void bulk_fill(void *dst, uint32_t value, unsigned int width, size_t count);

/* kernels.c */
const struct sim_kernel *kernel_table(size_t *count);

#endif
