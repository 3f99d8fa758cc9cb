/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/translated/launch_attributes.h"
#include "wrapper/translated/rewrite.h"

#include <stdbool.h>

/* What the driver gets in place of attributes with a window. */
struct copied_config {
	CUlaunchConfig config;
	CUlaunchAttribute *own; /* the program's */
};

static bool has_window(const CUlaunchConfig *config)
{
	for (unsigned int i = 0; config && config->attrs && i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
			return true;
	return false;
}

CUresult launch_attributes_before(struct copies *copies, const CUlaunchConfig **config)
{
	struct copied_config *copied;
	CUlaunchAttribute *attrs;
	CUresult result;

	if (!has_window(*config))
		return CUDA_SUCCESS;
	copied = copies_room(copies, sizeof(*copied));
	if (!copied)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*copied = (struct copied_config){**config, (*config)->attrs};
	*config = &copied->config;
	attrs = copies_take_array(copies, copied->own, copied->config.numAttrs, sizeof(*attrs),
				  &result);
	if (result)
		return result;
	for (unsigned int i = 0; i < copied->config.numAttrs; i++)
		if (attrs[i].id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)
			rewrite_access_policy(&attrs[i].value);
	copied->config.attrs = attrs;
	return CUDA_SUCCESS;
}

void launch_attributes_after(const CUlaunchConfig *config)
{
	const struct copied_config *copied = (const struct copied_config *)config;

	if (!has_window(config))
		return;
	for (unsigned int i = 0; i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
			copied->own[i].value = config->attrs[i].value;
}
