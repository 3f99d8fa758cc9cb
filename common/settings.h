/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_SETTINGS_H
#define CUDAW_SETTINGS_H
/*
 * settings: the CUDAW_* environment variables that users set, in one table. The functions below
 * read and check them. `cudaw help settings`, docs/settings.md and the ENVIRONMENT section of
 * cudaw(1) are printed from the table ("make docs" writes the last two).
 *
 * A new setting is a row of the table and a call where it is needed.
 *
 * A set-uid program reads none (secure_getenv(3)): it must not write to a file of another user's
 * choice. An empty variable counts as not set, except for a signal. In a job the values are those
 * of common/environment.h. A process logs a value that it cannot use once for each setting.
 *
 * Variables of the simulated driver (CUDAW_SIM_*) and of tests (CUDAW_TEST_*) are not settings.
 */
#include <stdbool.h>
#include <stddef.h>

enum setting_kind {
	A_WORD,
	A_LIST,   /* some of the words, separated by commas */
	A_SIZE,   /* a number of bytes, with or without K, M, G or T */
	A_MEMORY, /* the same, from SETTING_MEMORY_MIN on */
	A_SIGNAL,
	A_DISK_DIRECTORY, /* exists, and its files are not memory */
	A_NEW_DIRECTORY,  /* exists, or its parent does */
	A_FILE,           /* exists, or its directory does */
	A_NEW_FILE,       /* is made in a directory that exists */
	A_SOCKET,         /* of a daemon: off, user, node or an absolute path */
	A_WEIGHT,         /* a whole number from 1 to SETTING_WEIGHT_MAX */
	A_TIME,           /* whole seconds from 1 to SETTING_TIME_MAX, or never */
	A_TEXT,           /* its reader checks it */
};

enum setting_reader { READ_BY_JOBS, READ_BY_COMMAND, READ_BY_BOTH, SET_BY_RUN, SETTING_READERS };

/*
 * X(id, name, kind, words, preset, instead, reader, text)
 *
 *	words	of A_WORD and A_LIST; else NO_WORDS
 *	preset	for people: the value of a setting that is not set
 *	instead	of a value that cannot be used: the word that is used, with NULL the preset; for
 *		other kinds, in words, what the job does; NULL for A_TEXT
 *	text	for people: what it does
 */
#define SETTINGS_MAP(X)                                                                                       \
	X(RELEASE, "CUDAW_RELEASE", A_WORD, WORDS("all", "memory"), "all", "all", READ_BY_JOBS,               \
	  "What a pause releases. all: the whole GPU. memory: the context (0.5 GiB) stays on the "            \
	  "GPU, and pause and resume are faster.")                                                            \
	X(SIGNAL_PAUSE, "CUDAW_SIGNAL_PAUSE", A_SIGNAL, NO_WORDS, "USR1", "USR1 is used",                     \
	  READ_BY_JOBS,                                                                                       \
	  "The signal that pauses the job: a name, a number, or none for no signal. If this "                 \
	  "variable is set, the program's handler for the signal is called as well. If it is not "            \
	  "set, and the program has a handler for USR1, the signal goes only to the program.")                \
	X(SIGNAL_RESUME, "CUDAW_SIGNAL_RESUME", A_SIGNAL, NO_WORDS, "USR2", "USR2 is used",                   \
	  READ_BY_JOBS, "The signal that resumes the job, with the same rules.")                              \
	X(TSTP, "CUDAW_TSTP", A_WORD, WORDS("0", "1"), "1", "1", READ_BY_JOBS,                                \
	  "1: SIGTSTP (Ctrl-Z, or a scheduler that suspends jobs) first frees the GPU, if the program "       \
	  "leaves its action at the default. 0: it stops the job at once, with its GPU memory.")              \
	X(TSTP_TIMEOUT, "CUDAW_TSTP_TIMEOUT", A_TIME, NO_WORDS, "5", "the default is used",                   \
	  READ_BY_JOBS,                                                                                       \
	  "After SIGTSTP: the seconds that the job has to free the GPU before it stops all the same. "        \
	  "A scheduler that sends SIGSTOP later may give it more (docs/slurm.md). never: no limit.")          \
	X(HOST_POOL, "CUDAW_HOST_POOL", A_SIZE, NO_WORDS, "a quarter of the memory",                          \
	  "the default is used", READ_BY_JOBS,                                                                \
	  "With CUDAW_RELEASE=memory: the most host memory to pin, and to keep pinned for the "               \
	  "next pause; a number with K, M, G or T, as 8G. By default a quarter of the machine's "             \
	  "memory or of the control group's limit. 0 keeps no host memory at all.")                           \
	X(PREPARE, "CUDAW_PREPARE", A_WORD, WORDS("0", "1"), "0", "1", READ_BY_JOBS,                          \
	  "1: host memory for the next pause is made ready while the job runs and its GPU memory "            \
	  "grows. With CUDAW_RELEASE=memory it is pinned.")                                                   \
	X(SPILL_DIR, "CUDAW_SPILL_DIR", A_DISK_DIRECTORY, NO_WORDS, "none",                                   \
	  "nothing is written there", READ_BY_JOBS,                                                           \
	  "A directory on disk for memory of a paused job that does not fit in host memory. The "             \
	  "file there has no name, and is gone when the job is. On NFS and some other file systems it has "   \
	  "the name .cudaw-spill-XXXXXX for a moment. A directory whose files are memory (tmpfs, ramfs, "     \
	  "zram) is not used. A job that takes turns needs a file system that can reserve space (not NFS "    \
	  "before 4.2, ext2, ext3).")                                                                         \
	X(VERIFY, "CUDAW_VERIFY", A_WORD, WORDS("0", "1"), "0", "1", READ_BY_JOBS,                            \
	  "1: the GPU takes checksums of all memory that is moved, and a resume lets the job run "            \
	  "only if they are the same.")                                                                       \
	X(SNAPSHOT_DIR, "CUDAW_SNAPSHOT_DIR", A_NEW_DIRECTORY, NO_WORDS, "none",                              \
	  "no snapshot is written", READ_BY_JOBS,                                                             \
	  "The absolute path of a directory. A pause by signal writes the job's GPU memory there, "           \
	  "as a snapshot, and gives the host memory back; the resume reads it.")                              \
	X(SNAPSHOT_COMPRESS, "CUDAW_SNAPSHOT_COMPRESS", A_WORD, WORDS("none", "lz4", "zstd"),                 \
	  "none", "none", READ_BY_JOBS,                                                                       \
	  "How snapshots in CUDAW_SNAPSHOT_DIR are compressed, as by --compress of cudaw snapshot.")          \
	X(ADDRESSING, "CUDAW_ADDRESSING", A_WORD, WORDS("mapped", "translated"), "mapped", NULL,              \
	  READ_BY_JOBS,                                                                                       \
	  "mapped: the GPU maps memory at addresses that stay. translated: cudaw puts the real "              \
	  "addresses into every call and into graphs; the default if a visible device has no "                \
	  "virtual memory management.")                                                                       \
	X(TO_DRIVER, "CUDAW_TO_DRIVER", A_LIST, WORDS("memory", "multicast", "fabric", "exports"),            \
	  "nothing", "the words that are known count", READ_BY_JOBS,                                          \
	  "What is left to the driver, separated by commas. memory: all memory of the program, for programs " \
	  "that share it by legacy IPC with processes that do not run under cudaw. multicast: programs see "  \
	  "that the GPU has multicast objects (NVLS). fabric: they see that it shares memory by fabric "      \
	  "handles, across machines. No pause can carry memory of these two kinds; by default NCCL and "      \
	  "others share memory in another way. exports: a program that exports memory "                       \
	  "(cuMemExportToShareableHandle) gets the driver's descriptor, which programs and APIs that do not " \
	  "run under cudaw can import.")                                                                      \
	X(MANAGED, "CUDAW_MANAGED", A_WORD, WORDS("driver", "host"), "driver", "driver",                      \
	  READ_BY_JOBS,                                                                                       \
	  "host: managed memory (cudaMallocManaged) is page-locked host memory, which the GPU "               \
	  "reads and writes over the bus. So the job can be paused with CUDAW_RELEASE=all. "                  \
	  "driver: the driver moves managed memory between the host and the GPU.")                            \
	X(RANK_KERNELS, "CUDAW_RANK_KERNELS", A_TEXT, NO_WORDS, "none", NULL, READ_BY_JOBS,                   \
	  "Parts of the names of kernels that wait for kernels of other processes of the job, "               \
	  "separated by commas. cudaw knows those of NCCL and other libraries. If it knows all, "             \
	  "the processes come to rest faster.")                                                               \
	X(CHECK, "CUDAW_CHECK", A_WORD, WORDS("0", "1", "warn", "strict"), "0", "1", READ_BY_JOBS,            \
	  "1: launches, copies and sets with wrong pointers are named on standard error. Copies "             \
	  "and sets, and launches with a pointer into freed memory, fail with "                               \
	  "CUDA_ERROR_ILLEGAL_ADDRESS. warn: none fails. strict: all fail, also launches with a "             \
	  "pointer past the end of an allocation, which the kernel may never follow.")                        \
	X(TRACE, "CUDAW_TRACE", A_NEW_FILE, NO_WORDS, "none", "the program runs without a trace",             \
	  READ_BY_JOBS,                                                                                       \
	  "A file for a trace; cudaw run --trace sets it, to an absolute path. If the file "                  \
	  "exists, FILE.PID is written instead.")                                                             \
	X(TURNS, "CUDAW_TURNS", A_SOCKET, NO_WORDS, "off", "off is used", READ_BY_BOTH,                       \
	  "Take turns on the GPU with other jobs, as cudawd decides. user: your own daemon, in "              \
	  "CUDAW_RUNTIME_DIR. node: the machine's daemon; the default if /etc/cudaw.conf has join "           \
	  "= node (docs/turns.md). Or the absolute path of a daemon's socket. off: take no turns.")           \
	X(TURNS_CLASS, "CUDAW_TURNS_CLASS", A_WORD, WORDS("interactive", "batch"), "batch",                   \
	  "batch", READ_BY_JOBS,                                                                              \
	  "With CUDAW_TURNS: jobs of the class interactive come before those of batch.")                      \
	X(TURNS_WEIGHT, "CUDAW_TURNS_WEIGHT", A_WEIGHT, NO_WORDS, "1", "1 is used", READ_BY_JOBS,             \
	  "With CUDAW_TURNS: a whole number from 1 to 100. Among jobs of a class one of weight 2 "            \
	  "gets the GPU for twice as long as one of weight 1.")                                               \
	X(TURNS_CONTEXT_AFTER, "CUDAW_TURNS_CONTEXT_AFTER", A_TIME, NO_WORDS,                                 \
	  "as cudawd is set, else never", "the default is used", READ_BY_JOBS,                                \
	  "With CUDAW_TURNS: a number of seconds. The job gives its CUDA context, too, when it "              \
	  "has been out for so long, or when another job that can only run without it has waited "            \
	  "for so long. From then on it runs beside no other job (docs/turns.md). never: it keeps "           \
	  "its context.")                                                                                     \
	X(MEM, "CUDAW_MEM", A_MEMORY, NO_WORDS, "no limit", "there is no limit", READ_BY_JOBS,                \
	  "The most memory that the job may have on each GPU, for all its processes together: a "             \
	  "number with K, M, G or T, as 20G (docs/memory-limit.md).")                                         \
	X(REAL_LIBCUDART, "CUDAW_REAL_LIBCUDART", A_TEXT, NO_WORDS, "found by search", NULL,                  \
	  READ_BY_JOBS, "The path of the real libcudart.so.")                                                 \
	X(LOG, "CUDAW_LOG", A_WORD, WORDS("error", "warn", "info", "debug"), "error", "error",                \
	  READ_BY_JOBS,                                                                                       \
	  "How much cudaw logs. A line begins with the process and the time in UTC.")                         \
	X(NOTICES, "CUDAW_NOTICES", A_WORD, WORDS("0", "1"), "1", "1", READ_BY_JOBS,                          \
	  "0: no lines on standard error that say that the job waits, is paused, or goes on.")                \
	X(LOG_FILE, "CUDAW_LOG_FILE", A_FILE, NO_WORDS, "standard error", "stderr is used",                   \
	  READ_BY_JOBS,                                                                                       \
	  "The file to log to. Set it for a program that changes its standard error after "                   \
	  "it has begun to use CUDA. cudaw writes to the new standard error only if it is a terminal, or is " \
	  "the standard output as well. Any other file could be the program's data.")                         \
	X(CRIU, "CUDAW_CRIU", A_TEXT, NO_WORDS, "criu in PATH", NULL, READ_BY_COMMAND,                        \
	  "The CRIU program for snapshots.")                                                                  \
	X(REAL_LIBCUDA, "CUDAW_REAL_LIBCUDA", A_TEXT, NO_WORDS, "found by search", NULL,                      \
	  READ_BY_BOTH, "The path of the NVIDIA driver's libcuda.so.1.")                                      \
	X(RUNTIME_DIR, "CUDAW_RUNTIME_DIR", A_TEXT, NO_WORDS, "/tmp/cudaw-UID", NULL,                         \
	  READ_BY_BOTH,                                                                                       \
	  "The directory of the control sockets, an absolute path. It belongs to the user and has "           \
	  "mode 0700.")                                                                                       \
	X(JOB, "CUDAW_JOB", A_TEXT, NO_WORDS, "made from the PID", NULL, SET_BY_RUN,                          \
	  "The job's id: six hexadecimal digits, the same in all its processes.")                             \
	X(NAME, "CUDAW_NAME", A_TEXT, NO_WORDS, "none", NULL, SET_BY_RUN,                                     \
	  "The job's name, as cudaw run --name sets it.")

#define SETTING_ID(id, ...) SETTING_##id,
enum setting_id { SETTINGS_MAP(SETTING_ID) SETTINGS };
#undef SETTING_ID

#define SETTING_WORDS 5 /* in words[], with the NULL at its end */
#define SETTING_WHY   512

#define SETTING_WEIGHT_MAX 100
#define SETTING_TIME_MAX   1000000
#define SETTING_MEMORY_MIN (2UL << 20) /* the least that a GPU maps */

struct setting {
	const char *name;
	enum setting_kind kind;
	const char *words[SETTING_WORDS];
	const char *preset;
	const char *instead;
	enum setting_reader reader;
	const char *text;
};

extern const struct setting settings[SETTINGS];

/* The value; NULL: not set, or empty. */
const char *setting_text(enum setting_id id);

/*
 * The word of an A_WORD: the value, or the word that is used instead of a value that cannot
 * be used. NULL: the preset.
 */
const char *setting_word(enum setting_id id);

/* Whether @word is in the value of an A_LIST. */
bool setting_lists(enum setting_id id, const char *word);

/* True if an A_WORD with "0" among its words has another one, or by default. */
bool setting_enabled(enum setting_id id);

/* The value of an A_SIZE or A_MEMORY in *@size, which stays as it is if the setting gives none. */
void setting_size(enum setting_id id, size_t *size);

/* The value of an A_SOCKET; NULL: off. */
const char *setting_socket(enum setting_id id);

/* The number of an A_WEIGHT. */
int setting_weight(enum setting_id id);

/* The seconds of an A_TIME, 0 for never. False: the setting gives none. */
bool setting_time(enum setting_id id, unsigned long *seconds);

/* The number of an A_SIGNAL; 0: no signal. */
int setting_signal(enum setting_id id);

/* Whether the setting has a value that can be used. */
bool setting_is_given(enum setting_id id);

/*
 * Whether @value is one of @setting's words, or a list of them, a size, a socket, a weight, a time or a signal, as its
 * kind says; other kinds take any. If not, @why, of SETTING_WHY bytes, says what was expected and what is used instead.
 */
bool setting_check(const struct setting *setting, const char *value, char *why);

#endif
