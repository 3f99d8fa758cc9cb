/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/translated/symbols.h"
#include "common/system/forks.h"
#include "vmem/context_gone.h"
#include "vmem/addresses/translate.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* uthash would otherwise exit() the program when memory runs out. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define LOG_PREFIX "symbols: "
#include "common/log.h"

#define WORD sizeof(CUdeviceptr)

struct symbol {
	const void *owner;
	CUcontext ctx;
	CUdeviceptr ptr;
	size_t size;
	unsigned long added; /* by symbols_time(), when symbols_add() was last called for it */
	UT_hash_handle hh;   /* by ptr */
};

/* A pointer in a symbol. */
struct word {
	CUdeviceptr place;
	CUdeviceptr ptr, real; /* the virtual address, and the real one that was written */
	CUcontext ctx;
	UT_hash_handle hh; /* by place */
};

FORKS_LOCK(lock);
static struct symbol *symbols;
static struct word *words;
static unsigned long time_now; /* counts calls of symbols_add() */

static struct symbol *find_symbol(CUdeviceptr ptr, size_t size)
{
	for (struct symbol *s = symbols; s; s = s->hh.next)
		if (ptr >= s->ptr && ptr - s->ptr <= s->size && size <= s->size - (ptr - s->ptr))
			return s;
	return NULL;
}

static void forget_word(struct word *word)
{
	HASH_DEL(words, word);
	free(word);
}

static void forget_words(CUdeviceptr ptr, size_t size)
{
	struct word *word, *next;

	HASH_ITER(hh, words, word, next)
		if (word->place >= ptr && word->place - ptr < size)
			forget_word(word);
}

static void forget_symbol(struct symbol *symbol)
{
	forget_words(symbol->ptr, symbol->size);
	HASH_DEL(symbols, symbol);
	free(symbol);
}

/* Without host memory the variable stays unknown. */
static void add_symbol(const struct symbol *values)
{
	struct symbol *symbol = calloc(1, sizeof(*symbol));

	if (!symbol)
		return;
	*symbol = *values;
	HASH_ADD(hh, symbols, ptr, sizeof(symbol->ptr), symbol);
	if (!symbol->hh.tbl)
		free(symbol);
}

void symbols_add(const void *owner, CUcontext ctx, CUdeviceptr ptr, size_t size)
{
	struct symbol values = {.owner = owner, .ctx = ctx, .ptr = ptr, .size = size};
	struct symbol *before;

	pthread_mutex_lock(&lock);
	values.added = ++time_now;
	HASH_FIND(hh, symbols, &ptr, sizeof(ptr), before);
	/* Programs ask again for each copy. */
	if (before && before->owner == owner && before->size == size) {
		before->added = values.added;
	} else {
		if (before)
			forget_symbol(before);
		add_symbol(&values);
	}
	pthread_mutex_unlock(&lock);
}

unsigned long symbols_time(void)
{
	unsigned long time;

	pthread_mutex_lock(&lock);
	time = time_now;
	pthread_mutex_unlock(&lock);
	return time;
}

static void remove_symbols(const void *owner, CUcontext ctx, unsigned long until)
{
	struct symbol *symbol, *next;

	pthread_mutex_lock(&lock);
	HASH_ITER(hh, symbols, symbol, next)
		if ((owner ? symbol->owner == owner : symbol->ctx == ctx) && symbol->added <= until)
			forget_symbol(symbol);
	pthread_mutex_unlock(&lock);
}

void symbols_remove(const void *owner, unsigned long until)
{
	remove_symbols(owner, NULL, until);
}

static void forget_context(CUcontext ctx)
{
	remove_symbols(NULL, ctx, ULONG_MAX);
}

CONTEXT_GONE(forget_context);

bool symbols_have(CUdeviceptr ptr, size_t size)
{
	bool found;

	pthread_mutex_lock(&lock);
	found = find_symbol(ptr, size) != NULL;
	pthread_mutex_unlock(&lock);
	return found;
}

/* Without host memory for it, a word is right only until its target moves. */
static void remember_word(const struct symbol *symbol, CUdeviceptr place, CUdeviceptr ptr)
{
	struct word *word = calloc(1, sizeof(*word));

	if (word) {
		*word = (struct word){
			.place = place, .ptr = ptr, .real = translate(ptr), .ctx = symbol->ctx};
		HASH_ADD(hh, words, place, sizeof(word->place), word);
	}
	if (!word || !word->hh.tbl) {
		pr_err("no host memory to follow a pointer in a variable of a module: it is wrong after a pause");
		free(word);
	}
}

void symbols_rewrite(CUdeviceptr ptr, void *data, size_t size)
{
	const struct symbol *symbol;

	pthread_mutex_lock(&lock);
	symbol = find_symbol(ptr, size);
	if (symbol)
		forget_words(ptr, size);
	for (size_t at = -ptr & (WORD - 1); symbol && at + WORD <= size; at += WORD) {
		CUdeviceptr word, now;

		memcpy(&word, (char *)data + at, WORD);
		now = translate(word);
		if (now == word)
			continue;
		memcpy((char *)data + at, &now, WORD);
		remember_word(symbol, ptr + at, word);
	}
	pthread_mutex_unlock(&lock);
}

/* Read the word at @place, in the current context. */
static CUresult read_word(const struct cuda_driver *drv, CUdeviceptr place, CUdeviceptr *value)
{
	CUresult error = drv->cuMemcpyDtoHAsync_v2(value, place, WORD, NULL);

	return error ? error : drv->cuStreamSynchronize(NULL);
}

static CUresult write_word(const struct cuda_driver *drv, CUdeviceptr place, CUdeviceptr value)
{
	CUresult error = drv->cuMemcpyHtoDAsync_v2(place, &value, WORD, NULL);

	return error ? error : drv->cuStreamSynchronize(NULL);
}

static CUresult renew(const struct cuda_driver *drv, struct word *word)
{
	CUdeviceptr now = translate(word->ptr), value = 0;
	CUresult error = drv->cuCtxSetCurrent(word->ctx);

	if (!error)
		error = read_word(drv, word->place, &value);
	/* The target was freed, or the word was overwritten: nothing is to be updated. */
	if (error || value != word->real || now == word->ptr) {
		pr_debug("0x%llx is forgotten: error %d, value 0x%llx", word->place, error, value);
		forget_word(word);
		return CUDA_SUCCESS;
	}
	error = write_word(drv, word->place, now);
	if (!error)
		word->real = now;
	return error;
}

CUresult symbols_renew(const struct cuda_driver *drv)
{
	struct word *word, *next;
	CUresult error = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	HASH_ITER(hh, words, word, next)
		if (!error && word->real != translate(word->ptr))
			error = renew(drv, word);
	if (words)
		drv->cuCtxSetCurrent(NULL);
	pthread_mutex_unlock(&lock);
	return error;
}
