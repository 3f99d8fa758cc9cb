# SPDX-License-Identifier: Apache-2.0
"""What the actors of a storm do: plans, drawn from the seed alone.

Each actor has a generator of its own, and draws the same numbers whatever comes of what it does, so
the same seed gives every actor the same plans in the same order. A plan names jobs and processes by
numbers, which the storm takes modulo what is there. tests/storm/deeds.py carries the plans out.
"""
import collections
import random

SLOTS = 6               # jobs at once
DIRECTORIES = 4             # for snapshots, used by all
PER_BURST = {"slot": 2, "command": 5, "signal": 8, "client": 8, "hog": 1}
ACTORS = ([("slot", n) for n in range(SLOTS)] + [("command", n) for n in range(3)] +
          [("signal", n) for n in range(2)] + [("client", n) for n in range(2)] + [("hog", 0)])
BURST_S = 3.0           # of sleeps, for each actor

# kind: of the actor; what: the deed; the rest: its arguments. after: seconds of sleep before.
Plan = collections.namedtuple("Plan", "kind what after slot process args")


def weighted(rng, table):
    """One of the (weight, value) pairs."""
    return rng.choices([row[1] for row in table], [row[0] for row in table])[0]


# ---- jobs -----------------------------------------------------------------------------------

# Programs by name, in deeds.py; two of three jobs on a GPU whose memory others take are counters.
PROGRAMS = {0: [(3, "soak"), (3, "ranks"), (2, "capture"), (2, "graph_nodes"), (1, "churn"),
                (1, "loader"), (1, "managed")],
            1: [(5, "counter"), (3, "python")]}
SETTINGS = {
    "CUDAW_RELEASE": [(2, None), (1, "memory"), (1, "all")],
    "CUDAW_ADDRESSING": [(4, None), (1, "translated")],
    "CUDAW_HOST_POOL": [(4, None), (1, "0")],
    "CUDAW_MANAGED": [(1, "host")],
    "CUDAW_VERIFY": [(4, None), (1, "1")],
    "CUDAW_SIM_COPY_GBPS": [(2, None), (1, "1"), (1, "0.2")],
}


def plan_slot(rng, slot):
    """Start a job if there is none any more; then perhaps end it."""
    program = weighted(rng, PROGRAMS[slot % 2])
    settings = {name: weighted(rng, table) for name, table in SETTINGS.items()}
    end = weighted(rng, [(8, None), (1, "INT"), (1, "TERM"), (1, "KILL")])
    return "job", (program, {k: v for k, v in settings.items() if v}, end, rng.uniform(0, 1.5))


# ---- commands -------------------------------------------------------------------------------

def some(rng, share, *words):
    return list(words) if rng.random() < share else []


def arguments_pause(rng):
    return (["pause"] + some(rng, .5, "--timeout", str(rng.randint(1, 5))) +
            some(rng, .3, "--no-wait") +
            some(rng, .3, "--release", rng.choice(["memory", "all"])))


def arguments_resume(rng):
    return (["resume"] + some(rng, .3, "--timeout", str(rng.randint(1, 5))) +
            some(rng, .3, "--no-wait"))


def arguments_snapshot(rng):
    return (["snapshot"] + some(rng, .6, "--gpu-only") + some(rng, .4, "--incremental") +
            some(rng, .3, "--compress", rng.choice(["zstd", "lz4", "none"])) +
            some(rng, .1, "--stop") + some(rng, .5, "--timeout", str(rng.randint(1, 5))))


COMMANDS = [
    (6, ("jobs", arguments_pause)),
    (6, ("jobs", arguments_resume)),
    (2, ("jobs", lambda rng: ["trim"] + some(rng, .3, "--no-wait"))),
    (5, ("directory", arguments_snapshot)),
    (2, ("nothing", lambda rng: ["ps"] + some(rng, .5, "--json"))),
    (1, ("only directory", lambda rng: ["verify"])),
    (1, ("only directory", lambda rng: ["inspect"])),
]
FATES = [(8, "wait"), (2, "KILL"), (1, "INT"), (1, "TERM"), (2, "STOP"), (1, "STOP and CONT")]


def plan_command(rng, _number):
    """The command's words, what it is for, what becomes of it, and when."""
    whom, words = weighted(rng, COMMANDS)
    return "command", (words(rng), whom, rng.random() < .3, rng.choice(["pid", "name"]),
                       rng.randrange(DIRECTORIES), weighted(rng, FATES), .5 * rng.random() ** 3)


# ---- signals --------------------------------------------------------------------------------

SIGNALS = [(8, ("USR1",)), (8, ("USR2",)), (3, ("USR1", "USR2") * 5), (2, ("USR2", "USR1") * 20),
           (3, ("STOP",)), (4, ("CONT",)), (2, ("STOP", "USR1", "CONT")),
           (2, ("STOP", "USR1", "USR2", "CONT")), (3, ("TSTP",)), (2, ("TSTP", "CONT") * 5),
           (2, ("TSTP", "USR1", "CONT")), (1, ("USR1", "TSTP", "STOP", "CONT"))]


def plan_signal(rng, _number):
    return "signals", (weighted(rng, SIGNALS), rng.choice([0, 0, .0005, .01]))


# ---- clients of the socket ------------------------------------------------------------------

WRONG = [
    b"\n", b"\0\n", b"\0status\n", b"status\0\n", b"pause\0 5\n", b"stat", b"status", b"pause -1\n",
    b"pause 99999999999999999999\n", b"pause 5 nothing\n", b"hold x\n", b"step 5\n", b"commit\n",
    b"abort\n", b"snapshot\n", b"snapshot here\n", b"snapshot pause image incremental\n", b"done\n",
    b"done here\n", b"moved\n", b"moved GPU-1=GPU-2 /x\n", b"moved /nowhere\n", b"x" * 5000,
    b"pause " * 900, b"status\nstatus\n", b"resume resume\n", b"\xff\xfe\n", b"snapshot /\n\n\n",
]
ORDERS = [b"step 1\n", b"step 7\n", b"commit\n", b"abort\n", b"step 0\n", b"", b"hurry\n"]


def request_snapshot(rng):
    words = (some(rng, .7, "pause", "900") + some(rng, .3, "incremental") + some(rng, .4, "hold") +
             some(rng, .4, "image") + some(rng, .3, rng.choice(["none", "lz4", "zstd"])))
    return "snapshot " + " ".join(words + ["DIRECTORY"])


REQUESTS = [
    (4, lambda rng: "status"),
    (3, lambda rng: rng.choice(["pause", "pause 900", "pause 5", "pause 900 all", "pause memory"])),
    (3, lambda rng: rng.choice(["resume", "resume 900", "resume 5"])),
    (1, lambda rng: "trim"),
    (2, lambda rng: rng.choice(["hold 900", "hold", "hold 5 memory"])),
    (2, lambda rng: "regain"),
    (3, request_snapshot),
    (1, lambda rng: "done DIRECTORY"),
    (1, lambda rng: "moved DIRECTORY"),
]
# How: sent whole and answered; the client hangs up at once; lines in pieces; orders follow.
MANNERS = [(4, "ask"), (3, "hang up"), (1, "pieces"), (2, "orders")]


def plan_client(rng, _number):
    kind = weighted(rng, [(6, "right"), (3, "wrong"), (1, "noise"), (1, "idle")])
    right = weighted(rng, REQUESTS)(rng).encode() + b"\n"
    wrong, noise = rng.choice(WRONG), rng.randbytes(rng.choice([1, 60, 5000]))
    text = {"right": right, "wrong": wrong, "noise": noise, "idle": b""}[kind]
    orders = rng.choices(ORDERS, k=3)
    return ("idle" if kind == "idle" else "request",
            (text, rng.randrange(DIRECTORIES), weighted(rng, MANNERS), orders, rng.uniform(0, .8)))


def plan_hog(rng, _number):
    return "hog", (rng.uniform(.2, 2.0),)


PLANNERS = {"slot": plan_slot, "command": plan_command, "signal": plan_signal,
            "client": plan_client, "hog": plan_hog}


class Actor:
    def __init__(self, seed, kind, number):
        self.kind, self.number = kind, number
        self.name = f"{kind} {number}"
        self.rng = random.Random(f"{seed} {self.name}")

    def plans(self):
        """Those of the next burst."""
        count = PER_BURST[self.kind]
        for _ in range(count):
            after = self.rng.uniform(0, 2 * BURST_S / (count + 1))
            slot = self.number if self.kind == "slot" else self.rng.randrange(SLOTS)
            process = self.rng.randrange(1 << 16)
            what, args = PLANNERS[self.kind](self.rng, self.number)
            yield Plan(self.kind, what, after, slot, process, args)


def actors(seed):
    return [Actor(seed, kind, number) for kind, number in ACTORS]
