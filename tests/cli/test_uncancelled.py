#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No call into the injected libraries is a cancellation point, and no descriptor of theirs is one of the standard
streams: what they use of libc that could be either comes from common/system/uncancelled.c.
"""
import glob
import os
import subprocess

from clilib import BUILD, equal, main

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# The functions of glibc 2.34 and later that are cancellation points, and those of files that may read, write or
# open. Of pthreads(7)'s list those are left out which glibc never cancels.
POINTS = set("""
accept accept4 clock_nanosleep close connect copy_file_range creat creat64 epoll_pwait epoll_pwait2 epoll_wait
fallocate fallocate64 fcntl fcntl64 fdatasync fsync getpmsg getmsg getrandom lockf lockf64 mq_receive mq_send mq_timedreceive
mq_timedsend msgrcv msgsnd msync nanosleep open open64 openat openat64 open_by_handle_at pause poll ppoll pread pread64 preadv
preadv2 preadv64 preadv64v2 pselect pthread_clockjoin_np pthread_cond_clockwait pthread_cond_timedwait
pthread_cond_wait pthread_join pthread_testcancel pthread_timedjoin_np putmsg putpmsg pwrite pwrite64 pwritev pwritev2
pwritev64 pwritev64v2 read readv recv recvfrom recvmmsg recvmsg select sem_clockwait sem_timedwait sem_wait send
sendmmsg sendmsg sendto sigpause sigsuspend sigtimedwait sigwait sigwaitinfo sleep splice sync_file_range system
tcdrain tee usleep vmsplice wait wait3 wait4 waitid waitpid write writev
__open_2 __open64_2 __openat_2 __openat64_2 __poll_chk __ppoll_chk __pread_chk __pread64_chk __read_chk __recv_chk
__recvfrom_chk
dprintf fclose fflush fgetc fgets fgetwc fgetws fopen fopen64 fprintf fputc fputs fputwc fputws fread freopen
freopen64 fscanf __isoc99_fscanf __isoc23_fscanf fseek fseeko fseeko64 fsetpos fsetpos64 ftell ftello ftello64 fwrite
getc getchar getdelim __getdelim getline getw getwc gets mkostemp mkostemp64 mkstemp mkstemp64 mkostemps mkstemps
pclose perror popen printf psiginfo psignal putc putchar puts putw rewind scanf setvbuf tmpfile tmpfile64 vdprintf
vfprintf vfscanf vprintf vscanf _IO_getc _IO_putc
__dprintf_chk __fgets_chk __fprintf_chk __fread_chk __printf_chk __vdprintf_chk __vfprintf_chk __vprintf_chk
getaddrinfo gethostbyname getnameinfo getgrgid getgrgid_r getgrnam getgrnam_r getgrouplist getpwnam getpwnam_r
getpwuid getpwuid_r initgroups closelog openlog syslog vsyslog wordexp
""".split())


# Those that return descriptors, or files and directories that have one. Others, as glob(), read directories and close
# them before they return.
OPENERS = set("""
accept accept4 creat creat64 dup epoll_create epoll_create1 eventfd fanotify_init fopen fopen64 freopen freopen64
inotify_init inotify_init1 memfd_create memfd_secret mkostemp mkostemp64 mkstemp mkstemp64 mkostemps mkstemps mq_open
open open64 openat openat64 open_by_handle_at opendir open_tree fsopen fsmount perf_event_open pidfd_open pidfd_getfd
pipe pipe2 popen posix_openpt getpt openpty recvmmsg recvmsg shm_open signalfd socket socketpair
timerfd_create tmpfile tmpfile64 userfaultfd
""".split())


def libraries():
    return sorted(path for path in glob.glob(os.path.join(BUILD, "lib/cudaw-*/lib*.so.*"))
                  if not os.path.islink(path))


def used(library):
    """The names that it takes from others."""
    lines = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    return {line.split()[-1].split("@")[0] for line in lines}


def wrapped():
    """As the Makefile finds them."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    lines = subprocess.run(["make", "-pn", "-C", REPOSITORY], capture_output=True, text=True, env=env,
                           check=False).stdout.splitlines()
    return next(set(line.split()[2:]) for line in lines if line.startswith("UNCANCELLED := "))


def test_all_are_wrapped():
    names = wrapped()
    equal(len(libraries()), 4, "libraries")
    for library in libraries():
        equal(sorted(used(library) & (POINTS | OPENERS) - names), [], f"what {library} takes from libc")


if __name__ == "__main__":
    main()
