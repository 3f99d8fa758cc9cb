/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SHARING_H
#define CUDAW_SHARING_H
/*
 * Memory that processes share by exported descriptors (cuMemExportToShareableHandle()), through
 * pauses of all of them.
 *
 * The program gets tickets (messages.h) in place of the driver's descriptors. A process that imports a
 * ticket asks the exporter for a descriptor of the driver, which lives for that moment only. So at
 * the driver's checkpoint nothing shared is alive, as its restore demands, and after it the exporter
 * can make the memory anew, and the others can ask for it again.
 *
 * Processes that share memory, directly or by others, pause and resume together, in stages. Each
 * asks the others how far they are; no command takes part, so none can leave them half way.
 *
 *	RUNNING
 *	PAUSING		comes to rest
 *	RESTING		at rest: saves its own memory, and exports nothing; in a yield, it finds room for that
 *	SAVED		once all are: gives all memory back, imports first; in a yield, it saves what it is to
 *			give, and gives that back as it is copied
 *	RELEASED	once all are: the driver's checkpoint; paused
 *	REBUILT		has made its own memory anew: gets its imports from those that are as far
 *	WHOLE		has all its memory. Once all have: RUNNING
 *
 * A process goes on to the next stage when all have reached the one that the line names. From SAVED
 * and from WHOLE there is no way back once one process has gone on: it would run with memory that
 * the others lose. So a process says that it goes on (ON), and then asks all others once more; one
 * that gives up says so (OFF), and then asks, too. Whichever of two speaks last sees the other, and
 * stays. A process that does not answer, as it is stopped, say, may have gone on if it has asked this one for the
 * second time; if it has not, it will find OFF. So nobody waits for one that is stopped, unless that is in the
 * very moment in which it goes on; then it is waited for until it continues, or ends. With a pact
 * (common/protocol/pact.h) that moment begins when the pact says GO: others, which share nothing, run then. Until
 * then a process that is whole says OFF.
 *
 * If a process cannot resume, it is RELEASED again, and says so: the others, which nothing else would tell
 * that they wait in vain, give up, too. One that is only paused is waited for. Either way they give back what they
 * have got of it since, and it waits for that before the driver's checkpoint.
 *
 * A process that ends is not waited for. Memory that it exported is lost to the others if it was
 * paused; if it ends before, its importers leave that memory to the driver, which a pause with
 * CUDAW_RELEASE=all refuses by name. One that lives and cannot be reached (sharers.h) still has the memory: no
 * other one comes to rest without it, or goes on.
 *
 * Locking: a lock for the tables, which is not held while others are asked, nor across a driver
 * call. The engine's thread makes all calls except those of the first block.
 */
#include "checkpoint/sharing/messages.h"

#include <stdbool.h>

struct pact;

/* For hooks, inside the gate. */

/*
 * Give the program's object a name, and make a ticket of it in *@fd, which keeps the memory as long as
 * anybody has it. CUDA_SUCCESS with *@fd negative: no ticket can be made, and the reason has been said. Else
 * the error of the driver, which does not export it.
 */
CUresult sharing_export(CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
			unsigned long long flags, int *fd);

/*
 * A new name for memory of this process. False: it cannot be shared, and the reason has been said.
 */
bool sharing_name(struct object_name *name);

/* True if @name is of memory of this process. */
bool sharing_is_own(const struct object_name *name);

/*
 * Import what @name names: sharing_import_begin() makes the handle, and the caller repeats
 * sharing_import() while it returns CUDA_ERROR_NOT_READY, as a pause has the exporter's memory, or
 * that process does not answer (*@silent), e.g. because it is stopped. It should leave the gate in between.
 * After another error the handle is gone.
 */
CUresult sharing_import_begin(const struct object_name *name, CUmemGenericAllocationHandle *handle);
CUresult sharing_import(const struct object_name *name, CUmemGenericAllocationHandle handle,
			bool *silent);

/* For the engine. */

/* Room for the IDs of some other jobs, with a space before each. */
#define SHARING_JOBS 64

struct sharing_wait {
	double deadline_ms; /* limits_ms(); 0: none */
	const bool *cancel;
	const struct pact *pact; /* of a resume; NULL: none. Others end the wait by it, too */
	CUresult error;          /* of the driver, after -EIO */
	double got_ms;           /* for the imports of what exporters have given */
	char text[224];          /* after a failure: which process is waited for, and why */
	char jobs[SHARING_JOBS]; /* and the other jobs that share memory with this one */
};

/*
 * How many processes share memory with this one directly; in @jobs the other jobs that do so directly or
 * by others. Asks them, until *@cancel becomes true. From then on until sharing_run() or
 * sharing_rebuilt() nothing is exported.
 */
size_t sharing_sharers(const bool *cancel, char jobs[SHARING_JOBS]);

/* A pause begins. Before the gate closes. */
void sharing_pause(void);

/*
 * The process is at rest. On success all that share memory with it are. Imports whose exporter is
 * gone, or has freed the memory, are left to the driver. -ENOTSUP: a process does not pause;
 * -EHOSTUNREACH: one cannot be reached; -EPERM: an import cannot be given back; -ETIME, -ECANCELED.
 */
int sharing_rest(struct sharing_wait *w);

/*
 * True for some seconds after sharing_rest() has found imports that are left to the driver: the program may
 * be about to close them, as NCCL does when a communicator is destroyed, where each rank frees its own
 * memory first.
 */
bool sharing_may_close(void);

/*
 * The process has saved its memory; in a yield, it has room for it. On success all have, and there is no way
 * back.
 */
int sharing_saved(struct sharing_wait *w);

/*
 * The process has given its memory back; in a yield, what it is to give. On success all have, or have failed to, and
 * none has imported memory of this one any more. One that has failed to give such memory back is not waited for.
 */
int sharing_released(struct sharing_wait *w);

/* A resume begins. */
void sharing_resume(void);

/* The process has made its own memory anew: others may have it. */
void sharing_rebuilt(void);

/*
 * Get the imports, once their exporters have made them anew. -ENODATA or -ESRCH: the exporter is gone;
 * -EIO with w->error; -ENOLINK: the resume of another process has failed; -ETIME, -ECANCELED; another one: the
 * exporter has not been reached for 3 s.
 */
int sharing_get_imports(struct sharing_wait *w);

/*
 * Of a resume with a pact, which does not know of those that are in none: the process is whole. On success all are,
 * and each may still give up. Else as sharing_get_imports(); -EHOSTUNREACH: one has not answered for 10 s.
 */
int sharing_complete(struct sharing_wait *w);

/*
 * Behind it, while the pact waits for others: ask all once more. 0; -EAGAIN: one has given its memory back, and may
 * come again; else as sharing_complete().
 */
int sharing_remains(struct sharing_wait *w);

/*
 * The process is whole. On success all are, and there is no way back. Else as sharing_complete(). With a pact, which
 * says GO: those that are in it are waited for until they go on or end, whatever the cancellation and the limit say.
 */
int sharing_whole(struct sharing_wait *w);

/* A resume has failed before sharing_whole() succeeded: the process gives its memory back again. */
void sharing_back(void);

/* It has. On success the others have none of its memory any more; they have 10 s to give that back. */
int sharing_gone_back(struct sharing_wait *w);

/* Behind it, unless the resume was cancelled or has met its time limit: the others need not wait. */
void sharing_failed(void);

/* The process is about to run. */
void sharing_run(void);

/* True if other processes take part in the pause under way. */
bool sharing_is_joint(void);

/* A process, not gone, that this one has paused with because of shared memory, and that is none of @pids; 0: none. */
pid_t sharing_other(const int *pids, size_t n);

#endif
