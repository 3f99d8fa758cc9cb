/* SPDX-License-Identifier: Apache-2.0 */
/* cudawd's file of settings, and the key of it that jobs read. */
#include "tests/fuzz/fuzz.h"
#include "common/conf_file.h"
#include "common/settings.h"
#include "tools/daemon/conf.h"

#include <stdlib.h>
#include <string.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/conf";

static void check_conf(const struct conf *conf)
{
	if (conf->nlimits > CONF_LIMITS || conf->ngpus > TURNS_GPUS)
		__builtin_trap();
	for (int i = 0; i < CONF_KEYS; i++)
		if (conf->values.given[i] && !(conf->values.value[i] >= 0))
			__builtin_trap();
	for (int i = 0; i < conf->nlimits; i++)
		if (conf->limits[i].weight < 1 || conf->limits[i].weight > SETTING_WEIGHT_MAX)
			__builtin_trap();
}

/* Of a file that the daemon takes, jobs understand what it says to them. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct conf conf;
	char why[CONF_WHY] = "", *text = strndup((const char *)data, size);
	int line, joins;

	if (!text)
		return 0;
	line = conf_parse(text, &conf, why);
	joins = conf_file_joins(text);
	if (line ? !why[0] : joins != conf.joins)
		__builtin_trap();
	if (!line)
		check_conf(&conf);
	free(text);
	return 0;
}
