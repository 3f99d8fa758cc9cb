/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_JOINT_H
#define CUDAW_JOINT_H
/*
 * The pacts (common/protocol/pact.h) that clients have sent with their requests to resume together with other
 * processes: that of the resume under way, and that of the one to come. Only the control thread calls it.
 */
#include <stdbool.h>

struct control_state;
struct pact;

/*
 * A request comes with the pact behind @fd. 0: this process is a member now, and the next resume follows it.
 * -EINVAL: that is no pact; -ESTALE: this process follows a later one, which decides for this one too; or
 * another negative errno.
 */
int joint_take(int fd);

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
