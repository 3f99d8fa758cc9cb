/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_METRICS_SERVE_H
#define CUDAW_METRICS_SERVE_H
/*
 * Serves the metrics over HTTP, by libmicrohttpd. That library is opened when it is needed, so that the command, which
 * most people use without it, does not depend on it.
 *
 * Two processes: a child has the network and the library, and no right that it can do without; of root's it is the
 * user nobody. It asks this process for the text, which asks the jobs, at most once in METRICS_FRESH_MS. Nothing that
 * comes from the network reaches this process, except that somebody asks.
 */
#define METRICS_FRESH_MS 1000

/* Serve at @address, "[ADDR:]PORT", until the process is ended. Returns an exit code after a message. */
int metrics_serve(const char *address);

#endif
