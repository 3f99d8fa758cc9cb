# SPDX-License-Identifier: Apache-2.0
"""What /proc and gdb tell of processes."""
import contextlib
import os
import re
import shutil
import signal
import subprocess


def descendants(pid):
    """The processes that it has started, and those that they have."""
    found = []
    for thread in threads_of(pid):
        with contextlib.suppress(OSError), open(f"/proc/{thread}/children", encoding="ascii") as file:
            for child in map(int, file.read().split()):
                found += [child, *descendants(child)]
    return found


def threads_of(pid):
    """What /proc has of its threads; each may end before it is looked at. None of a process that has ended."""
    with contextlib.suppress(OSError):
        return [f"{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]
    return []


def descriptors(pid):
    """What is open in the process, by number. One that is closed meanwhile is left out."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
    return found


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def with_environment(line):
    """The processes that live and were started with this NAME=VALUE in their environment, or forked by such a
    one: also those whose parent has ended."""
    found = []
    for pid in all_pids():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if line.encode() in file.read().split(b"\0"):
                found.append(pid)
    return found


def with_command(pattern):
    """The processes whose command line, with a space between its words, has this pattern."""
    found = []
    for pid in all_pids():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if re.search(pattern, os.fsdecode(file.read().replace(b"\0", b" "))):
                found.append(pid)
    return found


def family(leader):
    """The processes of a session that run, and all that descend from them; the oldest come first."""
    found = set()
    for pid in all_pids():
        with contextlib.suppress(OSError):
            if int(fields(pid)[3]) == leader:
                found.update((pid, *descendants(pid)))
    return sorted(pid for pid in found if not is_zombie(pid))


def send(pid, name):
    """A signal by its name without SIG; to nobody if the process has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, getattr(signal, f"SIG{name}"))


def fields(pid):
    """Of /proc/PID/stat, behind the name: the state, the parent, the group, the session and more."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def state(pid):
    """The letter that /proc has; X: there is no such process."""
    try:
        return fields(pid)[0]
    except OSError:
        return "X"


def is_zombie(pid):
    return state(pid) in "ZX"


def text_of(*command, limit=60):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False,
                              stdin=subprocess.DEVNULL, errors="replace").stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{error}\n"


def stacks(pid):
    with_gdb = shutil.which("gdb") and text_of("gdb", "-p", str(pid), "-batch", "-nx", "-ex",
                                               "thread apply all backtrace 20")
    return f"-- {pid}\n" + (with_gdb or text_of("head", "-n", "7", f"/proc/{pid}/status"))
