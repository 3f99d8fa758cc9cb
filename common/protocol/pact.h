/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PACT_H
#define CUDAW_PACT_H
/*
 * A pact: how the processes of one job that resume agree, without anybody who leads them. It is shared memory
 * (a memfd of fixed size), which the command makes and sends with its requests (protocol.h). When all have it,
 * the command may end, or be stopped. cudawd sends one before it takes a job off the GPU: that is used if it ends.
 *
 *	SEEK	each member looks whether there is room for the memory of all, and takes none
 *	TAKE	all have seen room: each takes its memory. If one does not find its own, as others were
 *		faster, all give theirs back, and SEEK again, a round later
 *	GO	all are whole: they run
 *	STOP	one has given up, or is not heard of any more: all are paused again
 *
 * So a job holds no memory while it waits for more: two jobs that resume at once cannot each keep from the
 * other what it lacks. Neither need know of the other, nor whose it is. The first member waits for a random
 * time before each further round, and so only one of two jobs that meet tries again.
 *
 * One word has the round and the phase, and each change of it is one compare-and-swap. So all members see the
 * same changes, and no more come after GO and STOP. A member says only for itself how far it is, in a slot of
 * its own. It counts a number there up as long as it lives and is not stopped. The others notice if it stops
 * counting, or never begins: then one of them says STOP.
 *
 * Between pacts there is an order, that of their beginning: a process follows the latest that it was sent.
 *
 * One thread of a member calls pact_watch(), another one pact_look() and pact_say().
 */
#include "common/gpu/gpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PACT_SILENCE_MS 10000 /* then a member is not waited for any more */

enum pact_phase { PACT_SEEK, PACT_TAKE, PACT_GO, PACT_STOP };

enum pact_says {
	PACT_NOTHING, /* it has not begun */
	PACT_SEEKS,   /* there is no room for all on its GPUs */
	PACT_ROOM,    /* there is; it is about to take its memory */
	PACT_TAKES, /* it takes it, which is there; or it reads its contents from a snapshot, and says ROOM then */
	PACT_LACKS, /* that has failed: it was not. It may try again, which is no news for the others */
	PACT_HAS,   /* it has its memory, without its contents */
	PACT_WHOLE, /* it may run */
	PACT_LEFT,  /* it runs, or need not: it is not waited for */
};

struct pact;

/* A new pact of @members. Returns its descriptor or a negative errno. */
int pact_create(size_t members);

/* The pact behind @fd, which may be closed then. NULL and errno; EINVAL: it is none. */
struct pact *pact_open(int fd);
void pact_close(struct pact *pact);

/* True if they are one pact; if @one began after @other. */
bool pact_is_same(const struct pact *one, const struct pact *other);
bool pact_is_later(const struct pact *one, const struct pact *other);

/* Become a member. False: there are as many as there can be. */
bool pact_join(struct pact *pact);

/* The phase, after a change that is due. */
enum pact_phase pact_look(struct pact *pact);

/* Give up. False: all run, this one as well. */
bool pact_stop(struct pact *pact);

/* For members. */

/* Count on, and see that the others do. Call it every 100 ms. The second: count on alone, at least every second. */
void pact_watch(struct pact *pact);
void pact_beat(struct pact *pact);

/* Take part in the round under way. It is the one that the other functions mean. */
void pact_begin_round(struct pact *pact);
/* PACT_LACKS says nothing except after PACT_TAKES, which says nothing from then on for the rest of the round. */
void pact_say(struct pact *pact, enum pact_says says);

/*
 * This member takes @bytes of @gpu (a UUID), its device @dev; before it first says anything. What all others
 * take there; once all have said something, which is what pact_is_known() tells.
 */
void pact_set_need(struct pact *pact, size_t dev, const char *gpu, uint64_t bytes);
uint64_t pact_others_need(const struct pact *pact, const char *gpu);
bool pact_is_known(const struct pact *pact);

/* True if others seek again: memory that was taken is to be given back. The second: or if all give up. */
bool pact_is_called_back(const struct pact *pact);
bool pact_is_ended(const struct pact *pact);

/* True if this member may take memory after clock_ms() @now_ms: it waits before a further round. */
bool pact_is_due(const struct pact *pact, double now_ms);

/* The member has LACKed its memory for a while, and none takes any: all give theirs back. */
void pact_call_back(struct pact *pact);
/*
 * True if another member takes its memory just now, or is about to. Of two that are about to, none waits for the
 * other.
 */
bool pact_others_take(const struct pact *pact);

#endif
