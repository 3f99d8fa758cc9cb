# SPDX-License-Identifier: Apache-2.0
# What makes packages; included by the Makefile. docs/install.md says what they are.

.PHONY: dist deb rpm deps-packages check-packages

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
# installed_to_pack BUILD,SETTINGS: what is packed, in BUILD/root/usr.
define installed_to_pack
	$(Q)rm -rf $(1)/root
	+$(Q)$(call build_to_pack,$(1),$(2) DESTDIR=$(1)/root install)
	$(Q)packages/strip $(1)/root/usr
	$(Q)tests/check-glibc $$(find $(1)/root/usr/bin $(1)/root/usr/lib/cudaw-$(VERSION) -type f)
	$(Q)packages/third_party.py --version $(VERSION) --sources . --output $(1)/root/usr/share/doc/cudaw \
		$(1)/bin/*.map $(1)/lib/cudaw-$(VERSION)/*.map
	$(Q)chmod -R u=rwX,go=rX $(1)/root
endef

.PHONY: static-root shared-root
static-root:
	$(call installed_to_pack,$(STATIC_BUILD),RELOCATABLE=1)
shared-root:
	$(call installed_to_pack,$(SHARED_BUILD))

# The flags above are words for a shell.
ifneq ($(filter dist deb rpm,$(MAKECMDGOALS)),)
ifneq ($(words x$(CURDIR)x),1)
$(error $(CURDIR): expected a path without spaces, to make packages in)
endif
endif

DIST_NAME := cudaw-$(VERSION)-linux-$(shell $(CC) -dumpmachine | cut -d- -f1)
DIST      := $(PACKAGES_DIR)/$(DIST_NAME).tar.gz

## dist: make a tarball of cudaw that runs from any directory, and needs no library except libc, in build/packages
dist: static-root
	$(Q)tar --create --directory $(STATIC_BUILD)/root --transform 's,^usr,$(DIST_NAME),' --sort=name --format=gnu \
		--mtime=@$$SOURCE_DATE_EPOCH --owner=0 --group=0 --numeric-owner usr | gzip -n9 > $(DIST)
	@echo $(DIST)

# ---- packages of Debian and of RPM ----------------------------------------------------------

# Who answers for the packages.
PACKAGER ?= $(shell git config user.name) <$(shell git config user.email)>
ifneq ($(filter deb rpm,$(MAKECMDGOALS)),)
ifeq ($(and $(findstring <,$(PACKAGER)),$(findstring @,$(PACKAGER))),)
$(error PACKAGER='$(PACKAGER)': expected "NAME <ADDRESS>", who answers for the packages, or git's user.name and user.email)
endif
endif
quoted    = '$(subst ','\'',$(1))'
filled_in = sed -e 's/@VERSION@/$(VERSION)/g' -e 's|@PACKAGER@|'$(call quoted,$(subst &,\&,$(PACKAGER)))'|'
DEB_DIR  := $(PACKAGES_DIR)/deb
RPM_DIR  := $(PACKAGES_DIR)/rpm

## deps-packages: install what makes Debian's packages and RPM's
deps-packages:
	$(Q)$(MAKE) --no-print-directory O=$(PACKAGES_DIR) PACKAGES='debhelper dpkg-dev rpm' deps

## deb: make packages for Debian and Ubuntu, in build/packages. PACKAGER="NAME <ADDRESS>"
deb: shared-root
	$(Q)rm -rf $(DEB_DIR) $(PACKAGES_DIR)/*.deb
	$(Q)mkdir -p $(DEB_DIR)
	$(Q)cp -r packages/debian $(DEB_DIR)/debian
	$(Q)$(filled_in) packages/debian/control.in > $(DEB_DIR)/debian/control
	$(Q)mv $(DEB_DIR)/debian/lintian-overrides $(DEB_DIR)/debian/cudaw-libs-$(VERSION).lintian-overrides
	$(Q)(printf '#!/bin/sh\nset -e\nif [ "$$1" = remove ]; then\n'; $(filled_in) packages/in-use.sh; \
		printf 'fi\n#DEBHELPER#\n') > $(DEB_DIR)/debian/cudaw-libs-$(VERSION).prerm
	$(Q)printf '%s\n' 'cudaw ($(VERSION)) unstable; urgency=medium' '' '  * CHANGELOG.md says what is new.' '' \
		" -- "$(call quoted,$(PACKAGER))"  $$(date -R -u -d @$$SOURCE_DATE_EPOCH)" > $(DEB_DIR)/debian/changelog
	$(Q)cd $(DEB_DIR) && VERSION=$(VERSION) ROOT='$(abspath $(SHARED_BUILD)/root)' OUTPUT='$(abspath $(PACKAGES_DIR))' \
		debian/rules binary
	@ls $(PACKAGES_DIR)/*.deb

## rpm: make RPM packages, in build/packages; they need no library except libc. PACKAGER="NAME <ADDRESS>"
rpm: static-root
	$(Q)rm -rf $(RPM_DIR) $(PACKAGES_DIR)/*.rpm
	$(Q)mkdir -p $(RPM_DIR)
	$(Q)$(filled_in) -e '/@IN_USE@/{r packages/in-use.sh' -e 'd}' packages/rpm/cudaw.spec.in | $(filled_in) \
		> $(RPM_DIR)/cudaw.spec
	$(Q)rpmbuild -bb --quiet --define '_topdir $(abspath $(RPM_DIR))' --define '_rpmdir $(abspath $(PACKAGES_DIR))' \
		--define '_rpmfilename %%{name}-%%{version}-%%{release}.%%{arch}.rpm' \
		--define 'root $(abspath $(STATIC_BUILD)/root)' $(RPM_DIR)/cudaw.spec
	@ls $(PACKAGES_DIR)/*.rpm

## check-packages: make all packages twice, compare them, install, upgrade and remove them in clean root directories
# SUITES="bookworm trixie noble" DEBIAN_MIRROR= UBUNTU_MIRROR= UBUNTU_KEYRING= FRESH_DIR=/var/tmp
check-packages:
	$(Q)RESULTS='$(RESULTS)' tests/check-packages $(SUITES)
