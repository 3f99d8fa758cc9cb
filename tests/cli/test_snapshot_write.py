#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Writing snapshots: whatever happens to the writer, the directory has the old snapshot, the new one, or
none, and it is whole; what did not change is not written again.
"""
import fcntl
import os
import random
import resource
import signal
import subprocess
import time

from clilib import Skip, cudaw, equal, contains, main, scratch
from harness import REPEATS
from snapshotlib import (CHUNK, MKSNAPSHOT, contents, is_whole, manifest, run_mksnapshot, write)

KILLS = (30 if os.environ.get("SANITIZE") else 60) * REPEATS    # sanitized programs are slow
CHUNKS = 20


def directory():
    return os.path.join(scratch(), "snapshot")


def disk(path):
    return sum(os.path.getsize(f"{path}/{name}") for name in os.listdir(path))


def has_manifest(path):
    return os.path.exists(f"{path}/manifest.json")


def snapshot_of(path):
    """The contents of the snapshot, which must be whole; None where there is none."""
    if not has_manifest(path):
        return None
    assert is_whole(path), cudaw("verify", path).err
    return contents(path)


def clean(seed, *more, chunks=CHUNKS):
    path = directory()
    write(path, seed, chunks, *more)
    return contents(path)


def test_killed_at_any_moment():
    rng = random.Random(3)
    steps = {seed: [clean(seed), clean(seed, "incremental"), clean(seed, "incremental", "again")]
             for seed in (1000, 2000)}
    path, old, seen = directory(), None, {}
    longest = 2.0   # seconds until a kill; so many that a fifth of them find that all is written
    for attempt in range(10 * KILLS):
        if attempt >= KILLS and len(seen) > 2:
            break
        seed = rng.choice([1000, 2000])
        process = subprocess.Popen([MKSNAPSHOT, "write", path, str(seed), str(CHUNKS),
                                    "incremental", "again"])
        time.sleep(rng.random() * longest)
        longest *= 1.1 if process.poll() is None else 0.7
        process.send_signal(signal.SIGKILL)
        process.wait()
        now = snapshot_of(path)
        assert now == old or now in steps[seed], attempt
        what = "none" if now is None else "old" if now == old else steps[seed].index(now)
        seen[what] = seen.get(what, 0) + 1
        old = now
        if attempt % 20 == 19:      # so that "none" and "old" come up, too
            subprocess.run(["rm", "-rf", path], check=True)
            old = None
    print(f"# found: {seen}", flush=True)
    assert len(seen) > 2, f"the kills came all at the same stage: {seen}"


def test_what_a_killed_writer_left_is_removed():
    path = directory()
    process = subprocess.Popen([MKSNAPSHOT, "write", path, "5", "200"])
    while not os.path.exists(path) or not os.listdir(path):
        time.sleep(0.001)
    process.kill()
    process.wait()
    write(path, 1, CHUNKS)
    assert is_whole(path)
    found = manifest(path)
    names = [f"data-{f['number']}" for f in found["data"]] + [f"index-{found['index']['number']}"]
    equal(sorted(os.listdir(path)), sorted(names + ["manifest.json"]))


def limit_file_size(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_file_size_limit_is_an_error():
    path = directory()
    code, _, err = run_mksnapshot("write", path, 1, 40, preexec_fn=limit_file_size(5 * CHUNK))
    equal(code, 1)     # not -SIGXFSZ
    contains(err, "data-")
    contains(err, "File too large")
    equal(os.listdir(path), [])


def test_after_a_failure_the_old_snapshot_is_there():
    path = directory()
    write(path, 1, CHUNKS)
    before, names = contents(path), sorted(os.listdir(path))
    equal(run_mksnapshot("write", path, 2, 40, preexec_fn=limit_file_size(5 * CHUNK))[0], 1)
    equal(snapshot_of(path), before)
    equal(sorted(os.listdir(path)), names)


class SmallDisk:
    """A tmpfs of that many bytes."""

    def __init__(self, size):
        self.path = scratch()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", self.path],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise Skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")

    def __enter__(self):
        return os.path.join(self.path, "snapshot")

    def __exit__(self, *_):
        subprocess.run(["umount", self.path], check=True)


def test_too_small_a_disk_is_refused_before_anything_is_written():
    with SmallDisk(30 * CHUNK) as path:
        code, _, err = run_mksnapshot("write", path, 1, 40)
        equal(code, 1)
        contains(err, f"{path}: 80.0 MiB of disk needed, 60.0 MiB free")
        equal(os.listdir(path), [])


def test_what_may_shrink_enough_is_tried():
    """Of 40 chunks 32 are stored, which fit; without compression nobody looks for equal ones first."""
    with SmallDisk(39 * CHUNK) as path:
        contains(run_mksnapshot("write", path, 1, 40)[2], "of disk needed")
        write(path, 1, 40, "zstd")
        assert is_whole(path)
    with SmallDisk(128 << 10) as path:
        code, _, err = run_mksnapshot("write", path, 1, 400, "lz4")
        equal(code, 1)
        contains(err, f"{path}: 1.6 MiB of disk needed, 128 KiB free")


def test_a_disk_that_fills_up_leaves_the_old_snapshot():
    """The third snapshot of a process: there was room for the first, which needs 40 chunks at the
    most, and stores 32. The second adds 4 to them, and the third 4 that do not fit beside the
    indexes and manifests."""
    first, second = clean(1, chunks=40), clean(1, "incremental", chunks=40)
    assert first != second
    with SmallDisk(40 * CHUNK) as path:
        code, _, err = run_mksnapshot("write", path, 1, 40, "incremental", "incremental")
        equal(code, 1)
        contains(err, "No space left on device")
        equal(snapshot_of(path), second)


def test_an_incremental_snapshot_writes_what_changed():
    path = directory()
    write(path, 1, 100)
    full = manifest(path)["totals"]
    equal(full["unchanged"], 0)
    write(path, 1, 100, "incremental")
    totals = manifest(path)["totals"]
    equal(totals["written"], 10 * CHUNK)
    equal(totals["unchanged"], 80 * CHUNK)
    equal(totals["zero"], 10 * CHUNK)
    assert is_whole(path)


def test_an_incremental_snapshot_keeps_what_is_compressed():
    for codec in ("lz4", "zstd"):
        path = directory()
        write(path, 1, 100, codec, "incremental")
        found = manifest(path)
        equal(found["totals"]["unchanged"], 80 * CHUNK)
        assert found["totals"]["stored"] < 10 * CHUNK, found["totals"]
        assert found["totals"]["stored"] < sum(f["size"] for f in found["data"])
        assert is_whole(path)


def test_one_that_is_not_incremental_writes_all():
    path = directory()
    write(path, 1, 100, "full")
    equal(manifest(path)["totals"]["unchanged"], 0)
    equal(len(contents(path)), 100)
    assert is_whole(path)


def test_incremental_snapshots_hold_at_most_twice_what_they_need():
    path = directory()
    write(path, 1, 40, *["incremental"] * 30)
    assert is_whole(path)
    need = manifest(path)["totals"]["bytes"]
    assert disk(path) <= 2 * need, (disk(path), need)


def test_another_process_makes_a_full_snapshot():
    """Only the process that wrote the snapshot there knows that it can go on from it."""
    path = directory()
    write(path, 1, CHUNKS)
    write(path, 1, CHUNKS)
    equal(manifest(path)["totals"]["unchanged"], 0)


def test_a_directory_of_something_else_is_refused():
    path = scratch()
    with open(f"{path}/thesis.tex", "w", encoding="ascii") as file:
        file.write("x")
    code, _, err = run_mksnapshot("write", path, 1, 4)
    equal(code, 1)
    contains(err, f"{path}: expected a new or empty directory or a snapshot, found thesis.tex in it")
    equal(os.listdir(path), ["thesis.tex"])
    equal(os.stat(path).st_mode & 0o777, 0o755)


def test_another_users_directory_is_refused():
    if os.geteuid() != 0:
        raise Skip("it takes root to make one")
    path = scratch()
    os.chown(path, 12345, 12345)
    code, _, err = run_mksnapshot("write", path, 1, 4)
    equal(code, 1)
    contains(err, "belongs to another user")


def test_a_missing_parent_and_a_file_are_named():
    code, _, err = run_mksnapshot("write", f"{scratch()}/a/b", 1, 4)
    equal(code, 1)
    contains(err, "/a/b: No such file or directory")
    code, _, err = run_mksnapshot("write", MKSNAPSHOT, 1, 4)
    equal(code, 1)
    contains(err, "Not a directory")


def test_one_at_a_time():
    path = directory()
    write(path, 1, CHUNKS)
    lock = os.open(path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    assert is_whole(path)
    code, _, err = run_mksnapshot("write", path, 2, CHUNKS)
    equal(code, 1)
    contains(err, f"{path}: another process reads or writes this snapshot")
    fcntl.flock(lock, fcntl.LOCK_EX)
    contains(cudaw("verify", path).err, "another process reads or writes this snapshot")
    os.close(lock)
    write(path, 2, CHUNKS)


if __name__ == "__main__":
    main()
