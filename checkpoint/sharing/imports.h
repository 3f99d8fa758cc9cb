/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_IMPORTS_H
#define CUDAW_IMPORTS_H
/*
 * What this process has imported from others, in a pause and a resume; sharing_may_close() and sharing_get_imports()
 * of sharing.h are here, too. For the engine's thread, which holds no lock.
 */
#include "checkpoint/sharing/internal.h"

/*
 * At rest. If the exporter does not have what was imported, nobody would save it: leave it to the driver. If it has,
 * it is about to make the memory anew, so that what cannot be given back would be other memory then: -EPERM with
 * w->text. Or -ECANCELED.
 */
int sharing_check_imports(struct sharing_wait *w);

/* True if this process has imports from @m; if @build is given, of another than that. */
bool sharing_has_imports(const struct sharing_member *m, const uint64_t *build);

#endif
