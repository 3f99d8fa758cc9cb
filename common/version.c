/* SPDX-License-Identifier: Apache-2.0 */
#include "common/version.h"

const char cudaw_version[] = CUDAW_VERSION;
