/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CONTROL_STATE_H
#define CUDAW_CONTROL_STATE_H
/*
 * What the control thread knows and decides, and nothing of how it is done: no I/O, no threads, no
 * clock. It takes events and gives back actions, so that a test can put every event to every state.
 *
 * The state has four parts:
 *	activity  what is under way, and whether that is still wanted (the table in state.c)
 *	rest      the job as the last operation left it
 *	wishes    who wants the job paused: a row for each; while one of them does, it is to be
 *		  paused. The last request of the user wins: a resume clears all rows
 *	snapshot  how far the snapshot is that somebody asked for
 *
 * control_take() changes what is wanted. control_decide() starts what is missing, once all events
 * that came together are taken. What cannot be begun, because there is no thread, is told to those
 * who wait for it, and forgotten, except for a wish by signal, which nobody would repeat: it is
 * tried again at every EV_RETRY.
 *
 * An operation that was called off and is asked for again before it has ended is begun anew; all
 * who asked for it are answered with what comes of that.
 *
 * A snapshot may want a pause of its own, which ends with it. It is its own as long as the user has
 * not asked for a pause: then that one holds. Who asks for a snapshot says when it is done, as the
 * process image is made by others; that they have ended is noticed, and means the same.
 *
 * An operation may be held (hold.h) by the client that asked for it: it gives orders, and when it
 * aborts or hangs up, what it asked for is undone, or goes on alone. It holds until somebody asks
 * for the same without a hold, which lets the operation go on, or holds it too: of several, each
 * may let it go on, but the last one alone can undo it. So no client that is stuck keeps others
 * from a pause or a resume.
 */
#include "common/protocol.h"
#include "checkpoint/release/release.h"
#include "checkpoint/control/server.h"

#include <stdbool.h>
#include <stddef.h>

enum operation { OP_NONE, OP_PAUSE, OP_RESUME, OP_TRIM, OP_SNAPSHOT, OP_TIDY };

/*
 * OFF: called off, as the contrary is wanted. AGAIN: called off, and wanted again since.
 * STARVED: nothing is under way, as there was no thread for it. REFUSED: the program's calls fail,
 * so that it can end; there is no way back.
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
	X(TIDYING, OP_TIDY)          \
	X(REFUSED, OP_NONE)

#define ACTIVITY_ENUM(name, op) ACTIVITY_##name,
enum activity { ACTIVITY_MAP(ACTIVITY_ENUM) ACTIVITIES };
#undef ACTIVITY_ENUM

#define EVENT_MAP(X)                                                                         \
	X(PAUSE)  /* the user wants the job paused */                                        \
	X(RESUME) /* the user wants it to run */                                             \
	X(END)    /* a signal ends the program, which may need the GPU for that */           \
	X(TRIM)                                                                              \
	X(SNAPSHOT)                                                                          \
	X(CALL_OFF)    /* the requester of a snapshot disconnected before it was written */  \
	X(DONE)        /* the snapshot is done, as is said, or as its requester has ended */ \
	X(MOVED)       /* the job goes on from a snapshot, by whoever restores it */         \
	X(COMMIT)      /* a client that holds lets the operation go on */                    \
	X(ABORT)       /* it gives up */                                                     \
	X(HOLDER_GONE) /* it disconnected */                                                 \
	X(ENDED)       /* the operation did */                                               \
	X(NO_START)    /* the operation could not be begun */                                \
	X(RETRY)       /* a moment has passed */

#define EVENT_ENUM(name) EV_##name,
enum event_kind { EVENT_MAP(EVENT_ENUM) EVENTS };
#undef EVENT_ENUM

/* How an operation is to be done. */
struct operation_options {
	int timeout_ms;
	enum release_choice release;
	bool hold;
	bool writes; /* a snapshot: of OP_PAUSE and OP_SNAPSHOT */
};

struct control_event {
	enum event_kind kind;

	/* PAUSE, RESUME, and SNAPSHOT for its own pause. */
	struct operation_options options;
	bool by_signal;      /* nobody would hear that it failed: keep it */
	unsigned int client; /* who holds; and of COMMIT, ABORT and HOLDER_GONE; 0: nobody */

	/* SNAPSHOT */
	bool pause, image; /* as struct snapshot_order has them */
	bool held;         /* a snapshot alone has what a paused job had on the GPU */

	bool matches; /* DONE: it is that snapshot; MOVED: any */
	bool agreed;  /* HOLDER_GONE: all who hold together are to go on */

	/* ENDED: the code of the operation's result, and of the snapshot that it wrote. */
	const char *code, *written;
	bool paused; /* engine_is_paused() */

	/* ENDED and NO_START: why it failed, for those who wait for what comes after it. */
	const char *reason;
	bool exiting; /* NO_START: the process exits, and nothing will be begun any more */
};

enum action_kind {
	ACT_START,  /* @op with @options; EV_NO_START where that fails */
	ACT_CANCEL, /* the operation under way */
	ACT_COMMIT, /* order the operation to go on */
	ACT_REPORT, /* repeat the last report of the operation, for the client that holds it now */
	ACT_ANSWER, /* those who wait for @whom, and end them: with @code and @reason, or, where */
		    /* @code is NULL, as @answer says */
	ACT_LOCK,   /* the directory of the snapshot that alone has the job's memory */
	ACT_REFUSE, /* let the program's calls fail, so that it can end */
};

enum action_answer {
	ANSWER_RESULT,  /* with the result of the operation */
	ANSWER_WRITTEN, /* of the snapshot */
	ANSWER_STATE,   /* it is so already */
};

struct control_action {
	enum action_kind kind;
	enum operation op;
	struct operation_options options;
	enum server_wait whom;
	enum action_answer answer;
	const char *code, *reason;
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
	WISHERS,
};

enum snapshot_stage {
	SNAPSHOT_NONE,
	SNAPSHOT_ASKED,   /* to be written once the job is paused */
	SNAPSHOT_WRITTEN, /* being written by the operation under way */
	SNAPSHOT_OPEN,    /* to be done, as its requester says */
	SNAPSHOT_CLOSING, /* done, and that is to be acted upon */
};

enum hold_phase {
	HOLD_NONE,
	HOLD_OPEN,
	HOLD_COMMITTED,
};

struct control_state {
	enum activity activity;
	enum job_state rest; /* RUNNING, PAUSED or FAILED */

	bool wishes[WISHERS];
	struct operation_options options; /* of the last wish */
	bool by_signal;                   /* a signal asked for what is wanted */

	enum snapshot_stage snapshot;
	bool order_pause, order_image; /* of that snapshot */
	bool order_kept;               /* it was asked for by signal */

	bool trim;   /* is asked for */
	bool ending; /* the program handles a signal that ends it */

	enum hold_phase hold; /* of the operation under way */
	unsigned int holder;  /* the client that can undo what it asked for; 0: none */
	int timeout_ms;       /* of the operation under way */
};

/*
 * Take @event; the actions are added to @actions. Returns 0, or -EBUSY for a snapshot beside
 * another one; then nothing has changed.
 */
int control_take(struct control_state *s, const struct control_event *event,
		 struct control_actions *actions);

/* Begin what is to be done, or answer those who wait for what is so. @untidy: engine_is_untidy() */
void control_decide(struct control_state *s, bool untidy, struct control_actions *actions);

/* The operation under way. */
enum operation control_operation(const struct control_state *s);

/* Its requester is to say that the snapshot is done. */
bool control_awaits_done(const struct control_state *s);

#endif
