#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Python's ways to start processes, and its handlers of signals afterwards."""
import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import time

from guest import Memory, point, say


def by_subprocess():
    """By vfork() or posix_spawn(), as Python chooses."""
    signal.signal(signal.SIGTERM, lambda *_: say("a handler in Python"))
    say(subprocess.run(["echo", "a child"], stdout=subprocess.PIPE, check=True).stdout)
    say(subprocess.run("kill -TERM $$", shell=True, check=False).returncode)
    say(subprocess.run(["true"], close_fds=False, check=False).returncode)
    say(subprocess.run(["true"], restore_signals=False, start_new_session=True,
                       check=False).returncode)
    say(subprocess.run(["true"], preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL),
                       check=False).returncode)
    say(os.waitstatus_to_exitcode(os.system("exit 3")))
    say(os.popen("echo by popen").read())
    pid = os.posix_spawnp("true", ["true"], os.environ, setsigdef=[signal.SIGTERM, signal.SIGINT])
    say(os.waitpid(pid, 0)[1])
    say(signal.getsignal(signal.SIGTERM).__name__)
    os.kill(os.getpid(), signal.SIGTERM)
    process = subprocess.Popen(["sleep", "1000"])
    process.terminate()
    say(process.wait())


def interrupt():
    """Ctrl-C after a subprocess: KeyboardInterrupt, and the exit status that goes with it."""
    subprocess.run(["true"], check=True)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        time.sleep(60)
    except KeyboardInterrupt:
        say("interrupted")
        raise


def interrupt_group():
    """As the terminal does it: everybody of the group gets it, while the program waits."""
    os.setpgid(0, 0)
    subprocess.run(["true"], check=True)
    with subprocess.Popen(["sh", "-c", "echo ready; exec sleep 1000"],
                          stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        signal.signal(signal.SIGALRM, lambda *_: os.killpg(0, signal.SIGINT))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            process.wait()
        except KeyboardInterrupt:
            say("interrupted; the child ended with", process.wait())


def terminate():
    """As Slurm and Kubernetes do it: the handler saves its work, after a subprocess."""
    memory = Memory(9)

    def save(*_):
        memory.check()
        say("saved")
        sys.exit(15)
    signal.signal(signal.SIGTERM, save)
    subprocess.run(["true"], check=True)
    point()
    subprocess.run(["true"], check=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)


def square(number):
    return number * number


def by_multiprocessing(method):
    """A pool, a process that is terminated, a queue, beside memory on the GPU."""
    memory = Memory(5) if method != "fork-first" else None
    context = multiprocessing.get_context(method.removesuffix("-first"))
    queue = context.Queue()
    with context.Pool(2) as pool:
        say(pool.map(square, range(8)))
    process = context.Process(target=queue.put, args=("from a child",))
    process.start()
    say(queue.get(timeout=60))
    process.join()
    say(process.exitcode)
    process = context.Process(target=time.sleep, args=(1000,))
    process.start()
    process.terminate()
    process.join()
    say(process.exitcode)
    memory = memory or Memory(5)
    point()
    memory.check()


async def ended(process):
    process.stdin.close()
    return await process.wait()


async def commands(at_once):
    """The children live until their watcher knows them."""
    for command in ("exit 0", "exit 3", "kill -TERM $$"):
        say(await ended(await asyncio.create_subprocess_shell("read line; " + command,
                                                              stdin=subprocess.PIPE)))
    many = [await asyncio.create_subprocess_exec("sh", "-c", f"read line; exit {i}",
                                                 stdin=subprocess.PIPE) for i in range(6)]
    if at_once:
        say(*await asyncio.gather(*map(ended, many)))
    else:
        say(*[await ended(process) for process in many])


async def told():
    """The loop's own handlers, by a wakeup descriptor."""
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        event = asyncio.Event()
        loop.add_signal_handler(sig, event.set)
        os.kill(os.getpid(), sig)
        await asyncio.wait_for(event.wait(), 60)
        say(sig.name)
        loop.remove_signal_handler(sig)


def by_asyncio(watcher):
    if watcher:
        if not hasattr(asyncio, watcher):
            say("this Python has no", watcher)
            sys.exit(77)
        policy = asyncio.get_event_loop_policy()
        loop = policy.new_event_loop()
        policy.set_event_loop(loop)
        chosen = getattr(asyncio, watcher)()
        chosen.attach_loop(loop)
        policy.set_child_watcher(chosen)
        # A second SIGCHLD in the handler of this one makes it lose a status (Python 3.11, natively).
        loop.run_until_complete(commands(at_once=watcher != "MultiLoopChildWatcher"))
        loop.run_until_complete(told())
        loop.close()
    else:
        asyncio.run(commands(at_once=True))
        asyncio.run(told())


WAYS = {"subprocess": by_subprocess, "interrupt": interrupt, "interrupt-group": interrupt_group,
        "terminate": terminate}

if __name__ == "__main__":
    if sys.argv[1] == "multiprocessing":
        by_multiprocessing(sys.argv[2])
    elif sys.argv[1] == "asyncio":
        by_asyncio(sys.argv[2] if len(sys.argv) > 2 else "")
    else:
        WAYS[sys.argv[1]]()
