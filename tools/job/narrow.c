/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/job/narrow.h"

#include "common/gpu/nvml.h"
#include "tools/report/report.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* @text as a number of at most @max. False: it is none. */
static bool take_number(const char *text, unsigned long max, unsigned long *number)
{
	if (!*text || text[strspn(text, "0123456789")])
		return false;
	errno = 0;
	*number = strtoul(text, NULL, 10);
	return !errno && *number <= max;
}

int narrow_to_user(struct narrow *narrow, const char *text)
{
	const struct passwd *user = getpwnam(text);
	unsigned long number;

	narrow->by_user = true;
	if (user) {
		narrow->user = user->pw_uid;
	} else if (take_number(text, UINT_MAX - 1, &number)) {
		narrow->user = number;
	} else {
		complain("--user '%s': there is no such user", text);
		return EXIT_USAGE;
	}
	if (geteuid() == 0 || narrow->user == geteuid())
		return EXIT_DONE;
	complain("--user %s: only root sees the jobs of other users", text);
	return EXIT_DENIED;
}

int narrow_to_gpu(struct narrow *narrow, const char *text)
{
	char uuid[NVML_UUID_SIZE];
	unsigned long number;

	/* "GPU-" alone, as of a script whose variable is empty, would mean all of them. */
	if (!strncasecmp(text, "GPU-", strlen("GPU-")) && text[strlen("GPU-")] &&
	    strlen(text) < sizeof(narrow->gpu)) {
		strcpy(narrow->gpu, text);
		return EXIT_DONE;
	}
	if (!take_number(text, UINT_MAX, &number)) {
		complain(
			"--gpu '%s': expected the number of a GPU in nvidia-smi, or a UUID (GPU-...)",
			text);
		return EXIT_USAGE;
	}
	if (nvml_device_uuid(number, uuid)) {
		complain("--gpu %s: NVML (libnvidia-ml.so.1) is missing or has no GPU of this "
			 "number; a UUID needs no NVML",
			 text);
		return EXIT_UNSUPPORTED;
	}
	strcpy(narrow->gpu, uuid);
	return EXIT_DONE;
}

int narrow_gpu_exists(const char *uuid)
{
	char known[NVML_UUID_SIZE];
	unsigned int count;

	if (nvml_device_count(&count))
		return -ENOSYS;
	for (unsigned int i = 0; i < count; i++)
		if (!nvml_device_uuid(i, known) && !strncasecmp(known, uuid, strlen(uuid)))
			return 1;
	return 0;
}

int narrow_say_none(const struct narrow *narrow)
{
	int exists = *narrow->gpu ? narrow_gpu_exists(narrow->gpu) : 1;

	if (exists > 0) {
		complain(narrow->by_user || *narrow->gpu ? "there are no such jobs"
							 : "there are no jobs");
		return EXIT_DONE;
	}
	complain(exists < 0 ? "--gpu %s: no job uses it, and without NVML (libnvidia-ml.so.1) "
			      "nobody knows whether there is such a GPU"
			    : "--gpu %s: this machine has no such GPU",
		 narrow->gpu);
	return EXIT_UNSUPPORTED;
}

bool narrow_has_user(const struct narrow *narrow, const struct job *job)
{
	return !narrow->by_user || job->uid == narrow->user;
}

static bool uses_gpu(const struct narrow *narrow, const struct job *job)
{
	for (int i = 0; i < job->status.ngpus; i++)
		if (!strncasecmp(job->status.gpus[i].uuid, narrow->gpu, strlen(narrow->gpu)))
			return true;
	return false;
}

bool narrow_has_gpu(const struct narrow *narrow, const struct job_list *list, const struct job *job)
{
	if (!*narrow->gpu || uses_gpu(narrow, job))
		return true;
	for (size_t i = 0; i < list->n; i++)
		if (list->jobs[i].described && job->described && list->jobs[i].uid == job->uid &&
		    !strcmp(list->jobs[i].status.id, job->status.id) &&
		    uses_gpu(narrow, &list->jobs[i]))
			return true;
	return false;
}
