/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CLIENTS_H
#define CUDAW_CLIENTS_H
/*
 * The lines of the clients, as events of the job: requests, the orders of a client that holds, and
 * the end of a connection. Requests that are not valid are answered here. Only the control thread
 * calls it.
 */
#include <stdbool.h>

/* Take all lines that came since the last call. */
void clients_handle(void);

/* True if a client waits for an answer, or has the lease, and is told how far a yield or a fill is. */
bool clients_wait(void);

#endif
