#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cudaw doctor: what it concludes of drivers (small fakes, compiled here), directories and limits."""
import json
import os
import shutil
import subprocess

from clilib import FACES, Directory, Skip, cudaw, equal, contains, installed_copy, main, on_terminal, scratch

# Behaves by preprocessor symbols. It has no function that makes a context: the doctor needs none.
DRIVER = r"""
#include <signal.h>
#include <stddef.h>
#include <string.h>
#ifndef INIT
#define INIT 0
#endif
#ifndef DEVICES
#define DEVICES 1
#endif
#ifndef VMM
#define VMM 1
#endif
int cuInit(unsigned flags)
{
#ifdef CRASH
	raise(SIGSEGV);
#endif
	return flags ? 1 : INIT;
}
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = DEVICES; return 0; }
int cuDeviceGet(int *dev, int ordinal) { *dev = ordinal; return 0; }
int cuDeviceGetName(char *name, int len, int dev) { strncpy(name, "Fake GPU", len); return 0; }
int cuDeviceTotalMem_v2(size_t *size, int dev) { *size = 1UL << 50; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int dev)
{
	*value = attribute == 75 ? 9 : attribute == 102 ? VMM > dev : 0;
	return 0;
}
int cuGetErrorName(int error, const char **name) { *name = "CUDA_ERROR_OF_SORTS"; return 0; }
#ifndef OLD
int cuCheckpointProcessCheckpoint(int pid, void *args) { return 0; }
#endif
"""


def driver(*symbols):
    directory = scratch()
    path = os.path.join(directory, "libcuda.so.1")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise Skip("no C compiler here")
    subprocess.run([compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c", "-", "-o",
                    path, *["-D" + symbol for symbol in symbols]],
                   input=DRIVER, text=True, check=True)
    return path


def doctor(path, code, env=None, command=None):
    """The report for the driver at path: ({check: finding}, whole object)."""
    env = {"CUDAW_REAL_LIBCUDA": path, **(env or {})}
    extra = {"command": command} if command else {}
    text = cudaw("doctor", env=env, **extra)
    result = cudaw("doctor", "--json", env=env, **extra)
    equal((text.code, text.err, result.code, result.err), (code, "", code, ""))
    report = json.loads(result.out)
    contains(text.out, "Verdict: " + report["summary"])
    for found in report["checks"]:
        # Every drawback is explained, and nothing else is.
        equal((found["check"], found["because"] is None), (found["check"], found["verdict"] == "ok"))
        line = next(line for line in text.out.splitlines() if line.startswith(f"{found['check']} "))
        equal(line.split(None, len(found["check"].split()) + 1)[-2], found["verdict"])
        if found["because"]:
            contains(text.out, found["because"])
    equal(report["pause"], code == 0)
    return {found["check"]: found for found in report["checks"]}, report


def test_a_good_machine():
    Directory()
    path = driver()
    checks, report = doctor(path, 0)
    equal(checks["driver"]["verdict"], "ok")
    contains(checks["driver"]["value"], f"CUDA 13.0, {path}")
    contains(checks["GPU 0"]["value"], "Fake GPU, 1.0 PiB, compute capability 9.0, GPUDirect RDMA no")
    equal(checks["checkpoint API"]["verdict"], "ok")
    equal(checks["runtime directory"]["verdict"], "ok")
    # No host has that much.
    equal(checks["host memory"]["verdict"], "warn")
    equal((report["context"], report["summary"]),
       (True, "pausing works here; a paused job leaves nothing on the GPU."))


def test_a_check_has_one_line_of_the_terminal():
    Directory()
    path = driver()
    deep = os.path.join(os.path.dirname(path), "directory/" * 12)
    os.makedirs(deep)
    path = shutil.move(path, deep)
    code, lines = on_terminal("doctor", CUDAW_REAL_LIBCUDA=path, CUDAW_RELEASE="mem")
    end = lines.index("")
    equal((code, lines[0].split(), max(map(len, lines[:end]))), (0, ["CHECK", "IS", "FOUND"], 80))
    row = next(line for line in lines if line.startswith("driver "))
    assert row.endswith("+") and path.startswith(row.split()[-1][:-1]), row
    contains("\n".join(lines[end:]), "\nCUDAW_RELEASE: expected all or memory; all is used\n")
    assert lines[-1].startswith("Verdict: "), lines
    contains(cudaw("doctor", env={"CUDAW_REAL_LIBCUDA": path}).out, path)


def test_wrong_settings_are_found():
    checks, _ = doctor(driver(), 0, env={"CUDAW_RELEASE": "mem", "CUDAW_CHECK": "1"})
    equal((checks["CUDAW_RELEASE"]["verdict"], checks["CUDAW_RELEASE"]["value"]), ("warn", "mem"))
    equal(checks["CUDAW_RELEASE"]["because"], "expected all or memory; all is used")
    assert "CUDAW_CHECK" not in checks


def test_a_memory_limit():
    path = driver()
    assert "memory limit, GPU 0" not in doctor(path, 0)[0]
    for env, value, because in (
            ({"CUDAW_MEM": "20G", "CUDA_DEVICE_MEMORY_LIMIT": "30g"}, "20.0 GiB for each job", None),
            ({"CUDA_DEVICE_MEMORY_LIMIT_0": "1048577g"}, "1.0 PiB for each job", "the GPU has 1.0 PiB")):
        found = doctor(path, 0, env=env)[0]["memory limit, GPU 0"]
        equal((found["value"], found["because"]), (value, because))
    checks, _ = doctor(path, 0, env={"CUDA_DEVICE_MEMORY_LIMIT": "half"})
    assert "memory limit, GPU 0" not in checks
    equal(checks["CUDA_DEVICE_MEMORY_LIMIT"]["because"], "expected a number of bytes, as 4147m; it limits nothing")


def test_criu():
    path = os.path.join(scratch(), "criu")
    for version, verdict, why in [("4.1.1", "ok", None), ("3.17", "warn", "expected 4.1 or later: Debian 13 has"),
                                  (None, "warn", "/nowhere cannot be run: No such file")]:
        if version:
            with open(path, "w", encoding="ascii") as file:
                file.write(f"#!/bin/sh\necho Version: {version}\n")
            os.chmod(path, 0o755)
        env = {"CUDAW_CRIU": path if version else "/nowhere"}
        found = doctor(driver(), 0, env=env)[0]["CRIU"]
        if verdict == "ok" and found["verdict"] == "warn":     # not root, or in a container
            why = "is not permitted to"
        else:
            equal(found["verdict"], verdict)
        assert not why or why in found["because"], found
    found = doctor(driver(), 0, env={"PATH": "/nowhere"})[0]["CRIU"]
    contains(found["because"], "there is no 'criu' in PATH")
    contains(found["because"], "docs/snapshots.md says how to build it")


def test_an_old_driver_keeps_the_context():
    checks, report = doctor(driver("OLD"), 0)
    equal((checks["checkpoint API"]["verdict"], report["context"]), ("warn", False))
    contains(report["summary"], "keeps its CUDA context on the GPU")


def test_no_virtual_memory_management():
    checks, report = doctor(driver("VMM=0"), 0)
    equal(checks["GPU 0"]["verdict"], "warn")
    contains(checks["GPU 0"]["because"], "translated addresses")
    contains(report["summary"], "pausing works here")


def test_one_device_without_it():
    checks, _ = doctor(driver("DEVICES=2"), 0)
    equal((checks["GPU 0"]["verdict"], checks["GPU 1"]["verdict"]), ("ok", "warn"))


def test_no_device():
    summary = doctor(driver("DEVICES=0"), 6)[1]["summary"]
    contains(summary, "the driver finds no GPU")
    contains(summary, "Programs started with 'cudaw run' run as they do without it.")


def test_a_driver_that_fails():
    checks, _ = doctor(driver("INIT=999"), 6)
    equal(checks["driver"]["because"], "cuInit fails with CUDA_ERROR_OF_SORTS (999)")


def test_a_driver_that_crashes():
    checks, _ = doctor(driver("CRASH"), 6)
    equal(checks["driver"]["because"], "it crashes (Segmentation fault)")


def test_no_driver():
    checks, report = doctor("/no/such/libcuda.so.1", 6)
    contains(checks["driver"]["because"], "/no/such/libcuda.so.1")
    contains(report["summary"], "CUDA fails in programs started with 'cudaw run' (cuInit: error 100).")


def test_a_driver_that_can_not_be_loaded():
    broken = driver("cuInit=other")
    contains(doctor(broken, 6)[0]["driver"]["because"], "it has no cuInit")


def test_runtime_directory():
    good = driver()
    checks, _ = doctor(good, 0, {"CUDAW_RUNTIME_DIR": os.path.join(scratch(), "later")})
    contains(checks["runtime directory"]["value"], "later, made when the first job starts")
    for path, why in [("/no/such/directory", "it cannot be made"),
                      ("relative", "CUDAW_RUNTIME_DIR is not an absolute path"),
                      (scratch(), "other users may enter it (its mode must be 0700)")]:
        checks, report = doctor(good, 6, {"CUDAW_RUNTIME_DIR": path})
        equal(checks["runtime directory"]["because"], why)
        contains(report["summary"], f"runtime directory: {path}, because {why}")


def test_libraries_missing():
    command = installed_copy(scratch(), faces=False)
    checks, report = doctor(driver(), 6, command=command)
    contains(checks["cudaw's libraries"]["because"], "these are missing: libcuda.so.1 cudaw-audit.so libcudart.so.13")
    contains(report["summary"], "'cudaw run' cannot start programs.")
    directory = os.path.dirname(os.path.dirname(command))
    shutil.rmtree(directory)
    command = installed_copy(directory)
    for name, code, verdict in ("libcudart.so.13", 0, "warn"), ("cudaw-audit.so", 6, "no"):
        os.remove(os.path.join(directory, "lib", os.path.basename(FACES), name))
        checks, _ = doctor(driver(), code, command=command)
        equal(checks["cudaw's libraries"]["verdict"], verdict)


def test_installed_where_nothing_can_be_preloaded_from():
    for name in ["with space", "with:colon"]:
        command = installed_copy(os.path.join(scratch(), name))
        checks, report = doctor(driver(), 6, command=command)
        why = "the loader cannot preload from a path with a space or a colon"
        equal(checks["cudaw's libraries"]["because"], why)
        contains(report["summary"], why)


def test_address_space_limit():
    wrapper = os.path.join(scratch(), "limited")
    with open(wrapper, "w", encoding="ascii") as file:
        file.write('#!/bin/sh\nulimit -v 8388608\nexec "$CUDAW" "$@"\n')
    os.chmod(wrapper, 0o755)
    env = {"CUDAW": installed_copy(scratch())}
    checks, _ = doctor(driver(), 0, env=env, command=wrapper)
    equal((checks["address space"]["verdict"], checks["address space"]["value"]), ("warn", "8.0 GiB"))


def test_a_group_with_a_throttle_alone():
    """By memory.high, as systemd's MemoryHigh= sets it."""
    group, wrapper = scratch(), os.path.join(scratch(), "grouped")
    for name, value in (("max", "max"), ("high", 300 << 20), ("current", 50 << 20), ("stat", "active_file 0")):
        with open(f"{group}/memory.{name}", "w", encoding="ascii") as file:
            file.write(f"{value}\n")
    with open(wrapper, "w", encoding="ascii") as file:
        file.write(f'#!/bin/sh\nexec unshare -m sh -c '
                   f'\'mount --bind {group} /sys/fs/cgroup && exec "$CUDAW" "$@"\' sh "$@"')
    os.chmod(wrapper, 0o755)
    if subprocess.run([wrapper], env={**os.environ, "CUDAW": "true"}, check=False).returncode:
        raise Skip("nothing can be mounted here")
    checks, _ = doctor(driver(), 0, env={"CUDAW": installed_copy(scratch())}, command=wrapper)
    contains(checks["host memory"]["value"], "control group: 250 MiB")


if __name__ == "__main__":
    main()
