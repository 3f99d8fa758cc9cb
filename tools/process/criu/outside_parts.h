/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_OUTSIDE_PARTS_H
#define CUDAW_OUTSIDE_PARTS_H
/*
 * The parts of outside_find(), by what they look at. @mine: the descriptors of @tree, @others: those of all other
 * processes that are visible.
 */
#include "tools/process/criu/descriptors.h"
#include "tools/process/criu/reasons.h"
#include "tools/process/criu/tcp.h"
#include "tools/process/criu/tree.h"

/* outside_files.c: directories that were removed, what CRIU does not know, files without their name, GPUs, timers. */
void outside_look_at_directories(const struct tree *tree, struct reasons *reasons);
void outside_look_at_timers(const struct descriptors *mine, struct reasons *reasons);
void outside_look_at_kinds(const struct tree *tree, const struct descriptors *mine,
			   struct reasons *reasons);
void outside_look_at_names(const struct tree *tree, const struct descriptors *mine,
			   struct reasons *reasons);
void outside_look_at_mapped_names(const struct tree *tree, struct reasons *reasons);
void outside_look_at_gpus(const struct tree *tree, const struct descriptors *mine,
			  struct reasons *reasons);

/* outside_networks.c: TCP. @ports and @closable are those of outside_find(). */
void outside_look_at_networks(const struct tree *tree, const struct descriptors *mine,
			      const struct descriptors *others, struct tcp_sockets *ports,
			      struct tcp_sockets *closable, struct reasons *reasons);

/* outside_sockets.c: pipes, Unix sockets, netlink. */
void outside_look_at_pipes(const struct descriptors *mine, const struct descriptors *others,
			   struct reasons *reasons);
void outside_look_at_sockets(const struct descriptors *mine, const struct descriptors *others,
			     struct reasons *reasons);

/* outside_ids.c: System V IPC, sessions and process groups, which have ids of the whole machine. */
void outside_look_at_ipc(const struct tree *tree, struct reasons *reasons);
void outside_look_at_origins(const struct tree *tree, struct reasons *reasons);
void outside_look_at_sessions(const struct tree *tree, struct reasons *reasons);

#endif
