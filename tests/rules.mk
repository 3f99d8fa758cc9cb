# SPDX-License-Identifier: Apache-2.0
# What builds and runs the tests and the benches; included by the Makefile.

FUZZ_TARGETS := container cubin elf ptx name snapshot ticket lines conf
FUZZ_SECONDS ?= 60
# Sanitizers make a search of the toolkit's libraries take minutes, and of one thread TSan says nothing.
ONE_THREAD := $(addprefix tests/unit/,kparams/%.c tools/%.c daemon/%.c vmem/test_suballoc.c vmem/test_translate.c wrapper/test_rewrite.c \
	      checkpoint/test_control_state.c checkpoint/test_control_joint.c)
# Nor do they bear a handler after each of their own instructions; and models, which try all interleavings, take three
# times as long, and what they try allocates nothing.
UNIT_TESTS := $(patsubst tests/%.c,$(O)/tests/%,$(filter-out $(if $(SANITIZE),%_libs.c %_model.c %/test_gate_handlers.c) \
	      $(if $(filter thread,$(SANITIZE)),$(ONE_THREAD)),$(wildcard tests/unit/*/test_*.c tests/sim/test_*.c))) \
	      $(if $(filter thread,$(SANITIZE)),,$(FUZZ_TARGETS:%=$(O)/tests/fuzz/replay_%))
# Not a test: it makes snapshots for some.
MKSNAPSHOT := $(O)/tests/unit/mksnapshot
C_PROGRAMS  := $(patsubst %.c,$(O)/%,$(wildcard tests/programs/*.c))
CU_PROGRAMS := $(patsubst %.cu,$(O)/%,$(filter-out %/runtime.cu,$(wildcard tests/programs/*.cu tests/bench/*.cu))) \
	       $(O)/tests/programs/static_rt $(O)/tests/programs/dynamic_rt
BENCH_DISK := $(O)/tests/bench/bench_disk
BENCH_TOUCH := $(O)/tests/bench/bench_touch
PRELOADS := $(patsubst %.c,$(O)/%.so,$(wildcard tests/preload/*.c))
# Programs that live badly with interposers, and the libraries that they load.
GUESTS := $(patsubst %.c,$(O)/%,$(wildcard tests/guests/programs/*.c)) \
	  $(patsubst %.c,$(O)/%.so,$(wildcard tests/guests/libs/*.c)) \
	  $(if $(shell command -v go),$(patsubst %.go,$(O)/%-go,$(wildcard tests/guests/programs/*.go))) \
	  $(if $(shell command -v javac),$(patsubst %.java,$(O)/%.class,$(wildcard tests/guests/programs/*.java)))

.PHONY: programs deps-guests deps-slurm check check-slurm check-slow check-quick soak mutants storm fuzz check-gpu check-real check-abi check-fresh check-aarch64 check-glibc \
	check-layers check-words check-waits check-format demo bench bench-nccl bench-launch bench-pause bench-first-pause bench-turns \
	bench-restore bench-snapshot own-programs check-ci check-ci-address check-ci-thread check-sanitizers sanitize-address \
	sanitize-thread check-unstable

## programs: build the test programs too, those with GPU code included (needs nvcc)
programs: all $(SETTINGS_PAGE) $(CLOCKED_DAEMON) $(UNIT_TESTS) $(MKSNAPSHOT) $(C_PROGRAMS) $(PRELOADS) $(GUESTS) $(CU_PROGRAMS) $(BENCH_DISK) $(BENCH_TOUCH)

# cudawd by a clock that tests advance, which checks its books.
$(CLOCKED_DAEMON): $(OBJ)/tests/daemon/cudawd_clock.o
$(CLOCKED_DAEMON): private LDFLAGS += -Wl,--wrap=main -Wl,--wrap=now_ms -Wl,--wrap=parties_decide

# ---- the simulated driver -------------------------------------------------------------------

# Its kernels are loops over memory, and take a good part of the time of most tests.
$(OBJ)/tests/sim/kernels.o: private CFLAGS += -O3

# No call of a driver is a cancellation point.
$(SIM_OLD): private LINK_UNCANCELLED += -Wl,--version-script,tests/sim/old.map
$(SIM_OLD): | tests/sim/old.map
$(SIM) $(SIM_OLD): $(SIM_OBJS) $(OBJ)/common/system/uncancelled.o
	$(call begin,LD)$(CC) -shared $(CFLAGS) $(SANFLAGS) $(LINK_UNCANCELLED) -Wl,-soname,libcuda.so.1 $^ -pthread -o $@

$(BENCH_DISK): tests/bench/bench_disk.c | $(O)/.deps
	$(call begin,CC)$(CC) -std=gnu11 -D_GNU_SOURCE $(CFLAGS) $(WARN) $< -pthread -o $@

$(BENCH_TOUCH): $(call c_objects,tests/bench/bench_touch.c) $(COMMON)
	$(call link)

$(SIMSMI): $(call c_objects,tests/sim/simsmi.c)
	$(call link)

GUEST_PACKAGES := libjemalloc2 libtcmalloc-minimal4 libmimalloc2.0 perl golang-go openjdk-17-jdk-headless \
		  openmpi-bin python3-yaml

## deps-guests: install what some guests of "make check" are made of; those whose program is missing are skipped
deps-guests:
	$(Q)$(MAKE) --no-print-directory O=$(O)/guests PACKAGES='$(GUEST_PACKAGES)' deps

SLURM_PACKAGES := slurmctld slurmd slurm-client slurm-wlm-basic-plugins

## deps-slurm: install the Slurm of "make check-slurm"; neither it nor munge has to run as a service
deps-slurm:
	$(Q)$(MAKE) --no-print-directory O=$(O)/slurm PACKAGES='$(SLURM_PACKAGES)' deps

# ---- tests ----------------------------------------------------------------------------------

CHECK_LIBS = $$(pkg-config --libs check)

$(O)/tests/unit/%: $(OBJ)/tests/unit/%.o $(DRIVER_OBJS) $(GEN)/libcuda.S $(CORE)
	$(call link,$(LINK_UNCANCELLED) $(CHECK_LIBS) $(CORE_LIBS))

# Its allocations are to fail, and those of the libraries in it.
comma := ,
$(O)/tests/unit/checkpoint/test_engine_fault_pairs: private CFLAGS += $(addprefix -Wl$(comma)--wrap=,malloc calloc realloc reallocarray \
	posix_memalign mmap madvise pthread_create)
$(O)/tests/unit/checkpoint/test_engine_fault_pairs: | $(SIM)

# They set the clock.
$(addprefix $(O)/tests/unit/,common/test_pact common/test_patience checkpoint/test_gate_closed checkpoint/test_joint): \
	private CFLAGS += -Wl,--wrap=clock_ms

# It plays NVML.
$(O)/tests/unit/common/test_nvml: private CFLAGS += $(addprefix -Wl$(comma)--wrap=,dlopen find_function)

# It sets the state and the processor time of threads.
$(O)/tests/unit/wrapper/test_entering: private CFLAGS += $(addprefix -Wl$(comma)--wrap=,host_process clock_gettime)

# It plays a resume.
$(O)/tests/unit/checkpoint/test_operation: private CFLAGS += -Wl,--wrap=engine_resume

# It sees when others are waited for, and counts how often the limits are read.
$(O)/tests/unit/checkpoint/test_engine_parts: private CFLAGS += $(addprefix -Wl$(comma)--wrap=,sharing_released hostmem_limit)

# It plays the other processes.
$(O)/tests/unit/checkpoint/test_joint: private CFLAGS += -Wl,--wrap=sharing_remains

# It plays the other processes.
$(O)/tests/unit/checkpoint/test_in: private CFLAGS += $(addprefix -Wl$(comma)--wrap=,release_fits saved_room sharers_ask \
	sharing_back sharing_complete sharing_get_imports sharing_gone_back sharing_whole)
$(O)/tests/unit/checkpoint/test_in: | $(SIM)

# It plays the other processes.
$(O)/tests/unit/checkpoint/test_sharing: private CFLAGS += $(addprefix -Wl$(comma)--wrap=,sharers_ask sharers_is_gone)

# It plays the others, and sets the clock.
$(O)/tests/unit/checkpoint/test_stages: private CFLAGS += $(addprefix -Wl$(comma)--wrap=,clock_ms sharers_ask sharers_begin sharers_end \
	sharers_start)

# It plays the job, and sets the clock.
$(O)/tests/unit/checkpoint/test_turn_idle: private CFLAGS += $(addprefix -Wl$(comma)--wrap=,clock_ms job_now job_probe \
	job_came_to_rest server_say gate_watch gate_unwatch gate_is_unused gate_inside growth_waits)

# There is as much memory as it says.
$(O)/tests/unit/checkpoint/test_claims: private CFLAGS += $(addprefix -Wl$(comma)--wrap=,hostmem_machine_available hostmem_cgroup_available)
$(O)/tests/unit/checkpoint/test_engine_parts: private CFLAGS += -Wl,--wrap=hostmem_ready
$(O)/tests/unit/checkpoint/test_transfer: private CFLAGS += $(addprefix -Wl$(comma)--wrap=,hostmem_cgroup_available hostmem_populate)
$(O)/tests/unit/checkpoint/test_transfer: | $(SIM)

$(MKSNAPSHOT): $(OBJ)/tests/unit/mksnapshot.o $(DRIVER_OBJS) $(GEN)/libcuda.S $(CORE)
	$(call link,$(CORE_LIBS))

# kparams stands alone.
$(O)/tests/unit/kparams/%: $(OBJ)/tests/unit/kparams/%.o $(KPARAMS)
	$(call link,$(CHECK_LIBS) $(KPARAMS_LIBS))

$(O)/tests/fuzz/replay_ticket: $(OBJ)/checkpoint/sharing/messages.o
$(O)/tests/fuzz/replay_lines: $(addprefix $(OBJ)/,checkpoint/control/request.o tools/job/party/reach.o tools/job/status.o tools/job/party/steps.o)
$(O)/tests/fuzz/replay_conf: $(OBJ)/tools/daemon/conf.o

ELF_TESTS := $(addprefix $(O)/tests/unit/kparams/,test_elf test_elf_libs)
$(ELF_TESTS) $(O)/tests/fuzz/replay_elf: $(OBJ)/tests/elf_oracle.o $(COMMON)
$(ELF_TESTS): private KPARAMS_LIBS += $(ELF_LIBS)

# The daemon's books and policy.
$(patsubst %.c,$(O)/%,$(wildcard tests/unit/daemon/test_turns*.c)): $(OBJ)/tests/unit/daemon/turns_world.o
$(patsubst %.c,$(O)/%,$(wildcard tests/unit/daemon/test_parties*.c)): $(OBJ)/tests/unit/daemon/parties_world.o
# It sets the clock.
$(O)/tests/unit/daemon/test_now: private CFLAGS += -Wl,--wrap=clock_ms
$(O)/tests/unit/daemon/%: $(OBJ)/tests/unit/daemon/%.o $(TOOLS) $(COMMON)
	$(call link,$(CHECK_LIBS) $(INI_LIBS))

# Parts of the command.
# It sets the clock.
$(O)/tests/unit/tools/test_jobs: private CFLAGS += -Wl,--wrap=clock_ms
# These tests play the jobs, and set the clock.
$(addprefix $(O)/tests/unit/tools/test_,coordinate together): private CFLAGS += $(addprefix -Wl$(comma)--wrap=,jobs_ask clock_ms)
$(O)/tests/unit/tools/test_together: private CFLAGS += -Wl,--wrap=usleep
$(O)/tests/unit/tools/test_tree: private CFLAGS += -Wl,--wrap=process_signal -Wl,--wrap=fopen
# It plays the driver.
$(O)/tests/unit/tools/test_monitors: private CFLAGS += $(addprefix -Wl$(comma)--wrap=,maps_find $(addprefix driver_child_,find begin await end))
$(O)/tests/unit/tools/%: $(OBJ)/tests/unit/tools/%.o $(TOOLS) $(CORE)
	$(call link,$(CHECK_LIBS) $(COMMAND_LIBS))

$(O)/tests/unit/checkpoint/test_host_image: $(OBJ)/tests/unit/checkpoint/test_host_image.o $(CORE)
	$(call link,$(CHECK_LIBS) $(COMMAND_LIBS))

FUZZ_LIBS := $(COMMAND_LIBS) $(INI_LIBS)

$(O)/tests/fuzz/replay_%: $(OBJ)/tests/fuzz/%.o $(OBJ)/tests/fuzz/replay.o $(CORE)
	$(call link,$(FUZZ_LIBS))

# With RELOCATABLE=1 it needs no more than libc where it runs. What is fuzzed is compiled again, with the fuzzer in it.
$(O)/tests/fuzz/fuzz_%: tests/fuzz/%.c $(wildcard kparams/*.[ch]) tests/fuzz/fuzz.h $(CORE) | $(O)/.deps
	$(call begin,CLANG)clang -std=gnu11 $(DEFINES) -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
		-static-libgcc -static-libstdc++ $(filter %.c,$^) $(filter %.a,$^) $(FUZZ_LIBS) -ldl -pthread -o $@

$(O)/tests/fuzz/fuzz_snapshot: $(wildcard checkpoint/snapshot/*.c checkpoint/snapshot/*/*.c)
$(O)/tests/fuzz/fuzz_elf: tests/elf_oracle.c common/find/buildid.c
$(O)/tests/fuzz/fuzz_ticket: checkpoint/sharing/messages.c common/protocol/beacon.c
$(O)/tests/fuzz/fuzz_lines: checkpoint/control/request.c common/protocol/lines.c $(addprefix tools/job/,party/reach.c status.c party/steps.c)
$(O)/tests/fuzz/fuzz_conf: tools/daemon/conf.c common/conf_file.c

$(O)/tests/sim/test_%: $(OBJ)/tests/sim/test_%.o
	$(call link,$(CHECK_LIBS))

PROGRAM_HEADERS := $(wildcard tests/programs/*.h)

# Programs that use CUDA are linked as users link theirs: against the toolkit's stub.
$(O)/tests/programs/%: tests/programs/%.c $(PROGRAM_HEADERS) | $(O)/.deps
	$(call begin,CC)$(CC) -std=gnu11 -D_GNU_SOURCE -I. -I$(CUDA_HOME)/include $(CFLAGS) $(SANFLAGS) $(WARN) $< \
		-L$(CUDA_HOME)/lib64/stubs -lcuda -ldl -pthread -o $@

# The libraries call the program's secure_getenv().
$(O)/tests/programs/fork_binding: CFLAGS += -rdynamic

$(O)/tests/programs/digests: $(call c_objects,tests/programs/digests.c checkpoint/engine/digest.c vmem/cuda_driver.c) $(COMMON)
	$(call link)

# What tests preload into a job comes before the sanitizers' runtime, so it is built without.
$(O)/tests/preload/%.so: tests/preload/%.c $(wildcard tests/preload/*.h tests/sim/*.h) | $(O)/.deps
	$(call begin,CC)$(CC) -std=gnu11 -D_GNU_SOURCE -I. -I$(CUDA_HOME)/include $(CFLAGS) $(WARN) -fvisibility=hidden -fPIC -shared $< -o $@

# Guests that do not use CUDA must not load it natively either.
$(O)/tests/guests/programs/%: tests/guests/programs/%.c tests/guests/programs/guest.h $(PROGRAM_HEADERS) | $(O)/.deps
	$(call begin,CC)$(CC) -std=gnu11 -D_GNU_SOURCE -I. -I$(CUDA_HOME)/include $(CFLAGS) $(WARN) -Wno-deprecated-declarations $< \
		-L$(CUDA_HOME)/lib64/stubs -Wl,--as-needed -lcuda -ldl -pthread -o $@

$(O)/tests/guests/libs/%.so: tests/guests/libs/%.c | $(O)/.deps
	$(call begin,CC)$(CC) -std=gnu11 -D_GNU_SOURCE -I$(CUDA_HOME)/include $(CFLAGS) $(WARN) -fPIC -shared $< -o $@

$(O)/tests/guests/libs/opener.so: private CFLAGS += -Wl,-rpath,'$$ORIGIN/beside' -Wl,--enable-new-dtags

$(O)/tests/guests/programs/%-go: tests/guests/programs/%.go
	$(call begin,GO)GOCACHE='$(abspath $(O))/go' go build -o $@ $<

$(O)/tests/guests/programs/%.class: tests/guests/programs/%.java
	$(call begin,JAVAC)javac -XDignore.symbol.file -d $(@D) $<

# A CUDA 12 program needs no CUDA 12 toolkit here: it is linked to our face of that runtime.
$(O)/tests/programs/runtime12: tests/programs/runtime12.c $(LIBDIR)/libcudart.so.12 $(PROGRAM_HEADERS)
	$(call begin,CC)$(CC) -std=gnu11 -D_GNU_SOURCE -I. -I$(CUDA_HOME)/include $(CFLAGS) $(SANFLAGS) $(WARN) \
		$(filter-out %.h,$^) -o $@

NVCC_ARCH := -gencode arch=compute_75,code=[sm_75,compute_75] -gencode arch=compute_90,code=sm_90
NVCC_LIBS  = $(if $(findstring cublas,$*),-lcublas) $(if $(findstring cufft,$*),-lcufft)
$(O)/tests/%: tests/%.cu $(PROGRAM_HEADERS) | $(O)/.deps
	$(call begin,NVCC)$(NVCC) -O2 -std=c++17 $(NVCC_ARCH) -I. $< $(NVCC_LIBS) -o $@

$(O)/tests/programs/static_rt $(O)/tests/programs/dynamic_rt: tests/programs/runtime.cu $(PROGRAM_HEADERS) | $(O)/.deps
	$(call begin,NVCC)$(NVCC) -O2 -std=c++17 $(NVCC_ARCH) -I. \
		-cudart $(if $(findstring dynamic,$@),shared,static) $< -o $@

# All limits of tests only guard against a hang. Sanitizers make them longer, and so does TEST_PATIENCE=N, for a machine
# that is N times as slow: here, and in PATIENCE of tests/harness.py.
export TEST_PATIENCE ?= 1
SLOWER := $(shell echo $$(($(TEST_PATIENCE) * $(if $(SANITIZE),$(if $(filter thread,$(SANITIZE)),4,2),1))))
# A test of a Check program has 4 seconds by default, too few on a loaded machine: 2 minutes here.
must_preload = $(if $(word 2,x$(CURDIR)x)$(findstring :,$(CURDIR)),$(error $(CURDIR): most tests preload, which the loader \
	       cannot from a path with a space or a colon; move the clone))
# TEST_PATH: the directory of all programs that tests may use (own-programs); without it they have those of PATH.
RUN_TESTS = $(must_preload) $(TEST_PATH:%=PATH='%') \
	    BUILD='$(abspath $(O))' CUDA_HOME='$(abspath $(CUDA_HOME))' CUDAW_REAL_LIBCUDA='$(abspath $(SIM))' \
	    CK_DEFAULT_TIMEOUT=24 CK_TIMEOUT_MULTIPLIER=$(shell echo $$((5 * $(SLOWER)))) $(PYTHON) tests/runner.py \
	    $(UNSTABLE:%=--unstable '%')

# With sanitizers the face cannot be preloaded, which test_run.py and the guests are about, and a driver that crashes
# or too little address space, in test_doctor.py, is reported by them.
NOT_SANITIZED := tests/cli/test_run.py tests/cli/test_doctor.py $(wildcard tests/guests/test_*.py)
# The command and cudawd have one thread each. In the programs of these tests of jobs one thread makes all calls: how
# the threads of a pause go with it is what the others are about.
ifeq ($(SANITIZE),thread)
NOT_SANITIZED += $(filter-out %_write.py,$(wildcard tests/cli/test_*.py)) \
	$(addprefix tests/jobs/test_,$(addsuffix .py,across allocfaults asserts calls driver_pause frag full given_back green \
	kinds managed memory ordered pointers restore_refused snapshot snapshot_faults translated))
endif
# The longest tests come first and the unit tests last, so that no long one runs alone at the end.
PY_TESTS := $(wildcard $(addprefix tests/jobs/test_,turns_job.py turns_daemon.py) tests/guests/test_*.py \
	    $(patsubst %,tests/jobs/test_%.py,pool snapshot_pauses sharing parts joint sharing_pauses objects))
PY_TESTS += $(filter-out $(PY_TESTS),$(wildcard tests/jobs/test_*.py tests/cli/test_*.py))
LONG_UNIT_TESTS := $(filter $(addprefix %/test_,engine_fault_pairs kparams_libs elf_libs control_model engine_parts steps tree),$(UNIT_TESTS))
QUICK := $(addprefix tests/jobs/test_,crossing.py first_calls.py forked.py)
TESTS := $(filter-out $(if $(SANITIZE),$(NOT_SANITIZED)),$(PY_TESTS)) $(LONG_UNIT_TESTS) $(filter-out $(LONG_UNIT_TESTS),$(UNIT_TESTS))
# Unit tests without threads and without a clock: a failure is no chance.
CERTAIN := $(filter $(patsubst %,$(O)/tests/unit/%,kparams/test_elf kparams/test_image kparams/test_mangled daemon/% \
	   vmem/test_suballoc vmem/test_translate vmem/test_places wrapper/test_rewrite checkpoint/test_control_state \
	   checkpoint/test_control_joint checkpoint/test_control_model checkpoint/test_gate_model checkpoint/test_sharing_model \
	   common/test_pact common/test_json_out common/test_buildid) $(O)/tests/fuzz/%,$(UNIT_TESTS))
CHECK = $(RUN_TESTS) --jobs $(JOBS) --spare $(SPARE_JOBS) --timeout $(shell echo $$((900 * $(SLOWER)))) --results $(RESULTS)/check \
	$(WITHOUT:%=--without %) $(ONLY:%=--only '%') $(REPEAT:%=--repeat %) --certain $(CERTAIN) --
# Most tests wait more than they work: so many more run at once while a processor is idle.
SPARE_JOBS ?= $(if $(SANITIZE),0,$(JOBS))
# Those that ONLY names, and what they need; .ci/run has few of them with sanitizers. Tests that want a program of the
# CUDA runtime skip where nvcc is missing.
CHOSEN := $(if $(ONLY)$(WITHOUT),$(shell $(PYTHON) tests/runner.py --select $(ONLY:%=--only '%') $(WITHOUT:%=--without %) \
	  -- $(TESTS)),$(TESTS))
CHECK_NEEDS := $(filter $(UNIT_TESTS),$(CHOSEN)) \
	$(if $(ONLY)$(SANITIZE),$(addprefix $(O)/,$(shell $(PYTHON) tests/needs $(filter %.py,$(CHOSEN)))), \
	$(SETTINGS_PAGE) $(CLOCKED_DAEMON) $(MKSNAPSHOT) $(C_PROGRAMS) $(PRELOADS)) \
	$(if $(filter tests/guests/%,$(CHOSEN)),$(GUESTS)) \
	$(if $(filter %/test_machine.py,$(CHOSEN)),$(if $(SANITIZE),,$(if $(wildcard $(NVCC)),$(filter %_rt,$(CU_PROGRAMS)))))
## check: run the tests that need no GPU. JOBS=$(nproc) SPARE_JOBS=$(JOBS) ONLY="NAME NAME:CASE *states" REPEAT=COUNT
check: all $(CHECK_NEEDS)
	$(Q)$(CHECK) $(TESTS)

## check-slow: the jobs on the simulated driver, with a command that begins 0.7 s late. ONLY="NAME NAME:CASE"
LATE := $(O)/tests/late
check-slow: all $(CHECK_NEEDS) $(LATE)/cudaw
	$(Q)TEST_BIN='$(abspath $(LATE))' $(CHECK) $(filter tests/jobs/%,$(TESTS))
$(LATE)/cudaw: tests/late-cudaw
	$(Q)mkdir -p $(LATE) && sed 's|@BIN@|$(abspath $(O)/bin)|' $< > $@ && chmod 755 $@

## check-slurm: jobs on the simulated driver under a Slurm of the test's own (deps-slurm), in five minutes. ONLY="NAME:CASE"
check-slurm: all $(addprefix $(O)/tests/,programs/counter programs/hog programs/rank_kernels preload/nvml.so)
	$(Q)$(RUN_TESTS) --jobs 1 --timeout 900 --results $(RESULTS)/slurm $(ONLY:%=--only '%') $(wildcard tests/slurm/test_*.py)

## check-quick: the unit tests, and a few jobs on the simulated driver, in a minute
check-quick: all $(UNIT_TESTS) $(C_PROGRAMS) $(PRELOADS)
	$(Q)$(CHECK) $(LONG_UNIT_TESTS) $(QUICK) $(filter-out $(LONG_UNIT_TESTS),$(UNIT_TESTS))

## own-programs: fill DIR with links to the programs that deps and deps-guests install, for "make check TEST_PATH=DIR"
own-programs:
	$(Q)test -d "$(DIR)" || { echo "usage: make own-programs DIR=/path/to/directory"; exit 2; }
	$(Q)tests/own-programs '$(DIR)' $(PACKAGES) $(GUEST_PACKAGES)

# What .ci/run takes of the tests, plain and with sanitizers: all but the long ones, and the jobs that found most.
# Random orders of the unit tests last 1 s each there instead of 8 (3 under TSan, which is slow), and 60 in "make soak".
SLOW := tests/slow
check-ci check-ci-address: export PARTS_SECONDS := 1
check-ci-thread: export PARTS_SECONDS := 3
jobs_of = $(foreach t,$(1),$(or $(wildcard tests/jobs/test_$(t).py),$(error there is no tests/jobs/test_$(t).py)))
## check-ci: the tests of .ci/run: all but those in tests/slow; check-ci-address and check-ci-thread: with sanitizers
check-ci:
	$(Q)$(MAKE) --no-print-directory check WITHOUT=$(SLOW)
check-ci-address:
	$(Q)$(MAKE) --no-print-directory check $(ASAN) WITHOUT=$(SLOW) \
		PY_TESTS='$(call jobs_of,sharing sharing_pauses parts snapshot_faults states crossing requests forked)'
check-ci-thread:
	$(Q)$(MAKE) --no-print-directory check $(TSAN) WITHOUT=$(SLOW) PY_TESTS='$(call jobs_of,soak threads crossing)'

## soak: 64 threads through SOAK_CYCLES=1000 pauses of either kind, turns with kills, snapshots of several processes, pairs of faults, what tests repeat, and tests/slow
# TURNS_SOAK="HANDOVERS KILLS DAEMONS" SEVERAL_SOAK="ROUNDS KILLS" SEED=new
REPEATING := tests/cli/test_snapshot_write.py $(call jobs_of,objects ranks turns_stop turns_node_users)
soak: SOAK_CYCLES ?= 1000
soak: export SOAK_CYCLES := $(SOAK_CYCLES)
soak: TURNS_SOAK ?= 500 200 50
soak: export TURNS_SOAK := $(TURNS_SOAK)
soak: SEVERAL_SOAK ?= 50 500
soak: export SEVERAL_SOAK := $(SEVERAL_SOAK)
soak: export PAIRS := all
soak: export PARTS_SECONDS := 60
soak: export REPEATS := 5
soak: all $(C_PROGRAMS) $(PRELOADS) $(addprefix $(O)/tests/unit/checkpoint/,test_engine_fault_pairs test_engine_parts)
	$(Q)$(MAKE) --no-print-directory check \
		ONLY='$(filter-out test_turns_soak.py test_several_soak.py test_engine_fault_pairs,$(shell awk '!/^\#/ { print $$1 }' $(SLOW)))'
	$(Q)$(RUN_TESTS) --timeout 14400 --results $(RESULTS)/soak tests/jobs/test_soak.py tests/jobs/test_turns_soak.py \
		tests/jobs/test_several_soak.py $(REPEATING) \
		$(addprefix $(O)/tests/unit/checkpoint/,test_engine_fault_pairs test_engine_parts)

## mutants: change cudawd's books and policy in one place after the other; a unit test must fail each time. ONLY=TEXT
mutants: $(patsubst %.c,$(O)/%,$(wildcard tests/unit/daemon/test_*.c))
	$(Q)MUTANT_COMPILE='$(COMPILE)' MUTANT_LINK='$(CC) $(CFLAGS) $(SANFLAGS)' \
		MUTANT_LIBS="$$(pkg-config --libs check) $(INI_LIBS) -ldl -pthread" \
		$(PYTHON) tests/mutants '$(O)' --jobs $(JOBS) --only '$(ONLY)'

## storm: jobs, commands, signals and clients at random, on the simulated driver. SEED=new STORM_SECONDS=60
storm: STORM_SECONDS ?= 60
storm: all $(C_PROGRAMS)
	$(Q)export SEED=$(or $(SEED),$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')); \
		echo "storm: SEED=$$SEED STORM_SECONDS=$(STORM_SECONDS)"; \
		STORM_SECONDS=$(STORM_SECONDS) $(RUN_TESTS) --timeout $$(($(STORM_SECONDS) + 1800)) \
		--results $(RESULTS)/storm tests/storm/storm.py

## fuzz: run each fuzz target under libFuzzer, ASan and UBSan (needs clang). FUZZ_SECONDS=60
fuzz: $(FUZZ_TARGETS:%=$(O)/tests/fuzz/fuzz_%)
	$(Q)set -e; for t in $(FUZZ_TARGETS); do \
		mkdir -p $(O)/tests/fuzz/found/$$t; \
		$(O)/tests/fuzz/fuzz_$$t -max_total_time=$(FUZZ_SECONDS) -max_len=12288 -timeout=10 \
			-print_final_stats=1 -artifact_prefix=$(O)/tests/fuzz/ \
			$$(test ! -f tests/fuzz/$$t.dict || echo -dict=tests/fuzz/$$t.dict) \
			$(O)/tests/fuzz/found/$$t tests/fuzz/corpus/$$t tests/kparams/fixtures; \
	done

## check-gpu: run the GPU tests on what "make programs" built; builds nothing. RESULTS=dir, ONLY="NAME moved_*"
check-gpu:
	$(Q)BUILD='$(abspath $(O))' $(PYTHON) tests/runner.py --results $(RESULTS) --list tests/gpu/list \
		$(ONLY:%=--only '%')

## check-real: run real programs through 30 pauses each, on a GPU. PART=torch|models|libraries (all), CHECKED=1, ONLY=NAME
# CHECKED: with CUDAW_CHECK=1 instead of pauses.
check-real:
	$(Q)BUILD='$(abspath $(O))' $(PYTHON) tests/real/real.py --results $(RESULTS) $(PART:%=--part %) \
		$(if $(CHECKED),--check) $(ONLY:%=--only '%')

## check-fresh: run the README's two commands in clean root directories (needs root, debootstrap and archives)
# SUITES="bookworm trixie noble" ONLY="NAME..." DEBIAN_MIRROR= UBUNTU_MIRROR= UBUNTU_KEYRING= FRESH_DIR=/var/tmp
check-fresh:
	$(Q)RESULTS='$(RESULTS)' tests/check-fresh $(SUITES)

## check-aarch64: build for AArch64, and run the demonstration and unit tests under qemu-user (tests/check-aarch64)
# QEMU=qemu-aarch64 ROOT= DEBIAN_MIRROR=
check-aarch64:
	$(Q)tests/check-aarch64

## check-layers: check that each directory includes and links only what docs/architecture.md lets it
check-layers: all
	$(Q)tests/check-layers . $(OBJ)

## check-words: check that one word means one thing, as docs/architecture.md has it
check-words:
	$(Q)tests/check-words

## check-waits: check that no test has a new window of time; tests/waits lists those that may wait for little
check-waits:
	$(Q)tests/check-waits

## check-abi: compare the exports of the faces with a real library: REAL=/path/to/library
check-abi: all
	$(Q)test -n "$(REAL)" || { echo "usage: make check-abi REAL=/path/to/libcuda.so.1 (or libcudart.so.N)"; exit 2; }
	$(Q)soname=$$(readelf -d "$(REAL)" | sed -n 's/.*soname: \[\(.*\)\]/\1/p'); \
		tests/check-abi "$$(ls $(LIBDIR)/$$soname $(LIBDIR)/limited/$$soname 2>/dev/null)" "$(REAL)"

## check-glibc: check that what is installed needs no glibc later than 2.34
check-glibc: all
	$(Q)tests/check-glibc $(DRIVER_FACE) $(AUDITOR) $(RUNTIME_FACES) $(NVML_FACE) $(FREEMEM) $(COMMAND) $(DAEMON)

## check-format: fail where clang-format would change a file
check-format:
	$(Q)git ls-files '*.c' '*.h' | xargs clang-format --dry-run --Werror

## demo: a job counts on the GPU, is paused and resumed, and its result verified; two that do not fit take turns
demo: all $(O)/tests/programs/counter $(O)/tests/programs/hog $(O)/tests/preload/nvml.so
	$(Q)BUILD='$(abspath $(O))' tests/demo

## bench: measure the cost of the wrapper beside a native run (needs a GPU, and "make programs")
bench:
	$(Q)BUILD='$(abspath $(O))' $(PYTHON) tests/bench/bench.py --results $(RESULTS)

## bench-nccl: measure NCCL's all_reduce between two GPUs beside a native run (needs them, and PyTorch)
bench-nccl:
	$(Q)BUILD='$(abspath $(O))' $(PYTHON) tests/bench/bench.py --only nccl --cpus 8 --rounds 5 --pairs 1 --results $(RESULTS)

## bench-launch: measure a launch with eight parameters in each mode (needs a GPU, and "make programs")
bench-launch:
	$(Q)BUILD='$(abspath $(O))' $(PYTHON) tests/bench/bench_launch.py --results $(RESULTS)

## bench-pause: measure pause and resume beside the driver's own checkpoint (needs a GPU, and "make programs"). GIB=32,100 GPUS=1
# PyTorch's three allocators: ARGS=--allocators
bench-pause:
	$(Q)BUILD='$(abspath $(O))' $(PYTHON) tests/bench/bench_pause.py $(GIB:%=--gib %) $(GPUS:%=--gpus %) $(ARGS) --results $(RESULTS)

## bench-turns: measure jobs that take turns (needs a GPU, and "make programs"). PART=probe,beside,handover ARGS=
# Parts of jobs that take turns, of some minutes each: turns, interactive, fairness, fit, alone, ranks. ARGS="--quantum 60"
bench-turns:
	$(Q)BUILD='$(abspath $(O))' $(PYTHON) tests/bench/bench_turns.py $(PART:%=--part %) $(ARGS) --results $(RESULTS)

## bench-first-pause: measure a second job's first pause beside threads that touch fresh host memory. GIB=40
bench-first-pause:
	$(Q)BUILD='$(abspath $(O))' $(PYTHON) tests/bench/bench_first_pause.py $(GIB:%=--gib %) --results $(RESULTS)

## bench-snapshot: measure snapshots beside direct I/O (needs a GPU, and "make programs"). SIZE=32 (GiB) DIR=/on/the/disk
bench-snapshot: SIZE ?= 32
bench-snapshot:
	$(Q)BUILD='$(abspath $(O))' $(PYTHON) tests/bench/bench_snapshot.py --size $(SIZE) $(if $(DIR),--dir $(DIR)) \
		--results $(RESULTS)

## bench-restore: measure a server of 16 GB of weights in and out of snapshots (needs a GPU, CRIU, and "make programs"). ARGS=
bench-restore:
	$(Q)BUILD='$(abspath $(O))' $(PYTHON) tests/bench/bench_restore.py $(ARGS) --results $(RESULTS)

ifdef SANITIZE
# Sanitizers make loops over memory up to ten times as slow, and those of programs, kernels and copies are not what is
# tested. The programs have the runtime alone.
RUNTIME := $(if $(filter thread,$(SANITIZE)),tsan,asan)
LOOPS := $(filter-out %/digests,$(C_PROGRAMS)) $(OBJ)/tests/sim/kernels.o $(OBJ)/tests/sim/bulk.o
$(LOOPS): private SANFLAGS :=
$(filter-out %/kernels.o,$(LOOPS)): private CFLAGS += -O2
$(filter $(C_PROGRAMS),$(LOOPS)): private SANFLAGS := $(shell $(CC) -print-file-name=lib$(RUNTIME)_preinit.o) -l$(RUNTIME)

# Programs at a fixed address: a position-independent one may come to lie at VMEM_BASE.
$(C_PROGRAMS) $(addprefix $(O)/tests/unit/,vmem/test_legacy vmem/test_translate wrapper/test_rewrite checkpoint/test_engine_fault_pairs checkpoint/test_engine_parts checkpoint/test_in): private CFLAGS += -no-pie
# In unit tests the linker makes a lea, which sets no flags, of the add (GOTTPOFF) whose flags UBSan's check of &gate_self
# goes by. ASan still reports what uses a null pointer.
GATED := $(patsubst %.c,$(OBJ)/%.o,$(shell grep -rlE --include='*.c' 'gate_(enter|exit|self)' wrapper checkpoint tests/unit))
$(GATED) $(OBJ)/wrapper/trace/%.o $(OBJ)/gen/calls.o: private SANFLAGS += -fno-sanitize=null
endif

ifdef SANITIZE
# A report ends the process that it is of: SANITIZER_STATUS of tests/runner.py. TSan's own handlers would come to our
# sigaction() before TSan can run anything.
export UBSAN_OPTIONS = halt_on_error=1:print_stacktrace=1:exitcode=86
export LSAN_OPTIONS = suppressions=$(CURDIR)/tests/lsan-suppressions:print_suppressions=0
export TSAN_OPTIONS = halt_on_error=1:atexit_sleep_ms=0:handle_segv=0:handle_sigbus=0:handle_sigill=0:handle_sigfpe=0:handle_abort=0
endif

ASAN := O=$(O)/asan SANITIZE=address,undefined
TSAN := O=$(O)/tsan SANITIZE=thread
sanitized = $(MAKE) --no-print-directory storm $(1) && $(MAKE) --no-print-directory check $(1)
## check-sanitizers: run the tests and a storm under ASan and UBSan (sanitize-address), and under TSan (sanitize-thread); check-slow
# All run, also after one has failed; a test that has been unstable for long fails.
check-sanitizers:
	$(Q)status=0; for part in sanitize-address sanitize-thread check-slow check-unstable; do \
		$(MAKE) --no-print-directory $$part || status=1; done; exit $$status
sanitize-address:
	$(Q)$(call sanitized,$(ASAN))
sanitize-thread:
	$(Q)$(call sanitized,$(TSAN))

## check-unstable: fail where tests/unstable has an entry that is older than 14 days
check-unstable:
	$(Q)tests/check-unstable
