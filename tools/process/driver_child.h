/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_DRIVER_CHILD_H
#define CUDAW_DRIVER_CHILD_H
/*
 * The driver's own checkpoint of other processes (cuCheckpointProcess*, r570 and later), for
 * processes that do not run under cudaw.
 *
 * Child processes of the command make the calls. A driver that hangs or crashes does not take the
 * command with it. A child that changes a process ignores the signals that interrupt the command,
 * and has nothing of it open but the record and the locks that it inherits: if the command is
 * interrupted, the child brings its work to the end.
 */
#include "tools/process/record.h"

#include <cuda.h>
#include <stdbool.h>
#include <sys/types.h>

/* CUprocessState, and no answer. */
enum driver_state {
	DRIVER_UNKNOWN = -1,
	DRIVER_RUNNING,
	DRIVER_LOCKED,
	DRIVER_CHECKPOINTED,
	DRIVER_FAILED,
};

/* Variables of the environment, by which the driver shows some GPUs, in some order. Empty: not set. */
struct driver_sight {
	char visible[GPU_MAX * NVML_UUID_SIZE]; /* CUDA_VISIBLE_DEVICES */
	char order[32];                         /* CUDA_DEVICE_ORDER */
};

enum driver_op {
	DRIVER_ASK,    /* the state of @pid */
	DRIVER_GPUS,   /* the GPUs that the driver shows, into held, without bytes */
	DRIVER_SHARER, /* a process that may share GPU memory with @pid (cuda_use_sharer()) */
	DRIVER_LIST,   /* those of some processes that are not running: see driver_child_list() */
	DRIVER_FIND, /* those of some processes that the driver may know: see driver_child_find() */
	DRIVER_PAUSE,  /* lock and checkpoint @pid, and write the record */
	DRIVER_RESUME, /* restore @pid if it is checkpointed, and unlock it */
	DRIVER_KEEP,   /* keep processes checkpointed: see @keeps of the work */
};

#define DRIVER_LISTED 256

struct driver_listed {
	struct process process;
	enum driver_state state;
	char command[256]; /* its command line, cleaned */
};

/* What the child has found. */
struct driver_answer {
	bool done;
	bool kept;         /* all processes to keep are checkpointed */
	pid_t kept_not;    /* the one to keep whose call failed, as in call; 0: none */
	bool halted;       /* of those to let go only such are left as somebody has stopped */
	bool unsupported;  /* there is no driver, or it has no checkpoint */
	bool silent;       /* there was no answer in time */
	char failure[256]; /* why the driver was not asked; empty: it was */
	char call[48]; /* the first call that failed, or, to let go, the last one; empty: none */
	int error;     /* its CUresult */
	char error_name[64];
	enum driver_state state; /* at the end */
	double ms;               /* of the checkpoint or restore, with the lock and unlock */
	struct held held;
	pid_t sharer; /* 0: none */
	char sharer_how[256];
	pid_t slow;  /* of a list: the first process that is left out, as looking takes too long */
	int nlisted; /* grows while the child works */
	struct driver_listed listed[DRIVER_LISTED];
};

struct driver_work {
	enum driver_op op;
	pid_t pid;
	double timeout_ms;           /* of a pause, or to keep, for the lock */
	const struct record *record; /* of a pause or resume */
	const pid_t *look;           /* of a list, to find, or to keep: the processes */
	size_t nlook;
	/*
	 * To keep processes checkpointed, except those that have ended, until the other end of the pipe @until is
	 * closed, also if by the end of the command. Then each is restored, with @pairs of GPUs, and unlocked, as its
	 * state asks, once it is not stopped. Of @look at most DRIVER_LISTED.
	 */
	struct {
		bool already; /* they are checkpointed: only let them go */
		int until;
		const CUcheckpointGpuPair *pairs;
		unsigned int npairs;
	} keeps;
	const struct driver_sight *sight; /* of the GPUs */

	struct driver_answer *answer; /* shared with the child */
	pid_t child;
};

/* Start the child. False after a failure that is in @answer, which is always valid then. */
bool driver_child_begin(struct driver_work *work);

/* Wait at most @ms. True once the child has ended; the answer is complete. */
bool driver_child_await(struct driver_work *work, double ms);

/* Free the answer. A child that still asks is killed; a child that changes a process goes on. */
void driver_child_end(struct driver_work *work);

/* Ask for the GPUs. False: there was no answer within @ms. */
bool driver_child_gpus(const struct driver_sight *sight, double ms, struct driver_answer *answer);

/* The whole of it, for a question. False: there was no answer within @ms. */
bool driver_child_ask(enum driver_op op, pid_t pid, double ms, struct driver_answer *answer);

/*
 * List the processes of this user, for root of all, that use CUDA without cudaw and that the driver
 * has locked or checkpointed. False: the driver did not answer within @ms, and some may be missing.
 */
bool driver_child_list(double ms, struct driver_answer *answer);

/*
 * Find those of the @n processes of @pids that have NVML or a driver mapped, in their order, into @answer: those whose
 * state the driver tells, and, as DRIVER_UNKNOWN, those that are stopped and have no driver mapped: they do not answer.
 * False, and a failure in @answer: the driver did not answer within @ms, or there are more than DRIVER_LISTED.
 */
bool driver_child_find(const pid_t *pids, size_t n, double ms, struct driver_answer *answer);

#endif
