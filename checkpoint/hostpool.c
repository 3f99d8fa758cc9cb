/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/hostpool.h"
#include "checkpoint/hostmem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LOG_PREFIX "hostpool: "
#include "vmem/log.h"

static struct {
	char *start;
	size_t size; /* a multiple of HOSTPOOL_BLOCK */
	bool *pins;
} pool;

char *hostpool_get(size_t size)
{
	bool *pins;
	char *start;

	if (size <= pool.size)
		return pool.start;
	size = (size + HOSTPOOL_BLOCK - 1) / HOSTPOOL_BLOCK * HOSTPOOL_BLOCK;
	pins = calloc(size / HOSTPOOL_BLOCK, sizeof(*pins));
	start = pins ? hostmem_reserve(size) : NULL;
	if (!start) {
		free(pins);
		return NULL;
	}
	hostpool_drop();
	pool.start = start;
	pool.size = size;
	pool.pins = pins;
	return start;
}

bool *hostpool_pin(const char *host)
{
	return &pool.pins[(host - pool.start) / HOSTPOOL_BLOCK];
}

size_t hostpool_blocks(void)
{
	return pool.size / HOSTPOOL_BLOCK;
}

char *hostpool_block(size_t i)
{
	return pool.start + i * HOSTPOOL_BLOCK;
}

/* A number of bytes with an optional K, M, G or T; false for anything else. */
static bool parse_size(const char *text, size_t *size)
{
	static const char units[] = "KMGT";
	char *end;
	unsigned long long value = strtoull(text, &end, 10);
	const char *unit = *end ? strchr(units, *end) : NULL;

	if (end == text || *text == '-' || (*end && (!unit || end[1])))
		return false;
	*size = value << (unit ? 10 * (unit - units + 1) : 0);
	return true;
}

size_t hostpool_keep_blocks(void)
{
	const char *text = secure_getenv("CUDAW_HOST_POOL");
	size_t size = hostmem_limit() / 4;

	if (text && !parse_size(text, &size))
		pr_err("CUDAW_HOST_POOL=%s: expected a number of bytes, as 8G", text);
	return size / HOSTPOOL_BLOCK;
}

void hostpool_relax(void)
{
	for (size_t i = 0; i < hostpool_blocks(); i++)
		if (!pool.pins[i] && madvise(hostpool_block(i), HOSTPOOL_BLOCK, MADV_FREE))
			pr_debug("MADV_FREE: %s", strerror(errno));
}

void hostpool_drop(void)
{
	hostmem_release(pool.start, pool.size);
	free(pool.pins);
	memset(&pool, 0, sizeof(pool));
}
