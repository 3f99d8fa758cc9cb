# SPDX-License-Identifier: Apache-2.0
"""What docs/json.md says of the output of --json, beside what the commands print; and the commands that pages show."""
import os
import re

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def page(name="docs/json.md"):
    with open(os.path.join(REPOSITORY, name), encoding="utf-8") as file:
        return file.read()


def blocks(name):
    """The commands and files that the page shows, each as a text."""
    found = re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", page(name), re.MULTILINE)
    return [re.sub("^    ", "", block, flags=re.MULTILINE) for block in found]


def block(name, words):
    """That which has these words."""
    found, = (text for text in blocks(name) if words in text)
    return found


def section(command):
    for part in re.split(r"^## ", page(), flags=re.MULTILINE):
        if f"cudaw {command}" in part.partition("\n")[0].split(", "):
            return part
    raise AssertionError(f"docs/json.md has no section 'cudaw {command}'")


def rows(text):
    """The keys in the first column of the tables."""
    return {key for line in text.splitlines() if line.startswith("| `")
            for key in re.findall(r"`([^`]+)`", line.split("|")[1])}


def documented(command):
    keys = rows(section(command))
    if command == "inspect":
        keys |= manifest_keys()
    return keys


def manifest_keys():
    text = page("checkpoint/snapshot/FORMAT.md").partition("## manifest.json")[2]
    return rows(text.partition("\n## ")[0])


def any_name(key, keys):
    """The documented form of @key, of which a part may be any name; @key itself if there is none."""
    for form in keys:
        pattern = re.sub(r"[A-Z]{2,}", "[^.]+", re.escape(form))
        if re.fullmatch(pattern, key):
            return form
    return key


def keys_of(value, prefix=""):
    """The paths of all keys in a JSON value, as the page writes them."""
    if isinstance(value, list):
        return {key for one in value for key in keys_of(one, prefix + "[]" if prefix else "")}
    if not isinstance(value, dict):
        return {prefix}
    if not value:
        return set()
    return {key for name, one in value.items()
            for key in keys_of(one, f"{prefix}.{name}" if prefix else name)}


def undocumented(command, *values):
    """The keys that the page lacks; for inspect, below the top of the manifest none is looked at."""
    keys = documented(command)
    found = {any_name(key, keys) for value in values for key in keys_of(value)}
    if command == "inspect":
        found = {re.split(r"[.\[]", key)[0] for key in found}
    return sorted(found - keys), sorted(keys - found)


def check_documented(command, *values, every=True, but=()):
    """No key of the commands' output is missing on the page; nor, if @every, the other way, without those that begin with @but."""
    new, gone = undocumented(command, *values)
    gone = [key for key in gone if not key.startswith(but)]
    assert not new, f"docs/json.md has no {new} of cudaw {command}"
    assert not gone or not every, f"cudaw {command} does not print {gone}, which docs/json.md has"
    for value in values:
        for one in value if isinstance(value, list) else [value]:
            assert one["schema"] == 1, f"cudaw {command} printed {one}"
