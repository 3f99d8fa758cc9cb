/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_IDLENESS_H
#define CUDAW_IDLENESS_H
/*
 * For how long a member that makes no calls may keep the GPU from others: nobody knows when its next call comes. If
 * its gaps between calls are not known, for as long as its turns take to begin (the price), so that others lose no more
 * by a wait in vain than by a hand-over in vain. If several gaps in a row were longer than two hand-overs, there and
 * back, for an eighth of that. Each gap that ends sooner then, so that it was a mistake to give the GPU away, doubles
 * how many it takes, up to 64 and for good. Gaps shorter than the limit are not told, and do not count. All times in
 * milliseconds. A struct of zeros knows nothing.
 */
struct idleness {
	double told;            /* the limit, as the member knows it; 0: it does not yet */
	double since;           /* no calls have come since; 0: it is not idle */
	unsigned int long_gaps; /* in a row */
	unsigned int mistakes;
};

/* How long it may be without calls before it is idle. */
double idleness_limit(const struct idleness *idle, double price);
/* No calls have come for as long as it was told. */
void idleness_begin(struct idleness *idle, double now);
/* It calls again, if it was idle. */
void idleness_end(struct idleness *idle, double price, double now);
/* It is not idle any more, for another reason: that says nothing of its gap. */
void idleness_forget(struct idleness *idle);

#endif
