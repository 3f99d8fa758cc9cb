#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bash, zsh and fish offer behind cudaw and cudawd (packages/completions.py), beside the help texts."""
import os
import re
import shutil
import subprocess

from clilib import BUILD, CUDAW, Directory, FakeJob, LIMIT_S, Skip, cudaw, equal, contains, main, scratch

PACKAGES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "packages")
CUDAWD = f"{BUILD}/bin/cudawd"
made = {}

# Calls the function as bash does, with the words, the last of which is under the cursor.
BASH = """
load() { source "$1"; }    # as bash-completion does: in a function
load "$1"
shift
compopt() { echo "compopt $*"; }
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_cudaw "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""

# What it gives to the functions that zsh has for completion.
ZSH = """
_arguments() { print -rl -- "$@" }
_describe() { print -rl -- ${(P)2} }
file=$1 service=$2
shift
words=("$@") CURRENT=$#
source $file
"""


def completions():
    if not made:
        made["at"] = scratch()
        subprocess.run([f"{PACKAGES}/completions.py", "--output", made["at"], CUDAW, CUDAWD], check=True, timeout=LIMIT_S)
    return made["at"]


def shell(name, script, file, *words, **env):
    if not shutil.which(name):
        raise Skip(f"no {name} here")
    plain = {"bash": ["--norc"], "zsh": ["-f"]}[name]
    done = subprocess.run([name, *plain, "-c", script, name, f"{completions()}/{file}", *words], text=True, check=True,
                          capture_output=True, timeout=LIMIT_S, env={**os.environ, **env})
    equal(done.stderr, "")
    return set(done.stdout.split("\n")) - {""}


def in_bash(*words, **env):
    return shell("bash", BASH, "cudaw.bash", *words, **env)


def summaries():
    """{command: what it does}, as the help has it."""
    text = cudaw("--help").out
    return dict(re.findall(r"^  ([a-z]+) +(\S.*)$", text[text.index("\nCommands:"):text.index("\n'cudaw")], re.M))


def options_of(*words):
    """The words for options in a help text."""
    text = cudaw(*words[1:], "--help", command=CUDAWD if words[0] == "cudawd" else CUDAW).out
    found = re.findall(r"^ +(-\w)?(?:, )?(--[a-z-]+)", text, re.M)
    assert found, text
    return {word for pair in found for word in pair if word}


def programs():
    return [("cudawd",)] + [("cudaw", command) for command in summaries()]


def lines_of(file):
    with open(f"{completions()}/{file}", encoding="utf-8") as opened:
        return opened.read().splitlines()


def in_bash_file():
    """The commands of a file, and {words: options}; the same of the others."""
    text = "\n".join(lines_of("cudaw.bash"))
    first = re.search(r"^_cudaw_first\[cudaw\]='(.*)'$", text, re.M)[1].split()
    options = re.findall(r"^_cudaw_options\['?([a-z ]+)'?\]='(.*)'$", text, re.M)
    return set(first) - {"help", "--help", "--version"}, {tuple(path.split()): set(of.split()) for path, of in options}


def in_zsh_file():
    found, commands, path = {}, set(), None
    for line in lines_of("_cudaw"):
        begin = re.fullmatch(r"\t'?(cudawd?(?: [a-z]+)?)'?\)", line)
        option = re.match(r"\t+'\*(--?[A-Za-z-]+?)[+=]?\[", line)
        command = re.match(r"\t\t'([a-z]+):", line)
        if begin:
            path = tuple(begin[1].split())
            found[path] = set()
        elif option:
            found[path].add(option[1])
        elif command:
            commands.add(command[1])
    return commands, found


def in_fish_files():
    found, commands = {}, set()
    for line in lines_of("cudaw.fish") + lines_of("cudawd.fish"):
        words = re.match(r"complete -c (cudawd?) (?:-n '__fish_seen_subcommand_from ([a-z]+)')?", line)
        command = re.match(r"complete -c cudaw -f -n __fish_use_subcommand -a ([a-z]+) ", line)
        if command:
            commands.add(command[1])
        elif words and " -d " in line:
            options = line[words.end():].split(" -d ")[0]
            of = found.setdefault(tuple(word for word in words.groups() if word), set())
            of |= {f"-{word}" for word in re.findall(r"-s (\w)", options)}
            of |= {f"--{word}" for word in re.findall(r"-l ([a-z-]+)", options)}
    return commands, found


def test_all_files_have_all_commands_and_options():
    """Without the shells, which may not be here."""
    wanted = {words: options_of(*words) for words in programs()}
    for read in in_bash_file, in_zsh_file, in_fish_files:
        commands, found = read()
        equal(commands, set(summaries()), read.__name__)
        equal(found, wanted, read.__name__)


def test_bash_offers_all_commands_and_options():
    equal(in_bash("cudaw", "") - {"help", "--help", "--version"}, set(summaries()))
    equal(in_bash("cudaw", "help", "sn"), {"snapshot"})
    for words in programs():
        equal(in_bash(*words, "-"), options_of(*words), words)


def test_bash_offers_what_fits_an_option_and_an_argument():
    here = scratch()
    os.makedirs(f"{here}/one/two")
    for words, offered in [
        (("cudaw", "pause", "--release", ""), {"all", "memory"}),
        (("cudaw", "pause", "--release", "=", ""), {"all", "memory"}),
        (("cudaw", "pause", "--release", "="), {"all", "memory"}),
        (("cudaw", "snapshot", "-c", "z"), {"zstd"}),
        (("cudaw", "wait", "--for", ""), {"paused", "freed", "saved"}),
        (("cudaw", "run", "--class", ""), {"interactive", "batch"}),
        (("cudaw", "run", "--name", ""), set()),
        (("cudaw", "run", "--trace", ""), {"compopt -o default"}),
        (("cudaw", "run", "--name", "x", "--", "cudaw", "x"), {"compopt -o default"}),
        (("cudaw", "turns", ""), {"set", "drain", "undrain"}),
        (("cudaw", "turns", "d"), {"drain"}),
        (("cudaw", "restore", f"{here}/"), {"compopt -o filenames", f"{here}/one"}),
        (("cudaw", "doctor", ""), set()),
        (("cudaw", "nonsense", "-"), set()),
        (("cudawd", "--conf", ""), {"compopt -o default"}),
    ]:
        equal(in_bash(*words), offered, words)
    contains(in_bash("cudaw", "run", "--turns", "bas"), "bash")


def test_bash_offers_jobs():
    directory = Directory()
    FakeJob(directory, name="train", reason="a user has paused it", state="paused")
    FakeJob(directory, id="abc124", name=None)
    equal(in_bash(CUDAW, "pause", ""), {"abc123", "abc124", "train"})
    equal(in_bash(CUDAW, "pause", "--timeout", "3", "x", "tr"), {"train"})
    equal(in_bash(CUDAW, "snapshot", "--stop", "tr"), {"train"})


def test_bash_runs_no_name():
    """A name is whatever its user chose, and bash expands the words that it is offered."""
    directory, made_by_name = Directory(), os.path.join(scratch(), "made")
    FakeJob(directory, name=f"$(touch${{IFS}}{made_by_name})")
    FakeJob(directory, id="abc124", name="train")
    equal(in_bash(CUDAW, "pause", ""), {"abc123", "abc124", "train"})
    assert not os.path.exists(made_by_name), "TAB has run a job's name"


def test_zsh_offers_all_commands_and_options():
    equal(shell("zsh", ZSH, "_cudaw", "cudaw", ""), {f"{name}:{text}" for name, text in summaries().items()})
    for words in programs():
        specs = shell("zsh", ZSH, "_cudaw", *words, "")
        equal({re.match(r"\*(--?[A-Za-z-]+)", spec)[1] for spec in specs if spec.startswith("*-")},
              options_of(*words), words)
    contains(shell("zsh", ZSH, "_cudaw", "cudaw", "snapshot", ""), "*:argument:_files -/")


def test_fish_offers_all_commands_and_options():
    if not shutil.which("fish"):
        raise Skip("no fish here")
    tried = [("cudaw", "")] + [(*words, "-") for words in programs()] + [("cudaw", "pause", "--release", "")]
    script = "".join(f"source {completions()}/{name}.fish\n" for name in ("cudaw", "cudawd"))
    script += "".join(f"echo @; complete -C '{' '.join(words)}'\n" for words in tried)
    done = subprocess.run(["fish", "--no-config", "-c", script], text=True, capture_output=True, check=True,
                          timeout=LIMIT_S, env={**os.environ, "PATH": f"{BUILD}/bin:{os.environ['PATH']}"})
    equal(done.stderr, "")
    offered = [{line.split("\t")[0] for line in part.splitlines()} for part in done.stdout.split("@\n")[1:]]
    equal(offered[0], set(summaries()))
    for words, found in zip(tried[1:-1], offered[1:]):
        equal({word for word in options_of(*words[:-1]) if word.startswith("--")} - found, set(), words)
    equal(offered[-1], {"all", "memory"})


if __name__ == "__main__":
    main()
