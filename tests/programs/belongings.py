#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job of several processes with one of each kind that CRIU carries, which it makes first and looks at last.

It uses the GPU through ctypes, in steps, until it gets SIGINT. Then it says of each thing that is not as it was "lost:
NAME: why", and ends with "belongings: every one kept" if there is none. Its files are in TMPDIR.
"""
import argparse
import array
import ctypes
import fcntl
import mmap
import os
import select
import signal
import socket
import struct
import sys
import tempfile
import threading
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 1, 36, 37
IN_CREATE, F_OFD_SETLK, HOUR_S = 0x100, 37, 3600
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
QUEUED, ASKED = signal.SIGRTMIN + 5, signal.SIGRTMIN + 6
libc = ctypes.CDLL(None, use_errno=True)


def file(name):
    return os.path.join(tempfile.gettempdir(), f"belongings-{name}")


def same(found, expected):
    assert found == expected, f"{found!r}, expected {expected!r}"


def child(work):
    """The process that does this; it ends with its parent."""
    pid = os.fork()
    if pid == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os._exit(work() or 0)
    return pid


def stay():
    while True:
        signal.pause()


def datagrams():
    """Of a pair, and of a path; nobody has read them yet."""
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    bound, sender = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
    bound.bind(file("datagrams"))
    sender.connect(file("datagrams"))
    for each, text in (one, b"first"), (one, b"second"), (sender, b"third"):
        each.send(text)
    yield
    same([two.recv(9), two.recv(9), bound.recv(9)], [b"first", b"second", b"third"])
    sender.send(b"fourth")
    same(bound.recv(9), b"fourth")


def streams_that_nobody_has_accepted():
    """Of a path, and of an abstract name."""
    ends = []
    for name in file("stream"), f"\0{file('stream')}":
        listening, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        listening.bind(name)
        listening.listen()
        client.connect(name)
        ends.append((listening, client))
    yield
    for listening, client in ends:
        accepted = listening.accept()[0]
        client.send(b"sent")
        same(accepted.recv(9), b"sent")


def sockets_of_udp():
    one, two = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    for each in one, two:
        each.bind(("127.0.0.1", 0))
    one.connect(two.getsockname())
    yield
    one.send(b"sent")
    same(two.recvfrom(9), (b"sent", one.getsockname()))


def a_pipe_with_data():
    reads, writes = os.pipe()
    os.write(writes, b"piped")
    yield
    same(os.read(reads, 9), b"piped")


def memory_of_two(descriptor, closed):
    """The child adds to it when it is asked; @descriptor is closed before, if it is to be."""
    os.ftruncate(descriptor, mmap.PAGESIZE)
    memory = mmap.mmap(descriptor, mmap.PAGESIZE)
    memory[0] = 41
    if closed:
        os.close(descriptor)
    (asks, asked), (answers, answered) = os.pipe(), os.pipe()

    def add():
        os.read(asks, 1)
        memory[0] += 1
        os.write(answered, b"x")
    pid = child(add)
    yield
    os.write(asked, b"x")
    os.read(answers, 1)
    same(memory[0], 42)
    os.waitpid(pid, 0)


def a_memory_file_of_two():
    yield from memory_of_two(os.memfd_create("belongings"), closed=True)


def unlinked():
    descriptor, path = tempfile.mkstemp(dir="/dev/shm")
    os.unlink(path)
    return descriptor


def an_unlinked_file_of_two():
    yield from memory_of_two(unlinked(), closed=True)


def an_unlinked_file_of_two_that_is_open():
    yield from memory_of_two(unlinked(), closed=False)


def a_sealed_memory_file():
    descriptor = os.memfd_create("belongings", os.MFD_ALLOW_SEALING)
    os.write(descriptor, b"sealed")
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    yield
    same((os.pread(descriptor, 9, 0), fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)), (b"sealed", SEALS))


def a_closed_number_in_epoll():
    """What it was of is open by another number."""
    epoll, (reads, writes) = select.epoll(), os.pipe()
    number = os.dup(reads)
    epoll.register(number, select.EPOLLIN)
    os.close(number)
    yield
    os.write(writes, b"x")
    same(epoll.poll(HOUR_S), [(number, select.EPOLLIN)])


def signals_in_a_signalfd():
    signal.pthread_sigmask(signal.SIG_BLOCK, [QUEUED])
    number = libc.signalfd(-1, struct.pack("Q", 1 << (QUEUED - 1)), 0)
    for _ in range(2):
        os.kill(os.getpid(), QUEUED)
    yield
    same([struct.unpack_from("I", os.read(number, 128))[0] for _ in range(2)], [QUEUED, QUEUED])


def a_watch_of_inotify():
    where = tempfile.mkdtemp()
    number = libc.inotify_init1(0)
    watch = libc.inotify_add_watch(number, os.fsencode(where), IN_CREATE)
    yield
    os.mkdir(os.path.join(where, "made"))
    event = os.read(number, 256)
    same((struct.unpack_from("i", event)[0], event[16:].rstrip(b"\0")), (watch, b"made"))


def a_pidfd_of_a_member():
    pid = child(stay)
    number = os.pidfd_open(pid)
    yield
    signal.pidfd_send_signal(number, signal.SIGKILL)
    same(select.select([number], [], [], HOUR_S)[0], [number])
    os.waitpid(pid, 0)


def timers():
    """Of an hour, once and periodic."""
    numbers = [libc.timerfd_create(time.CLOCK_MONOTONIC, 0) for _ in range(2)]
    for number, period_s in zip(numbers, (0, HOUR_S)):
        libc.timerfd_settime(number, 0, struct.pack("4q", period_s, 0, HOUR_S, 0), None)
    yield
    for number, period_s in zip(numbers, (0, HOUR_S)):
        now = array.array("q", [0] * 4)
        libc.timerfd_gettime(number, ctypes.c_void_p(now.buffer_info()[0]))
        same((now[0], 0 < now[2] < HOUR_S), (period_s, True))


def locks_of_open_files():
    """flock(2), and those of open file descriptions (fcntl_locking(2))."""
    whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    mine, others = ([open(file(name), "w", encoding="ascii") for name in ("flock", "ofd")] for _ in range(2))

    def lock(files):
        for works in (lambda: fcntl.flock(files[0], fcntl.LOCK_EX | fcntl.LOCK_NB),
                      lambda: fcntl.fcntl(files[1], F_OFD_SETLK, whole)):
            try:
                works()
                yield True
            except BlockingIOError:
                yield False
    same(list(lock(mine)), [True, True])
    yield
    same(list(lock(others)), [False, False])
    for each in mine:
        each.close()
    same(list(lock(others)), [True, True])


def one_that_has_ended():
    pid = child(lambda: 7)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    yield
    same(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 7)


def a_thread_that_waits():
    lock, done = threading.Lock(), threading.Event()
    lock.acquire()

    def wait():
        with lock:
            done.set()
    threading.Thread(target=wait, daemon=True).start()
    yield
    lock.release()
    assert done.wait(HOUR_S)


def ids(pid):
    """Of its parent, process group and session."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        return [int(one) for one in stat.read().rpartition(")")[2].split()[1:4]]


def lead(writes):
    """
    A session, with one more process that has come to this one when its parent ended (subreaper), in a process group
    whose first process has ended. Returns whether this is still so for others to come.
    """
    leader = os.setsid() or os.getpid()
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)

    def start_another():
        os.setpgid(0, 0)
        if os.fork():
            return
        while os.getppid() != leader:
            time.sleep(0.01)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.write(writes, b"%d\n" % os.getpid())
        stay()
    os.waitpid(child(start_another), 0)
    signal.sigwait([ASKED])
    kept = ctypes.c_int()
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(kept))
    return kept.value


def sessions_and_groups():
    reads, writes = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, [ASKED])
    leader = child(lambda: lead(writes))
    other = int(os.read(reads, 20))
    group = os.getpgid(other)
    assert group not in (os.getpgid(0), leader, other)
    before = [os.getpid(), leader, leader], [leader, group, leader]
    same((ids(leader), ids(other)), before)
    yield
    same((ids(leader), ids(other)), before)
    os.kill(leader, ASKED)
    same(os.waitstatus_to_exitcode(os.waitpid(leader, 0)[1]), 1)


# Signals are blocked before there are threads, and no later child has a locked file open, too.
THINGS = (signals_in_a_signalfd, sessions_and_groups, datagrams, streams_that_nobody_has_accepted, sockets_of_udp,
          a_pipe_with_data, a_memory_file_of_two, an_unlinked_file_of_two, an_unlinked_file_of_two_that_is_open,
          a_sealed_memory_file, a_closed_number_in_epoll, a_watch_of_inotify, a_pidfd_of_a_member, timers,
          one_that_has_ended, a_thread_that_waits, locks_of_open_files)


def call(result):
    if result:
        raise SystemExit(f"belongings: CUDA error {result}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--step-ms", type=float, default=10)
    args = parser.parse_args()
    ended, lost = [], 0
    signal.signal(signal.SIGINT, lambda *_: ended.append(True))
    things = [(thing.__name__.replace("_", " "), thing()) for thing in THINGS]
    for _, thing in things:
        next(thing)
    cuda, primary, data, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint32()
    call(cuda.cuInit(0))
    call(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(primary), 0))
    call(cuda.cuCtxSetCurrent(primary))
    call(cuda.cuMemAlloc_v2(ctypes.byref(data), ctypes.c_size_t(4)))
    step = 0
    call(cuda.cuMemsetD32_v2(data, ctypes.c_uint32(step), ctypes.c_size_t(1)))
    while not ended:
        call(cuda.cuMemcpyDtoH_v2(ctypes.byref(found), data, ctypes.c_size_t(4)))
        same(found.value, step)
        step += 1
        call(cuda.cuMemsetD32_v2(data, ctypes.c_uint32(step), ctypes.c_size_t(1)))
        print("step", step, flush=True)
        time.sleep(args.step_ms / 1000)
    for name, thing in things:
        try:
            next(thing, None)
        except (AssertionError, OSError) as error:
            lost += 1
            print(f"lost: {name}: {error!r}", flush=True)
    print(f"belongings: {'some are lost' if lost else 'every one kept'}")
    sys.exit(lost > 0)


if __name__ == "__main__":
    main()
