/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a corpus, and the fixtures of kparams, through a fuzz target. Runs in the top directory. */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

/* An input in a block of exactly its size, so that a sanitizer sees a read past its end. */
static int replay_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data = NULL;
	long size = -1;

	if (file && !fseek(file, 0, SEEK_END))
		size = ftell(file);
	if (size > 0)
		data = malloc(size);
	if (!data || fseek(file, 0, SEEK_SET) || fread(data, 1, size, file) != (size_t)size) {
		printf("# %s cannot be read\n", path);
		return -1;
	}
	LLVMFuzzerTestOneInput(data, size);
	free(data);
	fclose(file);
	return 0;
}

static int replay_directory(const char *path)
{
	DIR *directory = opendir(path);
	struct dirent *entry;
	int n = 0;

	if (!directory)
		printf("# no %s: run me in the top directory\n", path);
	while (directory && (entry = readdir(directory))) {
		char name[512];

		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		if (entry->d_name[0] != '.' && !replay_file(name))
			n++;
	}
	if (directory)
		closedir(directory);
	return n;
}

int main(void)
{
	int corpus = replay_directory(fuzz_corpus);
	int fixtures = replay_directory("tests/kparams/fixtures");

	printf("1..1\n%sok 1 - %d inputs of %s, %d fixtures\n", corpus && fixtures ? "" : "not ",
	       corpus, fuzz_corpus, fixtures);
	return !corpus || !fixtures;
}
