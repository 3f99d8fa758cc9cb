#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that cudawd's settings name, run for events: what they get and what they do not, and programs that hang,
flood, die or cannot be run.
"""
import contextlib
import json
import os
import signal
import subprocess
import time

from clilib import Directory, contains, cudaw, ends_with_us, equal, main, scratch
from harness import Skip, check, until
from proclib import descendants, descriptors, is_zombie, send
from memberlib import CUDAWD, Daemon, Member

NOBODY = 65534
SAYS = """#!/bin/sh
ls -l /proc/$$/fd > "$OUT.files"
{ echo "$1"; id -u; id -g; id -G; pwd; umask; cut -d' ' -f5,6 /proc/$$/stat; echo $$
  sed -n 's/.* \\([0-9]* -> .*\\)/\\1/p' "$OUT.files"
  grep Sig /proc/self/status; } > "$OUT.part" 2>&1
"""


class Hooks:
    """A runtime directory with a journal, a directory of programs, and a daemon with these settings."""

    def __init__(self, programs, *lines, user=True):
        self.directory = Directory()
        self.home = scratch(0o777)
        os.chmod(self.home, 0o777)
        self.conf = os.path.join(self.home, "cudaw.conf")
        self.journal = os.path.join(self.directory.path, "events")
        self.out = os.path.join(self.home, "out")
        self.paths = {}
        for event, text in programs.items():
            self.paths[event] = path = os.path.join(self.home, event)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace("$OUT", self.out))
            os.chmod(path, 0o755)
        if user and os.geteuid() == 0:
            lines = ("user = nobody", *lines)
        self.write(*lines)
        self.daemon = Daemon(self.directory, "--conf", self.conf)
        until(lambda: self.child() is not None, 10, "the process that runs them is there")

    def write(self, *lines):
        with open(self.conf, "w", encoding="utf-8") as file:
            file.write("\n".join(["[hooks]", *lines, *(f"on_{event} = {path}" for event, path in self.paths.items())]))

    def child(self):
        """The daemon's child that watches the journal, once it does."""
        for pid in descendants(self.daemon.process.pid):
            try:
                for fd in os.listdir(f"/proc/{pid}/fdinfo"):
                    with open(f"/proc/{pid}/fdinfo/{fd}", encoding="ascii") as file:
                        if "inotify wd:" in file.read():
                            return pid
            except OSError:
                pass
        return None

    def happens(self, event="freed", times=1, **more):
        line = json.dumps({"unix_ms": 1700000000123, "event": event, "pid": 77, "id": "abc123", "name": "train",
                           "text": None, **more})
        with open(self.journal, "a", encoding="ascii") as file:
            file.write((line + "\n") * times)
        os.chmod(self.journal, 0o600)

    def said(self, path=None):
        path = path or self.out
        until(lambda: os.path.exists(path), 20, f"a program has written {path}")
        with open(path, "rb") as file:
            return file.read()

    def log(self):
        """What the daemon has said up to its end."""
        self.daemon.process.terminate()
        return self.daemon.wait_end()[1]


PUBLISH = 'mv "$OUT.part" "$OUT"\n'


def environment_of(data):
    return dict(entry.split(b"=", 1) for entry in data.split(b"\0") if entry)


def watches_users(pid):
    return any("inotify" in link for child in descendants(pid) for link in descriptors(child).values())


def dump(tail=""):
    return '#!/bin/sh\ncat /proc/$$/environ > "$OUT.part"\n' + PUBLISH + tail


def test_what_it_gets():
    hooks = Hooks({"freed": dump(), "joined": dump()})
    hooks.happens(bytes=5, by={"uid": 12, "pid": 34, "command": "cudaw pause train"})
    found = environment_of(hooks.said())
    equal({key: value for key, value in found.items() if key != b"PATH"},
          {b"CUDAW_EVENT": b"freed", b"CUDAW_EVENT_UNIX_MS": b"1700000000123", b"CUDAW_EVENT_PID": b"77",
           b"CUDAW_EVENT_UID": str(os.getuid()).encode(), b"CUDAW_EVENT_ID": b"abc123", b"CUDAW_EVENT_NAME": b"train",
           b"CUDAW_EVENT_TEXT": b"", b"CUDAW_EVENT_OPERATION": b"", b"CUDAW_EVENT_BYTES": b"5",
           b"CUDAW_EVENT_BY_UID": b"12", b"CUDAW_EVENT_BY_PID": b"34",
           b"CUDAW_EVENT_BY_COMMAND": b"cudaw pause train"}, "the environment, whole")
    os.remove(hooks.out)
    Member(hooks.daemon).wait("welcome")    # an event of the daemon's own
    found = environment_of(hooks.said())
    equal([found[key] for key in (b"CUDAW_EVENT", b"CUDAW_EVENT_NAME", b"CUDAW_EVENT_TEXT")],
          [b"joined", b"job", b"./job --size"], "an event of the daemon's")
    check(b"CUDAW_EVENT_BY_UID" not in found, "nobody asked for that")
    equal(hooks.log(), "", "what the daemon says")


def test_words_of_users():
    """They reach the program as they are, and no shell reads them."""
    name = "a'b\"c\nCUDAW_EVENT=joined $(touch /tmp/x) `id` \\ ; rm -rf / \u00e9"
    hooks = Hooks({"saved": dump()})
    written = name.encode().decode("latin-1")   # a journal has a character for each byte
    hooks.happens("saved", id="-h", name=written, text=written)
    found = environment_of(hooks.said())
    equal(found[b"CUDAW_EVENT_ID"], b"", "an id that is none")
    equal((found[b"CUDAW_EVENT_NAME"], found[b"CUDAW_EVENT_TEXT"]), (name.encode(), name.encode()), "the words")
    equal(found[b"CUDAW_EVENT"], b"saved", "the event")


def test_what_it_has_not():
    """No descriptor, session, directory, user or signal of the daemon's."""
    hooks = Hooks({"freed": SAYS + PUBLISH})
    hooks.happens()
    event, uid, gid, groups, cwd, umask, group, pid, *rest = hooks.said().decode().splitlines()
    wanted = NOBODY if os.geteuid() == 0 else os.getuid()
    equal((event, uid, cwd, umask), ("freed", str(wanted), "/", "0022"), "what it is")
    equal(group, f"{pid} {pid}", "its process group and session")
    if os.geteuid() == 0:
        equal((gid, groups), (str(NOBODY), str(NOBODY)), "its groups")
    files = {line.split(" -> ")[0]: line.split(" -> ")[1] for line in rest if " -> " in line}
    # The shell has its script, and copies of the first three.
    others = {number: link for number, link in files.items() if link != "/dev/null" and hooks.home not in link}
    equal((files["0"], others), ("/dev/null", {}), "its descriptors")
    equal([line.split()[1] for line in rest if line.startswith("SigBlk")], ["0" * 16], "blocked signals")
    ignored, = (int(line.split()[1], 16) for line in rest if line.startswith("SigIgn"))
    equal(ignored & (1 << 31) - 1, 0, "ignored signals, but those of libc's own")


def test_one_that_hangs():
    """It is killed with what it has started, and the daemon answers meanwhile."""
    hooks = Hooks({"freed": '#!/bin/sh\ntrap "" TERM INT HUP\nsleep 1000 &\necho $! > "$OUT.part"\n' + PUBLISH
                   + "sleep 1000\n", "saved": dump()}, "timeout = 0.7")
    hooks.happens()
    below = int(hooks.said())
    os.remove(hooks.out)
    equal(cudaw("turns").code, 0, "the daemon answers")
    hooks.happens("saved")
    hooks.said()    # others run beside it
    until(lambda: not os.path.exists(f"/proc/{below}") or is_zombie(below), 20, "what it has started is gone")
    until(lambda: len(descendants(hooks.child())) == 0, 20, "it is gone")
    contains(hooks.log(), f"on_freed: {hooks.paths['freed']}: it has not ended in 0.7 s, and was killed")


def test_one_that_leaves_something():
    hooks = Hooks({"freed": '#!/bin/sh\nsleep 1000 &\necho $! > "$OUT.part"\n' + PUBLISH})
    hooks.happens()
    below = int(hooks.said())
    until(lambda: not os.path.exists(f"/proc/{below}") or is_zombie(below), 20, "what it has started is gone")
    equal(hooks.log(), "", "what the daemon says")


def test_a_flood_of_output():
    hooks = Hooks({"freed": '#!/bin/sh\nhead -c 50000000 /dev/zero\nhead -c 50000000 /dev/zero >&2\n: > "$OUT.part"\n'
                   + PUBLISH})
    hooks.happens()
    hooks.said()
    equal(hooks.log(), "", "what the daemon says")


def sleeps(pid):
    """It has said before that it has begun."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="ascii") as file:
        return file.read() == "sleep\n"


def test_a_flood_of_events():
    """Eight run at once, and of one user's no more than 64 wait; the daemon and later events live on."""
    hooks = Hooks({"freed": '#!/bin/sh\n: > "$OUT.$$"\nexec sleep 1000\n', "saved": dump()}, "timeout = 1000")
    hooks.happens(times=500)
    contains(hooks.daemon.says(), "too many events wait, the one of process 77 of user")

    def all_ended():
        running = descendants(hooks.child())
        for pid in filter(sleeps, running):
            send(pid, "KILL")
        return not running

    def begun():
        return sum(name.startswith("out.") for name in os.listdir(hooks.home))

    until(lambda: begun() >= 8, 20, "eight have begun")
    equal((begun(), len(descendants(hooks.child()))), (8, 8), "so many at a time")
    equal(cudaw("turns").code, 0, "the daemon answers")
    until(all_ended, 30, "all are gone")
    hooks.happens("saved")
    hooks.said()
    check(64 <= begun() <= 72, f"{begun()} ran")


def test_ones_that_fail():
    for text, mode, why in (("#!/bin/sh\nexit 3\n", 0o755, "ended with status 3"),
                            ("#!/bin/sh\nkill -SEGV $$\n", 0o755, "ended by signal 11"),
                            ("no program\n", 0o644, "it cannot be run: Permission denied"),
                            ("#!/no/such/interpreter\n", 0o755, "it cannot be run: No such file or directory")):
        hooks = Hooks({"freed": text})
        os.chmod(hooks.paths["freed"], mode)
        hooks.happens()
        contains(hooks.daemon.says(), f"on_freed: {hooks.paths['freed']}: {why}")


def test_rubbish_in_the_journal():
    hooks = Hooks({"freed": dump()})
    with open(hooks.journal, "wb") as file:
        file.write(b"\xff\n{}\n[[[[\n" + b"x" * 100000 + b'\n{"event": "freed", "name": "\\u0000"}\n')
    os.chmod(hooks.journal, 0o600)
    hooks.happens(name="x" * 5000, text=7)
    found = environment_of(hooks.said())
    equal((len(found[b"CUDAW_EVENT_NAME"]), found[b"CUDAW_EVENT_TEXT"]), (255, b""), "what is cut, and what is no text")


def test_their_process_is_killed():
    hooks = Hooks({"freed": dump()})
    before = hooks.child()
    os.kill(before, signal.SIGKILL)
    until(lambda: hooks.child() not in (None, before), 20, "there is another one")
    hooks.happens()
    hooks.said()
    contains(hooks.log(), "hooks: their process has ended; another one is started")


def test_their_process_hangs():
    """As on a directory of a user's that does not answer: the daemon goes on, and says that events are lost."""
    hooks = Hooks({"set": '#!/bin/sh\n: > "$OUT"\n'})
    child = hooks.child()
    os.kill(child, signal.SIGSTOP)
    for _ in range(600):
        equal(hooks.daemon.ask("set idle=1")[-1], "end ok", "the daemon answers")
    contains(hooks.daemon.says(), "hooks: events are lost (")
    equal(hooks.child(), child, "no other one is started")
    os.kill(child, signal.SIGCONT)
    hooks.said()
    os.kill(child, signal.SIGSTOP)
    for _ in range(600):
        hooks.daemon.ask("set idle=1")
    next(line for line in hooks.daemon.process.stderr if "hooks: events are lost (" in line)     # it says so again
    os.kill(child, signal.SIGCONT)


def test_other_settings():
    hooks = Hooks({"freed": dump(), "set": '#!/bin/sh\n: > "$OUT.set"\n'})
    before = hooks.child()
    hooks.daemon.process.send_signal(signal.SIGHUP)
    hooks.said(hooks.out + ".set")
    equal(hooks.child(), before, "the same settings leave it")
    hooks.paths = {"saved": hooks.paths["freed"]}
    hooks.write(*(["user = nobody"] if os.geteuid() == 0 else []))
    hooks.daemon.process.send_signal(signal.SIGHUP)
    until(lambda: hooks.child() not in (None, before), 20, "another one has them")
    until(lambda: not os.path.exists(f"/proc/{before}") or is_zombie(before), 20, "the first one has ended")
    hooks.happens("freed")
    hooks.happens("saved")
    equal(environment_of(hooks.said())[b"CUDAW_EVENT"], b"saved", "the event")


def test_as_whom():
    for lines, why in ((["user = nosuchuser"], "user: expected a user of this machine, found 'nosuchuser'"),
                       ([], "expected user = NAME, as whom programs run") if os.geteuid() == 0 else
                       (["user = root"], "expected the daemon's own")):
        directory = Directory()
        path = os.path.join(scratch(), "cudaw.conf")
        with open(path, "w", encoding="ascii") as file:
            file.write("\n".join(["[hooks]", *lines, "on_freed = /bin/true"]))
        daemon = Daemon(directory, "--conf", path)
        code, said = daemon.wait_end()
        equal(code, 1, "the daemon's exit code")
        contains(said, why)


def test_of_all_users():
    """Root's daemon sees the journals of all users, also of those who come later; whose they are, it knows itself."""
    if os.geteuid() != 0:
        raise Skip("needs root")
    hooks = Hooks({"freed": dump()})
    inside = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /tmp && exec "$@"', "sh"]
    if subprocess.run([*inside, "true"], check=False, capture_output=True).returncode:
        raise Skip("nothing can be mounted here")
    env = {key: value for key, value in os.environ.items() if key != "CUDAW_RUNTIME_DIR"}
    daemon = ends_with_us(subprocess.Popen([*inside, CUDAWD, "--socket", os.path.join(hooks.home, "socket"), "--conf",
                                            hooks.conf], env=env, stderr=subprocess.DEVNULL))
    hooks.daemon.process = daemon
    until(lambda: hooks.child() is not None or watches_users(daemon.pid), 20, "it watches")
    there = f"/proc/{daemon.pid}/root/tmp/cudaw-{NOBODY}"
    os.mkdir(there, 0o700)
    time.sleep(0.2)     # it is looked at, and is nobody's yet
    os.chown(there, NOBODY, -1)
    hooks.journal = os.path.join(there, "events")
    with open(hooks.journal, "w", encoding="ascii"):
        os.chown(hooks.journal, NOBODY, -1)
    hooks.happens(uid=0)
    equal(environment_of(hooks.said())[b"CUDAW_EVENT_UID"], str(NOBODY).encode(), "the user")


if __name__ == "__main__":
    main()
