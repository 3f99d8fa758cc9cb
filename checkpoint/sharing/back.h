/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_BACK_H
#define CUDAW_BACK_H
/*
 * Memory that is given back, in a pause or because a resume fails: it has left the GPU only when no process has it any
 * more. A process waits until none has memory of it: sharing_released(), sharing_back(), sharing_gone_back() and
 * sharing_failed() of sharing.h. And it gives back what it has of others that have gone back. For the engine's thread,
 * which holds no lock.
 */
#include "checkpoint/sharing/internal.h"

/*
 * True if the member has gone back, and this process has memory of it, which nobody can use any more, and which keeps
 * that from the driver's checkpoint.
 */
bool sharing_has_old_memory(const struct sharing_member *m);

/* Give imports of a member back that it has made, or will make, anew. 0, or -EIO with w->error and w->text. */
int sharing_release_imports(struct sharing_wait *w, const struct sharing_member *m);

#endif
