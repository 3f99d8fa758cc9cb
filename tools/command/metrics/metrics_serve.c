/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/metrics/metrics_serve.h"

#include "common/clock.h"
#include "tools/command/metrics/metrics_text.h"
#include "tools/command/options.h"
#include "tools/report/report.h"

#include <dlfcn.h>
#include <errno.h>
#include <grp.h>
#include <math.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIBRARY     "libmicrohttpd.so.12"
#define NOBODY      "nobody"
#define CONNECTIONS 32
#define PER_ADDRESS 8
#define IDLE_S      10         /* until a silent connection is closed */
#define MEMORY      (16 << 10) /* of a connection, for its request */
#define TEXT_MAX    (16 << 20)
#define TYPE        "text/plain; version=0.0.4; charset=utf-8"

/* What is used of the library. */
static struct {
	__typeof__(&MHD_start_daemon) start_daemon;
	__typeof__(&MHD_create_response_from_buffer) create_response;
	__typeof__(&MHD_add_response_header) add_header;
	__typeof__(&MHD_queue_response) queue_response;
	__typeof__(&MHD_destroy_response) destroy_response;
} mhd;

static bool load(void)
{
	static const char *const names[] = {"MHD_start_daemon", "MHD_create_response_from_buffer",
					    "MHD_add_response_header", "MHD_queue_response",
					    "MHD_destroy_response"};
	void **functions = (void **)&mhd;
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	for (size_t i = 0; library && i < sizeof(names) / sizeof(names[0]); i++) {
		functions[i] = dlsym(library, names[i]);
		if (!functions[i])
			library = NULL;
	}
	if (!library)
		complain("metrics: --listen needs libmicrohttpd: %s", dlerror());
	return library;
}

/* Split @address. False after a message. */
static bool parse(const char *address, char host[64], char port[8])
{
	const char *colon = strrchr(address, ':'), *begin = colon ? colon + 1 : address;
	size_t len = colon ? colon - address : 0;
	char *end;
	unsigned long number = strtoul(begin, &end, 10);

	snprintf(host, 64, "%.*s", (int)len, address);
	if (*host == '[' && len < 64 && host[len - 1] == ']') {
		host[len - 1] = '\0';
		memmove(host, host + 1, len - 1);
	} else if (strchr(host, ':')) {
		end = "?";
	}
	if (!*host)
		strcpy(host, "127.0.0.1");
	snprintf(port, 8, "%lu", number);
	if (*begin >= '0' && *begin <= '9' && !*end && number < 65536 && len < 64)
		return true;
	complain("--listen %s: expected PORT, ADDR:PORT or [ADDR]:PORT", address);
	return false;
}

/* A listening socket; negative after a message. */
static int listen_at(const char *address, const char *host, const char *port)
{
	const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
				       .ai_socktype = SOCK_STREAM};
	struct addrinfo *found;
	int err = getaddrinfo(host, port, &hints, &found), fd, yes = 1;

	if (err) {
		complain("--listen %s: %s: expected an IP address of this machine", address, host);
		return -1;
	}
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, CONNECTIONS)) {
		complain("--listen %s: %s", address, strerror(errno));
		if (fd >= 0)
			close(fd);
		fd = -1;
	}
	freeaddrinfo(found);
	return fd;
}

/* ---- between the two processes: a byte asks, a size and a text answer */

static bool read_all(int fd, void *buf, size_t size)
{
	for (char *p = buf; size;) {
		ssize_t len = read(fd, p, size);

		if (len < 0 && errno == EINTR)
			continue;
		if (len <= 0)
			return false;
		p += len;
		size -= len;
	}
	return true;
}

static bool write_all(int fd, const void *buf, size_t size)
{
	for (const char *p = buf; size;) {
		ssize_t len = send(fd, p, size, MSG_NOSIGNAL);

		if (len < 0 && errno == EINTR)
			continue;
		if (len < 0)
			return false;
		p += len;
		size -= len;
	}
	return true;
}

/* ---- the child */

static int channel;

/* The text, to be freed; NULL: there is none. */
static char *ask(size_t *size)
{
	char *text;

	if (!write_all(channel, "", 1) || !read_all(channel, size, sizeof(*size)) || !*size ||
	    *size > TEXT_MAX)
		return NULL;
	text = malloc(*size);
	if (text && read_all(channel, text, *size))
		return text;
	free(text);
	return NULL;
}

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned int status, char *text,
			      size_t size, bool owned)
{
	struct MHD_Response *response = mhd.create_response(
		size, text, owned ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
	enum MHD_Result result = MHD_NO;

	if (!response)
		return MHD_NO;
	mhd.add_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, TYPE);
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		mhd.add_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	result = mhd.queue_response(connection, status, response);
	mhd.destroy_response(response);
	return result;
}

static enum MHD_Result answer_words(struct MHD_Connection *connection, unsigned int status,
				    const char *words)
{
	return answer(connection, status, (char *)words, strlen(words), false);
}

static enum MHD_Result take_request(void *arg, struct MHD_Connection *connection, const char *url,
				    const char *method, const char *version, const char *data,
				    size_t *data_size, void **state)
{
	size_t size;
	char *text;

	(void)arg, (void)version, (void)data;
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return answer_words(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET or HEAD\n");
	/* The first call is before a body has come. */
	if (!*state) {
		*state = (void *)1;
		return MHD_YES;
	}
	if (*data_size)
		return MHD_NO;
	if (strcmp(url, "/metrics") != 0)
		return answer_words(connection, MHD_HTTP_NOT_FOUND, "/metrics\n");
	text = ask(&size);
	if (!text)
		return answer_words(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
				    "the jobs cannot be asked\n");
	return answer(connection, MHD_HTTP_OK, text, size, true);
}

/* Returns 0 or a negative errno. */
static int drop_rights(void)
{
	const struct passwd *pw;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	if (geteuid() != 0)
		return 0;
	pw = getpwnam(NOBODY);
	if (!pw)
		return -ENOENT;
	if (setgroups(0, NULL) || setresgid(pw->pw_gid, pw->pw_gid, pw->pw_gid) ||
	    setresuid(pw->pw_uid, pw->pw_uid, pw->pw_uid))
		return -errno;
	return 0;
}

/* Ends with the other process. */
static void child_main(int listener, int fd) __attribute__((noreturn));

static void child_main(int listener, int fd)
{
	struct pollfd other = {.fd = fd, .events = 0};
	int err = drop_rights();

	channel = fd;
	signal(SIGPIPE, SIG_IGN);
	if (err) {
		complain("metrics: the user " NOBODY ": %s", strerror(-err));
		_exit(EXIT_FAILED);
	}
	if (!mhd.start_daemon(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL,
			      take_request, NULL, MHD_OPTION_LISTEN_SOCKET, listener,
			      MHD_OPTION_CONNECTION_LIMIT, (unsigned int)CONNECTIONS,
			      MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned int)PER_ADDRESS,
			      MHD_OPTION_CONNECTION_TIMEOUT, (unsigned int)IDLE_S,
			      MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY, MHD_OPTION_END)) {
		complain("metrics: libmicrohttpd does not begin");
		_exit(EXIT_FAILED);
	}
	while (!(other.revents & (POLLHUP | POLLERR)))
		poll(&other, 1, -1);
	_exit(EXIT_DONE);
}

/* ---- and this process */

/* Until the child has ended. */
static void give_texts(int fd)
{
	double made_ms = -INFINITY;
	char byte, *text = NULL;
	size_t size = 0;

	while (read_all(fd, &byte, 1)) {
		if (clock_ms() - made_ms >= METRICS_FRESH_MS) {
			free(text);
			text = NULL;
			if (metrics_text_make(&text, &size) || size > TEXT_MAX)
				size = 0;
			made_ms = clock_ms();
		}
		if (!write_all(fd, &size, sizeof(size)) || !write_all(fd, text, size))
			break;
	}
	free(text);
}

int metrics_serve(const char *address)
{
	char host[64], port[8];
	int fds[2], listener, status;
	pid_t pid;

	if (!parse(address, host, port))
		return usage_error("metrics");
	if (!load())
		return EXIT_UNSUPPORTED;
	listener = listen_at(address, host, port);
	if (listener < 0)
		return EXIT_FAILED;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) || (pid = fork()) < 0) {
		complain("metrics: %s", strerror(errno));
		return EXIT_FAILED;
	}
	if (pid == 0) {
		close(fds[0]);
		child_main(listener, fds[1]);
	}
	close(fds[1]);
	close(listener);
	give_texts(fds[0]);
	close(fds[0]);
	if (waitpid(pid, &status, 0) == pid && WIFSIGNALED(status))
		complain("metrics: the process that serves was ended by signal %d",
			 WTERMSIG(status));
	return EXIT_FAILED;
}
