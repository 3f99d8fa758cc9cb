/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of names, arguments and kernels in a trace, over a driver that only knows names. */
#include "calls.h"
#include "wrapper/trace/trace_calls.h"

#include "tests/check_suite.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILE_SIZE (1 << 20)

static char directory[] = "/tmp/cudaw-trace-XXXXXX", path[64];
static char text[FILE_SIZE]; /* of the trace, as read_trace() found it */
static const char *function_name, *kernel_name;
static int names_asked;
static size_t nparams, param_size;

static CUresult get_function_name(const char **name, CUfunction f)
{
	(void)f;
	names_asked++;
	*name = function_name;
	return function_name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult get_kernel_name(const char **name, CUkernel kernel)
{
	(void)kernel;
	*name = kernel_name;
	return kernel_name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult get_param(CUfunction f, size_t i, size_t *offset, size_t *size)
{
	(void)f;
	*offset = i * param_size;
	*size = param_size;
	return i < nparams ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
	*mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	return CUDA_SUCCESS;
}

static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/trace", directory);
	setenv("CUDAW_TRACE", path, 1);
	real.cuFuncGetName = get_function_name;
	real.cuKernelGetName = get_kernel_name;
	real.cuFuncGetParamInfo = get_param;
	real.cuThreadExchangeStreamCaptureMode = exchange_mode;
	trace_start();
}

static void teardown(void)
{
	unlink(path);
	rmdir(directory);
}

static void read_trace(void)
{
	FILE *file = fopen(path, "r");
	size_t len;

	ck_assert_ptr_nonnull(file);
	len = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[len] = '\0';
	ck_assert_str_eq(text + len - 2, "\n]");
}

static bool traced(const char *part)
{
	read_trace();
	return strstr(text, part) != NULL;
}

/* No assertion: a signal handler calls it. */
static void launch_with(CUresult result, CUfunction f, void **params, void **extra)
{
	struct trace_event event;

	if (!trace_begin(&event, "launch"))
		return;
	trace_go(&event);
	trace_stop(&event);
	traced_arg(&event, "kernel", LAUNCHED(f, result));
	traced_arg(&event, "params", PARAMS(f, params, extra, result));
	trace_end(&event, "cuLaunchKernel", result);
}

static void launch(CUfunction f, void **params, void **extra)
{
	launch_with(CUDA_SUCCESS, f, params, extra);
}

START_TEST(test_odd_text)
{
	struct trace_event event;

	ck_assert(trace_begin(&event, "module"));
	traced_arg(&event, "file", (const char *)"a\"b\\c\n\xff");
	trace_end(&event, "cuModuleLoad", 2);
	ck_assert(traced("{\"file\":\"a\\\"b\\\\c??\",\"error\":2}"));
}
END_TEST

/* As a program may give the driver, which returns an error. */
START_TEST(test_null_text)
{
	struct trace_event event;

	ck_assert(trace_begin(&event, "module"));
	traced_arg(&event, "name", (const char *)NULL);
	trace_end(&event, "cuModuleGetFunction", 400);
	ck_assert(traced("{\"name\":\"(null)\",\"error\":400}"));
}
END_TEST

/* Of what does not fit, whole arguments go, and the line keeps to its page. */
START_TEST(test_too_many_arguments)
{
	struct trace_event event;
	char key[16], *line;

	ck_assert(trace_begin(&event, "memory"));
	for (int i = 0; i < 500; i++) {
		snprintf(key, sizeof(key), "key%d", i);
		traced_arg(&event, key, 12345678UL);
	}
	trace_end(&event, "many", 0);
	ck_assert(traced("\"key50\":12345678,"));
	line = strstr(text, "\"key0\"");
	ck_assert_ptr_nonnull(strstr(line, ":12345678},\"cut\":true,"));
	ck_assert_uint_lt(strlen(line), TRACEFILE_PAGE);
}
END_TEST

/* Long names that differ at their end stay two names. */
START_TEST(test_long_names)
{
	static char name[3][5000];
	char *found[2], *end;

	for (int i = 0; i < 2; i++) {
		memset(name[i], 'x', sizeof(name[i]) - 2);
		name[i][sizeof(name[i]) - 2] = '0' + i;
		function_name = name[i];
		launch((CUfunction)(uintptr_t)(64 + 16 * i), NULL, NULL);
	}
	read_trace();
	found[0] = strstr(text, "\"xxxx");
	ck_assert_ptr_nonnull(found[0]);
	found[1] = strstr(found[0] + 1, "\"xxxx");
	ck_assert_ptr_nonnull(found[1]);
	end = strchr(found[0] + 1, '"');
	ck_assert_int_le(end - found[0], TRACE_NAME);
	ck_assert_int_ne(strncmp(found[0], found[1], end - found[0]), 0);
}
END_TEST

/* The driver is asked once, until an unload may have given the handle to another kernel. */
START_TEST(test_handles_that_come_again)
{
	CUfunction f = (CUfunction)(uintptr_t)0x1230;

	function_name = "before";
	launch(f, NULL, NULL);
	launch(f, NULL, NULL);
	ck_assert_int_eq(names_asked, 1);
	function_name = "after";
	launch(f, NULL, NULL);
	ck_assert(!traced("\"after\""));
	traced_kernels_forget();
	launch(f, NULL, NULL);
	launch(f, NULL, NULL);
	ck_assert_int_eq(names_asked, 2);
	ck_assert(traced("\"name\":\"after\""));
}
END_TEST

/* Of the same name, and with fewer parameters. */
START_TEST(test_a_kernel_that_is_loaded_anew)
{
	const uint64_t words[] = {0x11, 0x22};
	void *params[] = {(void *)&words[0], (void *)&words[1]};
	CUfunction f = (CUfunction)(uintptr_t)0x1230;

	function_name = "f";
	param_size = 8;
	nparams = 2;
	launch(f, params, NULL);
	ck_assert(traced("\"params\":[\"0x11\",\"0x22\"]"));
	traced_kernels_forget();
	nparams = 1;
	params[1] = (void *)8; /* not to be looked at */
	launch(f, params, NULL);
	ck_assert(traced("\"params\":[\"0x11\"]"));
}
END_TEST

START_TEST(test_where_names_come_from)
{
	struct trace_event event;

	kernel_name = "of_a_library";
	launch((CUfunction)(uintptr_t)0x10, NULL, NULL);
	ck_assert(traced("\"name\":\"of_a_library\""));
	real.cuFuncGetName = NULL;
	real.cuKernelGetName = NULL;
	launch((CUfunction)(uintptr_t)0x20, NULL, NULL);
	ck_assert(traced("\"name\":\"unnamed kernel\""));
	ck_assert(trace_begin(&event, "module"));
	traced_arg(&event, "function", FUNCTION((void *)0x30, "given_out"));
	trace_end(&event, "cuModuleGetFunction", 0);
	launch((CUfunction)(uintptr_t)0x30, NULL, NULL);
	ck_assert(traced("\"name\":\"given_out\""));
	ck_assert(trace_begin(&event, "module"));
	traced_arg(&event, "function", FUNCTION((void *)0x30, "given_out_anew"));
	trace_end(&event, "cuModuleGetFunction", 0);
	launch((CUfunction)(uintptr_t)0x30, NULL, NULL);
	ck_assert(traced("\"name\":\"given_out_anew\""));
}
END_TEST

START_TEST(test_parameters)
{
	const uint64_t words[40] = {0x11, 0x22, 0x33};
	void *params[100];
	size_t size = 24;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_BUFFER_POINTER,
			 (void *)words, CU_LAUNCH_PARAM_END};
	void *odd[] = {(void *)77,
		       NULL,
		       CU_LAUNCH_PARAM_BUFFER_SIZE,
		       &size,
		       CU_LAUNCH_PARAM_BUFFER_POINTER,
		       (void *)words,
		       CU_LAUNCH_PARAM_END};

	for (int i = 0; i < 100; i++)
		params[i] = (void *)words;
	function_name = "f";
	nparams = 3;
	param_size = 8;
	launch((CUfunction)(uintptr_t)0x10, NULL, extra);
	ck_assert(traced("\"params\":[\"0x11\",\"0x22\",\"0x33\"]"));
	launch((CUfunction)(uintptr_t)0x10, NULL, odd);
	ck_assert(traced("\"params\":[]"));
	nparams = 1;
	param_size = 12;
	launch((CUfunction)(uintptr_t)0x20, params, NULL);
	ck_assert(traced("\"params\":[[\"0x11\",\"0x22\"]]"));
	param_size = sizeof(words);
	launch((CUfunction)(uintptr_t)0x30, params, NULL);
	ck_assert(traced("\"0x0\",\"...\"]]"));
	nparams = 100;
	param_size = 4;
	launch((CUfunction)(uintptr_t)0x40, params, NULL);
	ck_assert(traced("\"0x11\",\"...\"],"));
}
END_TEST

/* Only of a handle that is known: of others the driver is not asked. */
START_TEST(test_launches_that_fail)
{
	uint64_t word = 0x11;
	void *params[] = {&word, NULL};

	function_name = "f";
	nparams = 2;
	param_size = 8;
	launch_with(CUDA_ERROR_INVALID_HANDLE, (CUfunction)(uintptr_t)0x10, params, NULL);
	ck_assert(traced("\"name\":\"unnamed kernel\""));
	ck_assert(!traced("\"name\":\"f\""));
	params[1] = &word;
	launch((CUfunction)(uintptr_t)0x10, params, NULL);
	params[1] = NULL;
	launch_with(CUDA_ERROR_INVALID_VALUE, (CUfunction)(uintptr_t)0x10, params, NULL);
	ck_assert(traced("\"params\":[\"0x11\"]"));
}
END_TEST

/* A child must not write to the file of its parent. */
START_TEST(test_fork)
{
	struct trace_event event;
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid)
		_exit(trace_begin(&event, "memory"));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert(trace_begin(&event, "memory"));
}
END_TEST

static volatile sig_atomic_t interruptions;

static void on_alarm(int sig)
{
	(void)sig;
	interruptions++;
	launch((CUfunction)(uintptr_t)0x10, NULL, NULL);
}

/* A handler that launches a kernel, which is known, must not wait for what it interrupts. */
START_TEST(test_signal_handler)
{
	const struct itimerval often = {{0, 200}, {0, 200}}, never = {0};

	function_name = "f";
	launch((CUfunction)(uintptr_t)0x10, NULL, NULL);
	signal(SIGALRM, on_alarm);
	setitimer(ITIMER_REAL, &often, NULL);
	for (uintptr_t i = 0; interruptions < 1000; i++)
		launch((CUfunction)(0x1000 + 16 * (i % 1000)), NULL, NULL);
	setitimer(ITIMER_REAL, &never, NULL);
	ck_assert(trace_begin(&(struct trace_event){0}, "memory"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("trace");
	TCase *tcase = tcase_create("trace");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, test_odd_text);
	tcase_add_test(tcase, test_null_text);
	tcase_add_test(tcase, test_too_many_arguments);
	tcase_add_test(tcase, test_long_names);
	tcase_add_test(tcase, test_handles_that_come_again);
	tcase_add_test(tcase, test_a_kernel_that_is_loaded_anew);
	tcase_add_test(tcase, test_where_names_come_from);
	tcase_add_test(tcase, test_parameters);
	tcase_add_test(tcase, test_launches_that_fail);
	tcase_add_test(tcase, test_fork);
	tcase_add_test(tcase, test_signal_handler);
	suite_add_tcase(suite, tcase);
	return check_suite_run(suite);
}
