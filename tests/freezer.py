# SPDX-License-Identifier: Apache-2.0
"""A control group of a step of Slurm's, which is frozen as proctrack/cgroup does it. It takes root."""
import os

from harness import Skip, until


class Step:
    def __init__(self):
        mount = next((path for path in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
                      if os.path.exists(f"{path}/cgroup.procs") and os.access(path, os.W_OK)), None)
        if os.geteuid() or not mount:
            raise Skip("needs root, and control groups of version 2")
        self.path = f"{mount}/cudaw-test-{os.getpid()}/step_0/user"

    def __enter__(self):
        os.makedirs(self.path)
        return self

    def __exit__(self, *_):
        """Its processes have ended."""
        os.removedirs(self.path)

    def write(self, name, text):
        with open(f"{self.path}/{name}", "w", encoding="ascii") as file:
            file.write(str(text))

    def freeze(self, pid):
        self.write("cgroup.procs", pid)
        self.write("cgroup.freeze", 1)
        until(self.is_frozen, 10, "it is frozen")

    def thaw(self):
        self.write("cgroup.freeze", 0)

    def is_frozen(self):
        with open(f"{self.path}/cgroup.events", encoding="ascii") as file:
            return "frozen 1" in file.read()
