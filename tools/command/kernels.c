/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/tools.h"

#include "kparams/kparams.h"
#include "tools/command/demangle.h"
#include "tools/command/elf_file.h"
#include "tools/command/output.h"
#include "common/text.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char help_kernels[] =
	"Usage: cudaw kernels [OPTION]... FILE...\n"
	"\n"
	"List the kernels in programs, libraries, fatbins, cubins and PTX files, and what\n"
	"parameters they take.\n"
	"\n"
	"  -a, --arch ARCH  only code for ARCH: sm_90 (a cubin) or compute_90 (PTX)\n"
	"  -j, --json       as a JSON array\n"
	"  -h, --help       this text\n"
	"\n"
	"For each kernel: the architecture and the name, the name as C++ has it, and a line for\n"
	"each parameter with its offset and size in the parameter buffer and its kind:\n"
	"  pointer      a pointer to data\n"
	"  no pointer   a number\n"
	"  code         a pointer to a function\n"
	"  may point    a struct or an unknown type: each word may be a pointer\n"
	"  reference    to a texture or surface; it takes no room\n"
	"An offset with a '~' comes from PTX and differs between architectures.\n"
	"\n"
	"Exit codes: 0 done, 1 a file cannot be read whole or has no kernels, 2 wrong usage.\n";

struct listing {
	const char *arch; /* NULL for all */
	bool json;
	bool any; /* a kernel was printed */
};

/* One file; the totals explain an empty list. */
struct source {
	const char *path;
	const uint8_t *data;
	size_t size;
	size_t nimages, nmatching, nkernels, nlto;
	bool failed;
};

struct names {
	char *file, *name, *demangled; /* the last may be NULL */
	const char *arch;
};

static void arch_text(const struct kp_image_info *info, char *buf, size_t size)
{
	snprintf(buf, size, "%s_%u%.1s", info->kind == KP_CUBIN ? "sm" : "compute", info->arch,
		 &info->suffix);
}

static const char *holds_text(const struct kp_param *param)
{
	static const char *const texts[] = {
		[KP_ANYTHING] = "may point",
		[KP_POINTER] = "pointer",
		[KP_NO_POINTER] = "no pointer",
		[KP_CODE] = "code",
	};

	return param->size ? texts[param->holds] : "reference";
}

static const char *source_text(const struct kp_param *param)
{
	static const char *const texts[] = {
		[KP_FROM_NOBODY] = "nobody",   [KP_FROM_SIZE] = "size",
		[KP_FROM_IMAGE] = "image",     [KP_FROM_NAME] = "name",
		[KP_FROM_SIBLING] = "sibling",
	};

	return texts[param->source];
}

/* A cleaned copy, to be freed: kernel names in images may be any bytes. */
static char *clean_copy(const char *text)
{
	size_t size = strlen(text) + 1;
	char *copy = malloc(size);

	if (copy)
		format_copy(copy, size, text);
	return copy;
}

static void print_text(const struct kp_kernel *kernel, const struct names *names)
{
	printf("%s %s\n", names->arch, names->name);
	if (names->demangled)
		printf("    %s\n", names->demangled);
	for (uint32_t i = 0; i < kernel->nparams; i++) {
		const struct kp_param *param = &kernel->params[i];

		if (param->size)
			printf("    %u: offset %s%u, size %u, %s\n", i,
			       kernel->exact_offsets ? "" : "~", param->offset, param->size,
			       holds_text(param));
		else
			printf("    %u: %s\n", i, holds_text(param));
	}
}

static void print_json(const struct kp_kernel *kernel, const struct kp_image_info *info,
		       const struct names *names)
{
	json_t *params = json_array();
	json_t *object;

	for (uint32_t i = 0; i < kernel->nparams; i++) {
		const struct kp_param *param = &kernel->params[i];
		json_t *offset = param->size ? json_integer(param->offset) : json_null();

		json_array_append_new(params,
				      json_pack("{s:i, s:o, s:i, s:s, s:s}", "ordinal", (int)i,
						"offset", offset, "size", (int)param->size, "holds",
						holds_text(param), "source", source_text(param)));
	}
	object = json_pack("{s:s, s:s, s:s, s:I, s:s, s:s?, s:i, s:b, s:o}", "file", names->file,
			   "arch", names->arch, "kind", info->kind == KP_CUBIN ? "cubin" : "ptx",
			   "image", (json_int_t)info->offset, "name", names->name, "demangled",
			   names->demangled, "size", (int)kernel->size, "exact_offsets",
			   (int)kernel->exact_offsets, "params", params);
	output_stamp(object);
	json_dumpf(object, stdout, JSON_COMPACT);
	json_decref(object);
}

static void list_kernel(struct listing *list, const struct source *source,
			const struct kp_kernel *kernel, const struct kp_image_info *info,
			const char *arch)
{
	struct names names = {
		.file = clean_copy(source->path), .arch = arch, .name = clean_copy(kernel->name)};

	if (names.file && names.name) {
		names.demangled = demangle(names.name);
		if (list->json) {
			fputs(list->any ? ",\n" : "\n", stdout);
			print_json(kernel, info, &names);
		} else {
			print_text(kernel, &names);
		}
		list->any = true;
	}
	free(names.file);
	free(names.name);
	free(names.demangled);
}

static void list_image(struct listing *list, struct source *source, struct kp_image *image,
		       uint64_t base)
{
	struct kp_image_info info;
	struct kp_error err;
	char arch[32];
	size_t n;

	kp_image_info(image, &info);
	info.offset += base;
	arch_text(&info, arch, sizeof(arch));
	source->nimages++;
	if (list->arch && strcmp(list->arch, arch))
		return;
	source->nmatching++;
	if (info.kind == KP_LTO_IR) {
		source->nlto++;
		return;
	}
	if (kp_image_kernels(image, &n, &err)) {
		complain("%s: image for %s at 0x%" PRIx64 ": %s", source->path, arch, info.offset,
			 err.text);
		source->failed = true;
		return;
	}
	for (size_t i = 0; i < n; i++) {
		list_kernel(list, source, kp_image_kernel(image, i), &info, arch);
		source->nkernels++;
	}
}

static void list_fatbin(struct listing *list, struct source *source, struct kp_fatbin *fatbin,
			uint64_t base)
{
	for (size_t i = 0; i < kp_fatbin_nimages(fatbin); i++)
		list_image(list, source, kp_fatbin_image(fatbin, i), base);
	kp_fatbin_close(fatbin);
}

/*
 * List the containers in a program or library. The whole file is searched, not the sections that
 * its headers name: headers can be wrong or missing.
 */
static void list_containers(struct listing *list, struct source *source)
{
	size_t offset = 0, length;
	struct kp_fatbin *fatbin;
	struct kp_error err;

	while (kp_container_next(source->data, source->size, &offset, &length)) {
		if (kp_fatbin_open(source->data + offset, length, &fatbin, &err)) {
			complain("%s: container at 0x%zx: %s", source->path, offset, err.text);
			source->failed = true;
		} else {
			list_fatbin(list, source, fatbin, offset);
		}
		offset += length;
	}
}

static int list_source(struct listing *list, struct source *source)
{
	size_t offset = 0, length;
	struct kp_fatbin *fatbin;
	struct kp_error err;
	int ret = -ENOTSUP;

	/* A file that begins with a container may have further ones. */
	if (!kp_container_next(source->data, source->size, &offset, &length) || offset)
		ret = kp_fatbin_open(source->data, source->size, &fatbin, &err);
	if (!ret) {
		list_fatbin(list, source, fatbin, 0);
	} else if (ret == -ENOTSUP) {
		list_containers(list, source);
	} else {
		complain("%s: %s", source->path, err.text);
		return EXIT_FAILED;
	}
	if (source->nlto)
		complain(
			"%s: %zu images are LTO-IR, which has no parameter layouts before it is linked",
			source->path, source->nlto);
	if (elf_file_is_cut(source->data, source->size)) {
		complain("%s: it is cut off at %zu bytes: its section headers would come later",
			 source->path, source->size);
		source->failed = true;
	}
	if (source->failed)
		return EXIT_FAILED;
	if (source->nkernels)
		return EXIT_DONE;
	if (!source->nimages)
		complain("%s has no GPU code in a known format", source->path);
	else if (!source->nmatching)
		complain("%s has no code for %s", source->path, list->arch);
	else
		complain("%s has no kernels", source->path);
	return EXIT_FAILED;
}

static int list_file(struct listing *list, const char *path)
{
	struct source source = {.path = path};
	struct stat st;
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* do not wait for a pipe */
	void *data;
	int ret;

	if (fd < 0 || fstat(fd, &st)) {
		complain("%s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return EXIT_FAILED;
	}
	if (!S_ISREG(st.st_mode) || !st.st_size) {
		complain("%s is %s", path, S_ISREG(st.st_mode) ? "empty" : "not a regular file");
		close(fd);
		return EXIT_FAILED;
	}
	data = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (data == MAP_FAILED) {
		complain("%s: %s", path, strerror(errno));
		return EXIT_FAILED;
	}
	source.data = data;
	source.size = st.st_size;
	ret = list_source(list, &source);
	munmap(data, st.st_size);
	return ret;
}

static bool is_arch(const char *text)
{
	size_t digits;

	if (!strncmp(text, "sm_", 3))
		text += 3;
	else if (!strncmp(text, "compute_", 8))
		text += 8;
	else
		return false;
	digits = strspn(text, "0123456789");
	text += digits;
	if (*text == 'a' || *text == 'f')
		text++;
	return digits && !*text;
}

static int list_files(struct listing *list, char **paths, int n)
{
	int ret = EXIT_DONE;

	if (list->json)
		putchar('[');
	for (int i = 0; i < n; i++) {
		int one = list_file(list, paths[i]);

		if (!ret)
			ret = one;
	}
	if (list->json)
		fputs(list->any ? "\n]\n" : "]\n", stdout);
	return ret;
}

int cmd_kernels(int argc, char **argv)
{
	static const struct option options[] = {
		{"arch", required_argument, NULL, 'a'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct listing list = {0};
	int opt;

	while ((opt = getopt_long(argc, argv, "a:jh", options, NULL)) != -1) {
		switch (opt) {
		case 'a':
			list.arch = optarg;
			break;
		case 'j':
			list.json = true;
			break;
		case 'h':
			fputs(help_kernels, stdout);
			return EXIT_DONE;
		default:
			return usage_error("kernels");
		}
	}
	if (list.arch && !is_arch(list.arch)) {
		complain("--arch %s: expected an architecture, as sm_90 or compute_90a", list.arch);
		return usage_error("kernels");
	}
	if (!names_given(argc, argv, "file", false))
		return usage_error("kernels");
	return list_files(&list, argv + optind, argc - optind);
}
