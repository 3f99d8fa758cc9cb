/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TOOLS_H
#define CUDAW_TOOLS_H
/*
 * The cudaw command. tools/command/cudaw.c holds a table of subcommands; each is one function with
 * a main() of its own, in a file of its own, and its help text beside it:
 *
 *	run.c		start a program under cudaw
 *	ps.c		list jobs
 *	control.c	pause (coordinate.c, steps.c: several processes), resume and trim
 *			(select.c: which jobs are meant)
 *	doctor.c	what works on this machine (probe.c asks the driver)
 *	kernels.c	the kernels in files
 *	trace.c		what a trace comes to (tracestat.c reads it)
 *	snapshot.c	a job into a directory, and restore.c, back (criu.c runs CRIU)
 *	inspect.c	what a snapshot is, and verify.c, whether it is whole (manifest_read.c
 *			reads it)
 *	jobs_find.c	finding jobs, and jobs.c, talking to them (status.c: what they say)
 *	process.c	who a process is, and signals to it (tree.c: and to its children)
 *	common/text.c	units and clean text (output.c: JSON)
 *	demangle.c	names as C++ has them
 *
 * What was asked for goes to stdout, everything else to stderr.
 */
#include "tools/report/report.h"

#include <stdbool.h>
#include <stddef.h>

/* argv[0] is "cudaw NAME". Each returns an exit code. */
int cmd_run(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_pause(int argc, char **argv);
int cmd_resume(int argc, char **argv);
int cmd_trim(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_kernels(int argc, char **argv);
int cmd_trace(int argc, char **argv);
int cmd_snapshot(int argc, char **argv);
int cmd_restore(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_verify(int argc, char **argv);

extern const char help_run[];
extern const char help_ps[];
extern const char help_pause[];
extern const char help_resume[];
extern const char help_trim[];
extern const char help_doctor[];
extern const char help_kernels[];
extern const char help_trace[];
extern const char help_snapshot[];
extern const char help_restore[];
extern const char help_inspect[];
extern const char help_verify[];

/* Point to the help of subcommand @name on stderr, and return EXIT_USAGE. */
int usage_error(const char *name);

/*
 * The options of subcommand @name where these are --json and --help. Returns -1 with *@json set
 * where they say so, and optind at the arguments; or an exit code, when there is nothing to do.
 */
int json_option(int argc, char **argv, const char *name, const char *help, bool *json);

/*
 * Whether the rest of the arguments, from optind on, is names of a @what (as "file"), and only one
 * where @one. False after saying what is wrong.
 */
bool names_given(int argc, char **argv, const char *what, bool one);

/* Take the value of --timeout, in seconds. False after a message. */
bool timeout_given(const char *text, long *ms);

#endif
