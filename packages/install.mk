# SPDX-License-Identifier: Apache-2.0
# What installs; included by the Makefile. Packages are made of what this installs.

.PHONY: install uninstall completions

INSTALLED = $(DESTDIR)$(PREFIX)

# The shell would split the one, and LD_PRELOAD the other.
ifneq ($(filter install uninstall,$(MAKECMDGOALS)),)
ifneq ($(words x$(INSTALLED)x)$(filter-out /%,$(PREFIX))$(findstring :,$(PREFIX)),1)
$(error PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)': expected paths without spaces, and an absolute PREFIX without a colon)
endif
endif

# How bash, zsh and fish complete words, from the help texts. RUN=PROGRAM runs programs of another architecture.
COMPLETIONS := $(addprefix $(O)/completions/,cudaw.bash _cudaw cudaw.fish cudawd.fish)
completions: $(COMPLETIONS)
$(COMPLETIONS) &: packages/completions.py $(wildcard packages/completions.*) $(COMMAND) $(DAEMON)
	$(call say,GEN,$(O)/completions)
	@mkdir -p $(O)/completions
	$(Q)$(PYTHON) packages/completions.py --output $(O)/completions '$(RUN) $(COMMAND)' '$(RUN) $(DAEMON)'

# Users' units lie where systemd looks for them with each PREFIX that it knows: /usr, /usr/local and ~/.local.
UNITS := $(foreach unit,cudawd.service cudawd.socket,packages/systemd/system/$(unit):lib/systemd/system/$(unit) \
	 packages/systemd/user/$(unit):share/systemd/user/$(unit))

# What users read lies as it does here, so that links lead from page to page.
PAGES := $(wildcard *.md docs/*.md docs/*.svg docs/internals/*.md contrib/*/*) \
	 LICENSE THIRD_PARTY checkpoint/snapshot/FORMAT.md examples/slurm_usr1.py examples/inference_server.py examples/gpu.py
DOC   := share/doc/cudaw

# What is copied, as SOURCE:PLACE below PREFIX.
COPIED := tools/cudaw.1:share/man/man1/cudaw.1 tools/cudawd.8:share/man/man8/cudawd.8 \
	  $(O)/completions/cudaw.bash:share/bash-completion/completions/cudaw \
	  $(O)/completions/cudaw.bash:share/bash-completion/completions/cudawd \
	  $(O)/completions/_cudaw:share/zsh/site-functions/_cudaw \
	  $(O)/completions/cudaw.fish:share/fish/vendor_completions.d/cudaw.fish \
	  $(O)/completions/cudawd.fish:share/fish/vendor_completions.d/cudawd.fish \
	  $(foreach page,$(PAGES),$(page):$(DOC)/$(page)) packages/cudaw.conf:$(DOC)/cudaw.conf \
	  $(UNITS)
LIBRARIES := $(DRIVER_FACE) $(AUDITOR) $(FREEMEM) $(RUNTIME_FACES)
place_of = $(foreach pair,$(1),$(word 2,$(subst :, ,$(pair))))

## install: install the command, the daemon, the faces (in a versioned directory), pages, units. PREFIX= DESTDIR=
install: all $(COMPLETIONS)
	install -d $(INSTALLED)/bin $(INSTALLED)/lib/cudaw-$(VERSION)
	install -m 755 $(COMMAND) $(DAEMON) $(INSTALLED)/bin/
	install -m 755 $(LIBRARIES) $(INSTALLED)/lib/cudaw-$(VERSION)/
	cp -P $(FACE_LINK) $(INSTALLED)/lib/cudaw-$(VERSION)/
	@for pair in $(COPIED); do \
		install -D -m 644 "$${pair%%:*}" "$(INSTALLED)/$${pair#*:}" || exit; done
	sed -i 's,@PREFIX@,$(PREFIX),' $(addprefix $(INSTALLED)/,$(call place_of,$(UNITS)))

## uninstall: remove what install put there. PREFIX= DESTDIR=
uninstall:
	rm -f $(addprefix $(INSTALLED)/,bin/cudaw bin/cudawd $(call place_of,$(COPIED)))
	rm -f $(addprefix $(INSTALLED)/lib/cudaw-$(VERSION)/,$(notdir $(LIBRARIES) $(FACE_LINK)))
	-for dir in $(DOC) lib/cudaw-$(VERSION); do \
		test ! -d $(INSTALLED)/$$dir || find $(INSTALLED)/$$dir -depth -type d -empty -delete; done
