# SPDX-License-Identifier: Apache-2.0
# What makes packages; included by the Makefile. docs/install.md says what they are.

.PHONY: dist

PACKAGES_DIR := $(O)/packages
# What is packed is built in directories of its own: with the system's libraries, and with all of them but libc in it.
SHARED_BUILD := $(PACKAGES_DIR)/shared
STATIC_BUILD := $(PACKAGES_DIR)/static

# The time that all files in packages bear: that of the commit, or of the sources if they have no repository.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || stat -c %Y Makefile)

# No path of this machine gets into the binaries, so that they are the same wherever they are built. The linker's maps
# say what is in them. From the environment, so that rules can add flags to these.
build_to_pack = CFLAGS='-O2 -g -ffile-prefix-map=$(CURDIR)=. -ffile-prefix-map=$(1)=build' \
	LDFLAGS='-Wl,-Map,$$@.map' $(MAKE) --no-print-directory O=$(1) PREFIX=/usr $(2)
third_party = packages/third_party.py --version $(VERSION) --sources . --output $(2)/share/doc/cudaw \
	$(1)/bin/*.map $(1)/lib/cudaw-$(VERSION)/*.map

DIST_NAME := cudaw-$(VERSION)-linux-$(shell $(CC) -dumpmachine | cut -d- -f1)
DIST      := $(PACKAGES_DIR)/$(DIST_NAME).tar.gz
DIST_ROOT := $(STATIC_BUILD)/root

# The flags above are words for a shell.
ifneq ($(filter dist,$(MAKECMDGOALS)),)
ifneq ($(words x$(CURDIR)x),1)
$(error $(CURDIR): expected a path without spaces, to make packages in)
endif
endif

## dist: make a tarball of cudaw that runs from any directory, and needs no library except libc, in build/packages
dist:
	$(Q)rm -rf $(DIST_ROOT)
	+$(Q)$(call build_to_pack,$(STATIC_BUILD),RELOCATABLE=1 DESTDIR=$(DIST_ROOT) install)
	$(Q)packages/strip $(DIST_ROOT)/usr
	$(Q)tests/check-glibc $$(find $(DIST_ROOT)/usr/bin $(DIST_ROOT)/usr/lib -type f)
	$(Q)$(call third_party,$(STATIC_BUILD),$(DIST_ROOT)/usr)
	$(Q)tar --create --directory $(DIST_ROOT) --transform 's,^usr,$(DIST_NAME),' --sort=name --format=gnu \
		--mtime=@$$SOURCE_DATE_EPOCH --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX usr | gzip -n9 > $(DIST)
	@echo $(DIST)
