/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_CUDAWD_ERRORS_H
#define CUDAW_CUDAWD_ERRORS_H
/* What the commands that ask cudawd say if it does not answer. */

/* Print why cudawd_ask() failed with @err, at the socket @where. Returns the exit code. */
int cudawd_explain(int err, const char *where);

#endif
