#!/usr/bin/env python3
"""Cost of monitoring: the step rate of one run with and without readers, in turns.

  bench/status.py [--job FILE] [--workers 1] [--rounds 30] [--seconds 2] [--per-second 10] [--quick]

A chief and workers train fashion_mnist on this host. In every second round a reader asks each task for /metrics --per-second times a
second, another reads the events of the status page, and `muster status --watch` prints into a pipe. The rate of a round is what
muster_steps_total of the chief grew by, per second. Each round with readers is compared with the mean of the rounds before and after it;
the median of these ratios is printed, with its standard error, and the spread of the rounds without readers, which says how much of a
difference is noise. The goal is that all readers together cost less than 1 %.

What the readers themselves compute is not Muster's: on a host without idle cores they take from training what they need. So the processor
time of the same rounds is printed, too: of the threads by which the tasks serve (http-PORT of /metrics and of the page; those of gRPC, which
answer `muster status` and carry heartbeats), of all other threads for each step, and of the readers, which are this process and `muster
status`. Then the processor time of a request: a chief that waits for its worker, and does nothing else, is asked a thousand times.
"""
import argparse
import collections
import http.client
import json
import math
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import needs

needs.modules("numpy", "tensorboard")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "cluster" / "base"))
from harness import BIN, free_ports  # noqa: E402
from ports import consecutive_ports  # noqa: E402

JOB = {"program": "fashion_mnist", "program_args": {"hidden": 64}, "per_replica_batch_size": 64, "optimizer": "sgd", "learning_rate": 0.01,
       "devices": "cpu", "epochs": 100000, "summary": {"every_steps": 100000}, "checkpoint": {"every_epochs": 100000}}


def get(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
        return response.read().decode()


def sample(port, name):
    return float(next(line for line in get(port).splitlines() if line.startswith(name + "{")).split()[-1])


def steps(port):
    """(the chief's number of steps, when it was asked)"""
    return sample(port, "muster_steps_total"), time.monotonic()


# The threads of gRPC and of its event engine. They carry sessions and heartbeats also without readers.
CALLS = re.compile(r"grpc|event_engine|nexting_thread|default-execut|resolver-execut|timer_manager|FileWatcherCert|bulk-calls")


def thread_seconds(pid):
    """{(id, name): processor seconds} of the threads of a process."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            found[task.name, (task / "comm").read_text().strip()] = int((task / "schedstat").read_text().split()[0]) / 1e9
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended
    return found


def kind_of(name, page):
    """The work of a thread: "metrics", "page", "calls", "sampling", or "training" for all else."""
    if name == "system-stats":
        return "sampling"
    if name.startswith("http-"):
        return "page" if name == f"http-{page}" else "metrics"
    return "calls" if CALLS.search(name) else "training"


def children(pid):
    """The processes below this one."""
    below = [int(child) for task in pathlib.Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    return below + [child for each in below for child in children(each)]


class Spent:
    """The processor seconds of the tasks by what their threads do, and of the readers, within the rounds of one kind."""
    def __init__(self, pids, page):
        self.pids, self.page, self.seconds, self.steps, self.time = pids, page, collections.Counter(), 0, 0.0

    def now(self, readers):
        threads = {(pid, *key): seconds for pid in self.pids for key, seconds in thread_seconds(pid).items()}
        others = {"this": time.process_time(), "status": sum(thread_seconds(readers.watch.pid).values()) if readers else 0}
        return threads, others

    def add(self, before, after, steps, seconds):
        for key, used in after[0].items():
            self.seconds[kind_of(key[-1], self.page)] += used - before[0].get(key, 0)
        for reader, used in after[1].items():
            self.seconds[reader] += used - before[1][reader]
        self.steps += steps
        self.time += seconds

    def tasks(self):
        return sum(self.seconds[kind] for kind in ("metrics", "page", "calls", "sampling", "training"))

    def share(self, *kinds):
        """Percent of the tasks' processor time."""
        return 100 * sum(self.seconds[kind] for kind in kinds) / self.tasks()

    def core(self, kind):
        """Percent of a core."""
        return 100 * self.seconds[kind] / self.time


def await_sample(port, name, least, run, log):
    while True:
        if run.poll() is not None:
            log.seek(0)
            sys.exit(f"the job ended:\n{log.read()[-3000:]}")
        try:
            if sample(port, name) > least:
                return
        except (OSError, StopIteration):
            pass
        time.sleep(0.2)


def processor_time(folder, job, requests):
    """Seconds of a request."""
    port = consecutive_ports(1)
    chief, worker = (f"127.0.0.1:{port}" for port in free_ports(2))
    environment = {**os.environ, "TF_CONFIG": json.dumps({"cluster": {"chief": [chief], "worker": [worker]}, "task": {"type": "chief", "index": 0}})}
    with open(folder / "log-chief", "w+") as log:
        run = subprocess.Popen([BIN / "muster-chief", "--job", job, "--set", f"status.metrics_port={port}"], stdout=log, stderr=subprocess.STDOUT,
                               env=environment)
        try:
            await_sample(port, "muster_cpu_cores", -1, run, log)
            time.sleep(3)  # it has loaded its data, and waits
            name, used = "process_cpu_seconds_total", []
            for count in requests, 0:  # what it does besides in the same time, such as to sample itself
                time.sleep(1.5)
                before, start = sample(port, name), time.monotonic()
                for _ in range(count):
                    get(port)
                if count == 0:
                    time.sleep(duration)
                duration = time.monotonic() - start
                time.sleep(1.5)  # the number is sampled once a second
                used.append(sample(port, name) - before)
        finally:
            run.send_signal(signal.SIGKILL)
            run.wait()
    return (used[0] - used[1]) / requests


class Readers:
    """Asks each port so many times a second, reads the page's events, and watches with `muster status`, until it is closed."""
    def __init__(self, ports, per_second, page, token, model_dir):
        self.end, self.count, self.bytes, self.messages, self.lines = threading.Event(), 0, 0, 0, 0
        self.events = http.client.HTTPConnection("127.0.0.1", page, timeout=30)
        self.events.connect()
        self.socket = self.events.sock
        self.events.request("GET", "/events", headers={"Authorization": f"Bearer {token}"})
        self.stream = self.events.getresponse()
        if self.stream.status != 200:
            sys.exit(f"the page answers with {self.stream.status}")
        self.watch = subprocess.Popen([BIN / "muster", "status", "--watch", model_dir], stdout=subprocess.PIPE)
        self.watch.stdout.readline()  # it has started, and is connected
        self.threads = [threading.Thread(target=self.read, args=(port, 1 / per_second)) for port in ports]
        self.threads += [threading.Thread(target=self.read_events), threading.Thread(target=self.read_watch)]
        for thread in self.threads:
            thread.start()

    def read_events(self):
        try:
            while line := self.stream.readline():
                self.messages += line.startswith(b"data:")
        except (OSError, ValueError, http.client.HTTPException):
            if not self.end.is_set():
                raise

    def read_watch(self):
        for _ in self.watch.stdout:
            self.lines += 1

    def read(self, port, interval):
        due = time.monotonic()
        while not self.end.wait(max(0, due - time.monotonic())):
            self.bytes += len(get(port))
            self.count += 1
            due += interval

    def close(self):
        self.end.set()
        self.socket.shutdown(socket.SHUT_RDWR)
        self.watch.terminate()
        for thread in self.threads:
            thread.join()
        self.watch.wait()
        self.stream.close()
        self.events.close()


def measure(ports, arguments, spent, *watched):
    """(steps per second of each round, those with readers at odd places; what the readers got); adds to spent[0] without, and spent[1] with readers"""
    rates, got = [], dict.fromkeys(("requests", "messages", "lines"), 0)
    for number in range(2 * arguments.rounds + 1):
        readers = Readers(ports, arguments.per_second, *watched) if number % 2 else None
        own = spent[number % 2]
        used_before = own.now(readers)
        before, start = steps(ports[0])
        time.sleep(arguments.seconds)
        after, end = steps(ports[0])
        own.add(used_before, own.now(readers), after - before, end - start)
        if readers:
            readers.close()
            for key, count in zip(got, (readers.count, readers.messages, readers.lines)):
                got[key] += count
        rates.append((after - before) / (end - start))
    return rates, got


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", type=pathlib.Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--per-second", type=float, default=10)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds = 2, 1
    tasks = arguments.workers + 1
    first = consecutive_ports(tasks)
    page, = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        job = arguments.job or pathlib.Path(folder) / "job.json"
        if not arguments.job:
            job.write_text(json.dumps(JOB))
        with open(pathlib.Path(folder) / "log", "w+") as log:
            run = subprocess.Popen([BIN / "muster", "launch", "--workers", str(arguments.workers), "--job", job, "--set", f"status.metrics_port={first}",
                                    "--set", f"model_dir={folder}/model", "--status-port", str(page)],
                                   stdout=log, stderr=subprocess.STDOUT, env={k: v for k, v in os.environ.items() if k != "TF_CONFIG"})
            try:
                await_sample(first, "muster_steps_total", 50, run, log)
                token = re.search(r"\?token=(\w+)", pathlib.Path(log.name).read_text())[1]
                spent = [Spent(children(run.pid), page) for _ in range(2)]
                rates, got = measure(range(first, first + tasks), arguments, spent, page, token, f"{folder}/model")
            finally:
                run.send_signal(signal.SIGINT)
                run.wait(120)
        each = processor_time(pathlib.Path(folder), job, 100 if arguments.quick else 1000)
    alone, beside = (statistics.median(rates[kind::2]) for kind in (0, 1))
    spread = statistics.pstdev(rates[::2]) / alone
    ratios = [2 * rates[i] / (rates[i - 1] + rates[i + 1]) for i in range(1, len(rates), 2)]
    error = 1.2533 * statistics.stdev(ratios) / math.sqrt(len(ratios))  # of a median
    print(f"steps per second: {alone:.1f} without readers (standard deviation {100 * spread:.1f} %), {beside:.1f} with {got['requests']} requests, "
          f"{got['messages']} messages of the page and {got['lines']} lines of muster status; "
          f"ratio {statistics.median(ratios):.4f}, standard error {error:.4f}")
    without, watched = spent
    print(f"processor time of the tasks: {watched.share('metrics', 'page', 'calls'):.2f} % of theirs by threads that serve ({watched.share('metrics'):.2f} % "
          f"/metrics, {watched.share('page'):.2f} % the page, {watched.share('calls'):.2f} % calls and heartbeats; without readers "
          f"{without.share('metrics', 'page'):.2f} % and {without.share('calls'):.2f} %), {watched.share('sampling'):.2f} % by those that read /proc; other threads {1000 * watched.seconds['training'] / watched.steps:.3f} ms "
          f"for a step with readers, {1000 * without.seconds['training'] / without.steps:.3f} ms without")
    print(f"processor time of the readers, not Muster's part: {watched.core('this') - without.core('this'):.1f} % of a core by the clients of /metrics and the page, "
          f"{watched.core('status'):.1f} % by muster status; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"processor time of a request: {1000 * each:.2f} ms; at {arguments.per_second:g} a second {100 * arguments.per_second * each:.2f} % of a core")


if __name__ == "__main__":
    main()
