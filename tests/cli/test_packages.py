#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What packages say of the software of others that is in them (packages/third_party.py)."""
import json
import os
import re
import shutil
import subprocess

from clilib import LIMIT_S, Skip, equal, contains, main, scratch

SOURCES = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
EPOCH = 1700000000
# What SPDX 2.3 requires (schemas/spdx-schema.json of its specification).
REQUIRED = {"SPDXID", "creationInfo", "dataLicense", "documentNamespace", "name", "spdxVersion"}
REQUIRED_OF_PACKAGE = {"SPDXID", "downloadLocation", "name"}


def linked(directory, *libraries):
    """A program with these libraries, and what the linker says of it."""
    if not shutil.which("dpkg-query"):
        raise Skip("not a Debian system")
    program = f"{directory}/program"
    source = "#include <lz4.h>\nint main(void) { return LZ4_versionNumber() == 0; }\n"
    subprocess.run(["cc", "-x", "c", "-", *libraries, f"-Wl,-Map,{program}.map", "-o", program], input=source,
                   text=True, check=True, timeout=LIMIT_S)
    return program + ".map"


def third_party(directory, map_path, sources=SOURCES):
    return subprocess.run([os.path.join(SOURCES, "packages", "third_party.py"), "--version", "1.2.3", "--sources",
                           sources, "--output", directory, map_path], text=True, check=False, timeout=LIMIT_S,
                          env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}, capture_output=True)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def check_spdx(document):
    equal(REQUIRED - set(document), set())
    equal((document["spdxVersion"], document["dataLicense"], document["SPDXID"]),
          ("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT"))
    equal(document["creationInfo"], {"created": "2023-11-14T22:13:20Z", "creators": ["Tool: third_party.py-1.2.3"]})
    assert re.fullmatch(r"https://\S+", document["documentNamespace"]), document["documentNamespace"]
    names = {"SPDXRef-DOCUMENT"}
    for package in document["packages"]:
        equal(REQUIRED_OF_PACKAGE - set(package), set())
        assert re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", package["SPDXID"]), package["SPDXID"]
        names.add(package["SPDXID"])
    equal(len(names), len(document["packages"]) + 1, "the number of names")
    for relation in document["relationships"]:
        equal({relation["spdxElementId"], relation["relatedSpdxElement"]} - names, set())


def test_what_is_linked_is_named():
    directory = scratch()
    equal(third_party(directory, linked(directory, "-l:liblz4.a", "-l:libzstd.a")).stderr, "")
    document = json.loads(read(f"{directory}/cudaw.spdx.json"))
    check_spdx(document)
    licences = {package["name"]: package["licenseDeclared"] for package in document["packages"]}
    how = {(relation["relatedSpdxElement"], relation["relationshipType"]) for relation in document["relationships"]}
    equal((licences["lz4"], licences["cudaw"]), ("BSD-2-Clause", "Apache-2.0"))
    equal("libzstd" in licences, False, "a library of which the linker took nothing")
    equal({("SPDXRef-lz4", "STATIC_LINK"), ("SPDXRef-glibc", "DYNAMIC_LINK"), ("SPDXRef-uthash", "STATIC_LINK")} - how,
          set())
    page = read(f"{directory}/THIRD_PARTY")
    contains(page, f"lz4 {[p['versionInfo'] for p in document['packages'] if p['name'] == 'lz4'][0]} (in it)\n")
    contains(page, read("/usr/share/doc/liblz4-dev/copyright"))
    contains(page, read("/usr/share/common-licenses/GPL-2"))


def test_shared_libraries_are_told_from_static_ones():
    directory = scratch()
    equal(third_party(directory, linked(directory, "-llz4")).stderr, "")
    page = read(f"{directory}/THIRD_PARTY")
    assert re.search(r"^lz4 \S+ \(the system's\)$", page, re.M), page[:2000]


def test_what_has_no_licence_in_the_table_is_refused():
    directory = scratch()
    for name in ("common", "kparams", "vmem", "checkpoint", "wrapper", "tools"):
        os.symlink(os.path.join(SOURCES, name), f"{directory}/{name}")
    with open(f"{directory}/THIRD_PARTY", "w", encoding="utf-8") as file:
        file.write(re.sub(r"^lz4 .*\n", "", read(os.path.join(SOURCES, "THIRD_PARTY")), flags=re.M))
    done = third_party(directory, linked(directory, "-l:liblz4.a"), sources=directory)
    equal((done.returncode, done.stderr), (1, "third_party.py: lz4 is in the binaries, and the table in THIRD_PARTY "
                                              "does not have it\n"))


if __name__ == "__main__":
    main()
