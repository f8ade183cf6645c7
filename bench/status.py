#!/usr/bin/env python3
"""What it costs to be watched: the step rate of one run with and without readers of /metrics, in turns.

  bench/status.py [--job FILE] [--workers 1] [--rounds 10] [--seconds 5] [--per-second 10] [--quick]

A chief and workers train fashion_mnist on this host. In every second round a reader asks each task for /metrics --per-second times a
second. The rate of a round is what muster_steps_total of the chief grew by, per second. The medians of both kinds are compared; the
spread of the rounds without readers says how much of a difference is noise.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import needs

needs.modules("numpy", "tensorboard")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "cluster"))
from harness import BIN  # noqa: E402
from ports import consecutive_ports  # noqa: E402

JOB = {"program": "fashion_mnist", "program_args": {"hidden": 64}, "per_replica_batch_size": 64, "optimizer": "sgd", "learning_rate": 0.01,
       "devices": "cpu", "epochs": 100000, "summary": {"every_steps": 100000}, "checkpoint": {"every_epochs": 100000}}


def get(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
        return response.read().decode()


def steps(port):
    """(the chief's number of steps, when it was asked)"""
    text = get(port)
    line = next(line for line in text.splitlines() if line.startswith("muster_steps_total{"))
    return float(line.split()[-1]), time.monotonic()


class Readers:
    """Asks each port so many times a second until it is closed."""
    def __init__(self, ports, per_second):
        self.end, self.count, self.bytes = threading.Event(), 0, 0
        self.threads = [threading.Thread(target=self.read, args=(port, 1 / per_second)) for port in ports]
        for thread in self.threads:
            thread.start()

    def read(self, port, interval):
        due = time.monotonic()
        while not self.end.wait(max(0, due - time.monotonic())):
            self.bytes += len(get(port))
            self.count += 1
            due += interval

    def close(self):
        self.end.set()
        for thread in self.threads:
            thread.join()


def measure(ports, arguments):
    rates = {False: [], True: []}
    asked = 0
    for number in range(2 * arguments.rounds):
        watched = number % 2 == 1
        readers = Readers(ports, arguments.per_second) if watched else None
        before, start = steps(ports[0])
        time.sleep(arguments.seconds)
        after, end = steps(ports[0])
        if readers:
            readers.close()
            asked += readers.count
        rates[watched].append((after - before) / (end - start))
    return rates, asked


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", type=pathlib.Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--per-second", type=float, default=10)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds = 2, 1
    tasks = arguments.workers + 1
    first = consecutive_ports(tasks)
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        job = arguments.job or pathlib.Path(folder) / "job.json"
        if not arguments.job:
            job.write_text(json.dumps(JOB))
        with open(pathlib.Path(folder) / "log", "w+") as log:
            run = subprocess.Popen([BIN / "muster", "launch", "--workers", str(arguments.workers), "--job", job, "--set", f"status.metrics_port={first}"],
                                   stdout=log, stderr=subprocess.STDOUT, env={k: v for k, v in os.environ.items() if k != "TF_CONFIG"})
            try:
                while True:
                    if run.poll() is not None:
                        log.seek(0)
                        sys.exit(f"the job ended:\n{log.read()[-3000:]}")
                    try:
                        if steps(first)[0] > 50:
                            break
                    except (OSError, StopIteration):
                        pass
                    time.sleep(0.2)
                rates, asked = measure(range(first, first + tasks), arguments)
            finally:
                run.send_signal(signal.SIGINT)
                run.wait(120)
    alone, watched = (statistics.median(rates[kind]) for kind in (False, True))
    spread = statistics.pstdev(rates[False]) / alone
    print(f"steps per second: {alone:.1f} without readers (standard deviation {100 * spread:.1f} %), {watched:.1f} with {asked} requests; "
          f"ratio {watched / alone:.4f}")


if __name__ == "__main__":
    main()
