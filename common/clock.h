/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CLOCK_H
#define CUDAW_CLOCK_H

/* Milliseconds of CLOCK_MONOTONIC. Async-signal-safe. */
double clock_ms(void);

#endif
