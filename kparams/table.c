/* SPDX-License-Identifier: Apache-2.0 */
#include "kparams/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int kp_fail(struct kp_error *err, int code, uint64_t offset, const char *fmt, ...)
{
	va_list ap;
	int len;

	if (!err)
		return code;
	err->offset = offset;
	len = snprintf(err->text, sizeof(err->text), "at 0x%" PRIx64 ": ", offset);
	va_start(ap, fmt);
	vsnprintf(err->text + len, sizeof(err->text) - len, fmt, ap);
	va_end(ap);
	return code;
}

struct kp_kernel *kp_kernel_make(const char *name, size_t len, const struct kp_param *params,
				 uint32_t nparams)
{
	size_t params_size = nparams * sizeof(*params);
	struct kp_kernel *kernel = malloc(sizeof(*kernel) + params_size + len + 1);
	char *copy;

	if (!kernel)
		return NULL;
	copy = (char *)kernel->params + params_size;
	memcpy(copy, name, len);
	copy[len] = '\0';
	memcpy(kernel->params, params, params_size);
	kernel->name = copy;
	kernel->nparams = nparams;
	kernel->size = 0;
	for (uint32_t i = 0; i < nparams; i++)
		if (params[i].size && params[i].offset + params[i].size > kernel->size)
			kernel->size = params[i].offset + params[i].size;
	kernel->exact_offsets = true;
	kernel->classified = false;
	kernel->untyped = false;
	return kernel;
}

struct kp_kernel *kp_table_add(struct kp_table *table, const char *name, size_t len,
			       const struct kp_param *params, uint32_t nparams)
{
	struct kp_kernel *kernel;

	if (table->n == table->max) {
		size_t max = table->max ? 2 * table->max : 16;
		struct kp_kernel **grown = reallocarray(table->kernels, max, sizeof(*grown));

		if (!grown)
			return NULL;
		table->kernels = grown;
		table->max = max;
	}
	kernel = kp_kernel_make(name, len, params, nparams);
	if (kernel)
		table->kernels[table->n++] = kernel;
	return kernel;
}

static int compare(const void *a, const void *b)
{
	const struct kp_kernel *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

static bool same_layout(const struct kp_kernel *a, const struct kp_kernel *b)
{
	if (a->nparams != b->nparams)
		return false;
	for (uint32_t i = 0; i < a->nparams; i++)
		if (a->params[i].offset != b->params[i].offset ||
		    a->params[i].size != b->params[i].size)
			return false;
	return true;
}

int kp_table_sort(struct kp_table *table, struct kp_error *err)
{
	struct kp_kernel **kernels = table->kernels;
	size_t kept = 0;

	if (!table->n)
		return 0;
	qsort(kernels, table->n, sizeof(*kernels), compare);
	for (size_t i = 1; i < table->n; i++)
		if (!compare(&kernels[i - 1], &kernels[i]) &&
		    !same_layout(kernels[i - 1], kernels[i]))
			return kp_fail(err, -EBADMSG, 0, "two different kernels are named %s",
				       kernels[i]->name);
	for (size_t i = 1; i < table->n; i++) {
		if (compare(&kernels[kept], &kernels[i]))
			kernels[++kept] = kernels[i];
		else
			free(kernels[i]);
	}
	table->n = kept + 1;
	return 0;
}

struct kp_kernel *kp_table_find(const struct kp_table *table, const char *name)
{
	size_t low = 0, high = table->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int order = strcmp(name, table->kernels[mid]->name);

		if (!order)
			return table->kernels[mid];
		if (order < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return NULL;
}

void kp_table_free(struct kp_table *table)
{
	for (size_t i = 0; i < table->n; i++)
		free(table->kernels[i]);
	free(table->kernels);
	*table = (struct kp_table){0};
}
