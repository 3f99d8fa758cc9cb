/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a resume or a fill that gives up leaves behind, of a job that imports memory: over the simulated driver in this
 * process. The exporter is played, and so is the other member of the pact.
 */
#include "checkpoint/engine/engine.h"
#include "checkpoint/engine/internal.h"
#include "checkpoint/engine/plan.h"
#include "checkpoint/engine/saved.h"
#include "checkpoint/gate/gate.h"
#include "checkpoint/gate/hold.h"
#include "checkpoint/host/hostpool.h"
#include "checkpoint/ledger/contexts.h"
#include "checkpoint/release/devices.h"
#include "checkpoint/sharing/internal.h"
#include "checkpoint/sharing/sharers.h"
#include "checkpoint/snapshot/manifest_write.h"
#include "common/protocol/pact.h"
#include "vmem/vmem.h"

#include "tests/check_suite.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE VMEM_GRANULE

static struct cuda_driver drv;
static CUmemGenericAllocationHandle exported, import;
static struct engine_op op;
static uint64_t built; /* what was imported last */
static struct pact *other;
static int (*get_imports)(struct sharing_wait *w);
static enum pact_phase phase_at_back; /* when the job begins to give its memory back */
static unsigned int rounds;           /* that have ended so */
static const char *place_at_read, *place_when_whole;
static bool late;       /* the other one does not get whole */
static bool lacking;    /* in the first one there is no host memory */
static bool stopping;   /* another one gives up when this one is about to read */
static bool promised;   /* and once there is no room beside what others are about to take */
static bool cancelling; /* it is told to pause while it gives its memory back */
static double whole_until_ms =
	-1;             /* limits_ms(): the end of its wait for those that share memory */
static bool waited_for; /* after that, by one that has its memory */

int __wrap_sharing_get_imports(struct sharing_wait *w);
int __wrap_sharing_gone_back(struct sharing_wait *w);
int __real_sharing_whole(struct sharing_wait *w);
int __wrap_sharing_whole(struct sharing_wait *w);
int __real_sharing_complete(struct sharing_wait *w);
int __wrap_sharing_complete(struct sharing_wait *w);
size_t __real_saved_room(const struct saved *saved, size_t slots, size_t apart, size_t *pool_slots,
			 size_t *spill_slots);
size_t __wrap_saved_room(const struct saved *saved, size_t slots, size_t apart, size_t *pool_slots,
			 size_t *spill_slots);
bool __real_release_fits(const size_t *carried, struct gpu_lack *lack);
bool __wrap_release_fits(const size_t *carried, struct gpu_lack *lack);
void __real_sharing_back(void);
void __wrap_sharing_back(void);
int __wrap_sharers_ask(struct patience *patience, const struct sharing_process *to,
		       struct sharing_request *request, struct sharing_answer *answer, int *fd);

/* It is always as far as this process. */
int __wrap_sharers_ask(struct patience *patience, const struct sharing_process *to,
		       struct sharing_request *request, struct sharing_answer *answer, int *fd)
{
	(void)patience;
	(void)to;
	(void)request;
	sharing_answer_begin(answer);
	answer->stage = sharing.stage;
	answer->build = built;
	*fd = -1;
	return 0;
}

int __wrap_sharing_get_imports(struct sharing_wait *w)
{
	return get_imports(w);
}

/* In the first round another one calls back then. */
int __wrap_sharing_complete(struct sharing_wait *w)
{
	place_when_whole = engine_snapshot_dir();
	if (late)
		return __real_sharing_complete(w);
	if (!rounds) {
		pact_call_back(other);
		return -ECANCELED;
	}
	pact_say(other, PACT_WHOLE);
	return __real_sharing_complete(w);
}

/* The last step: nobody of the pact goes back. */
int __wrap_sharing_whole(struct sharing_wait *w)
{
	whole_until_ms = w->deadline_ms;
	return __real_sharing_whole(w);
}

void __wrap_sharing_back(void)
{
	if (other)
		phase_at_back = pact_look(other);
	op.progress.cancel |= cancelling;
	if (other && pact_is_called_back(other)) {
		pact_begin_round(other);
		pact_say(other, PACT_ROOM);
		lacking = false;
		rounds++;
	}
	__real_sharing_back();
}

/* It is asked before each attempt to take memory. */
bool __wrap_release_fits(const size_t *carried, struct gpu_lack *lack)
{
	if (other && pact_look(other) == PACT_TAKE) {
		pact_say(other, PACT_HAS);
		waited_for = pact_others_take(other);
	}
	if (other && promised && pact_look(other) == PACT_TAKE) {
		promised = false;
		if (cancelling)
			pact_call_back(other);
		return false;
	}
	return __real_release_fits(carried, lack);
}

static void nothing(void)
{
}

static void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);

	ck_assert_msg(found, "%s: %s", name, dlerror());
	return found;
}

static CUcontext start_driver(void)
{
	const char *path = getenv("CUDAW_REAL_LIBCUDA"), *missing = "";
	void *library = dlopen(path, RTLD_NOW);
	CUcontext ctx;

	ck_assert_msg(library, "CUDAW_REAL_LIBCUDA=%s: %s", path, dlerror());
	ck_assert_int_eq(cuda_driver_fill(&drv, library, &missing), 0);
	ck_assert_int_eq(((__typeof__(cuInit) *)symbol(library, "cuInit"))(0), 0);
	ck_assert_int_eq(gate_init(), 0);
	ck_assert_int_eq(vmem_init(&drv), 0);
	devices_find(&drv);
	ck_assert_int_eq(drv.cuDevicePrimaryCtxRetain(&ctx, 0), 0);
	ck_assert_int_eq(drv.cuCtxSetCurrent(ctx), 0);
	ck_assert(contexts_reserve());
	return ctx;
}

static CUresult import_once(uint64_t build)
{
	CUresult error;
	int fd;

	error = drv.cuMemExportToShareableHandle(&fd, exported,
						 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	ck_assert_int_eq(error, 0);
	built = build;
	error = objects_import(import, fd, SIZE, build);
	close(fd);
	return error;
}

/* It has one buffer, and one import. */
static void start_job(void)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .requestedHandleTypes =
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	const struct object_name name = {.pid = 1};
	CUcontext ctx = start_driver();
	CUdeviceptr buffer;

	setenv("CUDAW_RUNTIME_DIR", "none", 1);
	ck_assert_int_eq(vmem_alloc(ctx, 0, SIZE, &buffer, NULL), 0);
	ck_assert_int_eq(drv.cuMemCreate(&exported, SIZE, &prop, 0), 0);
	ck_assert_int_eq(objects_import_begin(&name, &import), 0);
	ck_assert_int_eq(import_once(1), 0);
	drv.cuCtxSetCurrent(NULL);
}

static bool import_is_away(void)
{
	struct object_import found = {0};

	ck_assert(objects_next_import(&found));
	return found.away;
}

static void begin(enum release_choice release)
{
	op = (struct engine_op){.drv = &drv,
				.timeout_ms = 60000,
				.release = release,
				.progress = {.ready = nothing, .tell = nothing, .room = 2 * SIZE}};
}

static void pause_job(enum release_choice release)
{
	begin(release);
	engine_pause(&op);
	ck_assert_msg(op.result.code == END_OK, "%s", op.result.message);
	ck_assert(import_is_away());
}

static void end_joint(void)
{
	pact_close(op.progress.pact);
	pact_close(other);
	op.progress.pact = other = NULL;
}

/* With one other, which is the first member, and has said nothing yet. */
static void join_pact(void)
{
	int fd = pact_create(2);

	begin(RELEASE_MEMORY);
	other = pact_open(fd);
	op.progress.pact = pact_open(fd);
	ck_assert(pact_join(other) && pact_join(op.progress.pact));
	close(fd);
}

static void begin_joint(void)
{
	join_pact();
	pact_say(other, PACT_ROOM);
}

/* A job, paused, that gets its import back by @get. */
static void pause_importer(enum release_choice release, int (*get)(struct sharing_wait *w))
{
	get_imports = get;
	start_job();
	pause_job(release);
}

static int get_one(struct sharing_wait *w)
{
	w->error = import_once(2);
	return 0;
}

static int get_one_and_fail(struct sharing_wait *w)
{
	w->error = import_once(2);
	ck_assert_int_eq(w->error, 0);
	ck_assert(!import_is_away());
	return -ENODATA;
}

START_TEST(a_fill_that_fails_keeps_no_imports)
{
	pause_importer(RELEASE_MEMORY, get_one_and_fail);
	begin(RELEASE_MEMORY);
	engine_fill(&op);
	ck_assert_int_eq(op.result.code, END_FAILED);
	ck_assert(import_is_away());
}
END_TEST

/* That may take long. */
START_TEST(a_resume_that_fails_tells_the_others_before_it_gives_its_memory_back)
{
	pause_importer(RELEASE_MEMORY, get_one_and_fail);
	begin_joint();
	engine_resume(&op);
	ck_assert_int_eq(op.result.code, END_FAILED);
	ck_assert_int_eq(phase_at_back, PACT_STOP);
	end_joint();
}
END_TEST

/* In the first round another one calls back. */
static int get_in_the_second_round(struct sharing_wait *w)
{
	w->error = import_once(rounds + 2);
	if (!rounds) {
		sharing.follows = true;
		pact_call_back(other);
		return -ECANCELED;
	}
	ck_assert(!sharing.follows);
	return 0;
}

/* It is waited for in the first round, in vain. */
int __wrap_sharing_gone_back(struct sharing_wait *w)
{
	snprintf(w->text, sizeof(w->text), "one has not given it back");
	return -ETIME;
}

START_TEST(a_further_round_forgets_the_first)
{
	pause_importer(RELEASE_ALL, get_in_the_second_round);
	ck_assert(engine_is_released());
	begin_joint();
	engine_resume(&op);
	ck_assert_msg(op.result.code == END_OK, "%s", op.result.message);
	ck_assert_uint_eq(rounds, 1);
	ck_assert_str_eq(op.result.note, "");
	ck_assert_str_eq(op.result.message, "");
	ck_assert_double_eq(whole_until_ms, 0);
	ck_assert(!op.kept);
	end_joint();
}
END_TEST

START_TEST(a_resume_that_fails_says_that_it_has_left_the_context)
{
	pause_importer(RELEASE_ALL, get_one_and_fail);
	begin(RELEASE_MEMORY);
	engine_resume(&op);
	ck_assert_int_eq(op.result.code, END_FAILED);
	ck_assert(op.kept && engine_keeps_context());
	ck_assert_str_eq(op.result.note, "the context stays on the GPU: one has not given it back");
}
END_TEST

static CUresult (*unmap)(CUdeviceptr address, size_t size);

static CUresult fail_to_unmap(CUdeviceptr address, size_t size)
{
	(void)address;
	(void)size;
	return CUDA_ERROR_UNKNOWN;
}

static int call_back_and_fail_to_unmap(struct sharing_wait *w)
{
	(void)w;
	unmap = drv.cuMemUnmap;
	drv.cuMemUnmap = fail_to_unmap;
	pact_call_back(other);
	return -ECANCELED;
}

static int get_again(struct sharing_wait *w)
{
	w->error = import_once(3);
	return 0;
}

/* The others would wait for room that this one has. */
START_TEST(one_that_cannot_give_its_memory_back_ends_the_resume)
{
	pause_importer(RELEASE_MEMORY, call_back_and_fail_to_unmap);
	begin_joint();
	engine_resume(&op);
	ck_assert_int_eq(op.result.code, END_FAILED);
	ck_assert_str_eq(op.result.message, "unmap: CUDA_ERROR_UNKNOWN");
	ck_assert_uint_eq(rounds, 1);
	ck_assert_int_eq(pact_look(other), PACT_STOP);
	end_joint();
	/* The driver's checkpoint would take it. */
	begin(RELEASE_ALL);
	engine_release_kept(&op);
	ck_assert_int_eq(op.result.code, END_FAILED);
	ck_assert(!engine_is_released());
	/* It can still resume. */
	drv.cuMemUnmap = unmap;
	get_imports = get_again;
	begin(RELEASE_MEMORY);
	engine_resume(&op);
	ck_assert_msg(op.result.code == END_OK, "%s", op.result.message);
}
END_TEST

static char base[] = "/tmp/test-in-XXXXXX";
static unsigned int reads;
static enum pact_phase phase_at_read;
static size_t host_at_read; /* bytes */
static bool lacks_at_read;  /* as its status says */

/* It looks for host memory, to read its snapshot. */
size_t __wrap_saved_room(const struct saved *saved, size_t slots, size_t apart, size_t *pool_slots,
			 size_t *spill_slots)
{
	size_t missing = __real_saved_room(saved, slots, apart, pool_slots, spill_slots);

	if (lacking && !op.plan)
		*pool_slots = *spill_slots = 0;
	if (!other)
		return missing;
	reads++;
	phase_at_read = pact_look(other);
	place_at_read = engine_snapshot_dir();
	host_at_read = hostpool_resident();
	lacks_at_read = engine_lacks_host();
	if (lacking && cancelling)
		pact_call_back(other);
	if (stopping)
		pact_stop(other);
	return missing;
}

/* The snapshot alone has its memory then. */
static void pause_into_snapshot(enum release_choice release)
{
	static struct snapshot_plan plan = {
		.pause = true, .gives_back = true, .codec = SNAPSHOT_RAW};
	struct snapshot_facts facts = {.cuda = 13000};

	snprintf(plan.path, sizeof(plan.path), "%s/snapshot", base);
	facts.devices = devices_all(&facts.ndevices);
	begin(release);
	op.plan = &plan;
	op.facts = &facts;
	engine_pause(&op);
	ck_assert_msg(op.written.code == END_OK, "%s", op.written.message);
	ck_assert_ptr_nonnull(engine_snapshot_dir());
}

static void remove_snapshot(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", base);
	ck_assert_int_eq(system(command), 0);
}

/* Processes that share memory have a snapshot together only. */
static void resume_from_snapshot(enum release_choice release)
{
	ck_assert_ptr_nonnull(mkdtemp(base));
	start_job();
	objects_release(import);
	pause_into_snapshot(release);
	begin_joint();
	engine_resume(&op);
	ck_assert_msg(op.result.code == END_OK, "%s", op.result.message);
	ck_assert_ptr_null(engine_snapshot_dir());
	ck_assert_uint_eq(rounds, 1);
	end_joint();
	/* Another snapshot may take its place. */
	pause_into_snapshot(RELEASE_MEMORY);
	remove_snapshot();
}

/* It has read its snapshot in the first round; others lacked host memory, perhaps. */
START_TEST(a_call_back_gives_the_host_memory_back_that_a_snapshot_was_read_into)
{
	resume_from_snapshot(RELEASE_MEMORY);
	ck_assert_uint_eq(reads, 2);
	ck_assert_int_eq(phase_at_read, PACT_TAKE);
	ck_assert_ptr_nonnull(place_at_read);
	ck_assert_ptr_nonnull(place_when_whole);
	ck_assert_uint_eq(host_at_read, 0);
}
END_TEST

/* What the others have read. */
START_TEST(one_that_lacks_host_memory_calls_back)
{
	lacking = true;
	resume_from_snapshot(RELEASE_MEMORY);
	ck_assert(lacks_at_read && !engine_lacks_host());
}
END_TEST

START_TEST(a_time_limit_names_the_host_memory_that_is_missing)
{
	ck_assert_ptr_nonnull(mkdtemp(base));
	start_job();
	objects_release(import);
	pause_into_snapshot(RELEASE_MEMORY);
	lacking = true;
	begin(RELEASE_MEMORY);
	op.timeout_ms = 1;
	engine_resume(&op);
	ck_assert_int_eq(op.result.code, END_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(op.result.message, "0.00 GiB to be read, 0.00 GiB of host "));
	remove_snapshot();
}
END_TEST

START_TEST(a_time_limit_names_what_was_waited_for)
{
	static const size_t needed[GPU_MAX];

	join_pact();
	/* That was before. */
	engine.lack = (struct gpu_lack){.needed = SIZE};
	ck_assert(!engine_may_take(&op, needed));
	ck_assert_int_eq(engine_fail_lack(&op), -1);
	ck_assert_str_eq(op.result.message,
			 "another process of the job was not ready to take its memory "
			 "within 60 s; the job stays paused");
	engine.lacks_host = true;
	engine.snapshot_slots = 512;
	ck_assert_int_eq(engine_fail_lack(&op), -1);
	ck_assert_str_eq(op.result.message,
			 "1.00 GiB of host memory, to read the snapshot, did not "
			 "come free within 60 s; the job stays paused");
	end_joint();
}
END_TEST

/* Both have the same limit, and the one that lacks memory may look at it later. */
START_TEST(one_that_is_whole_and_waits_for_others_in_vain_says_so)
{
	struct hold hold;

	late = true;
	hold_init(&hold, nothing);
	pause_importer(RELEASE_MEMORY, get_one);
	begin_joint();
	op.progress.hold = &hold;
	op.timeout_ms = 1;
	engine_resume(&op);
	ck_assert_int_eq(op.result.code, END_TIMEOUT);
	ck_assert_str_eq(op.result.message,
			 "another process of the job did not have its memory within 0.001 s; "
			 "the job stays paused");
	ck_assert_int_eq(phase_at_back, PACT_STOP);
	end_joint();
}
END_TEST

static bool has_begun(const char *phase)
{
	for (size_t i = 0; i < op.result.nphases; i++)
		if (!strcmp(op.result.phases[i].name, phase))
			return true;
	return false;
}

static void fail_from_snapshot(void)
{
	ck_assert_ptr_nonnull(mkdtemp(base));
	start_job();
	objects_release(import);
	pause_into_snapshot(RELEASE_MEMORY);
	begin_joint();
	engine_resume(&op);
	ck_assert_int_eq(op.result.code, END_BUSY);
	ck_assert_str_eq(op.result.message, ENGINE_ALONE);
	ck_assert_ptr_nonnull(engine_snapshot_dir());
	ck_assert_uint_eq(hostpool_resident(), 0);
	end_joint();
	remove_snapshot();
}

/* The read may take minutes, and the GPU memory that it is for is another job's, perhaps. */
START_TEST(the_end_of_a_pact_ends_the_reading_of_a_snapshot)
{
	stopping = true;
	fail_from_snapshot();
	ck_assert(has_begun("read") && !has_begun("map"));
}
END_TEST

/* That may take seconds. */
START_TEST(one_that_is_told_to_pause_while_it_goes_back_says_so)
{
	lacking = cancelling = true;
	fail_from_snapshot();
	ck_assert(!has_begun("read"));
}
END_TEST

START_TEST(one_that_is_told_to_pause_while_it_goes_back_for_gpu_memory_says_so)
{
	promised = cancelling = true;
	start_job();
	pause_job(RELEASE_ALL);
	begin_joint();
	engine_resume(&op);
	ck_assert_int_eq(op.result.code, END_BUSY);
	ck_assert_str_eq(op.result.message, ENGINE_ALONE);
	end_joint();
}
END_TEST

/* Its first attempt comes when the promise of another member is over. */
START_TEST(one_that_has_read_its_snapshot_and_could_not_try_yet_is_waited_for)
{
	promised = true;
	resume_from_snapshot(RELEASE_ALL);
	ck_assert(!promised && waited_for);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("in");
	TCase *tc = tcase_create("in");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_fill_that_fails_keeps_no_imports);
	tcase_add_test(tc, a_resume_that_fails_tells_the_others_before_it_gives_its_memory_back);
	tcase_add_test(tc, a_further_round_forgets_the_first);
	tcase_add_test(tc, one_that_cannot_give_its_memory_back_ends_the_resume);
	tcase_add_test(tc, a_resume_that_fails_says_that_it_has_left_the_context);
	tcase_add_test(tc, a_call_back_gives_the_host_memory_back_that_a_snapshot_was_read_into);
	tcase_add_test(tc, one_that_lacks_host_memory_calls_back);
	tcase_add_test(tc, a_time_limit_names_the_host_memory_that_is_missing);
	tcase_add_test(tc, a_time_limit_names_what_was_waited_for);
	tcase_add_test(tc, one_that_is_whole_and_waits_for_others_in_vain_says_so);
	tcase_add_test(tc, the_end_of_a_pact_ends_the_reading_of_a_snapshot);
	tcase_add_test(tc, one_that_is_told_to_pause_while_it_goes_back_says_so);
	tcase_add_test(tc, one_that_is_told_to_pause_while_it_goes_back_for_gpu_memory_says_so);
	tcase_add_test(tc, one_that_has_read_its_snapshot_and_could_not_try_yet_is_waited_for);
	suite_add_tcase(suite, tc);
	return check_suite_run(suite);
}
