#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
cudaw inspect and cudaw verify on whole snapshots, and on those that are damaged or forged: each is
refused with a message that names the file, what was expected and what was found.
"""
import json
import os
import random
import shutil

from clilib import cudaw, equal, contains, main, scratch
from snapshotlib import (BASE, CHUNK, ENTRY, HEADER, chunk, copy, edit_chunk, edit_index_bytes,
                         edit_manifest, index_of, is_whole, manifest, write)

CHUNKS = 20
GOLDEN = os.path.join(scratch(), "golden")
write(GOLDEN, 1, CHUNKS)
CODECS = {"lz4": 2, "zstd": 3}
PACKED = {codec: os.path.join(scratch(), codec) for codec in CODECS}
for CODEC, DIRECTORY in PACKED.items():
    write(DIRECTORY, 1, CHUNKS, CODEC)
UUIDS = [f"GPU-00000000-0000-0000-0000-{i:012}" for i in (1, 2)]


def refused(path, *parts, code=1):
    """By both commands, unless only the contents are wrong."""
    result = cudaw("verify", path)
    equal((result.code, result.out), (code, ""))
    contains(result.err, f"cudaw: {path}: ")
    for part in parts:
        contains(result.err, part)
    equal(result.err.count("\n"), 1)


def refused_by_both(path, *parts, code=1):
    refused(path, *parts, code=code)
    result = cudaw("inspect", path)
    equal((result.code, result.out), (code, ""))
    equal(result.err, cudaw("verify", path).err)


def test_inspect():
    result = cudaw("inspect", GOLDEN)
    equal((result.code, result.err), (0, ""))
    for part in ["mksnapshot write", "gpu 0     Simulated GPU", "gpu 1 ", UUIDS[1], "64.0 GiB",
                 "20.0 MiB used", "40.0 MiB of the GPUs in 2 mappings: 4.0 MiB zeros, 4.0 MiB equal",
                 "copy 1 ms, write 20 ms", "CUDA 13.0", "needs     a machine of 4 GPUs, "]:
        contains(result.out, part)


def test_inspect_one_gpu():
    path = copy(GOLDEN, data=False)
    edit_manifest(path, lambda m: m.update(gpus=1))
    contains(cudaw("inspect", path).out, "needs     a machine of 1 GPU, ")


def test_inspect_json():
    result = cudaw("inspect", "--json", GOLDEN)
    equal((result.code, result.err), (0, ""))
    found = json.loads(result.out)
    equal([d["uuid"] for d in found["devices"]], UUIDS)
    equal(found["gpus"], 4)
    contains(result.out, '"ms": 20.123\n')
    equal(found["regions"], [{"address": BASE, "size": 10 * CHUNK, "device": 0},
                          {"address": BASE + 15 * CHUNK, "size": 10 * CHUNK, "device": 1}])
    equal(found["totals"], {"bytes": CHUNKS * CHUNK, "zero": 2 * CHUNK, "duplicate": 2 * CHUNK,
                            "unchanged": 0, "written": 16 * CHUNK, "stored": 16 * CHUNK})
    equal(found["path"], GOLDEN)
    equal(found["disk"], sum(os.path.getsize(f"{GOLDEN}/{name}") for name in os.listdir(GOLDEN)))
    equal([key for key in ("image_bytes", "opened", "terminal") if key in found], [])
    assert 0 <= found["age"] < 1000, found["age"]
    equal(found["process"]["command"][1:], ["write", GOLDEN, "1", str(CHUNKS)])
    libc = [f for f in found["files"] if "/libc.so" in f["path"]]
    assert libc and len(libc[0]["build_id"]) == 40, found["files"]
    equal(libc[0]["size"], os.path.getsize(libc[0]["path"]))


def test_modes_and_names():
    equal(os.stat(GOLDEN).st_mode & 0o777, 0o700)
    for name in os.listdir(GOLDEN):
        equal((name, os.stat(f"{GOLDEN}/{name}").st_mode & 0o777), (name, 0o600))


def test_verify():
    result = cudaw("verify", GOLDEN)
    equal((result.code, result.err), (0, ""))
    contains(result.out, f"{GOLDEN} is intact: 32.0 MiB read")


def test_a_copy_elsewhere_is_whole():
    assert is_whole(copy(GOLDEN))


def test_several_directories_and_the_first_failure_decides():
    nothing = scratch()
    result = cudaw("verify", nothing, GOLDEN)
    equal(result.code, 1)
    contains(result.err, f"{nothing}: manifest.json: it is missing: this is not a snapshot")
    contains(result.out, f"{GOLDEN} is intact")
    equal(cudaw("verify", f"{nothing}/missing").code, 1)
    contains(cudaw("verify", f"{nothing}/missing").err, "No such file or directory")


def test_equal_chunks_and_zeros_are_stored_once():
    equal({chunk(GOLDEN, i)["codec"] for i in (0, 10)}, {0})
    for i in (1, 11):
        one, two = chunk(GOLDEN, i), chunk(GOLDEN, i + 1)
        equal([one[key] for key in ("file", "offset", "hash")],
           [two[key] for key in ("file", "offset", "hash")])
    places = {(c["file"], c["offset"]) for c in (chunk(GOLDEN, i) for i in range(CHUNKS))
              if c["codec"]}
    equal(len(places), 16)
    equal(sum(f["size"] for f in manifest(GOLDEN)["data"]), 16 * CHUNK)


def packed_chunk(codec):
    """The number of the first chunk that was compressed: one is, whatever the disk does."""
    for number in range(CHUNKS):
        if chunk(PACKED[codec], number)["codec"] == CODECS[codec]:
            return number
    raise AssertionError(f"no chunk was compressed by {codec}")


def equal_chunks(path, number):
    """The numbers of all chunks that lie in the place of that one."""
    def place(one):
        return one["file"], one["offset"], one["stored"]
    here = place(chunk(path, number))
    return [i for i in range(CHUNKS) if place(chunk(path, i)) == here]


def test_compressed_snapshots():
    for codec, path in PACKED.items():
        found = manifest(path)
        equal(found["totals"]["written"], 16 * CHUNK)
        equal(found["totals"]["stored"], sum(f["size"] for f in found["data"]))
        assert found["totals"]["stored"] < 16 * CHUNK, found["totals"]
        one = chunk(path, packed_chunk(codec))
        assert 0 < one["stored"] <= CHUNK - 4096, one
        equal([chunk(path, i)["hash"] for i in range(CHUNKS)],
           [chunk(GOLDEN, i)["hash"] for i in range(CHUNKS)])
        assert is_whole(path), cudaw("verify", path).err
        contains(cudaw("inspect", path).out, "written by this snapshot, for 32.0 MiB of memory")


def test_what_does_not_shrink_is_stored_as_it_is():
    for codec, path in PACKED.items():
        last = chunk(path, CHUNKS - 1)
        equal((codec, last["codec"], last["stored"]), (codec, 1, CHUNK))


def test_every_missing_file_is_named():
    for name in os.listdir(GOLDEN):
        path = copy(GOLDEN)
        os.unlink(f"{path}/{name}")
        refused_by_both(path, name)


def test_every_truncated_file_is_named():
    for name in os.listdir(GOLDEN):
        for size in (0, 1, 4096, os.path.getsize(f"{GOLDEN}/{name}") - 1):
            path = copy(GOLDEN)
            if size >= os.path.getsize(f"{path}/{name}"):
                continue
            os.truncate(f"{path}/{name}", size)
            refused_by_both(path, name)


def test_a_file_that_grew_is_named():
    for name in os.listdir(GOLDEN):
        path = copy(GOLDEN)
        with open(f"{path}/{name}", "ab") as file:
            file.write(b"x")
        refused_by_both(path, name)


def test_any_flipped_bit_is_found():
    rng = random.Random(5)
    for directory in (GOLDEN, *PACKED.values()):
        path = copy(directory)
        for name in os.listdir(directory):
            size = os.path.getsize(f"{path}/{name}")
            for _ in range(30):
                at, bit = rng.randrange(size), 1 << rng.randrange(8)
                flip(f"{path}/{name}", at, bit)
                result = cudaw("verify", path)
                # Bits of a compressed chunk may be others and mean the same.
                harmless = directory != GOLDEN and name.startswith("data") and result.code == 0
                assert harmless or result.code in (1, 6), (directory, name, at, bit, result.out)
                if not harmless:
                    contains(result.err, name if name.startswith("data") else path)
                flip(f"{path}/{name}", at, bit)
        assert is_whole(path)


def flip(path, at, bit):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ bit]))


def test_a_newer_version_is_named():
    path = copy(GOLDEN, data=False)
    edit_manifest(path, lambda m: m.update(version=5))
    refused_by_both(path, "manifest.json: version 5 is newer than this cudaw, which knows 4",
                    code=6)
    for parts in (None, [], [1, 1], [1, "2"], [1, 1 << 32], list(range(1, 66))):
        edit_manifest(path, lambda m, parts=parts: m.update(version=4, parts=parts))
        refused_by_both(path, "manifest.json: parts: expected ", code=1)
    path = copy(GOLDEN, data=False)
    edit_index_bytes(path, lambda data: data.__setitem__(slice(8, 12), b"\2\0\0\0"))
    refused_by_both(path, os.path.basename(index_of(path)), "version 2 is newer", code=6)


def with_objects(m, *objects):
    m.update(version=2, objects=list(objects))


def test_objects():
    """The first region is one, mapped at two addresses; the second is one that is not mapped."""
    mappings = [{"address": BASE, "size": CHUNK, "offset": 0},
                {"address": 1 << 45, "size": CHUNK, "offset": CHUNK}]
    path = copy(GOLDEN)
    regions = manifest(path)["regions"]
    edit_manifest(path, lambda m: with_objects(
        m, {"address": regions[0]["address"], "mappings": mappings},
        {"address": regions[1]["address"], "mappings": []}))
    is_whole(path)
    equal(cudaw("inspect", path).code, 0)


def test_a_version_that_is_damaged_is_damage():
    path = copy(GOLDEN, data=False)
    with open(f"{path}/manifest.json", "rb") as file:
        flip(f"{path}/manifest.json", file.read().index(b'"version": 1') + 11, 2)
    refused_by_both(path, "manifest.json: damaged: its checksum is not that of its contents")
    path = copy(GOLDEN, data=False)
    flip(index_of(path), 8, 2)
    refused_by_both(path, os.path.basename(index_of(path)), "damaged: expected checksum")


def test_files_that_are_no_files():
    for name in os.listdir(GOLDEN):
        path = copy(GOLDEN)
        os.unlink(f"{path}/{name}")
        os.mkfifo(f"{path}/{name}")
        refused_by_both(path, name)
        os.unlink(f"{path}/{name}")
        os.mkdir(f"{path}/{name}")
        refused_by_both(path, name)
        os.rmdir(f"{path}/{name}")
        os.symlink(f"{GOLDEN}/{name}", f"{path}/{name}")
        refused_by_both(path, name)


def test_manifests_that_are_none():
    for text in [b"", b"{", b"[]", b"null", b"\0" * 100, b"{}", b'{"format": 7}', b"[" * 100000,
                 b'{"format": "cudaw snapshot", "format": "cudaw snapshot"}', b"\xff\xfe{}",
                 b'{"format": "cudaw snapshot"}', b'{"format": "cudaw snapshot", "version": "1"}',
                 b'{"format": "cudaw snapshot", "version": -1}',
                 b'{"format": "cudaw snapshot", "version": 1}',
                 b'{"format": "cudaw snapshot", "version": 1e99}']:
        path = copy(GOLDEN, data=False)
        with open(f"{path}/manifest.json", "wb") as file:
            file.write(text)
        refused_by_both(path, "manifest.json")


def test_a_huge_manifest_is_not_read():
    path = copy(GOLDEN, data=False)
    os.truncate(f"{path}/manifest.json", 1 << 40)
    refused_by_both(path, "manifest.json: expected at most 67108864 bytes, found 1099511627776")
    path = copy(GOLDEN, data=False)
    os.truncate(index_of(path), 1 << 40)
    refused_by_both(path, "expected at most", "found 1099511627776")


def region_object(m, which, *mappings):
    return {"address": m["regions"][which]["address"], "mappings": list(mappings)}


def region(m, which, **fields):
    m["regions"][which].update(fields)


FORGED = [
    (lambda m: m.update(regions=None), "regions: expected an array"),
    (lambda m: m.update(regions=[{}]), "address: expected an integer"),
    (lambda m: m.update(version=2), "objects: expected an array"),
    (lambda m: with_objects(m, {"mappings": []}), "address: expected an integer"),
    (lambda m: with_objects(m, {"address": 4096, "mappings": []}), "objects: expected the address of"),
    (lambda m: with_objects(m, region_object(m, 1), region_object(m, 0)), "objects: expected the"),
    (lambda m: with_objects(m, *[region_object(m, 0)] * 2), "objects: expected the address of"),
    (lambda m: with_objects(m, *[region_object(m, 0)] * 3), "objects: expected an array that is not"),
    (lambda m: with_objects(m, {"address": BASE}), "mappings: expected an array"),
    (lambda m: with_objects(m, region_object(m, 0, {})), "address: expected an integer"),
    (lambda m: with_objects(m, region_object(m, 0, {"address": 0, "size": 1 << 61})),
     "size: expected an integer"),
    (lambda m: m.update(devices={}), "devices: expected an array"),
    (lambda m: m.update(devices=m["devices"] * 1000), "devices: expected an array that is not too"),
    (lambda m: m["devices"][0].update(memory=-1), "memory: expected an integer from 0"),
    (lambda m: m["devices"][0].update(memory="much"), 'found "much"'),
    (lambda m: m["devices"].pop(), "regions: expected one of the devices"),
    (lambda m: region(m, 0, address=BASE + 1), "regions: expected multiples of 2 MiB"),
    (lambda m: region(m, 0, address=BASE - 2 * CHUNK), "is missing"),
    (lambda m: region(m, 0, address=1 << 62), "address: expected an integer from 0"),
    (lambda m: region(m, 0, address=-CHUNK), "address: expected an integer from 0"),
    (lambda m: region(m, 0, size=0), "regions: expected multiples of 2 MiB"),
    (lambda m: region(m, 0, size=1 << 62), "size: expected an integer from 0"),
    (lambda m: region(m, 0, size=16 * CHUNK), "regions: expected no overlap"),
    (lambda m: region(m, 0, size=11 * CHUNK), "is missing"),
    (lambda m: region(m, 1, size=9 * CHUNK), "lies in no region"),
    (lambda m: region(m, 1, device=2), "regions: expected one of the devices"),
    (lambda m: m["regions"].reverse(), "regions: expected no overlap"),
    (lambda m: m["regions"].append(m["regions"][1]), "regions: expected no overlap"),
    (lambda m: m["regions"].pop(), "lies in no region"),
    (lambda m: m["regions"].clear(), "lies in no region"),
    (lambda m: m["index"].update(number="../../../etc/passwd"), "number: expected an integer"),
    (lambda m: m["index"].update(number=10 ** 9), "number: expected an integer from 0 to 999999999"),
    (lambda m: m["index"].update(number=77), "index-77: No such file"),
    (lambda m: m["index"].update(hash="0" * 32), "not the one that the manifest was made for"),
    (lambda m: m["index"].update(hash="0" * 31 + "G"), "hash: expected 32 hexadecimal digits"),
    (lambda m: m["index"].update(hash="0" * 33), "hash: expected 32 hexadecimal digits"),
    (lambda m: m.update(index=[]), "number: expected an integer"),
    (lambda m: m.update(id="f" * 32), "not the one that the manifest was made for"),
    (lambda m: m.update(id=5), "id: expected 32 hexadecimal digits, found 5"),
    (lambda m: m["data"][0].update(number="../data-1"), "number: expected an integer"),
    (lambda m: m["data"][0].update(number=-1), "number: expected an integer"),
    (lambda m: m["data"][0].update(size=4096), "expected 4096 bytes, found"),
    (lambda m: m["data"][0].update(size=1 << 61), "size: expected an integer"),
    (lambda m: m["data"].insert(0, m["data"][0]), "data: expected ascending numbers"),
    (lambda m: m["data"].pop(0), "which the manifest does not have"),
    (lambda m: m["data"].append({"number": 999999999, "size": 0}), "data-999999999: No such file"),
    (lambda m: m["totals"].update(bytes=None), "bytes: expected an integer"),
    (lambda m: m.update(process={"pid": 1 << 40}), "pid: expected an integer"),
    (lambda m: m.update(gpus="all"), 'gpus: expected an integer from 0 to 2147483647, found "all"'),
    (lambda m: m.update(created=[1]), "created: expected an integer"),
    (lambda m: m.update(files="x"), 'files: expected an array, found "x"'),
    (lambda m: m.pop("files"), "files: expected an array, found nothing"),
    (lambda m: m["files"].append("x"), "files.path: expected a string of U+0001 to U+00FF, found noth"),
    (lambda m: m["files"][0].update(path="\u0100"), "files.path: expected a string of U+0001 to"),
    (lambda m: m["files"][0].update(size=-1), "files.size: expected an integer from 0 to 2^60 - 1, "),
    (lambda m: m["files"][0].update(build_id=5), "files.build_id: expected a string of U+0001 to"),
    (lambda m: m.update(image=1), "image: expected true or false, found 1"),
    (lambda m: m.pop("driver"), "driver: expected a string of U+0001 to U+00FF, or null, found noth"),
    (lambda m: m.update(cudaw=None), "cudaw: expected a string of U+0001 to U+00FF, found null"),
    (lambda m: m["totals"].update(bytes=1 << 60),
     "bytes: expected an integer from 0 to 1152921504606846975, found 1152921504606846976"),
    (lambda m: m["process"].pop("command"), "process.command: expected an array of strings"),
    (lambda m: m["process"].update(command=["a", 1]), "process.command: expected an array of strin"),
    (lambda m: m["process"].update(cwd=["/"]), 'process.cwd: expected a string of U+0001 to'),
    (lambda m: m["process"].update(uid="root"), 'process.uid: expected an integer from 0 to'),
    (lambda m: m["devices"][1].pop("uuid"), "devices.uuid: expected a string"),
    (lambda m: m["devices"][1].update(held=-1), "held: expected an integer from 0 to"),
    (lambda m: m.update(contexts={"device": 0, "primary": True}), "contexts: expected an array, found"),
    (lambda m: m["contexts"][0].update(primary=1), "contexts.primary: expected true or false"),
    (lambda m: m.update(phases=[5]), "phases.name: expected a string"),
    (lambda m: m["phases"][0].update(ms="1"), 'phases.ms: expected a number from 0 on, found "1"'),
    (lambda m: m["phases"][0].update(ms=-1), "phases.ms: expected a number from 0 on, found -1"),
    (lambda m: m.update(format="tar"), 'format: expected "cudaw snapshot", found "tar"'),
]


def test_forged_manifests_are_refused():
    for change, message in FORGED:
        path = copy(GOLDEN, data=False)
        edit_manifest(path, change)
        refused_by_both(path, message)
        shutil.rmtree(path)


def test_an_edited_manifest_without_its_seal_is_refused():
    path = copy(GOLDEN, data=False)
    with open(f"{path}/manifest.json", "r+", encoding="ascii") as file:
        text = file.read().replace("Simulated", "Imaginary")
        file.seek(0)
        file.write(text)
    refused_by_both(path, "manifest.json: damaged: its checksum is not that of its contents")


def test_forged_chunks_are_refused():
    here = chunk(GOLDEN, 3)
    other = chunk(GOLDEN, 4)
    for number, fields, message in [
        (3, {"address": here["address"] + 1}, "its address is not a multiple of 2 MiB"),
        (3, {"address": other["address"]}, "is not above that of the one before"),
        (19, {"address": 2 ** 64 - CHUNK}, "its address is not a multiple of 2 MiB"),
        (19, {"address": BASE + 100 * CHUNK}, "is missing"),
        (3, {"offset": here["offset"] + 1}, "its offset is not a multiple of 4096"),
        (3, {"offset": 2 ** 63}, "its offset is not a multiple of 4096 below 2^48"),
        (3, {"offset": 1 << 40}, "has"),
        (3, {"offset": here["offset"] + 4096}, "overlap in data-"),
        (3, {"file": 10 ** 9}, "its file's number is too large"),
        (3, {"file": 77}, "is in data-77, which the manifest does not have"),
        (3, {"stored": 0}, "its stored size is not 2 MiB"),
        (3, {"stored": 2 ** 32 - 1}, "its stored size is not 2 MiB"),
        (3, {"codec": 9}, "its codec is not known"),
        (3, {"codec": 0}, "a chunk of zeros is stored somewhere"),
        (3, {"reserved": 1}, "its reserved field is not 0"),
        (3, {"file": other["file"], "offset": other["offset"]}, "overlap in data-"),
    ]:
        path = copy(GOLDEN, data=False)
        edit_chunk(path, number, **fields)
        refused_by_both(path, os.path.basename(index_of(path)), message)
        shutil.rmtree(path)


def test_forged_compressed_chunks_are_refused():
    for codec in CODECS:
        number = packed_chunk(codec)
        for fields, message in [
            ({"stored": 0}, "its compressed size is not from 1 to 2 MiB - 4096"),
            ({"stored": CHUNK - 4095}, "its compressed size is not from 1 to 2 MiB - 4096"),
            ({"stored": 2 ** 32 - 1}, "its compressed size is not from 1 to 2 MiB - 4096"),
            ({"codec": 1}, "its stored size is not 2 MiB"),
            ({"codec": 4}, "its codec is not known"),
            ({"codec": 2 ** 32 - 1}, "its codec is not known"),
        ]:
            path = copy(PACKED[codec], data=False)
            edit_chunk(path, number, **fields)
            refused_by_both(path, os.path.basename(index_of(path)), message)
            shutil.rmtree(path)


def test_chunks_that_do_not_decompress_are_refused():
    for codec, other in (("lz4", "zstd"), ("zstd", "lz4")):
        number = packed_chunk(codec)
        stored = chunk(PACKED[codec], number)["stored"]
        for fields, message in [
            ({"stored": 1}, "expected zeros behind a chunk"),
            ({"stored": stored + 1}, f"bytes of {codec}: "),
            ({"codec": CODECS[other]}, f"bytes of {other}: "),
            ({"hash": b"\1" * 16}, "expected checksum " + "01" * 16),
        ]:
            path = copy(PACKED[codec], data=False)
            for same in equal_chunks(path, number):
                edit_chunk(path, same, **fields)
            equal(cudaw("inspect", path).code, 0)
            refused(path, "data-", "damaged at", message)
            shutil.rmtree(path)


def test_compressed_bytes_that_make_no_sense_are_refused():
    rng = random.Random(7)
    for codec, directory in PACKED.items():
        one, path = chunk(directory, packed_chunk(codec)), copy(directory)
        with open(f"{path}/data-{one['file']}", "r+b") as file:
            for junk in (b"\xff" * 64, bytes(64), *(rng.randbytes(one["stored"]) for _ in range(5))):
                file.seek(one["offset"])
                file.write(junk)
                file.flush()
                refused(path, f"data-{one['file']}: damaged at {one['offset']} (0x",
                        f"expected {one['stored']} bytes of {codec}: ")


def test_the_padding_is_zeros():
    for codec, directory in PACKED.items():
        one, path = chunk(directory, packed_chunk(codec)), copy(directory)
        assert one["stored"] % 4096, "this one has no padding"
        end = one["offset"] + one["stored"]
        flip(f"{path}/data-{one['file']}", end, 4)
        refused(path, f"data-{one['file']}: damaged at {end}: expected zeros behind a chunk")


def test_a_chunk_of_other_contents_is_refused():
    path = copy(GOLDEN, data=False)
    edit_chunk(path, 3, hash=b"\1" * 16)
    equal(cudaw("inspect", path).code, 0)
    refused(path, "data-", "damaged at", f"0x{BASE + 3 * CHUNK:x} on the GPU",
            "expected checksum " + "01" * 16)


def test_forged_index_headers_are_refused():
    def put(at, value):
        return lambda data: data.__setitem__(slice(at, at + len(value)), value)
    for change, message in [
        (put(8, b"\0\0\0\0"), "expected version 1 with chunks of 2097152 bytes, found version 0"),
        (put(12, b"\0\x10\0\0"), "found version 1 with 4096"),
        (put(16, b"\xff" * 8), "expected a file for 18446744073709551615 chunks"),
        (put(16, b"\0" * 8), "expected a file for 0 chunks"),
        (lambda data: data.__setitem__(24, data[24] ^ 0xee),
         "not the one that the manifest was made for"),
        (lambda data: data[:HEADER.size - 1], "expected at least 64 bytes, found 63"),
        (lambda data: data[:HEADER.size + ENTRY.size - 1], "expected a file for 20 chunks"),
    ]:
        path = copy(GOLDEN, data=False)
        edit_index_bytes(path, change)
        refused_by_both(path, os.path.basename(index_of(path)), message)
    path = copy(GOLDEN, data=False)
    edit_index_bytes(path, put(0, b"X"), seal=False)
    refused_by_both(path, "it is not an index of a cudaw snapshot")


def test_random_indexes_never_crash():
    """Resealed, so that the checks behind the checksum see them. Whole or refused, never else."""
    rng = random.Random(9)
    for directory in (GOLDEN, *PACKED.values()):
        path = copy(directory, data=False)
        with open(index_of(path), "rb") as file:
            good = file.read()
        for _ in range(40):
            def change(_data, good=good):
                new = bytearray(good)
                for _ in range(rng.randrange(1, 4)):
                    new[rng.randrange(8, len(new))] = rng.choice([0, 1, 2, 3, 0x7f, 0x80, 0xff])
                return new
            edit_index_bytes(path, change)
            assert cudaw("verify", path).code in (0, 1, 6)


def test_control_characters_do_not_reach_the_terminal():
    path = copy(GOLDEN, data=False)
    edit_manifest(path, lambda m: m["process"].update(cwd="/\x1b[31m", command=["a\nb", "\u00c3\u00a9"],
                                                      name="\x07"))
    out = cudaw("inspect", path).out
    for bad in "\x1b\x07":
        assert bad not in out, out
    contains(out, "(?): a?b é\n")


def test_a_message_is_one_clean_line():
    """Whatever a path has."""
    equal(cudaw("verify", "/no\nwhere\x1b[31m").err,
          "cudaw: /no?where?[31m: No such file or directory\n")


def test_other_files_beside_it_do_not_matter():
    path = copy(GOLDEN, data=False)
    for name in ("README", "data-x", "data-01", "manifest.new", "data-99"):
        with open(f"{path}/{name}", "w", encoding="ascii") as file:
            file.write("x")
    assert is_whole(path)


if __name__ == "__main__":
    main()
