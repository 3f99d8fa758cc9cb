/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/snapshot/restoring.h"

#include "checkpoint/snapshot/files/dir.h"
#include "checkpoint/snapshot/host_image.h"
#include "common/gpu/nvml.h"
#include "common/patience.h"
#include "common/processes/proc.h"
#include "tools/command/snapshot/opened.h"
#include "tools/process/process.h"
#include "tools/report/report.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PARENT_MS 3000 /* for a parent to wait(2) for a process that has ended */
#define RETRY_US  20000

/* Whether @id is of a process that uses CUDA. */
static bool is_job(const struct restoring *r, pid_t id)
{
	for (size_t i = 0; i < r->opened.n; i++)
		if (r->opened.parts[i].snapshot.manifest.pid == id)
			return true;
	return false;
}

/* Who has an id that is taken. */
struct holder {
	pid_t pid;    /* itself, or one that is in its session or process group; 0: none is seen */
	pid_t parent; /* of pid */
	char state;   /* of pid, as in ps(1); 0: it is gone */
};

static bool has_ended(const struct holder *holder)
{
	return !holder->state || holder->state == 'Z' || holder->state == 'X';
}

/* A process whose session or process group has @id, if there is one, rather one that has not ended. */
static void find_member(struct holder *holder, pid_t id)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	holder->pid = 0;
	while (proc && has_ended(holder) && (entry = readdir(proc))) {
		pid_t pid = atoi(entry->d_name);

		if (pid <= 0 || (getsid(pid) != id && getpgid(pid) != id))
			continue;
		holder->pid = pid;
		holder->state = host_process(pid, &holder->parent);
	}
	if (proc)
		closedir(proc);
}

static struct holder find_holder(pid_t id)
{
	struct holder holder = {.pid = id};

	holder.state = host_process(id, &holder.parent);
	if (!holder.state)
		find_member(&holder, id);
	return holder;
}

/* How it has the id, and until when. */
static void explain(const struct holder *holder, pid_t id, char *how, size_t size)
{
	char name[PROCESS_NAME];
	int len;

	if (!holder->pid) {
		snprintf(how, size, "which is in use, by a process that /proc does not show");
		return;
	}
	process_name(holder->pid, name);
	if (holder->pid == id)
		len = snprintf(how, size, "which '%s' has now", name);
	else
		len = snprintf(how, size,
			       "which is that of the session or process group of process %d (%s)",
			       holder->pid, name);
	if (holder->state == 'Z')
		snprintf(how + len, size - len,
			 "; it has ended, and its parent %d has not waited for it yet",
			 holder->parent);
	else if (!has_ended(holder))
		snprintf(how + len, size - len, "%s%s",
			 holder->state == 'T' ? "; it is stopped" : "",
			 holder->pid != id ? ": end it first" : "");
}

/*
 * An id must be free: CRIU makes the processes and threads with the ids that they had. If a process has just ended, as
 * by 'snapshot --stop', its parent may need a moment to wait(2) for it, and after that the kernel one to free the id.
 */
static int check_id(const struct restoring *r, pid_t id, const char *whose)
{
	struct patience patience = {0};
	struct holder holder;
	char how[256];

	while (process_id_is_taken(id)) {
		holder = find_holder(id);
		if (has_ended(&holder) && patience_ms(&patience) < PARENT_MS) {
			usleep(RETRY_US);
			continue;
		}
		explain(&holder, id, how, sizeof(how));
		complain("%s: %s needs the id %d, %s", r->path, whose, id, how);
		return EXIT_FAILED;
	}
	return EXIT_DONE;
}

static void *read_image(void *arg)
{
	struct restoring *r = arg;

	r->image = host_image_check(r->opened.parts->snapshot.dir,
				    r->opened.parts->snapshot.manifest.index, &r->refused,
				    &r->image_bytes, &r->image_error);
	return NULL;
}

/* The first failure decides. */
static int worse(int ret, int other)
{
	return ret ? ret : other;
}

/* Whether the job's resume waits until the GPU memory is there. */
static bool waits_for_turn(const struct restoring *r)
{
	const json_t *process = json_object_get(r->opened.parts->snapshot.manifest.root, "process");

	return json_is_true(json_object_get(process, "turns"));
}

/* The driver, the GPUs, and the process image, which is read while the driver answers. */
static int check_gpus_and_image(struct restoring *r)
{
	int ret = needs_ask(&r->needs);
	pthread_t reader;
	bool reads;

	if (ret && !r->check)
		return ret;
	reads = !pthread_create(&reader, NULL, read_image, r);
	if (!ret)
		ret = needs_gpus(&r->whole, r->choices, r->nchoices, &r->needs);
	if (!ret && !r->paused && !waits_for_turn(r))
		ret = needs_memory(&r->whole, &r->needs);
	__atomic_store_n(&r->refused, ret && !r->check, __ATOMIC_RELAXED);
	if (reads)
		pthread_join(reader, NULL);
	else if (!r->refused)
		read_image(r);
	if (r->image && !r->refused)
		ret = worse(ret, opened_refuse(r->path, r->image, &r->image_error));
	return ret;
}

/* The ids of all other processes and threads: CRIU's image has a file for each, and for the job's. */
static int check_ids(const struct restoring *r, int directory)
{
	DIR *dir = snapshot_dir_list(directory);
	struct dirent *found;
	int ret = EXIT_DONE;
	size_t jobs = 0;
	pid_t id;

	if (!dir) {
		complain("%s: %s", r->path, strerror(errno));
		return EXIT_FAILED;
	}
	while ((found = readdir(dir)) && !ret)
		if (sscanf(found->d_name, "core-%d.img", &id) == 1) {
			jobs += is_job(r, id);
			ret = is_job(r, id)
				      ? ret
				      : check_id(r, id, "another process or thread of the job");
		}
	closedir(dir);
	if (ret || jobs == r->opened.n)
		return ret;
	complain("%s: host-%u: expected the process %d%s, found others", r->path,
		 r->opened.parts->snapshot.manifest.index, r->opened.parts->snapshot.manifest.pid,
		 r->opened.n > 1 ? " and the others that use CUDA" : "");
	return EXIT_FAILED;
}

static pid_t id_of(const json_t *process, const char *key)
{
	return json_integer_value(json_object_get(process, key));
}

/* The object of the process @pid in host.json; NULL: there is none. */
static const json_t *find_process(const json_t *processes, pid_t pid)
{
	const json_t *process;
	size_t i;

	json_array_foreach(processes, i, process)
		if (id_of(process, "pid") == pid)
			return process;
	return NULL;
}

/*
 * The ids of sessions and process groups whose first process has ended. Of those of the job's first process only its
 * own are needed: CRIU puts it into ours (--shell-job).
 */
static int check_groups(const struct restoring *r)
{
	static const char *const keys[] = {"session", "group"};
	const json_t *processes = json_object_get(r->facts, "processes"), *process;
	const json_t *first = find_process(processes, id_of(r->facts, "root"));
	int ret = EXIT_DONE;
	size_t i;

	json_array_foreach(processes, i, process)
		for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]) && !ret; k++) {
			pid_t id = id_of(process, keys[k]);

			if (id > 0 && !find_process(processes, id) && id != id_of(first, keys[0]) &&
			    id != id_of(first, keys[1]))
				ret = check_id(r, id, "a session or process group of the job");
		}
	return ret;
}

/* The files in memory that the restore makes itself; they need not be there before. */
static int check_memory_files(struct restoring *r)
{
	const json_t *process = json_object_get(r->opened.parts->snapshot.manifest.root, "process");
	/* Root may restore another user's job. */
	uid_t owner = geteuid() ? geteuid() : json_integer_value(json_object_get(process, "uid"));
	struct criu_files *files = &r->files;
	struct snapshot_error error;
	size_t kept = 0;
	int ret = host_image_facts(r->opened.parts->snapshot.dir,
				   r->opened.parts->snapshot.manifest.index, &r->facts, &error);

	if (!ret)
		ret = memory_files_read(&r->memory_files, r->facts, owner, &error);
	if (!ret)
		ret = memory_files_check(&r->memory_files, &error);
	if (ret)
		return opened_refuse(r->path, ret, &error);
	for (size_t i = 0; i < files->n; i++)
		if (!memory_files_has(&r->memory_files, files->list[i].path))
			files->list[kept++] = files->list[i];
	files->n = kept;
	return EXIT_DONE;
}

/* Whether the job's TCP sockets can be made here. */
static int check_ports(struct restoring *r)
{
	struct snapshot_error error;
	int ret = ports_read(&r->ports, r->facts, &error);

	if (!ret)
		ret = ports_check(&r->ports, !r->check, &error);
	if (ret)
		return opened_refuse(r->path, ret, &error);
	if (!tcp_are_connected(&r->ports) || criu_may_repair(&r->criu))
		return EXIT_DONE;
	complain("%s", r->criu.why);
	return EXIT_UNSUPPORTED;
}

/* Whether the driver can be told where the GPUs are now that processes look at which do not use CUDA. */
static int check_monitors(const struct restoring *r)
{
	const json_t *monitors = json_object_get(r->facts, "monitors");

	if (!json_array_size(monitors) || !r->needs.moved || r->needs.npairs)
		return EXIT_DONE;
	complain(
		"%s: its process %d uses NVML alone, and goes to other GPUs only if NVML tells all "
		"GPUs of both machines",
		r->path, (int)json_integer_value(json_array_get(monitors, 0)));
	return EXIT_UNSUPPORTED;
}

static int check_opened(struct restoring *r)
{
	uint32_t index = r->opened.parts->snapshot.manifest.index;
	struct snapshot_error error;
	int ret, directory = host_image_open_own(r->opened.parts->snapshot.dir, index, &error);

	if (directory < 0)
		return opened_refuse(r->path, directory, &error);
	ret = criu_files_read(directory, &r->files);
	if (ret) {
		snapshot_fail(&error, ret, "host-%u: files.img: %s", index, strerror(-ret));
		ret = opened_refuse(r->path, ret, &error);
	} else {
		ret = check_ids(r, directory);
		ret = worse(ret, check_memory_files(r));
		ret = worse(ret, check_groups(r));
		ret = worse(ret, check_ports(r));
		ret = worse(ret, check_monitors(r));
		ret = worse(ret, needs_opened(&r->opened.parts->snapshot, &r->files));
	}
	close(directory);
	return ret;
}

/* Whether make_request() of restoring.c has room for the path. */
static int check_path(const struct restoring *r)
{
	struct snapshot_error error;

	for (size_t i = 0; i < r->opened.n; i++) {
		const struct opened_part *part = &r->opened.parts[i];
		size_t devices = r->needs.moved ? part->snapshot.manifest.ndevices : 0;
		size_t pairs = r->needs.npairs ? r->needs.npairs : devices;
		int ret = snapshot_dir_check_path(part->path, pairs * 2 * NVML_UUID_SIZE, &error);

		if (ret)
			return opened_refuse(part->path, ret, &error);
	}
	return EXIT_DONE;
}

int restoring_check(struct restoring *r)
{
	int ret = EXIT_DONE;

	if (!r->opened.parts->snapshot.manifest.image) {
		complain(
			"%s: it has no process image, as it was made with --gpu-only or by a signal",
			r->path);
		return EXIT_FAILED;
	}
	if (!criu_find(&r->criu)) {
		complain("%s", r->criu.why);
		ret = EXIT_UNSUPPORTED;
	}
	if (!process_can_signal()) {
		complain(PROCESS_CANNOT_SIGNAL);
		ret = EXIT_UNSUPPORTED;
	}
	r->image = -ECANCELED; /* until it is read */
	for (size_t i = 0; i < r->opened.n; i++)
		ret = worse(ret, check_id(r, r->opened.parts[i].snapshot.manifest.pid,
					  "the job's process"));
	for (size_t i = 0; i < r->opened.n && (!ret || r->check); i++)
		ret = worse(ret, needs_files(&r->opened.parts[i].snapshot));
	if (!ret || r->check)
		ret = worse(ret, check_gpus_and_image(r));
	if (!ret || r->check)
		ret = worse(ret, check_path(r));
	/* An image that is damaged says nothing. */
	return (!ret || r->check) && !r->image ? worse(ret, check_opened(r)) : ret;
}
