/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_ASKING_H
#define CUDAW_ASKING_H
/*
 * The processes that take part in a pause with this one (sharing.members): who they are, how far they say that they
 * are, and what this one says to them. Waits of the stages look at all of them, again and again, and end as these
 * functions tell them.
 *
 * For the engine's thread, which holds no lock. Times are milliseconds of sharing.patience.
 */
#include "checkpoint/sharing/internal.h"

#define SHARING_LOOK_MS  2   /* between two looks */
#define SHARING_STATE_MS 100 /* between two looks at all while one is waited for */
#define SHARING_BEGIN_MS \
	3000 /* for the others to begin a pause, or a resume after one that failed */
#define SHARING_SILENT_MS 10000 /* for one that lives to answer, as in a pact */

double sharing_waited_ms(void);

/* What this process answers from now on. No member is known to go on then. */
void sharing_say_stage(enum sharing_stage stage, enum sharing_vote vote);

/* Ask a process for its state; with @key, also whether it has that object. 0, or as sharers_ask(). */
int sharing_ask(const struct sharing_process *process, enum sharing_kind kind,
		const unsigned char *key, struct sharing_answer *answer);
/* The same of a member, or of all, which note it: m->error, or m->answer. */
void sharing_ask_member(struct sharing_member *m, enum sharing_kind kind,
			struct sharing_answer *answer);
void sharing_ask_all(enum sharing_kind kind);

/* As it was last asked: it has ended. */
bool sharing_is_gone(const struct sharing_member *m);

/* NULL: the process is no member. */
struct sharing_member *sharing_find_member(const struct sharing_process *process);

/*
 * Find all that share memory with this process, directly or by others, and ask each once, until *@cancel
 * becomes true. Those that have got memory of this process, and have none any more, are forgotten: false, as
 * they are members for the moment. Exports are closed, as one that gets memory after it has answered must not
 * be forgotten.
 */
bool sharing_gather(const bool *cancel);
void sharing_drop_members(void);

/*
 * UNASKED: a member that lives cannot be asked; SILENT: for long. STALE: this process has imports of memory that its
 * exporter has made anew since, or has given back. LOST: it has imports of an exporter that has ended. FAILED: its
 * resume has, and it has not begun another one in time.
 */
enum verdict { GO_ON, UNASKED, NOT_YET, SILENT, STALE, LOST, WITHDREW, FAILED };

/* A member that has not reached a stage, by @judge, and what that means; NULL and GO_ON: all have. */
struct sharing_member *sharing_find(enum verdict (*judge)(const struct sharing_member *),
				    enum verdict *verdict);

/* Those that are asked to resume together with this one may have failed before, and begin a moment later. */
enum verdict sharing_judge_failed(const struct sharing_member *m);

/* Whether a wait is to end: it is cancelled; it has met the limit of the user; both, 0: it may go on. */
bool sharing_is_cancelled(const struct sharing_wait *w);
bool sharing_is_late(const struct sharing_wait *w);
int sharing_ended(const struct sharing_wait *w);

/* A process, in words that name its job if that is another one. @m: what is known of it, or NULL. */
#define SHARING_WHO 40 /* bytes of the text */
const char *sharing_describe(pid_t pid, const struct sharing_member *m, char buf[SHARING_WHO]);

/*
 * A wait for @m has failed by @error, which is returned: @why is in words that follow its PID. Those for a member that
 * could not be asked are known. The other one: its resume has failed, and that of this process follows it.
 */
int sharing_fail_wait(struct sharing_wait *w, int error, const struct sharing_member *m,
		      const char *why);
int sharing_follow(struct sharing_wait *w, const struct sharing_member *m);

#endif
