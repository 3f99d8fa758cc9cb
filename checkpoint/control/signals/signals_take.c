/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/signals/signals_take.h"
#include "checkpoint/control/history.h"
#include "checkpoint/control/job.h"
#include "checkpoint/control/request.h"
#include "checkpoint/control/turn/turn.h"
#include "checkpoint/control/signals/signals.h"
#include "checkpoint/engine/engine.h"
#include "checkpoint/gate/growth.h"
#include "checkpoint/snapshot/files/codec.h"
#include "checkpoint/snapshot/files/dir.h"
#include "common/settings.h"

#include <string.h>

#define LOG_PREFIX "control: "
#include "common/log.h"

/* CUDAW_SNAPSHOT_DIR: a pause by signal goes into a snapshot. */
static void snapshot_by_signal(void)
{
	const char *path = setting_text(SETTING_SNAPSHOT_DIR);
	struct snapshot_plan plan = {
		.incremental = true, .codec = SNAPSHOT_RAW, .gives_back = true};
	struct snapshot_error error;
	const char *codec;

	if (!path || engine_snapshot_dir())
		return;
	codec = setting_word(SETTING_SNAPSHOT_COMPRESS);
	if (codec)
		snapshot_codec_parse(codec, &plan.codec);
	if (snapshot_dir_check_path(path, 0, &error)) {
		pr_err("CUDAW_SNAPSHOT_DIR=%s: %s", path, error.text);
		return;
	}
	strcpy(plan.path, path);
	job_want_snapshot(&plan, 0, true, NULL);
}

static void tell(enum journal_kind request, const struct signal_sender *sender)
{
	history_asked(request, -1, &(struct journal_by){.uid = sender->uid, .pid = sender->pid},
		      "by a signal");
}

void signals_take(void)
{
	struct control_event event = {.by_signal = true};
	struct signal_sender sender;

	switch (signals_take_wish(&sender)) {
	case WISH_PAUSE:
		tell(JOURNAL_PAUSE, &sender);
		event.kind = EV_PAUSE;
		event.options.timeout_ms = CONTROL_PAUSE_TIMEOUT_MS;
		event.options.own_limit = true;
		job_take(&event);
		snapshot_by_signal();
		break;
	case WISH_RESUME:
		tell(JOURNAL_RESUME, &sender);
		event.kind = EV_RESUME;
		job_take(&event);
		break;
	case WISH_NONE:
	case WISH_STOP:
		break;
	}
	if (signals_take_end()) {
		job_take(&(struct control_event){.kind = EV_END});
		turn_ends();
	}
	if (signals_take_interrupt())
		growth_refuse_all();
}
