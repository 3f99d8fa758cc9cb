/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DAEMON_GPUS_H
#define CUDAW_DAEMON_GPUS_H
/*
 * The GPUs on which members have memory, and how much of each the members may have together: all,
 * except a margin and what others have. Others are contexts, memory that cudaw does not carry, and
 * processes that are no members: what NVML says is used, beyond what the members say they have.
 *
 * A member's own memory grows a moment before the member says so. So what others have counts as
 * more only if two samples in a row say so; and a sample for which NVML was asked before the end of a hand-over says
 * nothing of others. And that an allocation can never be served is known only of
 * memory that others had for seconds: before, it may be a member's that has yet to say so, that has lost its
 * connection and joins again, or that has ended and whose memory the driver still frees.
 *
 * The capacity of a GPU of which NVML knows nothing, or where nobody takes turns (rules.h), has no limit: its
 * jobs run, and their allocations fail, as without a daemon.
 */
#include "common/gpu/gpu.h"
#include "tools/daemon/sampler.h"

#include <stdbool.h>
#include <stddef.h>

struct daemon_gpu {
	char uuid[NVML_UUID_SIZE];
	size_t total, used; /* as NVML has it; 0: not known */
	size_t other;       /* what others have */
	size_t capacity;
	size_t most;     /* what members may come to have, as far as is known */
	size_t lasts;    /* what others have had for seconds */
	bool drained;    /* nobody gets a turn there */
	bool known;      /* it was sampled, or nobody knows it */
	bool unknown;    /* NVML has said so */
	bool asked;      /* a sample is under way */
	double asked_ms; /* the last one; 0: never */
	double taken_ms; /* the last that has come; 0: none */
};

/* What gpus.c tells the members of the GPU @gpu, and asks them. */
struct gpus_users {
	/* Take a sample, for which NVML was asked at @asked; this comes first. */
	void (*shown)(int gpu, const struct sample *sample, double asked, double now);
	/* What the members have there; negative if that changes quickly, or has done so since @since. */
	long (*mapped)(int gpu, double since);
	/* Whether a member, or a process that is about to be one, has told of it. */
	bool (*used)(int gpu);
	/* End all of these. */
	void (*end)(int gpu);
};

void gpus_init(const struct gpus_users *users, double now);

/*
 * The number of the GPU @uuid, which is added if it is new; -1: there are too many. One that is not used,
 * of which NVML has not told, and that is not drained, makes way for it; or else one that is used, if NVML
 * has said that it does not know it: its users end, of whom the caller may be one.
 */
int gpus_find(const char *uuid);

/* The GPU @index; NULL: there are no more. */
const struct daemon_gpu *gpus_get(int index);

/* Drain the GPU @uuid, or end that. Returns 0, or -ENOSPC: there are too many GPUs. */
int gpus_drain(const char *uuid, bool drained);

/*
 * A member leaves that has @mapped of the @all bytes that members have on @gpu: others have them, until a
 * sample says else.
 */
void gpus_leave(int gpu, size_t mapped, size_t all, double now);

/*
 * A context of @bytes that was out for a while has come back to @gpu: it was not there when others are counted by what
 * they had for seconds, and is there to stay.
 */
void gpus_context_back(int gpu, size_t bytes, double now);

/*
 * Look at all GPUs that were not looked at for @age_ms; but at those that were looked at before only when
 * no sample is under way, so that there are moments without any.
 */
void gpus_sample(double age_ms, double now);

/*
 * The same at any age, for a member that has joined: of a sample that was under way it is not known whether it has what
 * the member has, so that another one follows, which gpus_are_settled() waits for as well. As members may join all the
 * time, none follows one that itself has followed.
 */
void gpus_sample_anew(double now);

/* False: the last sample of @gpu is old, and a new one may say else. */
bool gpus_is_fresh(int gpu, double now);

/* Take the samples that have come. */
void gpus_take(double now);

/*
 * Whether nothing is to be waited for: no sample is under way, or for so long that NVML seems to
 * hang. New GPUs hold up decisions for a tenth of the time at most, and once for that time more.
 */
bool gpus_are_settled(double now);

#define GPUS_PATIENCE_MS 3000 /* for a sample */

#endif
