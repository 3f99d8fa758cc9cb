#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make install, uninstall and others: what they refuse before anything is done."""
import os
import shutil
import subprocess

from clilib import LIMIT_S, Skip, eq, has, main, scratch

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def make(*args):
    if not shutil.which("make"):
        raise Skip("no make here")
    env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    return subprocess.run(["make", "-C", SOURCES, *args], env=env, text=True, timeout=LIMIT_S,
                          capture_output=True, check=False)


def test_paths_that_do_not_work_are_refused():
    directory = scratch()
    for target in ["install", "uninstall"]:
        for prefix, destdir in [("/a b", directory), ("/a ", directory), ("/a:b", directory),
                                ("a", directory), ("/a", f"{directory}/b c")]:
            done = make(target, f"PREFIX={prefix}", f"DESTDIR={destdir}")
            eq((prefix, done.returncode), (prefix, 2))
            has(done.stderr, f"PREFIX='{prefix}' DESTDIR='{destdir}': expected")
    eq(os.listdir(directory), [])


def test_benches_say_what_to_build_first():
    for bench in ["bench", "bench-launch", "bench-pause", "bench-snapshot"]:
        done = make("-s", bench, f"O={scratch()}")
        eq((done.stdout, len(done.stderr.splitlines())), ("", 2))
        has(done.stderr, " is not there: 'make programs' first\nmake: *** ")


def test_uninstalling_again_is_no_error():
    directory = scratch()
    os.makedirs(f"{directory}/a/bin")
    with open(f"{directory}/a/bin/cudaw", "w", encoding="ascii"):
        pass
    for _ in range(2):
        done = make("uninstall", "PREFIX=/a", f"DESTDIR={directory}")
        eq((done.returncode, done.stderr, os.listdir(f"{directory}/a/bin")), (0, "", []))


if __name__ == "__main__":
    main()
