/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CONTROL_STATE_H
#define CUDAW_CONTROL_STATE_H
/*
 * What the control thread knows and decides, but not how it is done: no I/O, no threads, no clock.
 * It takes events and gives back actions, so that a test can try every event in every state.
 *
 * The state has five parts:
 *	activity  the operation under way, and whether it is still wanted (the table in state.c)
 *	rest      the job as the last operation left it
 *	wishes    who wants the job paused, one entry each; it must be paused while one of them
 *		  does. The last request of the user wins: a resume clears all entries
 *	snapshot  the stage of the snapshot that somebody asked for
 *	lease     whether the job may run, beside the user's wish
 *
 * control_take() changes what is wanted. When all events that came together are taken,
 * control_decide() starts what is missing. If an operation cannot begin, because no thread can be
 * started, those who wait for it get an error and it is forgotten. But nobody would repeat a wish
 * by signal, or that the job runs when its lease is back: these are tried again at every EV_RETRY.
 *
 * A job may be paused with its context on the GPU. A pause that asks for the whole GPU then releases
 * the rest; if such a request comes during a pause, that is looked at when the pause is done.
 *
 * An operation that was called off, and is asked for again before it has ended, begins again. All
 * who asked for it get the result of the second attempt.
 *
 * A snapshot may need a pause of its own, which ends with the snapshot, unless the user asks for a
 * pause meanwhile. The requester of a snapshot says when it is done, as others make the process
 * image. If the requester has ended without a word, that means the same. A requester that is to have snapshots
 * of several processes has them paused first: the job is lent to it, until it says so or has ended.
 *
 * A user's pause and the lease are two inputs. A job that the user wants paused is out with all of
 * its memory, whoever has the lease. A job without the lease that the user wants to run has a part
 * out, waits, and gets memory back as room comes. Who asked for its resume waits as well, unless the
 * resume is to be held: a turn comes to all processes of a job at once, or to none. If the client that had the
 * lease is gone, a job of one process resumes by itself, and one of several by the pact that the client has sent
 * before. Each of these that has no pact, or whose resume by it ends before all run, is paused until another client
 * takes the lease, or somebody asks.
 *
 * A program that handles SIGTERM may need the GPU for its end. That is a wish as any: the job resumes
 * as soon as it has memory, or its lease. If there is no memory in time, the job is paused as before.
 *
 * The client that asked for an operation may hold it (hold.h), and gives orders. So may the client
 * that has the lease; if it aborts a yield, the job runs on. If another client aborts or disconnects,
 * its request is undone if it has changed what is wanted, or goes on alone. The hold ends when
 * somebody asks for the same without a hold, which lets the operation go on. Somebody may also hold
 * it too: each of them may let it go on, but only the last one can undo it. So a client that is stuck
 * cannot keep others from a pause or a resume. A resume with a pact is not held by clients: the
 * processes of the job agree by themselves, and another such resume takes its place. If it ends before all run, no
 * process resumes alone, whoever has ended it: each stays paused until somebody asks. A signal that wants a held
 * pause does not end the hold; if the pause is undone, it begins again as the signal's. A held pause that calls
 * off a resume finds the job at rest: it is held all the same, without an operation, as others may give up.
 */
#include "common/protocol/protocol.h"
#include "checkpoint/release/release.h"
#include "checkpoint/control/server.h"

#include <stdbool.h>
#include <stddef.h>

enum operation {
	OP_NONE,
	OP_PAUSE,
	OP_RESUME,
	OP_TRIM,
	OP_SNAPSHOT,
	OP_RELEASE,
	OP_TIDY,
	OP_YIELD,
	OP_FILL,
	OP_PROBE,
};

/*
 * OFF: called off, as the opposite is wanted. AGAIN: called off, and wanted again since.
 * STARVED: nothing is under way, as no thread could be started.
 */
#define ACTIVITY_MAP(X)              \
	X(IDLE, OP_NONE)             \
	X(STARVED, OP_NONE)          \
	X(PAUSING, OP_PAUSE)         \
	X(PAUSING_OFF, OP_PAUSE)     \
	X(PAUSING_AGAIN, OP_PAUSE)   \
	X(RESUMING, OP_RESUME)       \
	X(RESUMING_OFF, OP_RESUME)   \
	X(RESUMING_AGAIN, OP_RESUME) \
	X(TRIMMING, OP_TRIM)         \
	X(WRITING, OP_SNAPSHOT)      \
	X(RELEASING, OP_RELEASE)     \
	X(TIDYING, OP_TIDY)          \
	X(YIELDING, OP_YIELD)        \
	X(FILLING, OP_FILL)          \
	X(PROBING, OP_PROBE)

#define ACTIVITY_ENUM(name, op) ACTIVITY_##name,
enum activity { ACTIVITY_MAP(ACTIVITY_ENUM) ACTIVITIES };
#undef ACTIVITY_ENUM

#define EVENT_MAP(X)                                                                        \
	X(PAUSE)  /* the user wants the job paused */                                       \
	X(RESUME) /* the user wants it to run */                                            \
	X(END)    /* the program handles SIGTERM, and may need the GPU for its end */       \
	X(STOP)   /* the process is to stop (SIGTSTP), and the GPU to be free then */       \
	X(GO_ON)  /* it need not stop, or goes on (SIGCONT) */                              \
	X(TRIM)                                                                             \
	X(SNAPSHOT)                                                                         \
	X(CALL_OFF)    /* the requester of a snapshot disconnected before it was written */ \
	X(DONE)        /* the snapshot is done: its requester says so, or has ended */      \
	X(MOVED)       /* the job was restored from a snapshot */                           \
	X(COMMIT)      /* a client that holds lets the operation go on */                   \
	X(ABORT)       /* it gives up */                                                    \
	X(HOLDER_GONE) /* it disconnected */                                                \
	X(ENDED)       /* the operation has ended */                                        \
	X(NO_START)    /* the operation could not begin */                                  \
	X(RETRY)       /* a moment has passed */                                            \
	X(YIELD)       /* the lease goes: take memory off the GPU */                        \
	X(ROOM)        /* memory may come back */                                           \
	X(LEASE_BACK)  /* whoever had the lease is gone */                                  \
	X(PROBE)       /* see whether a running job has nothing to do, unless it has */     \
	X(EXPIRED)     /* the time of a resume that waits for its turn is over */

#define EVENT_ENUM(name) EV_##name,
enum event_kind { EVENT_MAP(EVENT_ENUM) EVENTS };
#undef EVENT_ENUM

/* Options of an operation. */
struct operation_options {
	double timeout_ms;
	bool own_limit; /* cudaw has set it: it counts as common/limits.h says */
	enum release_choice release;
	bool hold;
	bool joint; /* a resume together with others, who agree by a pact (common/protocol/pact.h) */
	bool alone;       /* a signal asks for it: nobody brings other processes to rest as well */
	bool writes;      /* OP_PAUSE and OP_SNAPSHOT write a snapshot */
	bool awaits_lock; /* OP_RESUME and OP_FILL: of the snapshot that has the memory */
	size_t bytes;     /* OP_YIELD takes at least so many, OP_FILL has room for so many */
	bool context;     /* OP_YIELD takes all memory, and then the contexts */
};

struct control_event {
	enum event_kind kind;

	/* PAUSE, RESUME, SNAPSHOT for its own pause, YIELD and ROOM. DONE and LEASE_BACK: of the resume. */
	struct operation_options options;
	bool by_signal;      /* nobody would hear of a failure: try again */
	bool lent;           /* PAUSE: for a snapshot, until DONE */
	unsigned int client; /* that holds; of COMMIT, ABORT and HOLDER_GONE too; 0: nobody */
	/* COMMIT and ABORT: the client has the lease. STOP: the lease goes. LEASE_BACK: it has given it back by a word. */
	bool by_lease;

	/* SNAPSHOT */
	bool pause, image; /* as struct snapshot_plan has them */
	bool in_snapshot;  /* a snapshot alone has the memory of a paused job */

	bool matches; /* DONE: it names this snapshot, or is by the process that the job is lent to */

	/* ENDED: the code of the operation, and that of the snapshot that it wrote. */
	enum end_code code, written;
	bool paused, partly; /* engine_is_paused(), engine_is_partly_out() */
	size_t room;         /* the last that the fill has seen */
	bool kept; /* a resume that has failed has left the contexts on the GPU, which were out */

	/* ENDED and NO_START: why it failed, for those who wait for what was to follow. */
	const char *reason;
	bool exiting; /* NO_START: the process exits, and no further operation begins */
};

enum action_kind {
	ACT_START,  /* @op with @options; EV_NO_START if that fails */
	ACT_CANCEL, /* the operation under way */
	ACT_COMMIT, /* order the operation to go on */
	ACT_ROOM,   /* the fill under way has room for @options.bytes */
	ACT_REPORT, /* repeat the last report of the operation, for the client that holds it now */
	ACT_REST,   /* tell those who hold the job that it is at rest, without an operation */
	ACT_ANSWER, /* those who wait for @whom, and end them: with @code and @reason; with a */
		    /* @code of END_NONE as @answer says */
	ACT_LOCK,   /* the directory of the snapshot that alone has the job's memory */
};

enum action_answer {
	ANSWER_RESULT,  /* with the result of the operation */
	ANSWER_NOTE,    /* with it, but without figures */
	ANSWER_FILL,    /* with it, for a room line */
	ANSWER_WRITTEN, /* of the snapshot */
	ANSWER_STATE,   /* the job is in that state already */
	ANSWER_TURN,    /* those who hold: it waits for its turn */
};

struct control_action {
	enum action_kind kind;
	enum operation op;
	struct operation_options options;
	enum server_wait whom;
	enum action_answer answer;
	enum end_code code;
	const char *reason;
};

#define ACTIONS_MAX 16

struct control_actions {
	size_t n;
	struct control_action list[ACTIONS_MAX];
};

/* Who may want the job paused. */
enum wisher {
	WISHER_USER,
	WISHER_SNAPSHOT,
	WISHER_STOP,
	WISHER_LEASE, /* nobody: it could not resume with the others when the client with the lease was gone */
	WISHERS,
};

enum snapshot_stage {
	SNAPSHOT_NONE,
	SNAPSHOT_ASKED,   /* to be written once the job is paused */
	SNAPSHOT_WRITTEN, /* being written by the operation under way */
	SNAPSHOT_OPEN,    /* written; its requester will say when it is done */
	SNAPSHOT_CLOSING, /* done; control_decide() has yet to act */
};

/*
 * A yield takes the lease; then the job runs only when there is room for all of its memory, or when
 * the lease comes back.
 */
enum lease {
	LEASE_OURS,
	LEASE_ASKED, /* a yield is to begin */
	LEASE_GONE,
};

/* How a job that is out comes back if nobody asks for that. */
enum comes_back {
	BACK_ALONE,
	BACK_ASKED, /* not at all: it was asked to resume with others, and has not run since */
	BACK_LEASED, /* if another client takes the lease: it was out with others when that one was gone */
};

enum hold_phase {
	HOLD_NONE,
	HOLD_OPEN,
	HOLD_COMMITTED,
	HOLD_JOINT, /* the engine follows a pact: clients have no part in that */
};

struct control_state {
	enum activity activity;
	/* RUNNING; PAUSED, with nothing on the GPU; WAITING, with a part of the memory; or FAILED. */
	enum job_state rest;
	bool partly; /* a job that has FAILED has a part of its memory on the GPU */

	bool wishes[WISHERS];
	struct operation_options options; /* of the last wish */
	bool by_signal;                   /* it is tried again if it cannot begin */
	bool joint;    /* a joint resume is asked for, also by DONE, and has not begun */
	bool stopping; /* EV_STOP came, and nobody has asked it to run since */
	bool called;   /* the user has asked it to run, and it has not run since */
	bool ends;     /* EV_END came: it may resume without the others, once */
	enum comes_back back;

	enum snapshot_stage snapshot;
	bool plan_pause, plan_image; /* of that snapshot */
	bool plan_kept;              /* a signal asked for it: try again */

	enum lease lease;
	struct operation_options yield; /* that is asked for */
	size_t room;                    /* bytes that may be mapped without the lease */
	bool room_holds;                /* a fill that uses it is held before the job runs */
	bool fill;                      /* no fill has used that room */

	bool trim;  /* a trim is asked for */
	bool probe; /* a probe is, unless anything else is */
	bool whole; /* a pause has asked for the whole GPU, or a resume has begun with that; it may be paused already */

	enum hold_phase hold; /* of the operation under way; IDLE: a paused job is held */
	unsigned int holder;  /* the client that can undo what it asked for; 0: none */
	bool undoes;          /* before those who hold, the opposite was wanted */
	double timeout_ms;    /* of the operation under way */
};

/*
 * Take @event, and add actions to @actions. Returns 0, or -EBUSY for a snapshot beside another one;
 * then nothing has changed.
 */
int control_take(struct control_state *s, const struct control_event *event,
		 struct control_actions *actions);

/*
 * Begin what is wanted, or answer those who wait for a state that the job is already in. @untidy:
 * engine_is_untidy(). @kept: engine_keeps_context().
 */
void control_decide(struct control_state *s, bool untidy, bool kept,
		    struct control_actions *actions);

/* The operation under way. */
enum operation control_operation(const struct control_state *s);

/* True for a yield and a fill. */
bool control_is_part(enum operation op);

/* True if the user, or a snapshot, wants the job paused. */
bool control_wants_paused(const struct control_state *s);

/* True if it is to be paused whatever becomes of its snapshot. */
bool control_wants_paused_anyway(const struct control_state *s);

/* True if it is paused only until another client takes the lease. */
bool control_awaits_lease(const struct control_state *s);

/* True if a snapshot is written, and its requester has yet to say that it is done. */
bool control_awaits_done(const struct control_state *s);

/* True if the job is paused for one who has not yet asked for its snapshot, or got none. */
bool control_is_lent(const struct control_state *s);

#endif
