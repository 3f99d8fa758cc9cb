/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/process/criu/outside.h"

#include "tools/process/criu/outside_parts.h"

#include <stdlib.h>

void outside_find(const struct tree *tree, const pid_t *jobs, size_t njobs,
		  struct tcp_sockets *ports, struct tcp_sockets *closable, outside_take take,
		  void *arg)
{
	struct descriptors mine = {0}, others = {0};
	struct reasons reasons = {.jobs = jobs, .njobs = njobs, .take = take, .arg = arg};

	descriptors_add_tree(&mine, tree);
	descriptors_add_others(&others, tree);
	if (tree->cut) {
		reasons_give(&reasons, "it has more than %d processes", TREE_MAX);
	} else if (mine.short_of_memory || others.short_of_memory) {
		reasons_give(&reasons,
			     "out of memory or descriptors for the list of its open files");
	} else {
		outside_look_at_directories(tree, &reasons);
		outside_look_at_timers(&mine, &reasons);
		outside_look_at_kinds(tree, &mine, &reasons);
		outside_look_at_names(tree, &mine, &reasons);
		outside_look_at_mapped_names(tree, &reasons);
		outside_look_at_gpus(tree, &mine, &reasons);
		outside_look_at_ipc(tree, &reasons);
		outside_look_at_networks(tree, &mine, &others, ports, closable, &reasons);
		outside_look_at_pipes(&mine, &others, &reasons);
		outside_look_at_sockets(&mine, &others, &reasons);
		outside_look_at_origins(tree, &reasons);
		outside_look_at_sessions(tree, &reasons);
	}
	free(mine.all);
	free(others.all);
}
