/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_JOINT_H
#define CUDAW_JOINT_H
/*
 * The pacts (common/protocol/pact.h) that clients have sent, to resume together with other processes: that of the
 * resume under way, that of the one to come, and those that are kept for the end of a client. Only the control
 * thread calls it.
 */
#include <stdbool.h>

struct control_state;
struct pact;

/*
 * A request comes with the pact behind @fd. 0: this process is a member now, and the next resume follows it.
 * -EINVAL: that is no pact; -ESTALE: this process follows it, or a later one, which decides for this one too; or
 * the pact has all of its members, and the others do without this process; or another negative errno.
 */
int joint_take(int fd);

/* For whose end a pact is kept: of the client that has the lease, or of the one that the job is lent to. */
enum joint_end { JOINT_LEASE, JOINT_LOAN, JOINT_ENDS };

/*
 * Keep the pact behind @fd for that, in place of one that is kept already, which is given up, also if there is none
 * behind @fd. This process is a member now. 0 or a negative errno, as above.
 */
int joint_keep(enum joint_end end, int fd);

/* That end has come: the next resume follows the pact, if this process does not run already. False: there is none. */
bool joint_use(enum joint_end end);

/* It has come, and the pact is yet to be used: others do not give up because of this process. */
void joint_beat(enum joint_end end);

/* That of the next resume; NULL: none. */
struct pact *joint_next(void);

/* That resume has begun; the resume under way has ended. */
void joint_began(void);
void joint_ended(void);

/* Every 100 ms while joint_is_on(), after control_decide(): tell the other members how it is here. */
void joint_look(const struct control_state *state);
bool joint_is_on(void);

/* In the child of a fork. */
void joint_after_fork(void);

#endif
