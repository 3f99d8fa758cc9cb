/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OBJECTS_INTERNAL_H
#define CUDAW_OBJECTS_INTERNAL_H
/*
 * What objects.c (the program's calls), objects_pausing.c (the pause engine's), objects_shared.c and object_tickets.c
 * (those of other processes) share. All of it is under the lock of the objects, except the counts of
 * bytes.
 */
#include "common/protocol/beacon.h"
#include "vmem/objects/objects.h"

struct access {
	struct access *next;
	CUdeviceptr start;
	size_t size;
	CUmemLocation location;
	CUmemAccess_flags flags;
};

struct mapping {
	CUdeviceptr start;
	size_t size, offset;
	struct object *object;
	struct mapping *next;  /* of the object */
	struct access *access; /* in the order of the calls */
	bool mapped;           /* by the driver; false: a pause has unmapped it */
	bool window;           /* ours, for a pause: no other mapping shows the whole object */
};

/* A descriptor that was exported, and keeps the object while anybody has it. */
struct ticket {
	struct beacon beacon;
	struct ticket *next;
};

struct object {
	CUmemGenericAllocationHandle handle;   /* the program's */
	CUmemGenericAllocationHandle driver_s; /* valid if held */
	bool held;                             /* the driver has a reference of ours */
	bool left;                             /* left to the driver */
	bool away;                             /* a pause has given the memory back */
	size_t size;
	CUmemAllocationProp prop;
	bool shared; /* other processes may know its name */
	bool import; /* of another process's memory, which has the name there */
	bool taken;  /* its bytes are taken from the quota of its device */
	bool orphan; /* an import whose exporter does not have it any more */
	struct object_name name;
	uint64_t build;         /* of an import: the exporter's number for what is imported */
	struct ticket *tickets; /* given away, the latest first; some are closed */
	size_t ntickets,
		tickets_max;  /* how many there may be before the closed ones are forgotten */
	unsigned int refs;    /* of the program */
	struct mapping *maps; /* the program's, and perhaps a window */
	/* During a pause: where its bytes are copied from and to, in which context. */
	struct mapping *home;
	CUcontext ctx;
	struct object *gone; /* the next of a list of dead ones */
};

extern struct objects {
	pthread_mutex_t lock;
	struct object **objects; /* in the order of their handles */
	size_t nobjects, objects_room;
	struct mapping **maps; /* in the order of their addresses */
	size_t nmaps, maps_room;
	bool closed;                       /* nothing is exported: a pause is under way */
	bool kept;                         /* some objects are kept by tickets alone */
	CUmemGenericAllocationHandle last; /* the last handle that was given */
	struct vmem_stats stats[GPU_MAX];  /* changed under the lock, by atomic stores */
} objects;

/* The index of the first mapping that ends after @ptr. */
size_t mappings_index(CUdeviceptr ptr);
/* The mapping at @ptr, or NULL. */
struct mapping *mappings_find(CUdeviceptr ptr);
/* Room for one more mapping; false: no memory. Then insert it, in the table and in its object. */
bool mappings_reserve(void);
void mappings_insert(struct mapping *m);
/* Take it out of both, and free it. */
void mappings_remove(struct mapping *m);

/* Let the driver have a handle of the object, which is mapped or held; or none. */
CUresult object_hold(struct object *o);
CUresult object_unhold(struct object *o);
/* The same after it was held for a moment only. If that fails, the next pause releases it. */
void object_unhold_again(struct object *o);

/* The index of the first object with that handle, or a later one; and the one with it, or NULL. */
size_t object_index(CUmemGenericAllocationHandle handle);
struct object *object_at(CUmemGenericAllocationHandle handle);

/*
 * The object that the program has under @handle, or NULL; and one more object under a new handle,
 * false: no memory.
 */
struct object *object_find(CUmemGenericAllocationHandle handle);
bool object_insert(struct object *o);

/* Map the mappings of an object that is held, where they are not mapped; unmap them. */
CUresult object_map_all(struct object *o);
CUresult object_unmap_all(struct object *o);

/* True if a pause saves the object's bytes. */
bool object_is_carried(const struct object *o);

/* Leave it to the driver from now on. Returns its size; 0 if that was done before. */
size_t object_leave(struct object *o);

/*
 * True if somebody has a ticket of the object. Forgets those that are closed.
 */
bool object_has_ticket(struct object *o);

/* Give away one more, in @ticket, which is the object's from now on. */
void object_add_ticket(struct object *o, struct ticket *ticket);

/* Its owner, an object of this process of which it is an import, is about to go: take its place. */
void object_succeed(struct object *o);

/*
 * If nothing keeps the object any more, take it out of the table, and put it on the list @gone. With
 * no lock held, tell others of those on the list, and free them.
 */
void object_put(struct object *o, struct object **gone);
void objects_tell_gone(struct object *gone);

/* Count the object in the statistics, or its memory. @sign: 1 or -1. */
void object_count(const struct object *o, int sign);
void object_count_mapped(const struct object *o, int sign);

/*
 * For vmem.h: add to @stats; the functions of pausing.c, for addresses outside vmem's own.
 */
void objects_get_stats(CUdevice dev, struct vmem_stats *stats);
size_t objects_regions(struct vmem_region *regions, size_t max);
bool objects_have_left(void);
CUresult objects_region_unmap(CUdeviceptr start);
CUresult objects_region_map(CUdeviceptr start);

#endif
