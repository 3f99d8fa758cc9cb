/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/turn/turn.h"
#include "checkpoint/control/answers.h"
#include "checkpoint/control/job.h"
#include "checkpoint/control/request.h"
#include "checkpoint/control/server.h"
#include "checkpoint/control/turn/turn_growths.h"
#include "checkpoint/control/turn/turn_idle.h"
#include "checkpoint/control/turn/turn_needs.h"
#include "checkpoint/engine/engine.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/gate/growth.h"
#include "common/clock.h"
#include "common/conf_file.h"
#include "common/patience.h"
#include "common/protocol/daemon.h"
#include "common/system/forks.h"
#include "common/system/hostmem.h"
#include "common/settings.h"
#include "common/text.h"
#include "vmem/vmem.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define LOG_PREFIX "turns: "
#include "common/log.h"

#define LOOK_MS      100  /* while the process has no GPU memory, or somebody waits for it */
#define CALM_MS      1000 /* while nobody does */
#define RETRY_MS     100  /* until the daemon is tried again; later longer */
#define RETRY_MAX_MS 5000
#define RETRY_MIN_MS 1000  /* until it would be asked again for what it could not do */
#define PING_MS      2000  /* of silence, while something waits for the daemon */
#define SILENT_MS    8000  /* after a ping: it hangs */
#define WELCOME_MS   2000  /* that an allocation waits for the daemon's welcome */
#define WITHOUT_MS   10000 /* that it waits for a new daemon after one has ended */

/* For which turn a job without its lease asks. */
enum asks {
	ASKS_NONE, /* it has nothing to do */
	ASKS_TURN, /* its own: "want" */
	ASKS_NEXT, /* the next one: "ends" */
};

static struct {
	const char *which; /* the daemon; NULL: none, or left for good */
	struct client *c;  /* the connection; NULL: none */
	unsigned int id;   /* of it */
	bool welcome;
	struct patience unwelcome; /* since the connection was made */
	bool introduced;           /* on it */
	bool refused;              /* the last connection has ended without a welcome */
	bool left;                 /* the job took turns, and has waited for a new daemon since: */
	struct patience without;
	double retry_ms, patience_ms;
	bool meets;      /* it could not come to rest alone */
	bool let_go;     /* turn_let_go() */
	double heard_ms; /* its last line; clock_ms() */
	bool pinged;     /* a "ping" has no answer yet, for: */
	struct patience silent;
	/* There is no daemon, or it refuses the job; empty: it takes turns. */
	char why[PROTOCOL_MESSAGE + 256];
	char behind[96]; /* turn_behind() */
	char unfit[96];  /* turn_unfit() */

	bool watched;
	enum job_state state; /* that was said */
	enum operation op;    /* that was under way at the last look */
	enum asks asks;       /* what it has asked for since the lease is gone */
	bool may_stop;        /* turn_may_stop() */
	bool rescued;         /* turn_take_rescue() */
	bool ends;            /* the program handles SIGTERM, and has not run since */
} turn;

void turn_init(void (*wake)(void))
{
	memset(&turn, 0, sizeof(turn));
	turn.which = conf_file_daemon();
	if (!turn.which)
		return;
	gate_set_wake(wake);
	growth_begin(wake);
}

void turn_after_fork(void)
{
	memset(&turn, 0, sizeof(turn));
}

bool turn_is_daemon(const struct client *c)
{
	return c == turn.c && c->id == turn.id;
}

const char *turn_why_not(void)
{
	return turn.why;
}

bool turn_is_asked_for(void)
{
	return turn.asks != ASKS_NONE || turn.ends;
}

const char *turn_behind(void)
{
	return turn.c ? turn.behind : "";
}

/* PID [NAME] */
static void take_behind(const struct line *line)
{
	const char *name = line->text;

	snprintf(turn.behind, sizeof(turn.behind), *name ? "%u (%.64s)" : "%u",
		 (unsigned int)line->number[0], name);
	if (!line->number[0])
		*turn.behind = '\0';
}

const char *turn_unfit(void)
{
	return turn.c ? turn.unfit : "";
}

/* UUID NEEDS THERE; NEEDS 0: it fits. */
static void take_unfit(const struct line *line)
{
	char needs[FORMAT_SIZE], there[FORMAT_SIZE];

	snprintf(turn.unfit, sizeof(turn.unfit), "needs %s, and at most %s are there",
		 format_bytes(needs, line->number[0]), format_bytes(there, line->number[1]));
	if (!line->number[0])
		*turn.unfit = '\0';
}

bool turn_let_go(void)
{
	return turn.let_go;
}

void turn_ends(void)
{
	turn.ends = true;
	turn.asks = ASKS_NONE; /* a second signal counts as well */
}

bool turn_is_on(void)
{
	return turn.c && turn.welcome && !turn.c->ended;
}

bool turn_stops(bool stops)
{
	turn.may_stop = false;
	if (turn_is_on())
		server_say(turn.c, stops ? "stops" : "goes");
	return turn_is_on();
}

bool turn_may_stop(void)
{
	return turn.may_stop;
}

void turn_gave(void)
{
	if (turn_is_on() && control_operation(job_now()) == OP_YIELD && engine_is_paused())
		turn_needs_say_at_rest(turn.c, false);
}

bool turn_take_rescue(void)
{
	bool rescued = turn.rescued;

	turn.rescued = false;
	return rescued;
}

static void say_once(const char *what, const char *why)
{
	bool said = *turn.why;

	snprintf(turn.why, sizeof(turn.why), "%s (%s): %s", what, turn.which, why);
	if (!said)
		pr_warn("%s: the job takes no turns", turn.why);
}

/* Not again, as the daemon would refuse it again, or the job could not do its part. */
static void leave_for_good(void)
{
	turn.which = NULL;
	growth_end();
	gate_unwatch();
	gate_set_wake(NULL);
}

/* Nobody but a daemon keeps it from its turn. */
static enum job_state state_for_daemon(void)
{
	return control_awaits_lease(job_now()) && job_state() == STATE_PAUSED ? STATE_WAITING
									      : job_state();
}

static void introduce(void)
{
	const char *class = setting_word(SETTING_TURNS_CLASS);
	const struct client *c = turn.c;
	unsigned long after;

	server_say(c, "turns %d", PROTOCOL_TURNS);
	answers_say_name(c);
	answers_say_command(c);
	server_say(c, "class %s", class ? class : settings[SETTING_TURNS_CLASS].preset);
	server_say(c, "weight %d", setting_weight(SETTING_TURNS_WEIGHT));
	if (setting_time(SETTING_TURNS_CONTEXT_AFTER, &after))
		server_say(c, "context-after %lu", after);
	if (job_gave_context())
		server_say(c, "context %s", engine_is_released() ? "out" : "restored");
	turn_needs_introduce(c);
	turn.state = state_for_daemon();
	server_say(c, "state %s", state_names[turn.state]);
	server_say(c, "joined");
}

/* A moment at which a connection does no harm. Only one client may have the lease. */
static bool may_join(void)
{
	const struct control_state *s = job_now();

	for (const struct client *c = server_next(NULL); c; c = server_next(c))
		if (c->waits == WAITS_LEASE)
			return false;
	return s->lease == LEASE_OURS && s->snapshot == SNAPSHOT_NONE && !job_awaits_move();
}

/*
 * The processes of a job can come to rest only if all of them have joined. So those that could not
 * come back at the same moments.
 */
static double next_meeting(void)
{
	return (floor((clock_ms() + RETRY_MIN_MS) / RETRY_MAX_MS) + 1) * RETRY_MAX_MS;
}

static void try_again_later(void)
{
	turn.patience_ms = turn.patience_ms * 2 < RETRY_MS ? RETRY_MS : turn.patience_ms * 2;
	if (turn.patience_ms > RETRY_MAX_MS)
		turn.patience_ms = RETRY_MAX_MS;
	turn.retry_ms = clock_ms() + turn.patience_ms;
	if (turn.meets)
		turn.retry_ms = next_meeting();
}

static void join(void)
{
	unsigned long mark = forks_mark();
	const char *why;
	int fd;

	/*
	 * Without a daemon an allocation fails, so that it is worth a try at any time; but others are to be met, and
	 * a daemon that refuses the job would do so again.
	 */
	if ((clock_ms() < turn.retry_ms && (turn.meets || turn.refused || !growth_waits())) ||
	    !may_join())
		return;
	turn.refused = false;
	fd = daemon_connect(turn.which, &why);
	if (fd >= 0)
		turn.c = server_adopt(fd);
	if (!turn.c) {
		try_again_later();
		say_once("no daemon", fd < 0 ? why : "all connections are in use");
		return;
	}
	turn.meets = turn.let_go = false;
	turn.id = turn.c->id;
	turn.unwelcome = (struct patience){0};
	turn.heard_ms = clock_ms();
	turn.pinged = false;
	turn.welcome = turn.watched = false;
	*turn.behind = *turn.unfit = '\0';
	turn.asks = ASKS_NONE;
	/*
	 * The child of a fork that came meanwhile has the connection without knowing it, and would keep
	 * it after our end. The next one is ours alone.
	 */
	turn.introduced = !forks_came_since(mark);
	if (turn.introduced)
		introduce();
	else
		shutdown(fd, SHUT_RDWR);
}

/* The connection is gone, and the lease with it (clients.c). */
static void notice_loss(void)
{
	if (turn.c->used && turn.c->id == turn.id && !turn.c->ended)
		return;
	turn.c = NULL;
	turn.refused = turn.introduced && !turn.welcome;
	turn_idle_stop();
	try_again_later();
	if (turn.welcome) {
		turn.left = true;
		turn.without = (struct patience){0};
		pr_info("the connection to the daemon has ended");
	}
	turn_growths_untold();
}

static void take_end(const struct line *line)
{
	char answer[224];

	snprintf(answer, sizeof(answer), "%s %s", line->word[0], line->text);
	say_once("the daemon refuses the job", answer);
	turn.let_go = true;
	if (line->end == END_INVALID)
		leave_for_good();
	/* What it could not do, it would soon be asked for again. */
	if (turn.welcome)
		turn.patience_ms = RETRY_MAX_MS;
	server_end(turn.c);
}

/* In control group @group, or on the machine. */
static void take_short(uint64_t group)
{
	uint64_t own;

	if (!group || (!hostmem_group(&own) && own == group))
		engine_pin_none();
}

bool turn_take(const struct request *r)
{
	const struct line *line = &r->line;
	unsigned int number = (unsigned int)line->number[0];

	turn.heard_ms = clock_ms();
	turn.pinged = false;
	if (line->id == REQUEST_YIELD || line->id == REQUEST_ROOM)
		return false;
	switch (r->id) {
	case TURN_WELCOME:
		turn.welcome = true;
		turn.left = false;
		*turn.why = '\0';
		turn.patience_ms = 0;
		/* fallthrough */
	case TURN_IDLE:
		turn_idle_set(number);
		break;
	case TURN_WATCH:
	case TURN_UNWATCH:
		turn.watched = line->id == TURN_WATCH;
		break;
	case TURN_TRY:
	case TURN_NO:
		turn_growths_answer(number, line->id == TURN_TRY);
		break;
	case TURN_BEHIND:
		take_behind(line);
		break;
	case TURN_UNFIT:
		take_unfit(line);
		break;
	case TURN_SHORT:
		take_short(line->number[0]);
		break;
	case TURN_STOP:
		turn.may_stop = true;
		break;
	case TURN_RESCUE:
		turn.rescued = true;
		break;
	case TURN_END:
		take_end(line);
		break;
	default: /* others are of a later version */
		break;
	}
	return true;
}

/* The job asks when it comes to want a turn, and again after each pause. */
static void ask_for_turn(void)
{
	const struct control_state *s = job_now();
	enum asks asks = ASKS_NONE;

	/* It has its memory. Of one that takes it again by itself the daemon may yet take the lease. */
	if (s->lease == LEASE_OURS && s->rest == STATE_RUNNING)
		turn.ends = false;
	if (s->lease == LEASE_OURS || control_wants_paused(s))
		turn.asks = ASKS_NONE;
	else if (turn.ends)
		asks = ASKS_NEXT;
	else if (s->called || gate_has_waiter() || growth_waits())
		asks = ASKS_TURN;
	if (asks <= turn.asks || s->activity != ACTIVITY_IDLE || s->lease != LEASE_GONE)
		return;
	server_say(turn.c, asks == ASKS_NEXT ? "ends" : "want");
	turn.asks = asks;
	turn_idle_forget();
}

/* What has changed since the last look. */
static void say_news(void)
{
	enum operation op = control_operation(job_now());
	enum job_state state = state_for_daemon();
	bool part_ended = control_is_part(turn.op) && op != turn.op;
	char why[PROTOCOL_MESSAGE];

	/* The others may join later. */
	if (job_refused_yield(why)) {
		say_once("a yield failed", why);
		turn.meets = true;
		server_end(turn.c);
		return;
	}
	turn.op = op;
	turn_needs_say(turn.c, part_ended || state != turn.state);
	if (state != turn.state) {
		turn.state = state;
		server_say(turn.c, "state %s", state_names[state]);
	}
	ask_for_turn();
	turn_idle_look(turn.c, turn.watched);
}

/* An allocation waits for it; or the job for its turn, or for the other processes of the job. */
static bool awaits_daemon(void)
{
	const struct control_state *s = job_now();

	if (control_is_part(control_operation(s)))
		return s->hold != HOLD_NONE;
	return s->activity == ACTIVITY_IDLE && !control_wants_paused(s) &&
	       (s->lease != LEASE_OURS || growth_waits());
}

/* A daemon that hangs, while something waits for it, counts as gone. */
static void look_for_silence(void)
{
	if (!awaits_daemon()) {
		turn.pinged = false;
	} else if (turn.pinged && patience_ms(&turn.silent) > SILENT_MS) {
		pr_warn("the daemon has not answered for %d s: the job goes on without it",
			(PING_MS + SILENT_MS) / 1000);
		server_end(turn.c);
	} else if (!turn.pinged && clock_ms() - turn.heard_ms > PING_MS) {
		turn.pinged = true;
		turn.silent = (struct patience){0};
		server_say(turn.c, "ping");
	}
}

static bool has_memory(void)
{
	struct vmem_stats stats;

	vmem_get_stats(&stats);
	return stats.carried > 0;
}

/* No daemon is there, and none may be expected. */
static bool is_without(void)
{
	return !turn.left && (!turn.c || patience_ms(&turn.unwelcome) > WELCOME_MS);
}

void turn_look(void)
{
	bool grows;

	if (turn.c)
		notice_loss();
	if (!turn.which)
		return;
	grows = growth_waits();
	turn.left = turn.left && patience_ms(&turn.without) <= WITHOUT_MS;
	if (!turn.c && (grows || has_memory() || control_awaits_lease(job_now())))
		join();
	if (turn.c && turn.welcome) {
		say_news();
		if (!turn.c->ended)
			turn_growths_tell(turn.c);
		if (!turn.c->ended)
			look_for_silence();
	} else if (grows && is_without()) {
		growth_refuse_all();
	}
}

double turn_patience_ms(void)
{
	double left;

	if (!turn.which)
		return -1;
	if (turn.c && turn.watched)
		return turn_idle_look_ms();
	if (turn.c)
		return turn.pinged || !turn.welcome ? LOOK_MS : CALM_MS;
	left = turn.left || (growth_waits() && !turn.meets) ? 0 : turn.retry_ms - clock_ms();
	return left > LOOK_MS ? left : LOOK_MS;
}
