#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Say which software of others is in the binaries of a build: for people (THIRD_PARTY, with the texts of the licences)
and for programs (cudaw.spdx.json, SPDX 2.3).

usage: third_party.py --version VERSION --sources DIR --output DIR MAP...

A MAP is what the linker wrote about a program or library (-Map), beside it, as FILE.map. It names the static libraries
and start-up files that were linked, and the shared libraries, of which those count that FILE needs. Headers with code
count if a source file includes them. The package manager (dpkg) knows the package, version and copyright of each; the
table in THIRD_PARTY of the source tree has the licences. SOURCE_DATE_EPOCH is the time that the outputs bear.

Exit status: 0 done; 1 something is linked that the table lacks, or that no package has; 2 usage.
"""
import argparse
import datetime
import fnmatch
import hashlib
import json
import os
import re
import subprocess
import sys

# The common part of all programs' builds, of which no code goes into a program.
ONLY_DECLARATIONS = {"glibc", "linux", "gcc-*"}
SOURCES = ["common", "kparams", "vmem", "checkpoint", "wrapper", "tools"]


class Missing(Exception):
    pass


def output_of(*command, may_fail=False):
    run = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    if run.returncode and not may_fail:
        raise Missing(f"{command[0]}: {run.stderr.strip()}")
    return run.stdout


def read_table(path):
    """{source package, a pattern: (licence, what of it)}"""
    with open(path, encoding="utf-8") as file:
        lines = file.read().partition("\n---")[2].splitlines()[1:]
    return {row[0]: row[1:] for row in (re.split(r"  +", line.strip(), maxsplit=2) for line in lines if line.strip())}


def dynamic(path, tag):
    return re.findall(rf"\({tag}\).*\[(.*)\]", output_of("readelf", "-dW", path))


def linked_files(map_path):
    """{path: STATIC_LINK or DYNAMIC_LINK} of the files outside the build that are in what @map_path is of."""
    with open(map_path, encoding="utf-8") as file:
        text = file.read()
    needed = dynamic(map_path.removesuffix(".map"), "NEEDED")
    found = {}
    for path in re.findall(r"^LOAD (/\S+)$", text, re.M):
        real = os.path.realpath(path)
        if not os.path.exists(real):
            continue    # the compiler's, of an assembly file of ours
        if real.endswith(".o") or (real.endswith(".a") and f"{path}(" in text):
            found[real] = "STATIC_LINK"
        elif ".so" in os.path.basename(real):
            with open(real, "rb") as file:
                is_elf = file.read(4) == b"\x7fELF"
            if is_elf and set(dynamic(real, "SONAME")) & set(needed):
                found[real] = "DYNAMIC_LINK"
    return found


def included_headers(sources):
    """The system's headers that the product's sources include."""
    named = set()
    for top in SOURCES:
        for directory, _, files in os.walk(os.path.join(sources, top)):
            for name in files:
                if name.endswith((".c", ".h")):
                    with open(os.path.join(directory, name), encoding="utf-8") as file:
                        named.update(re.findall(r"^#\s*include <(.*)>", file.read(), re.M))
    return [path for path in (f"/usr/include/{name}" for name in sorted(named)) if os.path.exists(path)]


def owners(paths):
    """{path: (binary package, source package, its version)}"""
    # A file of /usr/lib may be known by its old name in /lib, and the other way round.
    spelled = {name: path for path in paths for name in (path, path.removeprefix("/usr"), "/usr" + path)}
    packages = {}
    for line in output_of("dpkg", "-S", *spelled, may_fail=True).splitlines():
        owner, _, name = line.rpartition(": ")
        packages[spelled[name]] = owner.split(", ")[0]
    facts = {}
    for package in set(packages.values()):
        facts[package] = output_of("dpkg-query", "-Wf", "${source:Package}\t${source:Version}", package).split("\t")
    return {path: (package, *facts[package]) for path, package in packages.items()}


def licence_of(table, source):
    for pattern, row in table.items():
        if fnmatch.fnmatchcase(source, pattern):
            return row
    raise Missing(f"{source} is in the binaries, and the table in THIRD_PARTY does not have it")


def components(maps, sources, table):
    """Sorted: (source package, version, binary packages, {STATIC_LINK, DYNAMIC_LINK})"""
    how = {}
    for map_path in maps:
        for path, kind in linked_files(map_path).items():
            how.setdefault(path, set()).add(kind)
    headers = included_headers(sources)
    owner = owners([*how, *headers])
    nobodys = sorted(set(how) - set(owner))
    if nobodys:
        raise Missing("no package has " + ", ".join(nobodys))
    found = {}
    for path, (package, source, version) in owner.items():
        kinds = how.get(path)
        if not kinds:
            if any(fnmatch.fnmatchcase(source, pattern) for pattern in ONLY_DECLARATIONS):
                continue
            kinds = {"STATIC_LINK"} if licence_of(table, source)[1].split(":")[0].endswith(".h") else set()
        if kinds:
            packages, all_kinds = found.setdefault((source, version), (set(), set()))
            packages.add(package)
            all_kinds.update(kinds)
    return [(*key, sorted(packages), kinds) for key, (packages, kinds) in sorted(found.items())]


def distribution():
    with open("/etc/os-release", encoding="utf-8") as file:
        return re.search(r'^ID="?(\w+)', file.read(), re.M)[1]


def package_entry(name, version, licence, **more):
    return {"SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]+", "-", name), "name": name, "versionInfo": version,
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": licence,
            "licenseDeclared": licence, "copyrightText": "NOASSERTION", **more}


def spdx(version, epoch, found, table):
    """The document as an object."""
    vendor = distribution()
    packages = [package_entry("cudaw", version, "Apache-2.0", primaryPackagePurpose="APPLICATION")]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-cudaw")]
    for source, its_version, _, kinds in found:
        locator = f"pkg:deb/{vendor}/{source}@{its_version.replace('+', '%2B').replace(':', '%3A')}?arch=source"
        packages.append(package_entry(source, its_version, licence_of(table, source)[0], externalRefs=[
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator}]))
        relations += [("SPDXRef-cudaw", kind, packages[-1]["SPDXID"]) for kind in sorted(kinds)]
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"cudaw-{version}",
        "creationInfo": {"created": datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime(
            "%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: third_party.py-" + version]},
        "packages": packages,
        "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b}
                          for a, kind, b in relations],
    }
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    document["documentNamespace"] = f"https://spdx.org/spdxdocs/cudaw-{version}-{digest[:32]}"
    return document


def texts(found, table):
    """The page for people: the table, then each copyright file, and the licences that these refer to."""
    yield "Software of others in these binaries of cudaw\n\n"
    for source, version, _, kinds in found:
        link = " and ".join({"STATIC_LINK": "in it", "DYNAMIC_LINK": "the system's"}[kind] for kind in sorted(kinds))
        licence, what = licence_of(table, source)
        yield f"{source} {version} ({link})\n    {licence}\n    {what}\n"
    yield ("\nThe sources of each are those of Debian's or Ubuntu's source package of this name and version. The\n"
           "source of cudaw itself is published, so that you can link its programs with other versions of\n"
           "these libraries (make RELOCATABLE=1).\n")
    common = set()
    for source, version, packages, kinds in found:
        if "STATIC_LINK" in kinds:
            with open(f"/usr/share/doc/{packages[0].split(':')[0]}/copyright", encoding="utf-8") as file:
                text = file.read()
            common.update(re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", text))
            yield f"\n{'=' * 100}\n{source} {version}\n{'=' * 100}\n\n{text}"
    for name in sorted(common):
        with open(f"/usr/share/common-licenses/{name}", encoding="utf-8") as file:
            yield f"\n{'=' * 100}\n/usr/share/common-licenses/{name}\n{'=' * 100}\n\n{file.read()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    for option in ("--version", "--sources", "--output"):
        parser.add_argument(option, required=True)
    parser.add_argument("maps", nargs="+", metavar="MAP")
    options = parser.parse_args()
    try:
        table = read_table(os.path.join(options.sources, "THIRD_PARTY"))
        found = components(options.maps, options.sources, table)
        document = spdx(options.version, int(os.environ["SOURCE_DATE_EPOCH"]), found, table)
        page = "".join(texts(found, table))
    except (Missing, OSError) as error:
        print(f"third_party.py: {error}", file=sys.stderr)
        return 1
    with open(os.path.join(options.output, "cudaw.spdx.json"), "w", encoding="utf-8") as file:
        json.dump(document, file, indent=2)
        file.write("\n")
    with open(os.path.join(options.output, "THIRD_PARTY"), "w", encoding="utf-8") as file:
        file.write(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
