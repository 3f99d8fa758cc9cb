#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make install, uninstall and others: what they refuse before anything is done."""
import os
import shutil
import subprocess
import tempfile

from clilib import LIMIT_S, Skip, equal, contains, main, scratch

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def make(*args, env=None):
    if not shutil.which("make"):
        raise Skip("no make here")
    env = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "PACKAGER"))} | (env or {})
    return subprocess.run(["make", "-C", SOURCES, *args], env=env, text=True, timeout=LIMIT_S,
                          capture_output=True, check=False)


def test_paths_that_do_not_work_are_refused():
    directory = scratch()
    for target in ["install", "uninstall"]:
        for prefix, destdir in [("/a b", directory), ("/a ", directory), ("/a:b", directory),
                                ("a", directory), ("/a", f"{directory}/b c")]:
            done = make(target, f"PREFIX={prefix}", f"DESTDIR={destdir}")
            equal((prefix, done.returncode), (prefix, 2))
            contains(done.stderr, f"PREFIX='{prefix}' DESTDIR='{destdir}': expected")
    equal(os.listdir(directory), [])


def test_packages_need_somebody_who_answers_for_them():
    nobody = {"GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "",
              "GIT_CONFIG_KEY_1": "user.email", "GIT_CONFIG_VALUE_1": ""}
    somebody = {**nobody, "GIT_CONFIG_VALUE_0": "O'Neil & Co", "GIT_CONFIG_VALUE_1": "a@b.example"}
    for target in "deb", "rpm":
        done = make("-n", target, env=nobody)
        equal(done.returncode, 2)
        contains(done.stderr, "PACKAGER=' <>': expected \"NAME <ADDRESS>\"")
    shown = "--eval=shown: ; $(filled_in) packages/debian/control.in"
    for args, env, name in [((), somebody, "O'Neil & Co <a@b.example>"),
                            (("PACKAGER=A/B <c@d>",), nobody, "A/B <c@d>")]:
        contains(make("-s", shown, "shown", *args, env=env).stdout, f"\nMaintainer: {name}\n")


def test_benches_say_what_to_build_first():
    for bench in ["bench", "bench-launch", "bench-pause", "bench-first-pause", "bench-turns",
                  "bench-restore", "bench-snapshot"]:
        done = make("-s", bench, f"O={scratch()}")
        equal((done.stdout, len(done.stderr.splitlines())), ("", 2))
        contains(done.stderr, " is not there: 'make programs' first\nmake: *** ")


def get_deps(*args, **options):
    return subprocess.run([os.path.join(SOURCES, "tools", "get-deps"), *args], text=True, check=False,
                          capture_output=True, timeout=LIMIT_S, **options)


def test_a_cuda_toolkit_that_is_too_old_or_not_there_is_refused():
    directory = scratch()
    os.mkdir(f"{directory}/include")
    for version, found in [(None, "none"), (12080, "12.8")]:
        if version:
            with open(f"{directory}/include/cuda.h", "w", encoding="ascii") as file:
                file.write(f"#define CUDA_VERSION {version}\n")
        done = get_deps("--cuda-home", directory, "--cuda-headers", "/nowhere", "no-such-package")
        equal((done.returncode, done.stdout), (1, ""))
        contains(done.stderr, f"CUDA_HOME={directory}: expected a CUDA toolkit 13.0 or later, found {found}")
        done = make("deps", f"O={scratch()}", f"CUDA_HOME={directory}")
        equal(done.returncode, 2)
        contains(done.stderr, f"found {found}")


def test_missing_packages_are_named_if_nobody_can_install_them():
    directory, tools = scratch(), scratch()
    if os.getuid() != 0 or not shutil.which("dpkg-query"):
        raise Skip("needs root, to become a user without sudo, and a Debian system")
    for name in ["sh", "dpkg-query", "awk", "grep", "dirname", "id", "uname"]:
        os.symlink(shutil.which(name), f"{tools}/{name}")
    for path in (directory, tools):
        os.chmod(path, 0o755)
    os.mkdir(f"{directory}/include")
    with open(f"{directory}/include/cuda.h", "w", encoding="ascii") as file:
        file.write("#define CUDA_VERSION 13000\n")
    with tempfile.TemporaryDirectory() as open_to_all:      # the tree may be root's alone
        os.chmod(open_to_all, 0o755)
        script = shutil.copy(os.path.join(SOURCES, "tools", "get-deps"), open_to_all)
        done = subprocess.run([script, "--cuda-home", directory, "--cuda-headers", "/nowhere",
                               "libc6", "no-such-package"], env={"PATH": tools}, user=65534, text=True,
                              capture_output=True, check=False, timeout=LIMIT_S)
    equal((done.returncode, done.stdout), (1, ""))
    contains(done.stderr, "these packages are missing, and there is no sudo to install them: no-such-package")


def test_programs_that_this_project_does_not_install_are_kept_from_tests():
    if not shutil.which("dpkg-query"):
        raise Skip("not a Debian system")
    directory = scratch()
    subprocess.run([os.path.join(SOURCES, "tests", "own-programs"), directory, "binutils"], check=True)
    found = set(os.listdir(directory))
    equal({"readelf", "sh", "awk", "git"} - found, set(), "the programs that are missing")
    equal({"gcc", "debootstrap"} & found, set(), "the programs that are not its own")


def test_uninstalling_again_is_no_error():
    directory = scratch()
    os.makedirs(f"{directory}/a/bin")
    with open(f"{directory}/a/bin/cudaw", "w", encoding="ascii"):
        pass
    for _ in range(2):
        done = make("uninstall", "PREFIX=/a", f"DESTDIR={directory}")
        equal((done.returncode, done.stderr, os.listdir(f"{directory}/a/bin")), (0, "", []))


if __name__ == "__main__":
    main()
