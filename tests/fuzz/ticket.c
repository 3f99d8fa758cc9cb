/* SPDX-License-Identifier: Apache-2.0 */
/* What processes that share memory give each other: tickets, handles, requests and answers. */
#include "tests/fuzz/fuzz.h"
#include "checkpoint/sharing/messages.h"

#include <string.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/ticket";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sharing_request request;
	struct sharing_answer answer;
	struct object_name name;
	struct sharing_handle handle;

	if (!ticket_parse(data, size, &name) && name.pid <= 0)
		__builtin_trap();
	if (size == sizeof(handle) && !sharing_handle_parse(data, &handle) &&
	    (handle.pid <= 0 || handle.offset >= handle.size || handle.size % VMEM_GRANULE))
		__builtin_trap();
	if (!sharing_request_parse(data, size, &request) && !request.kind)
		__builtin_trap();
	if (sharing_answer_parse(data, size, &answer))
		return 0;
	if (answer.nsharers > SHARING_PROCESSES || sharing_answer_size(&answer) != size)
		__builtin_trap();
	if (strspn(answer.job, "0123456789abcdefABCDEF") != RUNDIR_ID_SIZE - 1 ||
	    answer.job[RUNDIR_ID_SIZE - 1])
		__builtin_trap();
	for (uint32_t i = 0; i < answer.nsharers; i++)
		if (answer.sharers[i].pid <= 0)
			__builtin_trap();
	return 0;
}
