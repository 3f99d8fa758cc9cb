/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/kernels/images.h"
#include "common/system/forks.h"
#include "common/reused.h"
#include "kparams/kparams.h"
#include "vmem/context_gone.h"
#include "wrapper/kernels/driver_facts.h"
#include "wrapper/kernels/source.h"
#include "wrapper/real.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define LOG_PREFIX "images: "
#include "common/log.h"

#define NBUCKETS 8192

/* The GPU code of one load, with all handles that belong to it. */
struct image {
	const void *owner; /* the handle that it was loaded as, and ends with; NULL: not known */
	bool unseen;       /* loaded by a function that we do not see */
	struct source source;
	struct handle *handles;
	struct image *prev, *next;
};

/* Members that images_layout() reads without the lock are atomic. */
struct handle {
	const void *key; /* NULL: not in use */
	struct handle *chain;
	const struct kp_kernel *layout; /* of a kernel that was launched */
	struct handle *next;            /* of its image, or not in use */
	/* Nobody reads these while it is not in use (common/reused.h): */
	struct image *image;
	CUcontext ctx;         /* that it ends with; NULL for a library and its kernels */
	char *name;            /* of a function or kernel */
	struct kp_kernel *own; /* the layout, if it is not the image's */
	enum images_kind kind;
};

static struct {
	pthread_mutex_t lock;
	struct handle *buckets[NBUCKETS];
	struct handle *spare;
	struct image *images;
} im = {.lock = PTHREAD_MUTEX_INITIALIZER};
FORKS_LOCK_IN(im, lock);

/* The layout of an unknown kernel. */
static const struct kp_kernel unknown = {.name = ""};

static struct handle **bucket_of(const void *key)
{
	return &im.buckets[(uintptr_t)key * 0x9e3779b97f4a7c15UL >> 32 & (NBUCKETS - 1)];
}

static inline struct handle *find(const void *key)
{
	struct handle *h = __atomic_load_n(bucket_of(key), __ATOMIC_ACQUIRE);

	while (h && __atomic_load_n(&h->key, __ATOMIC_ACQUIRE) != key)
		h = __atomic_load_n(&h->chain, __ATOMIC_ACQUIRE);
	return h;
}

static struct handle *handle_get(void)
{
	const size_t batch = 256;
	struct handle *h = im.spare;

	if (!h) {
		h = calloc(batch, sizeof(*h));
		for (size_t i = 0; h && i < batch; i++)
			LL_PREPEND(im.spare, &h[i]);
		h = im.spare;
	}
	if (h) {
		LL_DELETE(im.spare, h);
		reused_begins(&h->image, h + 1);
	}
	return h;
}

/* Take @h out of the table; its image's list is the caller's. */
static void handle_drop(struct handle *h)
{
	struct handle **link = bucket_of(h->key);

	while (*link != h)
		link = &(*link)->chain;
	__atomic_store_n(link, h->chain, __ATOMIC_RELEASE);
	__atomic_store_n(&h->key, NULL, __ATOMIC_RELEASE);
	__atomic_store_n(&h->layout, NULL, __ATOMIC_RELEASE);
	free(h->name);
	free(h->own);
	reused_rests(&h->image, h + 1);
	LL_PREPEND(im.spare, h);
}

static void image_free(struct image *image)
{
	if (!image)
		return;
	source_close(&image->source);
	free(image);
}

/* Drop @image with all its handles. */
static void image_drop(struct image *image)
{
	struct handle *h, *next;

	LL_FOREACH_SAFE(image->handles, h, next)
		handle_drop(h);
	DL_DELETE(im.images, image);
	image_free(image);
}

/* Forget @key: the driver has given it out anew, or is about to take it back. */
static void forget(const void *key)
{
	struct handle *h = find(key);
	struct image *image;

	if (!h)
		return;
	image = h->image;
	if (image->owner != key) {
		LL_DELETE(image->handles, h);
		handle_drop(h);
	}
	if (image->owner == key || !image->handles)
		image_drop(image);
}

static struct handle *handle_add(enum images_kind kind, const void *key, struct image *image,
				 CUcontext ctx, const char *name)
{
	struct handle **bucket = bucket_of(key);
	char *copy = name ? strdup(name) : NULL;
	struct handle *h = name && !copy ? NULL : handle_get();

	if (!h) {
		free(copy);
		return NULL;
	}
	h->kind = kind;
	h->image = image;
	h->ctx = ctx;
	h->name = copy;
	LL_PREPEND(image->handles, h);
	__atomic_store_n(&h->key, key, __ATOMIC_RELEASE);
	__atomic_store_n(&h->chain, *bucket, __ATOMIC_RELEASE);
	__atomic_store_n(bucket, h, __ATOMIC_RELEASE);
	return h;
}

/* Add @image, which it then owns, with its first handle. NULL: no memory. */
static struct handle *image_add(enum images_kind kind, const void *key, struct image *image,
				CUcontext ctx, const char *name)
{
	struct handle *h;

	if (!image)
		return NULL;
	if (kind != IMAGES_FUNCTION)
		image->owner = key;
	DL_APPEND(im.images, image);
	h = handle_add(kind, key, image, ctx, name);
	if (!h)
		image_drop(image);
	return h;
}

/*
 * The context with which a new handle of @kind ends, or NULL. Not to be called under the lock.
 */
static CUcontext context_for(enum images_kind kind)
{
	CUcontext ctx = NULL;

	if (kind != IMAGES_LIBRARY && kind != IMAGES_KERNEL)
		call_cuCtxGetCurrent(&ctx);
	return ctx;
}

static void loaded(enum images_kind kind, const void *handle, struct image *image)
{
	CUcontext ctx = context_for(kind);

	pthread_mutex_lock(&im.lock);
	forget(handle);
	image_add(kind, handle, image, ctx, NULL);
	pthread_mutex_unlock(&im.lock);
}

void images_load(enum images_kind kind, const void *handle, const void *data)
{
	struct image *image = calloc(1, sizeof(*image));

	if (image && data)
		source_set_data(&image->source, data);
	loaded(kind, handle, image);
}

void images_load_file(enum images_kind kind, const void *handle, const char *path)
{
	struct image *image = calloc(1, sizeof(*image));

	if (image)
		source_set_file(&image->source, path);
	loaded(kind, handle, image);
}

/*
 * Ask the driver about @h again. Its old layout is kept until the driver's answer differs: only
 * then is it certain that no launch uses it.
 */
static void ask_again(struct handle *h)
{
	__atomic_store_n(&h->layout, NULL, __ATOMIC_RELEASE);
}

void images_unload(const void *handle)
{
	struct image *image;
	struct handle *h;

	pthread_mutex_lock(&im.lock);
	forget(handle);
	/* Images whose load was not seen may have ended with it. */
	DL_FOREACH(im.images, image) {
		LL_FOREACH(image->unseen ? image->handles : NULL, h)
			ask_again(h);
	}
	pthread_mutex_unlock(&im.lock);
}

static void forget_context(CUcontext ctx)
{
	struct image *image, *next;

	pthread_mutex_lock(&im.lock);
	DL_FOREACH_SAFE(im.images, image, next) {
		struct handle **link = &image->handles, *h;

		while ((h = *link)) {
			if (h->ctx != ctx) {
				link = &h->next;
				continue;
			}
			*link = h->next;
			handle_drop(h);
		}
		if (!image->handles)
			image_drop(image);
	}
	pthread_mutex_unlock(&im.lock);
}

CONTEXT_GONE(forget_context);

static bool same_name(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

/* Move the handles of @from, which is unseen, to @to. Layouts stay: launches may use them. */
static void image_merge(struct image *from, struct image *to)
{
	struct handle *h;

	LL_FOREACH(from->handles, h) {
		h->image = to;
		ask_again(h);
	}
	LL_CONCAT(to->handles, from->handles);
	DL_DELETE(im.images, from);
	image_free(from);
}

/* @a and @b have a handle in common. False: both loads were seen, so one image has ended. */
static bool unite(struct image *a, struct image *b)
{
	if (a == b)
		return true;
	if (a->unseen)
		image_merge(a, b);
	else if (b->unseen)
		image_merge(b, a);
	else
		return false;
	return true;
}

/* Let @handle be @name of @image. If it was something else, that has ended. */
static void handle_set(enum images_kind kind, const void *handle, struct image *image,
		       CUcontext ctx, const char *name)
{
	struct handle *h = find(handle);

	if (h && same_name(h->name, name) && unite(h->image, image))
		return;
	forget(handle);
	handle_add(kind, handle, image, ctx, name);
}

static struct image *image_unseen(void)
{
	struct image *image = calloc(1, sizeof(*image));

	if (image)
		image->unseen = true;
	return image;
}

void images_name(enum images_kind kind, const void *handle, const void *owner, const char *name)
{
	enum images_kind of = kind == IMAGES_KERNEL ? IMAGES_LIBRARY : IMAGES_MODULE;
	CUcontext ctx = context_for(kind);
	struct handle *o;

	pthread_mutex_lock(&im.lock);
	o = find(owner);
	if (!o) /* loaded by a function that we do not see */
		o = image_add(of, owner, image_unseen(), ctx, NULL);
	if (o)
		handle_set(kind, handle, o->image, o->ctx, name);
	pthread_mutex_unlock(&im.lock);
}

/* True if @handle is of another image than @image, and both loads were seen. */
static bool is_of_another(const void *handle, const struct image *image)
{
	const struct handle *h = find(handle);

	return h && h->image != image && !h->image->unseen && !image->unseen;
}

void images_share(enum images_kind kind, const void *handle, const void *of)
{
	CUcontext ctx = context_for(kind);
	struct handle *o;

	pthread_mutex_lock(&im.lock);
	o = find(of);
	if (o && kind == IMAGES_MODULE && is_of_another(handle, o->image)) {
		/*
		 * The driver is right about a function's module: the old one has ended unseen.
		 */
		forget(of);
		o = NULL;
	}
	if (o)
		handle_set(kind, handle, o->image, o->ctx ? o->ctx : ctx,
			   kind == IMAGES_FUNCTION ? o->name : NULL);
	pthread_mutex_unlock(&im.lock);
}

/* True if the driver's @n parameters have the places that @kernel says. */
static bool agrees(const struct kp_kernel *kernel, const struct kp_param *params, int n)
{
	if (kernel->nparams != (uint32_t)n)
		return false;
	for (int i = 0; i < n; i++)
		if (kernel->params[i].size != params[i].size ||
		    (kernel->exact_offsets && kernel->params[i].offset != params[i].offset))
			return false;
	return true;
}

/*
 * Give the parameters of @own, which are the driver's, the types that the image of @h has. If the
 * kernel's name has them, the image is read for the debug log only, as a large one takes 0.1 s.
 */
static void ask_image(struct handle *h, uint32_t arch, struct kp_kernel *own)
{
	const struct kp_kernel *kernel = source_find(&h->image->source, h->name, arch);

	if (kernel && !agrees(kernel, own->params, own->nparams)) {
		pr_warn("%s: the driver has other parameters than the image", h->name);
		kernel = NULL;
	}
	for (uint32_t i = 0; kernel && own->untyped && i < own->nparams; i++) {
		own->params[i].holds = kernel->params[i].holds;
		own->params[i].source = kernel->params[i].source;
	}
	pr_debug("%s: parameters from the %s", h->name,
		 kernel                    ? "image, as the driver says"
		 : h->image->source.nparts ? "driver"
					   : "driver, its image unseen");
}

static const struct kp_kernel *make_layout(struct handle *h, const struct driver_facts *facts)
{
	const struct kp_kernel *kernel;

	if (facts->nparams >= 0) {
		h->own = kp_kernel_new(h->name, facts->params, facts->nparams);
		if (h->own && (h->own->untyped || log_enabled(LOG_DEBUG)))
			ask_image(h, facts->arch, h->own);
		return h->own;
	}
	kernel = source_find(&h->image->source, h->name, facts->arch);
	pr_debug("%s: parameters from %s", h->name, kernel ? "the image" : "nobody");
	return kernel;
}

/* True if @own still agrees with the driver's answer. */
static bool holds_still(const struct kp_kernel *own, const struct driver_facts *facts)
{
	return agrees(own, facts->params, facts->nparams) &&
	       (!*facts->name || !strcmp(own->name, facts->name));
}

/* Add @function, which the program got in a way that cudaw does not see. */
static struct handle *add_unseen(CUfunction function, const struct driver_facts *facts)
{
	struct handle *o = facts->module ? find(facts->module) : NULL;

	if (!facts->module)
		return image_add(IMAGES_FUNCTION, function, image_unseen(), facts->ctx,
				 facts->name);
	if (!o)
		o = image_add(IMAGES_MODULE, facts->module, image_unseen(), facts->ctx, NULL);
	return o ? handle_add(IMAGES_FUNCTION, function, o->image, o->ctx, facts->name) : NULL;
}

/* The layout of @function, by @facts, under the lock. NULL: nothing is known. */
static const struct kp_kernel *layout_by_facts(CUfunction function,
					       const struct driver_facts *facts)
{
	struct handle *h = find(function);
	const struct kp_kernel *layout = h ? h->layout : NULL;

	if (layout)
		return layout;
	if (h && h->own && !holds_still(h->own, facts)) {
		forget(function);
		h = NULL;
	}
	if (!h)
		h = add_unseen(function, facts);
	if (!h)
		return NULL;
	layout = h->own ? h->own : make_layout(h, facts);
	if (!layout)
		layout = &unknown;
	__atomic_store_n(&h->layout, layout, __ATOMIC_RELEASE);
	return layout;
}

/* Not inlined, so that the launch of a known kernel saves no registers for it. */
__attribute__((noinline)) static const struct kp_kernel *find_layout(CUfunction function)
{
	struct driver_facts *facts = malloc(sizeof(*facts));
	const struct kp_kernel *layout;
	enum images_kind kind;
	struct handle *h;

	if (!facts)
		return &unknown;
	pthread_mutex_lock(&im.lock);
	h = find(function);
	kind = h ? h->kind : IMAGES_FUNCTION;
	pthread_mutex_unlock(&im.lock);
	driver_facts_ask(facts, kind, function);

	pthread_mutex_lock(&im.lock);
	layout = layout_by_facts(function, facts);
	pthread_mutex_unlock(&im.lock);
	free(facts);
	return layout ? layout : &unknown;
}

const struct kp_kernel *images_layout(CUfunction function)
{
	const struct handle *h = find(function);
	const struct kp_kernel *layout = NULL;

	if (h)
		layout = __atomic_load_n(&h->layout, __ATOMIC_ACQUIRE);
	return layout ? layout : find_layout(function);
}

/*
 * True if @a and @b are of the same image. *@unseen: the load of @a's was not seen, and @b is a
 * library.
 */
static bool are_of_one(const void *a, const void *b, bool *unseen)
{
	const struct handle *of_a, *of_b;
	bool one;

	pthread_mutex_lock(&im.lock);
	of_a = find(a);
	of_b = find(b);
	one = of_a && of_b && of_a->image == of_b->image;
	*unseen = of_a && of_a->image->unseen && of_b && of_b->kind == IMAGES_LIBRARY;
	pthread_mutex_unlock(&im.lock);
	return one;
}

/*
 * The node of a graph has the function of a library's kernel in its context, whatever it was made
 * with, and that function's module is the library's there [H200, driver 580.159].
 */
bool images_is_of(CUfunction function, const void *owner)
{
	CUmodule module;
	bool unseen;

	images_layout(function); /* makes the function and its module known */
	if (are_of_one(function, owner, &unseen))
		return true;
	if (!unseen || !real.cuLibraryGetModule ||
	    real.cuLibraryGetModule(&module, (CUlibrary)owner))
		return false;
	return are_of_one(function, module, &unseen);
}
