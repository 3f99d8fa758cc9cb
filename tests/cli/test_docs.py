#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pages in docs/, README and CONTRIBUTING: links lead to something, and the files that they name are there."""
import glob
import os
import re
import subprocess

from clilib import equal, main

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"`([\w./-]+/|[\w./-]+\.(?:c|h|py|calls|md|txt|svg))`")
# The toolkit's, and those that the reader of CONTRIBUTING's example makes.
ELSEWHERE = {"cuda.h", "tests/programs/flush.c", "tests/jobs/test_flush.py", "test_flush.py"}


def pages():
    """{name: text}"""
    names = ["README.md", "CONTRIBUTING.md"] + glob.glob("docs/*.md", root_dir=REPOSITORY)
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


def test_files_that_pages_name_are_there():
    """By their path in the tree; a bare name, by any path."""
    names = set()
    for _, directories, files in os.walk(REPOSITORY):
        directories[:] = [d for d in directories if d not in ("build", ".git")]
        names.update(files)
    missing = [f"{page}: {name}" for page, text in pages().items() for name in NAMED.findall(text)
               if name not in ELSEWHERE and not name.startswith(("/", "build/"))
               and not (name in names if "/" not in name else os.path.exists(os.path.join(REPOSITORY, name)))]
    equal(missing, [])


def test_the_readme_names_every_page():
    readme = pages()["README.md"]
    equal([page for page in pages() if page.startswith("docs/") and page not in readme], [])


def test_the_changes_of_make_mutants_can_be_made():
    done = subprocess.run(["tests/mutants"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    equal((done.returncode, done.stdout, done.stderr), (0, "", ""), "tests/mutants")


def test_the_readme_is_short():
    words = len(pages()["README.md"].split())
    assert words <= 1500, f"README.md has {words} words"


if __name__ == "__main__":
    main()
