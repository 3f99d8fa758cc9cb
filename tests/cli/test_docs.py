#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The pages in docs/, README, CONTRIBUTING and SECURITY: links lead to something, and the files that they name are there. Of
docs/architecture.md and docs/internals/, which are for people who change cudaw, the directories as well.
"""
import glob
import os
import re
import subprocess

from clilib import equal, main

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"`([\w./-]+/|[\w./-]+\.(?:c|h|py|calls|words|md|txt|svg))`")
NAMED_IN_MAPS = re.compile(r"`([\w./-]*/[\w./-]*|[\w./-]+\.(?:c|h|py|calls|words|md|txt|svg))`")
# The toolkit's, and those that the reader of CONTRIBUTING's example makes.
ELSEWHERE = {"cuda.h", "tests/programs/flush.c", "tests/jobs/test_flush.py", "test_flush.py"}
# The system's, what the build makes, and what is in a snapshot.
OUTSIDE = ("/", "build/", "DIR/")


def is_map(page):
    return page == "docs/architecture.md" or page.startswith("docs/internals/")


def pages():
    """{name: text}"""
    names = ["README.md", "CONTRIBUTING.md", "SECURITY.md"] + glob.glob("docs/**/*.md", root_dir=REPOSITORY, recursive=True)
    texts = {}
    for name in names:
        with open(os.path.join(REPOSITORY, name), encoding="utf-8") as file:
            texts[name] = file.read()
    return texts


def anchors(text):
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_something():
    texts, broken = pages(), []
    for page, text in texts.items():
        for link in LINK.findall(text):
            path, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if link.startswith("http"):
                continue
            if not os.path.exists(os.path.join(REPOSITORY, target)):
                broken.append(f"{page}: {link}")
            elif anchor and anchor not in anchors(texts[target]):
                broken.append(f"{page}: {link}: no such heading")
    equal(broken, [])


def names_in_tree():
    names = set()
    for _, directories, files in os.walk(REPOSITORY):
        directories[:] = [d for d in directories if d not in ("build", ".git")]
        names.update(files)
    return names


def missing_files(page, text, names):
    """What @text names and the tree lacks. A path is from the top of the tree; a bare name may be anywhere."""
    named = (NAMED_IN_MAPS if is_map(page) else NAMED).findall(text)
    return [name for name in named if name not in ELSEWHERE and not name.startswith(OUTSIDE)
            and not (os.path.exists(os.path.join(REPOSITORY, name)) if "/" in name else name in names)]


def test_files_that_pages_name_are_there():
    names = names_in_tree()
    equal([f"{page}: {name}" for page, text in pages().items() for name in missing_files(page, text, names)], [])


def test_a_wrong_path_is_found():
    names = names_in_tree()
    for page in filter(is_map, pages()):
        for wrong in ("vmem/attic.c", "attic.c", "attic.words", "checkpoint/attic", "attic/", "vmem/gate.h"):
            equal(missing_files(page, f"| a change | `vmem/vmem.c`, `{wrong}` |", names), [wrong], page)
    right = "`vmem/vmem.c` `gate.h` `vmem` `checkpoint/gate` `tests/cli/` `tests/mutants` `build/gen/calls.c`"
    equal(missing_files("docs/internals/where.md", right, names), [])


def test_a_bare_name_is_in_the_directory_that_is_named_before_it():
    """As docs/internals/where.md says, line by line."""
    wrong, lines = [], 0
    for line in pages()["docs/internals/where.md"].splitlines():
        directory = None
        for name in re.findall(r"`([\w./-]+\.(?:c|h|calls|words))`", line):
            if "/" in name:
                directory = os.path.dirname(name)
            elif directory:
                lines += 1
                wrong += [f"{directory}/{name}"] * (not os.path.exists(os.path.join(REPOSITORY, directory, name)))
    equal(wrong, [])
    assert lines


def test_every_page_is_named():
    """By the README, or by the map if it is for people who change cudaw."""
    texts = pages()
    inner = [page for page in texts if page.startswith("docs/internals/")]
    outer = [page for page in texts if page.startswith("docs/") and page not in inner]
    equal([page for page in outer if page not in texts["README.md"]], [])
    equal([page for page in inner if page.removeprefix("docs/") not in texts["docs/architecture.md"]], [])


def test_tests_are_found_by_their_names():
    """A unit test bears the name of a file or directory of the product, and no two tests are called alike."""
    named = {os.path.splitext(name)[0] for top in ("common", "kparams", "vmem", "checkpoint", "wrapper", "tools")
             for _, directories, files in os.walk(os.path.join(REPOSITORY, top)) for name in directories + files}
    tests = glob.glob("tests/**/test_*.[cp]*", root_dir=REPOSITORY, recursive=True)
    names = [os.path.basename(path) for path in tests if path.endswith((".c", ".py"))]
    odd = [path for path in tests if path.startswith("tests/unit/")
           and not any(f"{os.path.basename(path)[5:-2]}_".startswith(f"{name}_") for name in named)]
    equal((odd, sorted({name for name in names if names.count(name) > 1})), ([], []))


def test_the_map_is_short():
    words = len(pages()["docs/architecture.md"].split())
    assert words <= 1500, f"docs/architecture.md has {words} words"


def test_the_changes_of_make_mutants_can_be_made():
    done = subprocess.run(["tests/mutants"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    equal((done.returncode, done.stdout, done.stderr), (0, "", ""), "tests/mutants")


def test_the_readme_is_short():
    words = len(pages()["README.md"].split())
    assert words <= 1500, f"README.md has {words} words"


if __name__ == "__main__":
    main()
