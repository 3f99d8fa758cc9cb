#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Help, version and wrong usage of the cudaw command."""
import os
import re
import subprocess

from clilib import BUILD, CUDAW, LIMIT_S, cudaw, equal, contains, main

TREE = os.path.join(os.path.dirname(__file__), "..", "..")
COMMANDS = ["run", "ps", "top", "pause", "resume", "turns", "yield", "events", "wait", "metrics", "cdi", "doctor",
            "kernels", "snapshot", "restore", "inspect", "verify", "version"]


def test_help_names_every_command():
    for args in [["--help"], ["-h"], ["help"]]:
        result = cudaw(*args)
        equal(result.code, 0)
        equal(result.err, "")
        for command in COMMANDS:
            assert re.search(rf"^  {command} +\S", result.out, re.M), command


def test_help_documents_every_exit_code():
    out = cudaw("--help").out
    for code in range(7):
        assert re.search(rf"^  {code}  \S", out, re.M), code
    for code in (125, 126, 127):
        contains(out, str(code))


def test_help_of_each_command():
    for command in COMMANDS:
        result = cudaw(command, "--help")
        equal(result.code, 0)
        assert result.out.startswith(f"Usage: cudaw {command}"), result.out
        equal(cudaw("help", command).out, result.out)
        contains(result.out, "Exit codes:")


def test_help_fits_a_terminal():
    for args in [["--help"], ["help", "settings"]] + [[command, "--help"] for command in COMMANDS]:
        for line in cudaw(*args).out.splitlines():
            assert len(line) <= 92, line


def test_help_of_settings():
    with open(os.path.join(TREE, "common", "settings.h"), encoding="utf-8") as file:
        names = re.findall(r'"(CUDAW_[A-Z_]+)"', file.read())
    result = cudaw("help", "settings")
    equal((result.code, result.err), (0, ""))
    equal(sorted(re.findall(r"^  (CUDAW_[A-Z_]+)[: ]", result.out, re.M)), sorted(names))
    contains(result.out, "\n  CUDAW_CHECK: 0, 1, warn, strict (default: 0)\n      1: launches, copies")
    contains(cudaw("run", "--help").out, "'cudaw help settings'")
    contains(cudaw("--help").out, "'cudaw help settings'")


def test_pages_have_the_table_of_settings():
    """As "make docs" writes them."""
    for kind, page in [("markdown", "docs/settings.md"), ("man", "tools/cudaw.1")]:
        with open(os.path.join(TREE, page), encoding="utf-8") as file:
            text = file.read()
        done = subprocess.run([f"{BUILD}/tools/settings_page", kind], input=text, capture_output=True,
                              text=True, timeout=LIMIT_S, check=True)
        assert done.stdout == text, f'{page}: run "make docs"'
        begin, end = text.index("BEGIN settings"), text.index("END settings")
        without = text[:begin] + "BEGIN settings\n" + text[end:]
        done = subprocess.run([f"{BUILD}/tools/settings_page", kind], input=without, capture_output=True,
                              text=True, timeout=LIMIT_S, check=True)
        contains(done.stdout, "CUDAW_RELEASE")
        done = subprocess.run([f"{BUILD}/tools/settings_page", kind], input=text[:end], capture_output=True,
                              text=True, timeout=LIMIT_S, check=False)
        equal((done.returncode, done.stderr),
           (1, "settings_page: expected a line BEGIN settings and a line END settings\n"))


def options_in(text):
    return set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", text, re.M))


def test_man_pages_have_every_option():
    helps = [("cudaw.1", cudaw(command, "--help").out) for command in COMMANDS]
    helps.append(("cudawd.8", cudaw("--help", command=f"{BUILD}/bin/cudawd").out))
    for page, text in helps:
        with open(os.path.join(TREE, "tools", page), encoding="utf-8") as file:
            man = file.read().replace("\\-", "-")
        assert options_in(text), text
        equal(options_in(text) - options_in(re.sub(r"^\.[A-Z]+|[\", ]+", "\n ", man, flags=re.M)), set(), page)


def test_man_page_says_what_help_says_of_snapshots():
    """Which processes they have."""
    with open(os.path.join(TREE, "tools", "cudaw.1"), encoding="utf-8") as file:
        man = " ".join(re.sub(r"^\.[A-Z]+", "", file.read(), flags=re.M).split())
    text = " ".join(cudaw("snapshot", "--help").out.replace("'", "").split())
    sentences = re.findall(r"The snapshot has all .*? pause together\.", text)
    equal([sentence for sentence in sentences if sentence in man], sentences, "what both say")
    equal(len(sentences), 1, "what help says")


def test_help_and_man_page_have_the_presets():
    """Those of conf.h, without the ones that follow from hand-overs."""
    with open(os.path.join(TREE, "tools", "daemon", "conf.h"), encoding="utf-8") as file:
        rows = re.findall(r'X\(\w+, "([a-z-]+)", CONF_(\w+), ([^)]+)\)', file.read())
    shown = {"SECONDS": lambda text: f"{int(text) / 1000:g}", "COUNT": str,
             "DELAY": lambda text: f"{int(text) / 1000:g}" if int(text) else "never",
             "BYTES": lambda text: text.replace("UL << 20", "M")}
    presets = {name: shown[unit](text) for name, unit, text in rows if (unit, text) != ("SECONDS", "0")}
    blocks = re.split(r"^ +(?:-\w, )?--([a-z-]+)", cudaw("--help", command=f"{BUILD}/bin/cudawd").out, flags=re.M)
    helped = {name: re.findall(r"\(([\w.]+)\)", text) for name, text in zip(blocks[1::2], blocks[2::2])}
    equal({name: found[-1] for name, found in helped.items() if found}, {
        name: preset for name, preset in presets.items() if name in helped})
    with open(os.path.join(TREE, "tools", "cudawd.8"), encoding="utf-8") as file:
        man = re.sub(r"^\.[BI]R? ", "", file.read().replace("\\-", "-"), flags=re.M)
    for name in presets.keys() & helped.keys():
        about, = re.findall(rf"^--{name} .*\n((?s:.*?))\.TP", man, re.M)
        assert re.search(rf"(?:: |\n){presets[name]}(?: s)?(?:[.,]|\s*\n\(the default\))", about), (name, about)


def test_help_after_other_options():
    equal(cudaw("ps", "--json", "--help").code, 0)
    equal(cudaw("pause", "--all", "--help").out, cudaw("pause", "--help").out)


def test_version():
    for word in ("--version", "-V", "version"):
        result = cudaw(word)
        equal(result.code, 0)
        assert re.fullmatch(r"cudaw \d+\.\d+\.\d+\n", result.out), result.out


def test_a_slip_is_noticed():
    for slip, meant in [("puase", "pause"), ("snapshots", "snapshot"), ("pss", "ps"), ("Resume", "resume"),
                        ("insepct", "inspect"), ("doctr", "doctor")]:
        result = cudaw(slip)
        equal((result.code, result.out), (2, ""))
        contains(result.err, f"cudaw: there is no command '{slip}'; did you mean '{meant}'?\n")
    for word, hint in [("unpause", "did you mean 'resume'?"), ("start", "did you mean 'run'?"),
                       ("list", "did you mean 'ps'?"), ("status", "did you mean 'ps'?"),
                       ("suspend", "did you mean 'pause'?"), ("dump", "did you mean 'snapshot'?"),
                       ("stop", "'pause' holds a job; kill(1) ends it"),
                       ("kill", "kill(1) ends a job"), ("logs", "a job writes where its program does")]:
        result = cudaw(word)
        equal((result.code, result.out), (2, ""))
        contains(result.err, f"cudaw: there is no command '{word}'; {hint}")
    for other in ("dance", "x", "", "remove-everything" * 9):
        contains(cudaw(other).err, f"cudaw: there is no command '{other}'\n")


def test_usage_errors():
    for args, message in [
        ([], "no command given"),
        (["dance"], "no command 'dance'"),
        (["help", "dance"], "no command 'dance'"),
        (["ps", "--columns", "name,idd"], "there is no column 'idd'; did you mean 'id'?"),
        (["ps", "-o", ""], "there is no column ''"),
        (["ps", "-o", ",".join(["pid"] * 17)], "expected at most 16 columns"),
        (["ps", "-q", "--json"], "expected one of --json, --quiet, --columns and --wide"),
        (["ps", "-w", "-o", "id"], "expected one of --json"),
        (["ps", "--frob"], "cudaw ps: unrecognized option '--frob'"),
        (["doctor", "extra"], "takes no argument"),
        (["top", "extra"], "takes no argument: 'extra'"),
        (["top", "--times", "0"], "--times 0: expected a number of tables"),
        (["top", "-n", "2x"], "--times 2x: expected a number of tables"),
        (["top", "-d", "soon"], "--delay soon: expected a number of seconds"),
        (["run"], "expected a program to run"),
        (["run", "--name", "x"], "expected a program to run"),
        (["run", "--name", "a b", "true"], "--name 'a b': expected 1 to 64 letters"),
        (["run", "--name", "", "true"], "--name '': expected 1 to 64 letters"),
        (["run", "--name", "x" * 65, "true"], "expected 1 to 64 letters"),
        (["run", "--frob", "true"], "unrecognized option '--frob'"),
        (["run", "--class", "first", "true"], "--class 'first': expected"),
        (["run", "--mem", "0", "true"], "--mem '0': expected a number of bytes from 2M on, as 20G"),
        (["run", "--mem", "20", "true"], "--mem '20': expected a number of bytes from 2M on, as 20G"),
        (["run", "--mem", "all", "true"], "--mem 'all': expected a number of bytes from 2M on, as 20G"),
        (["run", "--weight", "0", "true"], "--weight '0': expected a whole number from 1 to 100"),
        (["turns", "extra"], "turns: expected set, drain, undrain or nothing, found 'extra'"),
        (["turns", "set"], "turns set: expected KEY=VALUE"),
        (["turns", "drain"], "turns drain: expected a GPU"),
        (["turns", "undrain", "0", "1"], "turns undrain: expected a GPU"),
        (["turns", "drain", "first"], "'first': expected the number of a GPU in nvidia-smi, or a UUID"),
        (["events", "extra"], "takes no argument: 'extra'"),
        (["wait", "x"], "expected --for paused, freed or saved"),
        (["wait", "--for", "over", "x"], "--for over: expected paused, freed or saved"),
        (["wait", "--for", "paused"], "expected a job"),
        (["wait", "--for", "paused", "-t", "0", "x"], "--timeout 0: expected a number of seconds"),
        (["yield"], "expected a job"),
        (["pause"], "expected an ID, NAME or PID, or --all"),
        (["resume"], "expected an ID, NAME or PID, or --all"),
        (["pause", "--all", "x"], "take no ID"),
        (["pause", "--timeout", "soon", "x"], "--timeout soon: expected a number of seconds"),
        (["resume", "--timeout", "0", "x"], "--timeout 0: expected a number of seconds from 0.001 to 1000000"),
        (["pause", "--timeout", "-1", "x"], "--timeout -1: expected a number of seconds"),
        (["pause", "--timeout", "nan", "x"], "--timeout nan: expected a number of seconds"),
        (["pause", "--timeout", "3x", "x"], "--timeout 3x: expected a number of seconds"),
        (["pause", "--timeout"], "requires an argument"),
        (["kernels"], "expected a file"),
        (["kernels", "--arch", "90", "x"], "--arch 90: expected an architecture"),
        (["inspect"], "expected a directory"),
        (["inspect", "a", "b"], "expected only one directory"),
        (["verify"], "expected a directory"),
        (["inspect", ""], "expected a directory, found an empty word"),
        (["verify", "a", ""], "expected a directory, found an empty word"),
        (["restore", ""], "expected a directory, found an empty word"),
        (["kernels", "a", ""], "expected a file, found an empty word"),
        (["snapshot", "--gpu-only", "x", ""], "expected a job or directory, found an empty word"),
        (["snapshot", "x"], "expected a job and a directory"),
        (["snapshot", "--stop", "--gpu-only", "x", "y"], "--stop with --gpu-only would end a job"),
        (["snapshot", "--timeout", "soon", "x", "y"], "--timeout soon: expected a number of seconds"),
        (["restore"], "expected a directory"),
        (["restore", "a", "b"], "expected only one directory"),
    ]:
        result = cudaw(*args)
        equal((args, result.code), (args, 2))
        equal(result.out, "")
        contains(result.err, message)
        contains(result.err, "--help")


def test_what_cannot_be_written_is_an_error():
    """The reason of a write before the end is not known there."""
    with open("/dev/full", "w", encoding="ascii") as full:
        for args in (["ps"], ["ps", "--json"], ["cdi"], ["metrics"], ["version"], ["--help"], ["help", "ps"],
                     ["help", "settings"], ["ps", "-h"], ["kernels", "--json", CUDAW]):
            done = subprocess.run([CUDAW, *args], stdout=full, stderr=subprocess.PIPE, text=True,
                                  timeout=LIMIT_S, check=False)
            said, _, why = done.stderr.splitlines()[-1].rpartition(": ")
            equal((done.returncode, said), (1, "cudaw: stdout"), args)
            assert why in ("No space left on device", "the output is not whole"), why


if __name__ == "__main__":
    main()
