/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/gate/quiet.h"
#include "checkpoint/ledger/captures.h"
#include "checkpoint/ledger/host_work.h"
#include "checkpoint/ledger/ranks.h"
#include "common/ascii.h"
#include "common/clock.h"
#include "common/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define STUCK_MS  3    /* a GPU that is not idle by then is reported as busy */
#define STEP_MS   5    /* how long the program has for the calls of a step */
#define ORDER_MS  20   /* how often the GPU is checked while no order comes */
#define LOOK_MS   0.5  /* how often the targets are looked at while they are not met */
#define NEWS_MS   500  /* how often the counts are reported while they are not */
#define COMMIT_MS 5000 /* once all are ready, a short timeout must not end the pause */
#define GLANCE_MS \
	100 /* how often it is looked whether a host function runs; one that runs as long may wait */
#define GUESS_MS 250 /* until the first call that the GPU may wait for; then twice as long */

static bool cancelled(const struct quiet *q)
{
	return __atomic_load_n(q->cancel, __ATOMIC_RELAXED);
}

static int give_up(const struct quiet *q)
{
	return cancelled(q) ? -ECANCELED : -ETIME;
}

/* A thread's name may have any byte; the result is one line. "" if the name cannot be read. */
static void read_name(pid_t tid, char name[static 16])
{
	char path[48];
	ssize_t n = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/comm", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, name, 15);
		close(fd);
	}
	if (n > 0 && name[n - 1] == '\n')
		n--;
	name[n > 0 ? n : 0] = '\0';
	for (; *name; name++)
		if (!ascii_is_print(*name))
			*name = '?';
}

const char *quiet_name_call(enum gate_kind kind, char text[static QUIET_TEXT])
{
	const char *call = kind == GATE_WAIT ? "synchronising" : "driver";
	pid_t tid = gate_inside(kind);
	char name[16];

	if (tid) {
		read_name(tid, name);
		snprintf(text, QUIET_TEXT, "a %s call in thread %d (%s) did not return", call, tid,
			 name);
	} else {
		snprintf(text, QUIET_TEXT, "a %s call did not return", call);
	}
	return text;
}

static int wait_until_out(struct quiet *q, enum gate_kind kind, double until_ms)
{
	if (gate_wait_until_out(kind, until_ms, q->cancel))
		return 0;
	q->what = quiet_name_call(kind, q->text);
	return give_up(q);
}

/* Close the gate, and wait for the calls inside. */
static int close_gate(struct quiet *q, void (*close)(void), double until_ms)
{
	close();
	return wait_until_out(q, GATE_HOLD, until_ms);
}

/* The same when no capture is open. */
static int close_without_captures(struct quiet *q, void (*close)(void), double until_ms)
{
	int ret;

	do {
		q->what = "a stream capture did not end";
		while (captures_open(q->drv)) {
			gate_open();
			if (cancelled(q) || limits_ms() > until_ms)
				return give_up(q);
			usleep(500);
		}
		ret = close_gate(q, close, until_ms);
		if (ret)
			return ret;
	} while (captures_open(q->drv));
	return 0;
}

static int wait_until_idle(struct quiet *q, double until_ms)
{
	int ret = contexts_drain(q->drv, q->contexts, until_ms, q->cancel, &q->error);
	struct host_run run;

	q->what = host_work_may_wait() ? "kernels, host functions or waits for a value did not end"
				       : "kernels did not end";
	if (!host_work_runs(&run))
		return ret;
	snprintf(q->text, sizeof(q->text), "the host function %p in stream %p did not end",
		 run.function, (void *)run.stream);
	q->what = q->text;
	return ret;
}

static int drain(struct quiet *q, void (*close)(void), double until_ms)
{
	int ret = close_without_captures(q, close, until_ms);

	return ret ? ret : wait_until_idle(q, until_ms);
}

/*
 * Let up to @calls calls in, each when the GPU is done with the last one. So if the process gets
 * stuck, it is in the last call. A launch of RANKS_SOME is the last one, too: the next may be for
 * another process. Returns how many entered; *@ret is drain()'s result.
 */
static unsigned int step(struct quiet *q, unsigned int calls, int *ret)
{
	unsigned int came = 0;

	ranks_paired();
	do {
		if (!gate_admit(1, limits_ms() + STEP_MS, q->cancel))
			break;
		*ret = drain(q, gate_hold, limits_ms() + STUCK_MS);
	} while (++came < calls && !*ret && !ranks_paired());
	return came;
}

static bool is_late(struct quiet *q, bool drained)
{
	if (limits_ms() < q->deadline_ms)
		return false;
	if (drained)
		q->what = "other processes of the job did not come to rest";
	return true;
}

/*
 * Let the program run until it meets the targets of *@order, or gets another order than such one,
 * which is put there. Returns drain()'s result.
 */
static int reach(struct quiet *q, struct hold_order *order)
{
	const struct hold_report runs = {.runs = true};
	struct hold_order next = *order;
	double news_ms = limits_ms() + NEWS_MS;

	do {
		if (next.reach) {
			*order = next;
			ranks_aim(order->targets, order->ntargets);
			gate_open();
		}
		if (cancelled(q) || is_late(q, true))
			return give_up(q);
		if (ranks_passed() || limits_ms() > news_ms) {
			hold_say(q->hold, &runs);
			news_ms = limits_ms() + NEWS_MS;
		}
	} while (!ranks_arrived() && (!hold_take_order(q->hold, LOOK_MS, &next) || next.reach));
	order->step = next.step;
	order->commit = next.commit;
	return drain(q, gate_hold, limits_ms() + STUCK_MS);
}

static int hold_until_commit(struct quiet *q)
{
	struct hold_report report = {0};
	struct hold_order order;
	bool known = false; /* the communicators were read in this hold */
	int ret = drain(q, gate_hold, limits_ms() + STUCK_MS);

	for (;;) {
		if (ret && ret != -ETIME)
			return ret;
		report.drained = !ret;
		if (!ret)
			ranks_read(q->drv, q->contexts, !known);
		known |= !ret;
		hold_say(q->hold, &report);
		report.came = 0;
		/* While no order comes, check whether the stuck call returns. */
		while (!hold_take_order(q->hold, ret ? 0 : ORDER_MS, &order)) {
			if (cancelled(q) || is_late(q, !ret))
				return give_up(q);
			if (ret)
				ret = drain(q, gate_hold, limits_ms() + STUCK_MS);
			if (ret != -ETIME && !report.drained)
				break;
		}
		if (order.reach) {
			ret = reach(q, &order);
			if (ret == -ECANCELED || is_late(q, !ret))
				return give_up(q);
			report.reached = order.reach;
		}
		if (order.commit)
			return 0;
		if (order.step) {
			ranks_let_go();
			report.came = step(q, order.step, &ret);
		}
	}
}

static double sooner(double a, double b)
{
	return a < b ? a : b;
}

/*
 * The calls that were let in since @then have launched more than a quarter of the host functions that ended, and
 * @run, which began before all others that run, may still end by itself.
 */
static bool outruns(const struct host_counts *then, const struct host_run *run)
{
	struct host_counts now = host_work_counts();

	return now.launched - then->launched > 1 + (now.ended - then->ended) / 4 &&
	       clock_ms() - run->begin_ms < GLANCE_MS;
}

/* Whether what a closed gate waits for needs a call of the program, which waits at the gate. */
enum call_need { NEEDS_NONE, MAY_NEED_ONE, NEEDS_ONE };

static enum call_need find_need(const struct host_counts *then)
{
	struct host_run run;

	if (host_work_runs(&run))
		return outruns(then, &run) ? MAY_NEED_ONE : NEEDS_ONE;
	return host_work_may_wait() ? MAY_NEED_ONE : NEEDS_NONE;
}

/*
 * Close the gate by @wait, which waits for calls or for the GPU as well. These may wait for a thread of the
 * program that waits at the gate: let single calls in then.
 */
static int close_alone(struct quiet *q, int (*wait)(struct quiet *, void (*)(void), double))
{
	void (*close)(void) = gate_close;
	double gap_ms = GUESS_MS, guess_ms = limits_ms() + gap_ms, look_ms = ORDER_MS;
	const struct host_counts begin = host_work_counts();
	int ret;

	while ((ret = wait(q, close, sooner(q->deadline_ms, limits_ms() + look_ms))) == -ETIME &&
	       limits_ms() < q->deadline_ms) {
		enum call_need need = find_need(&begin);

		look_ms = need == NEEDS_ONE ? STUCK_MS : GLANCE_MS;
		if (captures_open(q->drv) || need == NEEDS_NONE ||
		    (need == MAY_NEED_ONE && limits_ms() <= guess_ms))
			continue;
		if (need == MAY_NEED_ONE) {
			gap_ms *= 2;
			guess_ms = limits_ms() + gap_ms;
		}
		close = gate_hold;
		gate_hold();
		gate_admit(1, limits_ms() + STEP_MS, q->cancel);
	}
	if (!ret && close == gate_hold)
		gate_close();
	return ret;
}

static int enter(struct quiet *q)
{
	int ret;

	if (q->hold) {
		ret = hold_until_commit(q);
		if (ret)
			return ret;
		if (q->deadline_ms < limits_ms() + COMMIT_MS)
			q->deadline_ms = limits_ms() + COMMIT_MS;
	}
	do {
		ret = close_alone(q, drain);
		if (!ret)
			ret = wait_until_out(q, GATE_WAIT, q->deadline_ms);
		if (ret)
			return ret;
		gate_shut();
		ret = wait_until_out(q, GATE_ASK, q->deadline_ms);
		if (ret)
			return ret;
	} while (captures_open(q->drv));
	/* A call inside a call that waits or asks may have launched work on an idle GPU. */
	ret = wait_until_idle(q, q->deadline_ms);
	return !ret && cancelled(q) ? -ECANCELED : ret;
}

int quiet_enter(struct quiet *q)
{
	int ret = enter(q);

	ranks_let_go();
	if (ret)
		gate_open();
	return ret;
}

int quiet_close(struct quiet *q)
{
	int ret = close_alone(q, close_gate);

	if (ret)
		gate_open();
	return ret;
}
