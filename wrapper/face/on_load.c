/* SPDX-License-Identifier: Apache-2.0 */
/* Linked into each face first, so that its constructor runs before the others of the face. */
#include "common/environment.h"
#include "common/log.h"
#include "common/system/threads.h"

__attribute__((constructor)) static void on_load(void)
{
	environment_keep();
	log_see_stderr();
	threads_see_processors();
}
