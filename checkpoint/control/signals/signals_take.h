/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SIGNALS_TAKE_H
#define CUDAW_SIGNALS_TAKE_H
/*
 * The signals that came (signals.h), as events of the job. With CUDAW_SNAPSHOT_DIR a signal that
 * pauses asks for a snapshot too. The control thread calls it.
 */
void signals_take(void);

#endif
