# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of snapshots: writing them (tests/unit/mksnapshot.c), and falsifying them."""
import json
import os
import shutil
import struct
import subprocess

from clilib import BUILD, cudaw, equal, scratch

MKSNAPSHOT = os.path.abspath(os.path.join(BUILD, "tests", "unit", "mksnapshot"))
CHUNK = 2 << 20
BASE = 0x600000000000
HEADER = struct.Struct("<8sIIQ16s16sQ")
ENTRY = struct.Struct("<QQIIII16s16s")
ENTRY_FIELDS = ["address", "offset", "file", "stored", "codec", "reserved", "hash", "digest"]


def run_mksnapshot(*args, **options):
    done = subprocess.run([MKSNAPSHOT, *map(str, args)], capture_output=True, text=True,
                          timeout=300, check=False, **options)
    return done.returncode, done.stdout, done.stderr


def write(path, seed, chunks, *more):
    equal(run_mksnapshot("write", path, seed, chunks, *more), (0, "", ""))


def manifest(path):
    with open(f"{path}/manifest.json", encoding="ascii") as file:
        return json.load(file)


def edit_manifest(path, change):
    """Change the manifest by a function of its object, and seal it again."""
    found = manifest(path)
    change(found)
    found.pop("checksum", None)
    with open(f"{path}/manifest.json", "w", encoding="ascii") as file:
        file.write(json.dumps(found)[:-1] + ',\n"checksum": "%032d"\n}\n' % 0)
    equal(run_mksnapshot("seal", f"{path}/manifest.json")[0], 0)


def index_of(path):
    return f"{path}/index-{manifest(path)['index']['number']}"


def edit_index_bytes(path, change, seal=True):
    """Change the bytes of the index by a function of them; then, with @seal, whatever vouches."""
    name = index_of(path)
    with open(name, "rb") as file:
        data = bytearray(file.read())
    data = change(data) or data
    with open(name, "wb") as file:
        file.write(data)
    if not seal:
        return
    code, out, _ = run_mksnapshot("seal", name)
    equal(code, 0)
    edit_manifest(path, lambda m: m["index"].update(hash=out.strip()))


def edit_chunk(path, number, seal=True, **fields):
    """Set fields of one chunk of the index."""
    def change(data):
        at = HEADER.size + number * ENTRY.size
        values = dict(zip(ENTRY_FIELDS, ENTRY.unpack_from(data, at)))
        values.update(fields)
        ENTRY.pack_into(data, at, *values.values())
    edit_index_bytes(path, change, seal)


def chunks(path):
    with open(index_of(path), "rb") as file:
        data = file.read()[HEADER.size:]
    return [dict(zip(ENTRY_FIELDS, entry)) for entry in ENTRY.iter_unpack(data)]


def chunk(path, number):
    return chunks(path)[number]


def copy(path, data=True):
    """A copy that may be broken; without @data its data files are the same."""
    new = os.path.join(scratch(), "copy")
    shutil.copytree(path, new, copy_function=lambda old, name: (
        shutil.copy2 if data or "/data-" not in old else os.link)(old, name))
    return new


def contents(path):
    """What tells the contents of one snapshot from those of another."""
    count = manifest(path)["totals"]["bytes"] // CHUNK
    return [chunk(path, i)["hash"] for i in range(count)]


def is_whole(path):
    """Whether cudaw verify finds nothing wrong; it must always say what."""
    result = cudaw("verify", path)
    assert result.code in (0, 1), (result.code, result.err)
    assert bool(result.err) == (result.code == 1), result.err
    return result.code == 0
