#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prometheus collects from jobs that are paused and take turns, and evaluates each expression of the dashboard, and
those of docs/metrics.md: none is wrong, and none is empty.
"""
import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

from simlib import SCRATCH
from harness import SKIP_STATUS, TESTS, ends_with_us
from turnslib import FOREVER, counting, start_daemon
from json_docs import block
from gpulib import CUDAW, Job, base_environment, check, cudaw_ok, equal, main, until

if not shutil.which("prometheus"):
    print("1..0 # SKIP no prometheus on this machine", flush=True)
    sys.exit(SKIP_STATUS)

REPOSITORY = os.path.dirname(TESTS)
VARIABLES = {"$instance": ".*", "$__rate_interval": "30s"}


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def expressions():
    with open(os.path.join(REPOSITORY, "contrib", "grafana", "cudaw.json"), encoding="utf-8") as file:
        dashboard = json.load(file)
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    for variable, value in VARIABLES.items():
        found = [text.replace(variable, value) for text in found]
    check(len(found) > 10 and all("$" not in text for text in found), f"the expressions are {found}")
    return found


def expressions_of_the_page():
    lines = block("docs/metrics.md", "cudaw_member_wait_seconds >").splitlines()
    return [line.partition(" # ")[0].strip() for line in lines if not line.startswith("#")]


class Prometheus:
    def __init__(self, target):
        home = os.path.join(SCRATCH, "prometheus")
        os.mkdir(home)
        conf = os.path.join(home, "conf.yml")
        with open(conf, "w", encoding="ascii") as file:
            json.dump({"global": {"scrape_interval": "3s", "scrape_timeout": "3s"},
                       "scrape_configs": [{"job_name": "cudaw", "static_configs": [{"targets": [target]}]}]}, file)
        self.port = free_port()
        self.process = ends_with_us(subprocess.Popen(
            ["prometheus", f"--config.file={conf}", f"--storage.tsdb.path={home}/data",
             f"--web.listen-address=127.0.0.1:{self.port}"], stderr=subprocess.DEVNULL))

    def ask(self, expression):
        """The samples, or None while it does not answer; an expression that is wrong fails."""
        query = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?{query}", timeout=20) as answer:
                return json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            if error.code != 400:   # it is not ready
                return None
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        except OSError:
            return None


def all_expressions():
    start_daemon("--quantum", "0.3")
    jobs = [counting(name, 160, FOREVER) for name in ("first", "second")]   # which do not fit
    paused = Job("counter", "--mib", 16, "--steps", FOREVER, "--step-ms", 10, name="paused")
    paused.wait_steps(3)
    cudaw_ok("pause", "paused")
    cudaw_ok("resume", "paused")
    cudaw_ok("pause", "paused")
    port = free_port()
    ends_with_us(subprocess.Popen([CUDAW, "metrics", "--listen", str(port)], env=base_environment()))
    prometheus = Prometheus(f"127.0.0.1:{port}")
    until(lambda: prometheus.ask("up == 1"), 60, "it collects")
    for expression in expressions():
        until(lambda text=expression: prometheus.ask(text), 60, f"{expression} is not empty")
    found = expressions_of_the_page()
    equal(len(found), 4, f"the expressions of the page: {found}")
    for expression in found:
        check(prometheus.ask(expression) is not None, f"{expression} can be evaluated")
    off = prometheus.ask('cudaw_process_freed{name="paused"}')
    equal([sample["value"][1] for sample in off], ["1"], "the paused one")
    check(all(job.steps() for job in jobs), "the jobs run")


main(all_expressions)
