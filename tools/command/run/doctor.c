/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/tools.h"

#include "common/conf_file.h"
#include "common/system/hostmem.h"
#include "common/protocol/quota.h"
#include "common/protocol/rundir.h"
#include "common/settings.h"
#include "tools/job/scan.h"
#include "tools/process/criu/criu.h"
#include "tools/process/cudawd.h"
#include "common/text.h"
#include "common/processes/proc.h"
#include "common/version.h"
#include "tools/command/output.h"
#include "tools/command/run/run_checks.h"
#include "tools/command/list/table.h"
#include "tools/process/probe.h"
#include "tools/command/run/settings_check.h"
#include "tools/process/faces.h"
#include "common/find/find.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

const char help_doctor[] =
	"Usage: cudaw doctor [--json]\n"
	"\n"
	"Check which parts of cudaw work on this machine, and say why the others do not. Uses no GPU\n"
	"memory and changes nothing.\n"
	"\n"
	"  -j, --json  the same as a JSON object\n"
	"  -h, --help  this text\n"
	"\n"
	"Each line is one check; on a terminal it is cut to the width:\n"
	"  ok    works\n"
	"  warn  works, with a drawback; the reason is below\n"
	"  no    does not work; the reason is below\n"
	"The last line is the verdict.\n"
	"\n"
	"Exit codes: 0 pausing works on this machine, 2 wrong usage, 6 it does not.\n";

enum verdict { OK, WARN, NO };
static const char *const verdicts[] = {"ok", "warn", "no"};

struct finding {
	char check[32];
	enum verdict verdict;
	char value[512];
	char because[512]; /* empty for OK */
};

#define FINDINGS (2 * PROBE_DEVICES + 40)

struct report {
	struct finding findings[FINDINGS];
	size_t n;
	struct probe probe;
	bool has_driver;
	const struct finding *obstacle; /* the first finding that rules out pausing */
	bool wrong_limit; /* a variable that sets a memory limit has a value that cannot be used */
	const char *programs; /* consequence for programs of 'cudaw run' */
	char summary[1200];
};

static struct finding *add(struct report *report, const char *check, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void because(struct finding *finding, enum verdict verdict, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* A new finding; it is OK until because() changes it. */
static struct finding *add(struct report *report, const char *check, const char *fmt, ...)
{
	struct finding *finding = &report->findings[report->n++];
	char text[PATH_MAX + 256];
	va_list ap;

	snprintf(finding->check, sizeof(finding->check), "%s", check);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	format_copy(finding->value, sizeof(finding->value), text);
	return finding;
}

static void because(struct finding *finding, enum verdict verdict, const char *fmt, ...)
{
	char text[sizeof(finding->because)];
	va_list ap;

	finding->verdict = verdict;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	format_copy(finding->because, sizeof(finding->because), text);
}

/* Mark a finding without which nothing can be paused. */
static void rule_out(struct report *report, const struct finding *finding)
{
	if (!report->obstacle)
		report->obstacle = finding;
}

static void check_driver(struct report *report)
{
	char path[PATH_MAX], version[64], why[512];
	struct finding *finding;
	struct probe *probe = &report->probe;
	struct probing probing;

	if (find_real_driver(path, sizeof(path))) {
		finding = add(report, "driver", "not found");
		find_explain(FIND_DRIVER, why, sizeof(why));
		because(finding, NO, "%s", why);
		rule_out(report, finding);
		report->programs = "CUDA fails in programs started with 'cudaw run' (cuInit: error "
				   "100).";
		return;
	}
	probe_begin(&probing, path);
	probe_end(&probing, probe);
	if (host_read_line("/sys/module/nvidia/version", version, sizeof(version)))
		snprintf(version, sizeof(version), "version unknown");
	finding = add(report, "driver", "%s, CUDA %d.%d, %s", version, probe->version / 1000,
		      probe->version % 1000 / 10, path);
	if (probe->failure[0]) {
		because(finding, NO, "%s", probe->failure);
		rule_out(report, finding);
		return;
	}
	report->has_driver = true;
}

static void check_devices(struct report *report)
{
	const struct probe *probe = &report->probe;
	struct finding *finding;

	if (!report->has_driver)
		return;
	for (int i = 0; i < probe->ndevices; i++) {
		const struct probe_device *device = &probe->devices[i];
		char name[24], memory[FORMAT_SIZE];

		snprintf(name, sizeof(name), "GPU %d", i);
		finding =
			add(report, name, "%s, %s, compute capability %d.%d, GPUDirect RDMA %s%s%s",
			    device->name, format_bytes(memory, device->memory), device->major,
			    device->minor, device->rdma ? "yes" : "no", *device->uuid ? ", " : "",
			    device->uuid);
		if (!device->vmm)
			because(finding, WARN,
				"it has no virtual memory management: jobs that see it get "
				"translated addresses, which break some programs "
				"(docs/translated.md)");
	}
	if (probe->ndevices)
		return;
	finding = add(report, "virtual memory", "no usable device");
	because(finding, NO, "the driver finds no GPU");
	rule_out(report, finding);
}

static void check_checkpoint(struct report *report)
{
	struct finding *finding;

	if (!report->has_driver)
		return;
	finding = add(report, "checkpoint API", "%s", report->probe.checkpoint ? "yes" : "absent");
	if (!report->probe.checkpoint)
		because(finding, WARN,
			"the driver is older than r570: the CUDA context of a paused job stays on "
			"the GPU");
}

static void check_faces(struct report *report)
{
	/* The first two are those of "cudaw run". */
	static const char *const faces[] = {"libcuda.so.1",      "cudaw-audit.so",
					    "libcudart.so.13",   "libcudart.so.12",
					    "libcudart.so.11.0", "limited/libnvidia-ml.so.1"};
	char directory[PATH_MAX - 32] = "", path[PATH_MAX], missing[128] = "";
	struct finding *finding;
	bool driver = true;
	const char *why;

	faces_directory(directory, sizeof(directory));
	for (size_t i = 0; i < sizeof(faces) / sizeof(faces[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, faces[i]);
		if (access(path, R_OK) == 0)
			continue;
		driver &= i > 1;
		snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), " %s",
			 faces[i]);
	}
	finding = add(report, "cudaw's libraries", "%s", directory);
	if (missing[0])
		because(finding, driver ? WARN : NO, "these are missing:%s", missing);
	why = not_preloadable(directory);
	if (driver && why)
		because(finding, NO, "%s", why);
	if (finding->verdict != NO)
		return;
	rule_out(report, finding);
	report->programs = "'cudaw run' cannot start programs.";
}

static void check_runtimes(struct report *report)
{
	static const char *const sonames[] = {"libcudart.so.13", "libcudart.so.12",
					      "libcudart.so.11.0"};
	char path[PATH_MAX];

	/* A missing one is OK: a program brings its own, or needs none. */
	for (size_t i = 0; i < sizeof(sonames) / sizeof(sonames[0]); i++)
		add(report, sonames[i], "%s",
		    find_real_runtime(sonames[i], path, sizeof(path))
			    ? "none on this machine; programs may bring their own"
			    : path);
}

static void check_runtime_directory(struct report *report)
{
	bool there;
	char path[PATH_MAX];
	const char *why = run_check_directory(path, &there);
	struct finding *finding = add(report, "runtime directory", "%s%s", path,
				      why || there ? "" : ", made when the first job starts");

	if (!why)
		return;
	because(finding, NO, "%s", why);
	rule_out(report, finding);
}

static void check_kernel(struct report *report)
{
	struct finding *finding;
	char pages[32];

	finding = add(report, "membarrier", "%s", host_has_membarrier() ? "yes" : "absent");
	if (!host_has_membarrier())
		because(finding, WARN,
			"the kernel is older than 4.14, or a seccomp filter forbids it: each "
			"CUDA call has one memory barrier more");
	host_huge_pages(pages, sizeof(pages));
	finding = add(report, "huge pages", "%s", pages[0] ? pages : "absent");
	if (!pages[0] || !strcmp(pages, "never"))
		because(finding, WARN,
			"host memory in small pages slows pauses down "
			"(transparent_hugepage/enabled)");
}

static struct finding *add_limit(struct report *report, const char *check, int resource)
{
	char text[FORMAT_SIZE];
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};

	getrlimit(resource, &limit);
	return add(report, check, "%s",
		   limit.rlim_cur == RLIM_INFINITY ? "unlimited"
						   : format_bytes(text, limit.rlim_cur));
}

static void check_limits(struct report *report)
{
	struct finding *finding;

	/* Shown only: memory that the driver pins does not count (1 GiB under a limit of 64 KiB). */
	add_limit(report, "locked memory", RLIMIT_MEMLOCK);
	finding = add_limit(report, "address space", RLIMIT_AS);
	if (strcmp(finding->value, "unlimited") != 0)
		because(finding, WARN,
			"CUDA and cudaw reserve terabytes of addresses, and may fail (ulimit -v)");
}

static void check_memory(struct report *report)
{
	uint64_t available = hostmem_machine_available(), group = hostmem_cgroup_available();
	uint64_t least = group < available ? group : available, gpu = 0;
	char have[FORMAT_SIZE], left[FORMAT_SIZE], need[FORMAT_SIZE];
	struct finding *finding;

	for (int i = 0; i < report->probe.ndevices; i++)
		gpu += report->probe.devices[i].memory;
	finding = add(report, "host memory", "%s available, control group: %s%s",
		      format_bytes(have, available),
		      group == SIZE_MAX ? "no limit" : format_bytes(left, group),
		      group == SIZE_MAX ? "" : " left");
	if (least < gpu)
		because(finding, WARN,
			"the GPUs have %s: a pause that needs more host memory than is available is "
			"refused",
			format_bytes(need, gpu));
}

static void check_tmp(struct report *report)
{
	char text[FORMAT_SIZE];
	struct finding *finding;
	struct statvfs vfs;
	uint64_t avail;

	if (statvfs(RUNDIR_TMP, &vfs) < 0) {
		finding = add(report, RUNDIR_TMP, "%s", strerror(errno));
		because(finding, WARN, "the runtime directory is in it by default");
		return;
	}
	avail = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	finding = add(report, RUNDIR_TMP, "%s free", format_bytes(text, avail));
	if (avail < 1 << 20 || (vfs.f_flag & ST_RDONLY))
		because(finding, WARN, "the runtime directory is in it by default, and needs room");
}

static void add_setting(void *arg, const char *variable, const char *value, const char *why)
{
	struct report *report = arg;

	report->wrong_limit |= !strcmp(variable, settings[SETTING_MEM].name) ||
			       !strncmp(variable, QUOTA_HAMI, strlen(QUOTA_HAMI));
	because(add(arg, variable, "%s", value), WARN, "%s", why);
}

static void check_settings(struct report *report)
{
	settings_check(add_setting, report);
}

/* Of jobs that are started from here. Reading wrong values would log what check_settings() has said. */
static void check_memory_limit(struct report *report)
{
	for (int i = 0; i < report->probe.ndevices && !report->wrong_limit && quota_is_on(); i++) {
		size_t quota = quota_of(i), memory = report->probe.devices[i].memory;
		char name[32], limit[FORMAT_SIZE], has[FORMAT_SIZE];
		struct finding *finding;

		if (quota == SIZE_MAX)
			continue;
		snprintf(name, sizeof(name), "memory limit, GPU %d", i);
		finding = add(report, name, "%s for each job", format_bytes(limit, quota));
		if (quota > memory)
			because(finding, WARN, "the GPU has %s", format_bytes(has, memory));
	}
}

static void check_daemon(struct report *report)
{
	const char *which = conf_file_daemon();
	char why[CUDAWD_WHY];

	if (!which)
		add(report, "turns", "off: jobs take turns with 'cudaw run --turns'");
	else if (cudawd_is_missing(why))
		because(add(report, "turns", "no daemon (%s)", which), WARN,
			"%s; until then jobs take no turns", why);
	else
		add(report, "turns", "the daemon answers (%s)", which);
}

static void check_criu(struct report *report)
{
	struct finding *finding;
	struct criu criu;

	if (criu_find(&criu)) {
		finding = add(report, "CRIU", "%d.%d, %s", criu.major, criu.minor, criu.path);
		if (!criu_may_carry_all(&criu))
			because(finding, WARN, "%s", criu.why);
		return;
	}
	finding = add(report, "CRIU", "%s", criu.major ? "unsuitable" : "absent");
	because(finding, WARN, "%s; snapshots hold only GPU memory", criu.why);
}

static bool is_no_one(const void *arg, const struct process *process)
{
	(void)arg;
	(void)process;
	return false;
}

/* Processes under cudaw whose calls no pause reaches. */
static void check_processes(struct report *report)
{
	struct scan scan = {.owner = geteuid() == 0 ? RUNDIR_ANYONE : geteuid(),
			    .only = setting_text(SETTING_RUNTIME_DIR),
			    .is_known = is_no_one};
	char check[32], text[SCAN_PAST_TEXT];

	scan_run(&scan);
	for (size_t i = 0; i < scan.n && report->n < FINDINGS; i++) {
		const struct sighting *it = &scan.found[i];

		if (!*it->drivers.past)
			continue;
		snprintf(check, sizeof(check), "process %d", it->process.pid);
		because(add(report, check, "%s", it->command), WARN, "it %s",
			scan_past_text(it->drivers.past, it->kind == SIGHTING_PAST, text));
	}
	free(scan.found);
}

static void summarise(struct report *report)
{
	const struct finding *obstacle = report->obstacle;

	if (obstacle)
		snprintf(report->summary, sizeof(report->summary),
			 "pausing does not work here: %s: %s, because %s. %s", obstacle->check,
			 obstacle->value, obstacle->because, report->programs);
	else if (!report->probe.checkpoint)
		snprintf(report->summary, sizeof(report->summary),
			 "pausing works here, but a paused job keeps its CUDA context on the GPU "
			 "(some 500 MiB a process).");
	else
		snprintf(report->summary, sizeof(report->summary),
			 "pausing works here; a paused job leaves nothing on the GPU.");
}

static void print_text(const struct report *report)
{
	static const char *const titles[] = {"CHECK", "IS", "FOUND"};
	struct table table = {.titles = titles, .columns = 3, .may_cut = 1 << 2};
	char(*cell)[TABLE_CELL];
	const char *blank = "\n";

	for (size_t i = 0; i < report->n && (cell = table_row(&table)); i++) {
		const struct finding *finding = &report->findings[i];

		strcpy(cell[0], finding->check);
		strcpy(cell[1], verdicts[finding->verdict]);
		strcpy(cell[2], finding->value);
	}
	table_print(&table);
	for (size_t i = 0; i < report->n; i++) {
		const struct finding *finding = &report->findings[i];

		/* The verdict has the obstacle's. */
		if (!finding->because[0] || finding == report->obstacle)
			continue;
		printf("%s%s: %s\n", blank, finding->check, finding->because);
		blank = "";
	}
	printf("\nVerdict: %s\n", report->summary);
}

static void print_json(const struct report *report)
{
	json_t *checks = json_array();
	json_t *root;

	for (size_t i = 0; i < report->n; i++) {
		const struct finding *finding = &report->findings[i];
		const char *why = finding->because[0] ? finding->because : NULL;

		json_array_append_new(checks,
				      json_pack("{s:s, s:s, s:s, s:s?}", "check", finding->check,
						"verdict", verdicts[finding->verdict], "value",
						finding->value, "because", why));
	}
	root = json_pack("{s:s, s:b, s:b, s:s, s:o}", "version", cudaw_version, "pause",
			 !report->obstacle, "context",
			 !report->obstacle && report->probe.checkpoint, "summary", report->summary,
			 "checks", checks);
	output_json(root);
	json_decref(root);
}

int cmd_doctor(int argc, char **argv)
{
	static void (*const checks[])(struct report * report) = {
		check_driver,       check_devices,
		check_checkpoint,   check_faces,
		check_runtimes,     check_kernel,
		check_limits,       check_memory,
		check_tmp,          check_runtime_directory,
		check_criu,         check_settings,
		check_memory_limit, check_daemon,
		check_processes,
	};
	static struct report report = {
		.programs = "Programs started with 'cudaw run' run as they do without it.",
	};
	bool json = false;
	int code;

	code = json_option(argc, argv, "doctor", help_doctor, &json);
	if (code >= 0)
		return code;
	if (optind < argc) {
		complain("doctor takes no argument: '%s'", argv[optind]);
		return usage_error("doctor");
	}
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
		checks[i](&report);
	summarise(&report);
	if (json)
		print_json(&report);
	else
		print_text(&report);
	return report.obstacle ? EXIT_UNSUPPORTED : EXIT_DONE;
}
