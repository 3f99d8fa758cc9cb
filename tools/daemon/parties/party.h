/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_PARTY_H
#define CUDAW_PARTY_H
/*
 * What parties.c, which takes events, and rounds.c, which gives orders, know of the processes of a job.
 */
#include "common/protocol/rundir.h"
#include "tools/daemon/parties/parties.h"
#include "tools/job/party/rest.h"

enum round_kind {
	ROUND_NONE,
	ROUND_OUT,
	ROUND_IN,
};

struct process {
	uint32_t id; /* 0: the place is free */
	struct party *party;
	uint64_t mapped[TURNS_GPUS], total[TURNS_GPUS], shown[TURNS_GPUS], context[TURNS_GPUS];
	uint32_t tried; /* bits: GPUs on which it was let allocate; while turns_promised() */
	bool paused, idle, watched;
	bool waits_alone; /* for its memory; also paused then */
	bool stops;       /* it is to stop, or has stopped */
	bool wants;       /* since its lease is gone, also while it is paused */
	bool ends;        /* the same, as a signal ends it */
	bool out;         /* it does not run, for its turn */
	bool asked;       /* it has a part in the round under way, and has not ended it */
	bool held;        /* it has its memory back, and waits for the others */
	bool failed;
	uint64_t gives;   /* what it was asked for by its last yield, of what it had */
	uint64_t freed;   /* by that */
	uint64_t freeing; /* by the yield under way, and still in @mapped */
	uint64_t filled;  /* the most that it has said it has, in the round */
	uint64_t
		room; /* that it was told of, until it has ended the fill, or the yield that calls it off */
	size_t rank; /* in the round */
};

/*
 * What the books have ordered. If a process fails, the others go back to where they were (UNDONE). If
 * that fails as well, all are to be out, and those that cannot are let go (FORCED).
 */
enum attempt { ATTEMPT_FIRST, ATTEMPT_UNDONE, ATTEMPT_FORCED };

/* OLD: others were in the job when they got it. */
enum party_pact { PACT_NONE, PACT_OLD, PACT_OURS };

struct party {
	uint32_t member; /* in the books; 0: the place is free */
	unsigned int user;
	char job[RUNDIR_ID_SIZE];
	bool watched;
	bool out;          /* its processes are to be out */
	bool was;          /* they were before the books' order */
	bool waited_alone; /* one did then: that cannot be undone */

	bool frees; /* of an order to give memory: others may have what is freed, so there is no way back */
	bool owed;  /* the books wait for the end of its order */
	bool fresh; /* no round was begun for it */
	enum attempt attempt;
	enum turns_end end; /* the first failure of the order */
	bool fails;         /* a process has failed in the round under way */
	double timeout_ms;
	uint64_t bytes;
	uint64_t gives[TURNS_GPUS]; /* of its processes together; of an order to give memory */
	uint64_t room[TURNS_GPUS];  /* for its processes together, in a ROUND_IN */
	bool context;               /* it is to give that, too */
	bool follows;  /* the round is of processes that follow their job: they give everything */
	bool short_of; /* the books have given @bytes of room, too little for all of its processes */

	enum party_pact pact; /* that its processes have */
	double pact_ms;       /* when the last one was sent */
	bool pact_lacks;      /* one of them did not get that */

	enum round_kind round;
	bool together; /* the round is of a job with several processes */
	bool committed, aborted;
	struct rest rest; /* of a ROUND_OUT of several */
};

struct parties {
	struct turns *turns;
	struct process processes[TURNS_MEMBERS];
	struct party parties[TURNS_MEMBERS];
	uint32_t last_id;

	void (*give)(const struct party_order *, void *); /* of parties_decide() */
	void *arg;
};

#define FOR_EACH_OF(p, party_, m)                                                         \
	for (struct process *m = (p)->processes; m < (p)->processes + TURNS_MEMBERS; m++) \
		if (m->id && m->party == (party_))
#define FOR_EACH_PARTY(p, party)                                                                \
	for (struct party *party = (p)->parties; party < (p)->parties + TURNS_MEMBERS; party++) \
		if (party->member)

struct process *parties_find(struct parties *p, uint32_t id);
struct party *parties_find_member(struct parties *p, uint32_t member);
/* How many processes the job has. */
size_t party_count(struct parties *p, const struct party *party);
/*
 * The GPU on which alone @m has memory, or may have taken it without having said so yet; -1: there is none. All that
 * is said of its bytes is of that GPU.
 */
int party_only_gpu(struct parties *p, const struct process *m);
/* True if the job takes room as it comes: each of its processes has one GPU. */
bool party_takes_parts(struct parties *p, const struct party *party);
/* The bytes of all GPUs. */
uint64_t party_sum(const uint64_t *bytes);
/* Tell the books. */
void party_tell_needs(struct parties *p, const struct party *party, double now);
void party_tell_idle(struct parties *p, const struct party *party, double now);
void party_tell_paused(struct parties *p, const struct party *party, double now);
void party_end_round(struct party *party);
/* Its processes have changed. */
void party_outdate_pact(struct party *party);

#endif
