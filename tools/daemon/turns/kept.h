/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_KEPT_H
#define CUDAW_KEPT_H
/*
 * Those of a higher class keep a member out as long as they run, and it would not have room if all others gave what
 * they have, or must not run beside them. That time counts (kept_ms in books.h), any other is left out: a hand-over, or
 * a wait for those of its own class. After batch_after_ms of it the member goes first: it may stop the higher class,
 * and has one turn. Its time begins anew then. When it runs otherwise, its time decreases: a whole turn takes
 * batch_after_ms off it.
 *
 * On each GPU somebody goes first only if batch_after_ms have passed since the turn of the last one that did. One that
 * has to wait for this on one of its GPUs lets none go first on the others that was kept out for a shorter time.
 */
#include "tools/daemon/turns/books.h"

/* Before each decision. @wants: @m may have a turn, or memory for an allocation that waits. */
void kept_look(const struct turns *t, struct account *m, bool wants);
/* @m gets its turn before those of a higher class, or may get it. */
bool kept_goes_first(const struct turns *t, const struct account *m);
/* It may have it from now on. Nobody on its GPUs may soon, also if it comes to nothing. */
void kept_go(struct turns *t, struct account *m);
/* @m has all of its memory, or that of its allocation: if it went first, its turn begins. */
void kept_got(const struct turns *t, struct account *m);

#endif
