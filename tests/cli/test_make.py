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
    folder = scratch()
    for target in ["install", "uninstall"]:
        for prefix, destdir in [("/a b", folder), ("/a ", folder), ("/a:b", folder),
                                ("a", folder), ("/a", f"{folder}/b c")]:
            done = make(target, f"PREFIX={prefix}", f"DESTDIR={destdir}")
            eq((prefix, done.returncode), (prefix, 2))
            has(done.stderr, f"PREFIX='{prefix}' DESTDIR='{destdir}': expected")
    eq(os.listdir(folder), [])


def test_benches_say_what_to_build_first():
    for bench in ["bench", "bench-launch", "bench-pause", "bench-snapshot"]:
        done = make("-s", bench, f"O={scratch()}")
        eq((done.stdout, len(done.stderr.splitlines())), ("", 2))
        has(done.stderr, " is not there: 'make programs' first\nmake: *** ")


def test_uninstalling_again_is_no_error():
    folder = scratch()
    os.makedirs(f"{folder}/a/bin")
    with open(f"{folder}/a/bin/cudaw", "w", encoding="ascii"):
        pass
    for _ in range(2):
        done = make("uninstall", "PREFIX=/a", f"DESTDIR={folder}")
        eq((done.returncode, done.stderr, os.listdir(f"{folder}/a/bin")), (0, "", []))


if __name__ == "__main__":
    main()
