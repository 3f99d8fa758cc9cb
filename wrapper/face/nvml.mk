# SPDX-License-Identifier: Apache-2.0
# The NVML face (nvml_face.c); included by the Makefile. In a directory of its own: it is found only where a memory limit is
# set, by "cudaw run" or a user's LD_LIBRARY_PATH.

NVML_FACE := $(LIBDIR)/limited/libnvidia-ml.so.1

.PHONY: install-nvml uninstall-nvml

all: $(NVML_FACE)

$(GEN)/nvml/libnvml.S: wrapper/face/gen_exports.py wrapper/face/exports/libnvidia-ml.txt | $(O)/.deps
	$(call begin,GEN)$(PYTHON) wrapper/face/gen_exports.py wrapper/face/exports/libnvidia-ml.txt --face libnvml \
		--also cudaw_real_nvml -o $(@D)

$(OBJ)/wrapper/face/nvml_face.o: private DEFINES += -I$(GEN)/nvml
$(OBJ)/wrapper/face/nvml_face.o: | $(GEN)/nvml/libnvml.S

$(NVML_FACE): $(ON_LOAD) $(OBJ)/wrapper/face/nvml_face.o $(GEN)/nvml/libnvml.S $(COMMON)
	$(call begin,LD)$(LINK_FACE) -Wl,-soname,libnvidia-ml.so.1 -Wl,--version-script,$(GEN)/nvml/libnvml.map $^ -ldl -o $@

install: install-nvml
install-nvml: all
	install -d $(INSTALLED)/lib/cudaw-$(VERSION)/limited
	install -m 755 $(NVML_FACE) $(INSTALLED)/lib/cudaw-$(VERSION)/limited/

uninstall: uninstall-nvml
uninstall-nvml:
	rm -f $(INSTALLED)/lib/cudaw-$(VERSION)/limited/libnvidia-ml.so.1
	-test ! -d $(INSTALLED)/lib/cudaw-$(VERSION)/limited || rmdir $(INSTALLED)/lib/cudaw-$(VERSION)/limited
