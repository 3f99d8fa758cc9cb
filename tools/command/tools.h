/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_TOOLS_H
#define CUDAW_TOOLS_H
/*
 * The cudaw command. tools/command/cudaw.c holds a table of subcommands. Each subcommand is a
 * function like main(), in a file of its own beside its help text:
 *
 *	run.c		start a program under cudaw (run_checks.c)
 *	ps.c, top.c	list jobs, once and again and again (listed.c: all of them, ps_table.c: the table)
 *	control.c	pause, resume and trim (paused_by_driver.c: without cudaw in the process)
 *	doctor.c	what works on this machine
 *	cdi.c		for container engines
 *	metrics.c	for Prometheus (metrics_text.c: the text, metrics_serve.c: over HTTP)
 *	wait.c, events.c	until jobs are paused or saved; what happened to them
 *	kernels.c	the kernels in files
 *	turns.c, yield.c	ask cudawd (turns_list.c: who takes turns)
 *	turns_orders.c	give it orders: cudaw turns set, drain and undrain
 *	snapshot.c	a job into a directory (taking_checks.c, taking.c, taking_image.c, taking_commit.c)
 *	restore.c	and back (restoring_checks.c, restoring.c)
 *	inspect.c	describe a snapshot
 *	verify.c	check every byte of a snapshot
 *	version.c	the version
 *
 * They share settings_check.c (the variables that jobs read), opened.c (snapshots that the user names),
 * output.c (JSON) and demangle.c (C++ names).
 *
 * The directories that they use:
 *
 *	tools/job	jobs_find.c and scan.c find jobs, jobs.c talks to them, status.c parses the answers;
 *			targets.c and select.c: which jobs a command line means; outcome.c: how a
 *			request ended; coordinate.c and steps.c: several processes together
 *	tools/process	process.c identifies and signals processes, tree.c with their children;
 *			limited.c and inside.c look into processes of other namespaces;
 *			criu.c runs CRIU, criu_files.c reads its images; needs.c and outside.c
 *			check what a restore and a snapshot need; probe.c asks the driver; driver.c
 *			calls its checkpoint, with record.c, for processes that cuda_use.c finds
 *	tools/report	exit codes, messages, the progress line, what a terminal shows,
 *			words that a user may have meant
 *
 * The requested output goes to stdout, everything else to stderr.
 */
#include "tools/command/options.h"
#include "tools/report/report.h"

#include <stdbool.h>
#include <stddef.h>

/* argv[0] is "cudaw NAME". Each returns an exit code. */
int cmd_run(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_pause(int argc, char **argv);
int cmd_resume(int argc, char **argv);
int cmd_trim(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_kernels(int argc, char **argv);
int cmd_snapshot(int argc, char **argv);
int cmd_restore(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_turns(int argc, char **argv);
int cmd_yield(int argc, char **argv);
int cmd_events(int argc, char **argv);
int cmd_wait(int argc, char **argv);
int cmd_metrics(int argc, char **argv);
int cmd_cdi(int argc, char **argv);
int cmd_version(int argc, char **argv);

extern const char help_run[];
extern const char help_ps[];
extern const char help_top[];
extern const char help_pause[];
extern const char help_resume[];
extern const char help_trim[];
extern const char help_doctor[];
extern const char help_kernels[];
extern const char help_snapshot[];
extern const char help_restore[];
extern const char help_inspect[];
extern const char help_verify[];
extern const char help_turns[];
extern const char help_yield[];
extern const char help_events[];
extern const char help_wait[];
extern const char help_metrics[];
extern const char help_cdi[];
extern const char help_version[];

#endif
