# SPDX-License-Identifier: Apache-2.0
# cudaw: see README.md. "make help" lists the targets.

VERSION := 0.1.0
O       ?= build$(if $(RELOCATABLE),/relocatable)
PREFIX  ?= /usr/local

# A CUDA toolkit 13.0 or later, or, if the machine has none, NVIDIA's headers alone (see deps).
CUDA_HEADERS := build/cuda
is_cuda_13 = $(shell awk '/^\#define CUDA_VERSION / && $$3 >= 13000 { print "yes" }' '$(1)/include/cuda.h' 2>/dev/null)
ifndef CUDA_HOME
CUDA_HOME := $(if $(call is_cuda_13,/usr/local/cuda),/usr/local/cuda,$(CUDA_HEADERS))
endif
NVCC    ?= $(CUDA_HOME)/bin/nvcc
PYTHON  ?= python3
RESULTS ?= $(O)/results
JOBS    ?= $(shell nproc)

ifneq ($(V),1)
Q := @
say = @printf '  %-7s %s\n' $(1) $(2)
else
say = @:
endif

# What a recipe begins with: say what is made, and make its directory.
define begin
$(call say,$(1),$@)
@mkdir -p $(@D)
$(Q)
endef

# Link what the target needs, and the libraries $(1). An archive comes behind the objects that need it.
define link
$(call begin,LD)$(CC) $(CFLAGS) $(SANFLAGS) $(LDFLAGS) $(filter-out %.a,$^) $(filter %.a,$^) $(1) -ldl -pthread -o $@
endef

# SANITIZE=address,undefined or thread: see the target "check-sanitizers".
# ASan keeps its heap where vmem's addresses are, and TSan knows only some ranges, and no fences.
SANFLAGS := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer -Wno-tsan -Wno-format-truncation -DVMEM_BASE=0x550100000000UL)
WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror
# With ASan, code is compiled in half the time if it is optimized less; what else gcc warns of then is no news.
CFLAGS   ?= $(if $(SANITIZE),$(if $(filter thread,$(SANITIZE)),-O2,-O1) -g1,-O2 -g)
# Under __CUDA_API_VERSION_INTERNAL cuda.h declares every ABI version under its exported name.
DEFINES  := -D_GNU_SOURCE -include common/older_glibc.h -D__CUDA_API_VERSION_INTERNAL -I. -I$(CUDA_HOME)/include
COMPILE   = $(CC) -std=gnu11 $(DEFINES) $(CPPFLAGS) $(CFLAGS) $(SANFLAGS) $(WARN) -fvisibility=hidden -fPIC \
	    -MMD -MP
# libc's cancellation points, and what opens something (common/system/uncancelled.c).
UNCANCELLED := $(shell sed -n 's/^UNCANCELLED.[^,]*, \([a-z_0-9]*\),.*/\1/p; s/^UNCANCELLED_FD.\([a-z_0-9]*\),.*/\1/p; s/^[a-zA-Z_ ]*[ *]__wrap_\([a-z_0-9]*\)[^;]*;/\1/p' common/system/uncancelled.c)
LINK_UNCANCELLED := $(UNCANCELLED:%=-Wl,--wrap=%)
# The faces live in other programs: nothing undefined, never unloaded, no CUDA library needed.
# All at once: a function that is linked when it is first called takes more than a small signal stack has.
# The symbols have pages without code: wrapper/face/lacking.c writes to them.
LINK_FACE = $(CC) -shared $(CFLAGS) $(SANFLAGS) $(LDFLAGS) -pthread -Wl,-z,nodelete -Wl,-z,relro -Wl,-z,now -Wl,-z,separate-code $(LINK_UNCANCELLED) \
	    $(if $(SANITIZE),,-Wl,-z,defs) -Wl,--build-id

LIBDIR := $(O)/lib/cudaw-$(VERSION)
OBJ    := $(O)/obj
GEN    := $(O)/gen
RUNTIMES := 13 12 11.0

DRIVER_FACE   := $(LIBDIR)/libcuda.so.1
RUNTIME_FACES := $(RUNTIMES:%=$(LIBDIR)/libcudart.so.%)
# For programs that open libcuda.so, with LD_LIBRARY_PATH alone.
FACE_LINK     := $(LIBDIR)/libcuda.so
AUDITOR       := $(LIBDIR)/cudaw-audit.so
FREEMEM       := $(LIBDIR)/cudaw-freemem
COMMAND       := $(O)/bin/cudaw
DAEMON        := $(O)/bin/cudawd
CLOCKED_DAEMON := $(O)/tests/cudawd_clock
SIM           := $(O)/tests/sim/libcuda.so.1
SIM_OLD       := $(O)/tests/sim/old/libcuda.so.1
SIMSMI        := $(O)/tests/sim/simsmi
# Writes the table of settings into pages; not installed.
SETTINGS_PAGE := $(O)/tools/settings_page

c_objects = $(patsubst %.c,$(OBJ)/%.o,$(wildcard $(1)))
# One archive for each part that both the libraries and the command use: they take from it what they need.
COMMON   := $(OBJ)/common.a
KPARAMS  := $(OBJ)/kparams.a
SNAPSHOT := $(OBJ)/checkpoint/snapshot.a
TOOLS    := $(OBJ)/tools.a
# The order in which a linker needs them.
CORE     := $(SNAPSHOT) $(KPARAMS) $(COMMON)
ON_LOAD  := $(OBJ)/wrapper/face/on_load.o
DRIVER_OBJS  := $(filter-out %_main.o $(ON_LOAD) %/runtime.o %/nvml_face.o $(OBJ)/wrapper/audit/% $(OBJ)/checkpoint/snapshot/%,$(call c_objects,vmem/*.c vmem/*/*.c checkpoint/*/*.c checkpoint/*/*/*.c wrapper/*.c wrapper/*/*.c wrapper/*/*/*.c)) \
		$(OBJ)/gen/calls.o $(OBJ)/gen/trace_calls.o
SIM_OBJS     := $(call c_objects,$(filter-out tests/sim/simsmi.c tests/sim/test_%,$(wildcard tests/sim/*.c)))

# The faces', static: they bring no library into programs that are not ours.
KPARAMS_LIBS := -l:liblz4.a -l:libzstd.a
CORE_LIBS    := $(KPARAMS_LIBS) -l:liburing.a
# Those of the command, the daemon and tests: the system's, or with RELOCATABLE=1, which has a build directory of its
# own, static. The faces cannot have libelf (kparams/elf.h).
ifdef RELOCATABLE
ELF_LIBS     := -l:libelf.a -l:libz.a -l:libzstd.a
COMMAND_LIBS := -l:libjansson.a $(ELF_LIBS) $(CORE_LIBS)
INI_LIBS     := -l:libinih.a
# Debian 13's libelf.a, of elfutils 0.192, lacks symbols.
or_no_archive = || { echo 'RELOCATABLE=1: a static library of this system does not link; build on another system, \
	such as Debian 12, or without RELOCATABLE' >&2; exit 1; }
else
ELF_LIBS     := -lelf
COMMAND_LIBS := -ljansson $(ELF_LIBS) -llz4 -lzstd -luring
INI_LIBS     := -linih
endif

.PHONY: all deps docs clean help always
.DELETE_ON_ERROR:
.SECONDARY:

## all: build the faces, the command, the daemon and the simulated driver (the default)
all: $(DRIVER_FACE) $(FACE_LINK) $(AUDITOR) $(FREEMEM) $(RUNTIME_FACES) $(COMMAND) $(DAEMON) $(SIM) $(SIM_OLD) $(SIMSMI)

# ---- what the build needs -------------------------------------------------------------------

PACKAGES := gcc libc6-dev python3 pkg-config check libjansson-dev uthash-dev binutils util-linux \
	    liblz4-dev libzstd-dev libxxhash-dev liburing-dev libelf-dev zlib1g-dev libinih-dev libmicrohttpd-dev

## deps: install the Debian or Ubuntu packages that the build needs, and CUDA's headers, if they are missing
# First all that is missing is looked for; then it is installed.
deps: $(O)/.deps
$(O)/.deps: Makefile tools/get-deps tools/cuda-headers.txt
	@mkdir -p $(O)
	$(Q)tools/get-deps --cuda-home '$(CUDA_HOME)' --cuda-headers '$(CUDA_HEADERS)' $(PACKAGES)
	@touch $@

# ---- generated code -------------------------------------------------------------------------

# libc's functions that the driver face has too (checkpoint/control/signals/signals.h).
INTERPOSED := sigaction signal bsd_signal ssignal sysv_signal __sysv_signal sigset sigignore siginterrupt

$(GEN)/libcuda.S: wrapper/face/gen_exports.py wrapper/face/exports/libcuda.txt Makefile | $(O)/.deps
	$(call begin,GEN)$(PYTHON) wrapper/face/gen_exports.py wrapper/face/exports/libcuda.txt --face libcuda \
		$(INTERPOSED:%=--also %) -o $(GEN)

$(GEN)/calls.c: wrapper/face/gen_calls.py wrapper/face/driver.calls wrapper/face/driver.words wrapper/face/exports/libcuda.txt | $(O)/.deps
	$(call begin,GEN)CC='$(CC)' $(PYTHON) wrapper/face/gen_calls.py --cuda-include $(CUDA_HOME)/include \
		--exports wrapper/face/exports/libcuda.txt --calls wrapper/face/driver.calls \
		--words wrapper/face/driver.words -o $(GEN)

$(GEN)/trace_calls.c: wrapper/face/gen_trace.py wrapper/face/gen_calls.py wrapper/trace/trace.calls \
		wrapper/face/exports/libcuda.txt | $(O)/.deps
	$(call begin,GEN)CC='$(CC)' $(PYTHON) wrapper/face/gen_trace.py --cuda-include $(CUDA_HOME)/include \
		--exports wrapper/face/exports/libcuda.txt --trace wrapper/trace/trace.calls -o $@

$(GEN)/cudart-%/libcudart.S: wrapper/face/gen_exports.py wrapper/face/exports/libcudart-%.txt | $(O)/.deps
	$(call begin,GEN)$(PYTHON) wrapper/face/gen_exports.py wrapper/face/exports/libcudart-$*.txt --face libcudart -o $(@D)

# ---- objects and libraries ------------------------------------------------------------------

$(OBJ)/%.o: %.c | $(O)/.deps
	$(call begin,CC)$(COMPILE) -I$(GEN) -c $< -o $@

$(OBJ)/gen/%.o: $(GEN)/%.c
	$(call begin,CC)$(COMPILE) -I$(GEN) -c $< -o $@

# Of another version than the last build's, here or on the command line, what carries it is made again.
$(OBJ)/common/version.o: private DEFINES += -DCUDAW_VERSION='"$(VERSION)"'
$(OBJ)/common/version.o: $(OBJ)/version
$(OBJ)/version: always
	@mkdir -p $(@D)
	@[ "$$(cat $@ 2>/dev/null)" = '$(VERSION)' ] || echo '$(VERSION)' > $@

# The generated headers come before anything that may include them.
$(call c_objects,wrapper/*.c wrapper/*/*.c wrapper/*/*/*.c tests/unit/*.c tests/unit/*/*.c) $(OBJ)/gen/trace_calls.o: | $(GEN)/calls.c $(GEN)/libcuda.S

$(COMMON): $(call c_objects,common/*.c common/*/*.c)
$(KPARAMS): $(call c_objects,kparams/*.c)
$(SNAPSHOT): $(call c_objects,checkpoint/snapshot/*.c checkpoint/snapshot/*/*.c)
$(TOOLS): $(filter-out %/cudaw.o %/daemon/main.o %_main.o,$(call c_objects,tools/*/*.c tools/*/*/*.c))

$(OBJ)/%.a:
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(DRIVER_FACE): $(ON_LOAD) $(DRIVER_OBJS) $(GEN)/libcuda.S $(CORE)
	$(call begin,LD)$(LINK_FACE) -Wl,-soname,libcuda.so.1 -Wl,--version-script,$(GEN)/libcuda.map $^ $(CORE_LIBS) -ldl -o $@

$(FACE_LINK): $(DRIVER_FACE)
	$(call say,LN,$@)
	$(Q)ln -srf $< $@

# It has no libc (wrapper/audit/audit.c), so that nothing may be called that a compiler brings along.
$(OBJ)/audit/%.o: %.c | $(O)/.deps
	$(call begin,CC)$(filter-out $(SANFLAGS),$(COMPILE)) -ffreestanding -fno-stack-protector -fno-tree-loop-distribute-patterns \
		-U_FORTIFY_SOURCE -c $< -o $@

$(AUDITOR): $(addprefix $(OBJ)/audit/,wrapper/audit/audit.o wrapper/audit/syscalls.o common/find/find_file.o)
	$(call begin,LD)$(CC) -shared -nostdlib $(CFLAGS) $(LDFLAGS) -Wl,-z,relro -Wl,-z,now -Wl,-z,defs -Wl,--build-id $^ -o $@

$(FREEMEM): $(call c_objects,checkpoint/release/freemem_main.c) $(COMMON)
	$(call link)

$(OBJ)/cudart-%/runtime.o: wrapper/face/runtime.c $(GEN)/cudart-%/libcudart.S
	$(call begin,CC)$(COMPILE) -I$(GEN)/cudart-$* -DCUDART_SONAME='"libcudart.so.$*"' -c $< -o $@

# DT_RPATH, not DT_RUNPATH: the driver face of the same directory comes before LD_LIBRARY_PATH.
$(LIBDIR)/libcudart.so.%: $(ON_LOAD) $(OBJ)/cudart-%/runtime.o $(GEN)/cudart-%/libcudart.S $(COMMON) $(DRIVER_FACE)
	$(call say,LD,$@)
	$(Q)$(LINK_FACE) -Wl,-soname,libcudart.so.$* -Wl,--no-as-needed -Wl,--disable-new-dtags \
		-Wl,-rpath,'$$ORIGIN' -Wl,--version-script,$(GEN)/cudart-$*/libcudart.map $^ -ldl -o $@

$(COMMAND): $(OBJ)/tools/command/cudaw.o $(TOOLS) $(CORE)
	$(call link,$(COMMAND_LIBS)) $(or_no_archive)

$(DAEMON) $(CLOCKED_DAEMON): $(call c_objects,tools/daemon/*.c tools/daemon/*/*.c $(addprefix tools/job/,$(addprefix party/,reach.c rest.c steps.c) directories.c journals.c)) $(COMMON)
	$(call link,$(INI_LIBS) $(filter %jansson %libjansson.a,$(COMMAND_LIBS)))

$(SETTINGS_PAGE): $(OBJ)/tools/command/run/settings_main.o $(TOOLS) $(COMMON)
	$(call link)

# ---- tests and benches ----------------------------------------------------------------------

include wrapper/face/nvml.mk tests/rules.mk packages/install.mk packages/rules.mk

## docs: write the table of settings (common/settings.h) into docs/settings.md and the man page
docs: $(SETTINGS_PAGE)
	$(Q)$(SETTINGS_PAGE) markdown < docs/settings.md > $(O)/settings.md
	$(Q)$(SETTINGS_PAGE) man < tools/cudaw.1 > $(O)/cudaw.1
	$(Q)cp $(O)/settings.md docs/settings.md
	$(Q)cp $(O)/cudaw.1 tools/cudaw.1

# ---- the rest -------------------------------------------------------------------------------

## clean: remove everything that was built
clean:
	rm -rf $(O)

## help: print this list
help:
	@sed -n 's/^## //p' Makefile tests/rules.mk packages/*.mk | awk -F': ' '{printf "  %-18s%s\n", $$1, substr($$0, length($$1) + 3)}'

-include $(shell test -d $(OBJ) && find $(OBJ) -name '*.d')
