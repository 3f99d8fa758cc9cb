#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What packages bring for cudawd: systemd's units and the example of cudaw.conf (packages/)."""
import configparser
import glob
import json
import os
import pwd
import re
import shutil
import signal
import subprocess

from clilib import CUDAW, Directory, FakeJob, LIMIT_S, Skip, contains, cudaw, equal, main, scratch
from harness import until
from json_docs import blocks
from memberlib import (CUDAWD, NOBODY, Member, connect, connected_by_another, daemon_of_systemd, nvml_environment,
                       say_memory)

TREE = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
UNITS = f"{TREE}/packages/systemd"
CAPABILITIES = "CAP_KILL CAP_DAC_READ_SEARCH CAP_SETUID CAP_SETGID"


def read(path):
    with open(os.path.join(TREE, path), encoding="utf-8") as file:
        return file.read()


def unit(name):
    parsed = configparser.RawConfigParser(strict=True)
    parsed.optionxform = str
    parsed.read_string(read(f"{UNITS}/{name}"))
    return parsed


def test_sockets_are_where_jobs_look():
    header = read("common/protocol/daemon.h")
    name, directory = (re.search(rf'#define {key} +"(.*)"', header)[1] for key in ("DAEMON_NAME", "DAEMON_NODE_DIR"))
    system, user = unit("system/cudawd.socket")["Socket"], unit("user/cudawd.socket")["Socket"]
    equal(dict(system), {"ListenStream": f"{directory}/{name}", "SocketMode": "0666", "DirectoryMode": "0755"})
    contains(read("common/protocol/rundir.h"), "or /tmp/cudaw-UID	mode 0700, owned by the user")
    equal(dict(user), {"ListenStream": f"/tmp/cudaw-%U/{name}", "SocketMode": "0600", "DirectoryMode": "0700"})


def test_hooks_run_without_jobs_that_take_turns():
    """The daemon can begin at boot; and a package that is removed disables all that could be enabled."""
    equal([dict(unit(f"{kind}/cudawd.service")["Install"]) for kind in ("system", "user")],
          [{"WantedBy": "multi-user.target"}, {"WantedBy": "default.target"}])
    contains(read("docs/watching.md"), "systemctl enable --now cudawd.socket cudawd.service")
    for path in "packages/debian/cudaw.prerm", "packages/rpm/cudaw.spec.in":
        disabled, = re.findall("^.*systemctl --no-reload disable .*$", read(path), re.M)
        equal(set(re.findall(r"cudawd\.\w+", disabled)), set(os.listdir(f"{UNITS}/system")), path)


def test_systemd_takes_the_units():
    if not shutil.which("systemd-analyze"):
        raise Skip("no systemd-analyze here")
    for kind in ("system", "user"):
        here = scratch()
        for path in glob.glob(f"{UNITS}/{kind}/*"):
            with open(f"{here}/{os.path.basename(path)}", "w", encoding="utf-8") as file:
                file.write(read(path).replace("ExecStart=@PREFIX@/bin/cudawd", f"ExecStart={CUDAWD}"))
        done = subprocess.run(["systemd-analyze", f"--{kind}", "--man=no", "verify", *glob.glob(f"{here}/*")],
                              text=True, capture_output=True, check=False, timeout=LIMIT_S,
                              env={**os.environ, "XDG_RUNTIME_DIR": here})
        equal((done.returncode, done.stderr), (0, ""), kind)


def confined(capabilities):
    """What starts a program with no more rights than these."""
    kept = capabilities.lower().replace("cap_", "+").replace(" ", ",")
    return ("setpriv", f"--bounding-set=-all,{kept}", "--inh-caps=-all", "--no-new-privs",
            "sh", "-c", 'umask 0077; exec "$@"', "sh")


def test_the_machines_daemon_works_without_rights():
    """As its unit says, which leaves root few capabilities."""
    if os.geteuid():
        raise Skip("needs root")
    service = unit("system/cudawd.service")["Service"]
    equal([service[key] for key in ("CapabilityBoundingSet", "NoNewPrivileges", "UMask")],
          [CAPABILITIES, "yes", "0077"])
    directory = Directory(0o755)
    path, memory = f"{directory.path}/cudawd.sock", f"{directory.path}/memory"
    say_memory(memory, 0)
    os.environ.update(nvml_environment(memory), CUDAW_TURNS=path)
    try:
        with (daemon_of_systemd(path, *confined(CAPABILITIES), mode=0o666) as pid,
              connected_by_another(path) as (connection, other)):
            member = Member(None, name="train", connection=connection)
            member.wait("welcome")
            contains(until(lambda: read(f"/proc/{pid}/status"), 10, "it runs"), "CapEff:\t00000000000000e4\n")
            found = json.loads(cudaw("turns", "--json").out)
            equal((found["pid"], [(row["pid"], row["name"]) for row in found["members"]]), (pid, [(other, "train")]))
            member.grow(1 << 20)
            member.wait("try")      # NVML knows the GPU
            os.kill(pid, signal.SIGHUP)
            contains(answers(path).decode(), f"daemon {pid} ")
    finally:
        del os.environ["CUDAW_TURNS"], os.environ["LD_LIBRARY_PATH"], os.environ["TEST_NVML_FILE"]


def test_a_hook_of_the_machines_daemon_waits_for_jobs():
    """It has the daemon's rights. Without the right to be the job's user it does not say that the job has ended."""
    if os.geteuid():
        raise Skip("needs root")
    directory = Directory()
    os.chown(directory.path, NOBODY, NOBODY)
    FakeJob(directory, user=NOBODY, name="train")
    wait = (CUDAW, "wait", "--for", "freed", "--timeout", "0.1", "train")
    for capabilities, code, said in ((CAPABILITIES, 5, "cudaw: wait train: the time is over\n"),
                                     ("CAP_DAC_READ_SEARCH", 4, "this command may not connect to it")):
        done = subprocess.run([*confined(capabilities), *wait], text=True, capture_output=True, check=False,
                              timeout=LIMIT_S)
        equal(done.returncode, code, done.stderr)
        contains(done.stderr, said)


def answers(path):
    try:
        with connect(path) as asks:
            asks.sendall(b"list\n")
            return asks.recv(100)
    except OSError:
        return b""


def taken(text):
    """What cudawd says of such a file."""
    directory = Directory()
    with open(f"{directory.path}/conf", "w", encoding="utf-8") as file:
        file.write(text)
    daemon = subprocess.Popen([CUDAWD, "--conf", f"{directory.path}/conf"], stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: answers(f"{directory.path}/cudawd.sock") or daemon.poll() is not None, 5, "it serves, or ends")
    finally:
        daemon.terminate()
        error = daemon.communicate(timeout=LIMIT_S)[1]
    return daemon.returncode, error


def with_users(example):
    """With users and groups that exist."""
    example = example.replace("user anna", "user root").replace("@students", "@daemon")
    return re.sub(r"^user = \w+$", f"user = {pwd.getpwuid(os.geteuid()).pw_name}", example, flags=re.M)


def test_the_examples_on_pages():
    """What they show of cudaw.conf, cudawd takes."""
    found = [text for path in sorted(glob.glob(f"{TREE}/docs/*.md")) for text in blocks(os.path.relpath(path, TREE))
             if re.match(r"\[(turns|hooks|user|group|gpu)\b", text.lstrip())]
    assert len(found) > 4, found
    for text in found:
        equal(taken(with_users(text)), (0, ""), text)


def test_the_example_of_cudaw_conf():
    example = read("packages/cudaw.conf")
    used = with_users(re.sub(r"^#(?=\[|[a-z_-]+ = )", "", example, flags=re.M))
    keys = set(re.findall(r'^\s*X\(\w+, "([a-z-]+)"', read("tools/daemon/conf.h"), re.M))
    assert len(keys) > 5, keys
    equal(keys - set(re.findall(r"^([a-z-]+) = ", used, re.M)), set(), "the keys that it lacks")
    equal((taken(example), taken(used)), ((0, ""), (0, "")))
    contains(taken(used.replace("quantum = 30", "quantum = soon"))[1], "quantum")
    equal([line for line in example.splitlines() if line and not line.startswith("#")], [])


if __name__ == "__main__":
    main()
