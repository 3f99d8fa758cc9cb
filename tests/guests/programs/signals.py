#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Python's signal and faulthandler modules, beside memory on the GPU."""
import ctypes
import faulthandler
import os
import signal
import sys
import tempfile
import threading
import time

from guest import Memory, point, say

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


def by_signal():
    """What was there, and that each one comes once."""
    for sig in SIGNALS:
        came = []
        before = signal.signal(sig, lambda number, _, came=came: came.append(number))
        say(sig.name, "was", getattr(before, "name", getattr(before, "__name__", before)))
        signal.raise_signal(sig)
        os.kill(os.getpid(), sig)
        signal.pthread_kill(threading.get_ident(), sig)
        say(came, signal.getsignal(sig) is not before)
        signal.siginterrupt(sig, False)
        signal.signal(sig, signal.SIG_IGN)
        signal.raise_signal(sig)
        signal.signal(sig, before)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    for sig in SIGNALS:
        os.kill(os.getpid(), sig)
        say(signal.sigpending() == {sig}, signal.sigtimedwait(SIGNALS, 60).si_signo)


def by_wakeup():
    """Each signal is one byte: none is added, and none lost."""
    there, here = os.pipe()
    os.set_blocking(here, False)
    memory = Memory(3)
    signal.set_wakeup_fd(here)
    for sig in SIGNALS:
        signal.signal(sig, lambda *_: None)
        os.kill(os.getpid(), sig)
        say(list(os.read(there, 100)))
    point()
    os.set_blocking(there, False)
    for sig in SIGNALS:
        os.kill(os.getpid(), sig)
        say(list(os.read(there, 100)))
    memory.check()


def dumps():
    """faulthandler's own handlers, chained to others'."""
    with tempfile.TemporaryFile() as file:
        signal.signal(signal.SIGUSR1, lambda *_: say("the one before"))
        faulthandler.register(signal.SIGUSR1, file=file, chain=True)
        faulthandler.register(signal.SIGUSR2, file=file)
        memory = Memory(4)
        for sig in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR2):
            os.kill(os.getpid(), sig)
        # It was to pause: that is not what this is about.
        file.seek(0)
        say(file.read().count(b"in dumps"), "dumps")
        faulthandler.unregister(signal.SIGUSR1)
        faulthandler.unregister(signal.SIGUSR2)
        memory.check()


def crash(how):
    faulthandler.enable(file=open(os.devnull, "w", encoding="ascii"))
    memory = Memory(4)
    memory.check()
    point()
    if how == "segv":
        ctypes.string_at(0)
    elif how == "abort":
        os.abort()
    else:
        signal.raise_signal(signal.SIGFPE)


def many():
    """Signals without end while a thread uses CUDA."""
    memory = Memory(6)
    came = [0]
    signal.signal(signal.SIGHUP, lambda *_: came.__setitem__(0, came[0] + 1))
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGHUP))
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    point()
    end = time.monotonic() + 60
    while came[0] < 20 and time.monotonic() < end:
        memory.call("cuCtxSynchronize")
    signal.setitimer(signal.ITIMER_REAL, 0)
    say(came[0] >= 20)
    memory.check()


WAYS = {"signal": by_signal, "wakeup": by_wakeup, "dumps": dumps, "many": many}

if __name__ == "__main__":
    if sys.argv[1] == "crash":
        crash(sys.argv[2])
    else:
        WAYS[sys.argv[1]]()
