/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/turns/turns_orders.h"
#include "tools/command/tools.h"

#include "common/gpu/nvml.h"
#include "common/protocol/protocol.h"
#include "common/text.h"
#include "tools/command/output.h"
#include "tools/job/narrow.h"
#include "tools/process/cudawd.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const orders[] = {"set", "drain", "undrain"};

/* The arguments, as the order has them. Returns 0, or an exit code after a message. */
static int add_words(char *request, size_t size, int argc, char **argv)
{
	size_t len = strlen(request);

	for (int i = optind + 1; i < argc; i++) {
		len += snprintf(request + len, size - len, " %s", argv[i]);
		if (len >= size || !*argv[i] || strpbrk(argv[i], " \n")) {
			complain("turns set: expected KEY=VALUE, found '%s'", argv[i]);
			return EXIT_USAGE;
		}
	}
	return EXIT_DONE;
}

/* The UUID of the GPU that @word means. Returns 0, or an exit code after a message. */
static int add_gpu(char *request, size_t size, const char *word)
{
	char uuid[NVML_UUID_SIZE], *end;
	unsigned long number = strtoul(word, &end, 10);
	size_t len = strlen(request);
	CUuuid parsed;

	if (nvml_uuid_parse(word, &parsed) && !narrow_gpu_exists(word)) {
		complain("%s: this machine has no such GPU", word);
		return EXIT_UNSUPPORTED;
	}
	if (nvml_uuid_parse(word, &parsed)) {
		snprintf(request + len, size - len, " %s", word);
		return EXIT_DONE;
	}
	if (*word < '0' || *word > '9' || *end || number > 1000) {
		complain("'%s': expected the number of a GPU in nvidia-smi, or a UUID (GPU-...)",
			 word);
		return usage_error("turns");
	}
	if (nvml_device_uuid(number, uuid)) {
		complain("%s: NVML (libnvidia-ml.so.1) is missing or has no GPU of this number",
			 word);
		return EXIT_UNSUPPORTED;
	}
	snprintf(request + len, size - len, " %s", uuid);
	return EXIT_DONE;
}

/* "note TEXT" says what is wrong with the order. */
static int take_line(void *arg, const struct line *line)
{
	if (line->id == LISTED_NOTE)
		format_copy(arg, PROTOCOL_MESSAGE, line->text);
	return 0;
}

/* Returns an exit code, with the reason in @why. */
static int ask(const char *request, char why[PROTOCOL_MESSAGE])
{
	char where[PATH_MAX] = "";
	int err = cudawd_ask(request, CUDAWD_MS, take_line, why, where);

	if (!err)
		return EXIT_DONE;
	if (err == -ENOENT && *why) {
		complain("%s", why);
		return EXIT_USAGE;
	}
	if (err == -EACCES)
		snprintf(why, PROTOCOL_MESSAGE, "only root and the daemon's user may do that");
	else
		snprintf(why, PROTOCOL_MESSAGE, "no answer of cudawd");
	if (err != -EACCES)
		return cudawd_explain(err, where);
	complain("%s: %s", where, why);
	return EXIT_DENIED;
}

static int give(const char *order, const char *request, bool json)
{
	char why[PROTOCOL_MESSAGE] = "";
	int code = ask(request, why);
	json_t *root;

	if (!json)
		return code;
	root = json_pack("{s:s, s:i, s:o}", "request", order, "code", code, "message",
			 *why ? output_text(why) : json_null());
	output_json(root);
	json_decref(root);
	return code;
}

int cmd_turns_order(int argc, char **argv, bool json)
{
	const char *order = argv[optind];
	char request[PROTOCOL_LINE];
	bool known = false;
	int code;

	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
		known |= !strcmp(order, orders[i]);
	if (!known) {
		complain("turns: expected set, drain, undrain or nothing, found '%s'", order);
		return usage_error("turns");
	}
	if (!strcmp(order, "set") ? argc - optind < 2 : argc - optind != 2) {
		complain("turns %s: expected %s", order,
			 !strcmp(order, "set") ? "KEY=VALUE" : "a GPU");
		return usage_error("turns");
	}
	report_by_code();
	snprintf(request, sizeof(request), "%s", order);
	if (!strcmp(order, "set"))
		code = add_words(request, sizeof(request), argc, argv);
	else
		code = add_gpu(request, sizeof(request), argv[optind + 1]);
	return code ? code : give(order, request, json);
}
