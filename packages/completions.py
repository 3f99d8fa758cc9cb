#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Write the files by which bash, zsh and fish complete the words of cudaw and cudawd: from the help texts of the two.

usage: completions.py --output DIR COMMAND...       (as build/bin/cudaw build/bin/cudawd)

Of each option the help has a line "  -x, --name VALUE   what it does". Which words can be its value is known by VALUE
(FILE, DIR, PATH), or by the words that stand in '' in what it does. The arguments of a command are known by its first
lines ("Usage: cudaw pause [OPTION]... ID|NAME|PID..."), as are the words that come first (drain|undrain).

The tests hold what comes out of it against the help texts. Exit status: 0 done, 1 a program has no help, 2 usage.
"""
import argparse
import os
import re
import subprocess
import sys

OPTION = re.compile(r"^ +(?:(-\w), )?(--[a-z-]+)(?: (\[?[A-Z][A-Z|=:\]]*))?(?:  +(\S.*)|$)")
FILES, DIRECTORIES, JOBS, PROGRAMS = "files", "directories", "jobs", "programs"
KINDS = {"FILE": FILES, "PATH": FILES, "DIR": DIRECTORIES, "CMD": PROGRAMS, "ID": JOBS, "NAME": JOBS, "PID": JOBS}


class Option:
    def __init__(self, short, name, value, text):
        self.short, self.name, self.value, self.text = short, name, value, text

    @property
    def kind(self):
        """None: it has no value; a list: these words; "": any word; else one of the kinds above."""
        if not self.value:
            return None
        # A name is a new one.
        kind = KINDS.get(self.value, "") if self.value != "NAME" else ""
        return kind or list(dict.fromkeys(re.findall(r"'([a-z0-9]+)'", self.text))) or ""


class Command:
    """@path: the words before the options, as "cudaw pause"."""

    def __init__(self, path, text):
        self.path, self.name = path, path.split()[-1]
        self.usage = [line.split(": ", 1)[-1].strip() for line in text.partition("\n\n")[0].splitlines()]
        self.options = []
        for line in text.splitlines():
            found = OPTION.match(line)
            if found:
                self.options.append(Option(*found.group(1, 2, 3), found[4] or ""))
            elif self.options and line.startswith(" " * 9):
                self.options[-1].text += " " + line.strip()
            elif self.options and not line.startswith(" "):
                break
        for option in self.options:
            option.text = option.text.strip()

    @property
    def words(self):
        """The words that may come first behind the command."""
        rest = [line.removeprefix(self.path).split() for line in self.usage]
        return sorted({word for words in rest if words and re.fullmatch(r"[a-z|]+", words[0])
                       for word in words[0].split("|")})

    @property
    def arguments(self):
        """Their kinds; the last one may come again."""
        usage = re.sub(r"\[--?.*?\]", "", " ".join(self.usage))
        names = [word for word in re.findall(r"(?<![-=|\w])[A-Z][A-Z|]*", usage) if word not in ("OPTION", "ARGUMENT")]
        return [KINDS.get(name.split("|")[0], "") for name in names] if not self.words else []


def help_of(*words):
    run = subprocess.run([*words, "--help"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if run.returncode or not run.stdout.startswith("Usage: "):
        sys.exit(f"completions.py: {' '.join(words)} --help: {run.stderr.strip() or 'expected a text'}")
    return run.stdout


def read(program):
    """The program's summaries {command: text}, and all of its commands; without any, the program itself."""
    name, text = os.path.basename(program), help_of(*program.split())
    summaries = dict(re.findall(r"^  ([a-z]+) +(\S.*)$", text.partition("\nCommands:\n")[2].partition("\n\n")[0], re.M))
    commands = [Command(f"{name} {each}", help_of(*program.split(), each)) for each in summaries]
    return summaries, commands or [Command(name, text)]


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def short(text):
    """The first part, up to a pause or a remark."""
    return re.split(r"[;.]( |$)| \(", text)[0].strip()


# ---- bash: tables, and one function that looks into them

def kind_word(kind):
    return "words:" + " ".join(kind) if isinstance(kind, list) else kind


def bash(programs):
    lines = []
    for name, (summaries, commands) in programs.items():
        if summaries:
            lines.append(f"_cudaw_first[{name}]={quoted(' '.join([*summaries, 'help', '--help', '--version']))}")
        for command in commands:
            key = command.path
            words = [word for option in command.options for word in (option.short, option.name) if word]
            lines.append(f"_cudaw_options['{key}']={quoted(' '.join(words))}")
            for option in command.options:
                if option.kind is not None:
                    lines += [f"_cudaw_values['{key} {word}']={quoted(kind_word(option.kind))}"
                              for word in (option.short, option.name) if word]
            arguments = ["words:" + " ".join(command.words)] if command.words else command.arguments
            for number, kind in enumerate(arguments):
                lines.append(f"_cudaw_values['{key} {number}']={quoted(kind)}")
    return template("bash").replace("@TABLES@", "\n".join(lines))


# ---- zsh

ZSH_ACTIONS = {FILES: "_files", DIRECTORIES: "_files -/", JOBS: "_cudaw_jobs", PROGRAMS: "_normal", "": " "}


def zsh_action(kind):
    return "(" + " ".join(kind) + ")" if isinstance(kind, list) else ZSH_ACTIONS[kind]


def zsh_specs(command):
    for option in command.options:
        text = short(option.text).replace("[", "(").replace("]", ")").replace(":", " ")
        value = "" if option.kind is None else f":{option.value}:{zsh_action(option.kind)}"
        for word in filter(None, (option.short, option.name)):
            yield quoted(f"*{word}{'=' if value and word.startswith('--') else '+' if value else ''}[{text}]{value}")
    if command.words:
        yield quoted("1:word:(" + " ".join(command.words) + ")")
    elif command.arguments and command.arguments[0] == PROGRAMS:
        yield "'(-)1:program: _command_names -e' '*::arguments: _normal'"
    else:
        for number, kind in enumerate(command.arguments):
            place = "*" if number + 1 == len(command.arguments) else str(number + 1)
            yield quoted(f"{place}:argument:{zsh_action(kind)}")


def zsh(programs):
    cases, lists = [], []
    for name, (summaries, commands) in programs.items():
        for command in commands:
            specs = " \\\n\t\t\t".join(zsh_specs(command))
            cases.append(f"\t'{command.path}')\n\t\t_arguments -S -s \\\n\t\t\t{specs}\n\t\t;;")
        lists += [quoted(f"{each}:{text}") for each, text in summaries.items()]
    return template("zsh").replace("@CASES@", "\n".join(cases)).replace("@COMMANDS@", "\n\t\t".join(lists))


# ---- fish

FISH_ACTIONS = {FILES: "-r -F", DIRECTORIES: "-x -a '(__fish_complete_directories)'", JOBS: "-x -a '(__cudaw_jobs)'",
                PROGRAMS: "-x -a '(__fish_complete_subcommand)'", "": "-x"}


def fish_action(kind):
    return f"-x -a {quoted(' '.join(kind))}" if isinstance(kind, list) else FISH_ACTIONS[kind]


def fish_of(name, summaries, commands):
    for each, text in summaries.items():
        yield f"complete -c {name} -f -n __fish_use_subcommand -a {each} -d {quoted(text)}"
    for command in commands:
        given = f"-n '__fish_seen_subcommand_from {command.name}'" if summaries else ""
        for option in command.options:
            words = f"-s {option.short[1:]} " if option.short else ""
            action = "" if option.kind is None else " " + fish_action(option.kind)
            yield f"complete -c {name} {given} {words}-l {option.name[2:]} -d {quoted(short(option.text))}{action}"
        for kind in [command.words] if command.words else command.arguments[:2]:
            yield f"complete -c {name} {given} {fish_action(kind)}"


def fish(name, summaries, commands):
    return template("fish").replace("@LINES@", "\n".join(fish_of(name, summaries, commands)))


def template(shell):
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"completions.{shell}")
    with open(path, encoding="utf-8") as file:
        return file.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--output", required=True, metavar="DIR")
    parser.add_argument("programs", nargs="+", metavar="COMMAND")
    options = parser.parse_args()
    programs = {os.path.basename(program): read(program) for program in options.programs}
    outputs = {"cudaw.bash": bash(programs), "_cudaw": zsh(programs)}
    outputs.update({f"{name}.fish": fish(name, *read_of) for name, read_of in programs.items()})
    for name, text in outputs.items():
        with open(os.path.join(options.output, name), "w", encoding="utf-8") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
