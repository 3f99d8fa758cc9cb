#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/kubernetes.md for container engines, with Podman: a container whose /usr is the machine's runs
under cudaw by the CDI file, and is paused from outside.
"""
import contextlib
import glob
import json
import os
import re
import shutil
import subprocess

from clilib import BUILD, LIMIT_S, Skip, cudaw, equal, installed_copy, main, scratch
from harness import contains, ends_with_us, until
from json_docs import block

PAGE = "docs/kubernetes.md"
# Of a machine whose root may raise no limits, with the control groups of either version.
OPTIONS = "--runtime runc --cgroup-manager cgroupfs --root {0}/images --runroot {0}/run"
RUN = "--network none --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 --volume /usr:/usr:ro --volume {1}:{1}:ro " \
      "--env CUDAW_REAL_LIBCUDA={1}/tests/sim/libcuda.so.1 --name {2} --cgroup-parent {2}"


def make_root(home):
    """What is not in /usr; returns its path."""
    root = os.path.join(home, "root")
    for name in ("dev", "etc", "proc", "run", "sys", "tmp", "usr"):
        os.makedirs(os.path.join(root, name))
    for name in ("bin", "lib", "lib64"):
        os.symlink(f"usr/{name}", os.path.join(root, name))
    return root


class Engine:
    """Podman in a mount namespace of its own, whose /etc may be changed."""

    def __init__(self):
        if os.geteuid():
            raise Skip("needs root")
        if os.environ.get("SANITIZE"):
            raise Skip("the engine cannot start what is built so")
        for program in ("podman", "runc", "unshare"):
            if not shutil.which(program):
                raise Skip(f"no {program} here")
        self.home = scratch()
        self.name = f"cudaw-{os.getpid()}"
        self.options = OPTIONS.format(self.home)
        self.root = make_root(self.home)
        command = installed_copy(self.home + "/opt")
        self.env = {**os.environ, "PATH": f"{os.path.dirname(command)}:{os.environ['PATH']}"}
        self.env.pop("CUDAW_RUNTIME_DIR", None)
        self.inside = self.start("mkdir etc work && mount -t overlay -o "
                                 "lowerdir=/etc,upperdir=etc,workdir=work overlay /etc && echo ready && exec sleep inf",
                                 "unshare", "--mount")
        if self.inside.stdout.readline() != "ready\n":
            raise Skip("no overlay can be mounted here")

    def start(self, text, *under):
        return ends_with_us(subprocess.Popen([*under, "sh", "-ec", text], env=self.env, cwd=self.home, text=True,
                                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE))

    def shell(self, text):
        return self.start(text, "nsenter", "--mount", "--wd=" + self.home, "--target", str(self.inside.pid))

    def ok(self, text):
        process = self.shell(text)
        said = process.communicate(timeout=LIMIT_S)[0]
        equal(process.returncode, 0, f"the exit code of {text}")
        return said

    def groups_are_gone(self):
        """Those that the engine leaves are removed, when their last process has ended."""
        found = glob.glob(f"/sys/fs/cgroup/**/{self.name}/**/", recursive=True)
        for path in sorted(found, key=len, reverse=True):
            with contextlib.suppress(OSError):
                os.rmdir(path)
        return not found

    @contextlib.contextmanager
    def removes_container(self):
        """Also after a failure, as nothing else ends what runs in it."""
        try:
            yield
        finally:
            self.ok(f"podman {self.options} rm --force --ignore --time 0 {self.name}")

    def podman(self, text):
        """That line, here: without the GPUs of NVIDIA, and with the simulated one."""
        text = re.sub("--device nvidia.com/gpu=all ", "", text)
        return text.replace("podman run", f"podman {self.options} run "
                                          f"{RUN.format(self.home, BUILD, self.name)}")


def state(pid):
    return json.loads(cudaw("ps", "--json", str(pid), env={"CUDAW_RUNTIME_DIR": None}).out)[0]["state"]


def pause_and_resume(engine, line):
    """A container that this line of the page starts."""
    program = f"{BUILD}/tests/programs/counter --mib 16 --steps 100000000 --step-ms 10"
    line = re.sub(r"IMAGE (python train.py|\.\.\.)", f"--rootfs {engine.root} {program}", line)
    with engine.removes_container():
        container = engine.shell(engine.podman(line))
        contains(container.stdout.readline(), "counter: ")
        pid = int(engine.ok(f"podman {engine.options} inspect --format '{{{{.State.Pid}}}}' {engine.name}"))
        until(lambda: state(pid) == "running", 10, "it runs under cudaw")
        for request, after in (("pause", "paused"), ("resume", "running")):
            equal(cudaw(request, str(pid), env={"CUDAW_RUNTIME_DIR": None}).code, 0, f"the exit code of cudaw {request}")
            equal(state(pid), after, "the state of the process in the container")
    until(engine.groups_are_gone, 10, "its control groups are removed")


def test_podman():
    engine = Engine()
    page = block(PAGE, "podman run")
    for line in re.findall("^sudo (.*?)(?: +#.*)?$", page, re.MULTILINE):
        engine.ok(line)
    pause_and_resume(engine, re.search("^podman run .*$", page, re.MULTILINE)[0].replace("=turns", "=pause"))


def test_by_hand():
    """As for an engine that does not know CDI: the line for Docker, whose options Podman has as well."""
    engine = Engine()
    line = re.search("^docker run (.*)$", block(PAGE, "docker run --gpus all -v"), re.MULTILINE)[1]
    line = line.replace("--gpus all ", "").replace("-v /opt/cudaw:", f"-v {engine.home}/opt:")
    pause_and_resume(engine, f"podman run {line}")


if __name__ == "__main__":
    main()
