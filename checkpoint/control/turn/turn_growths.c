/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/control/turn/turn_growths.h"
#include "checkpoint/control/server.h"
#include "checkpoint/control/turn/turn_idle.h"
#include "checkpoint/control/turn/turn_needs.h"
#include "checkpoint/gate/growth.h"
#include "checkpoint/release/devices.h"

#define TOLD 512 /* others come later */

static unsigned int told[TOLD]; /* serials that have no answer */
static int ntold;

static void forget(const struct client *c)
{
	for (int i = ntold; i-- > 0;) {
		if (growth_is_told(told[i]))
			continue;
		server_say(c, "forget %u", told[i]);
		told[i] = told[--ntold];
	}
}

static bool can_be_told(const struct growth *growth, size_t devices)
{
	/* The daemon takes no larger number, and no GPU has so much. */
	return growth->dev >= 0 && (size_t)growth->dev < devices &&
	       growth->bytes <= lines_to_daemon.most;
}

void turn_growths_tell(const struct client *c)
{
	const struct gpu *devices;
	struct growth growth;
	size_t count;

	forget(c);
	devices = devices_all(&count);
	while (ntold < TOLD && growth_next(&growth)) {
		if (!can_be_told(&growth, count)) {
			growth_answer(growth.serial, false);
			continue;
		}
		turn_needs_say(c, true);
		turn_idle_forget();
		server_say(c, "%s %u %s %zu", growth.pinned ? "pinned" : "grow", growth.serial,
			   devices[growth.dev].uuid, growth.bytes);
		told[ntold++] = growth.serial;
	}
}

void turn_growths_answer(unsigned int serial, bool room)
{
	for (int i = ntold; i-- > 0;)
		if (told[i] == serial)
			told[i] = told[--ntold];
	growth_answer(serial, room);
}

void turn_growths_untold(void)
{
	ntold = 0;
	growth_untold();
}
