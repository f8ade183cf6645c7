#!/usr/bin/env python3
"""Faults of a job with parameter servers, in turn and in pairs, all in one run: each acknowledged update is present, or is counted as lost.

  tests/soak/servers.py [--faults 100] [--copies 1|2] [--seed S] [--ways kill,freeze,cut] [--tasks ps:0,ps:1,...]
                        [--keep]

A chief, two workers, two servers and an evaluator, each on a host of its own (a network namespace, where that is permitted), under a
supervisor that starts each again. Every fault is one or two tasks that are killed, frozen (SIGSTOP) or cut off from all others, for
less than `timeouts.heartbeat` or for longer; the next one comes when all are at work again and, with two copies, both shards have
theirs. counting_role's parameters and rows tell how many updates they hold, and files of its own which were acknowledged. At the
end the job is asked to stop, its checkpoint is compared with these, and it continues from there to its end.

With two copies nothing that was acknowledged may be missing; so both servers are killed together only where there is one copy. With one
`lost_updates` must count all that is missing, and nothing may be missing while no server's process has ended. `repeated_examples` and
`torn_pushes` may not be lower than what happened. The seed is printed: the same seed draws the same faults.
"""
import argparse
import collections
import dataclasses
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "cluster" / "base")]
from harness import BIN, RETRYABLE, free_ports, result, tensors  # noqa: E402
from hosts import Network, require  # noqa: E402

TASKS = ["chief:0", "worker:0", "worker:1", "ps:0", "ps:1", "evaluator:0"]
WORKERS, SERVERS = TASKS[1:3], TASKS[3:5]
EXAMPLES, BATCH = 512, 4
HEARTBEAT = 3
KILLED = -signal.SIGKILL
GOES_ON = 10  # batches after a fault: more than are leased ahead, so that the chief and all servers have had a part in it


@dataclasses.dataclass
class Hit:
    task: str
    way: str        # "kill", "freeze", "cut"
    after: float    # seconds from the fault's beginning
    lasts: float    # of what is not a kill
    over: bool = False

    def describe(self):
        return f"{self.task} {self.way}" + ("" if self.way == "kill" else f" for {self.lasts:.1f} s") + (f" {self.after:.1f} s later" if self.after else "")


def draw(count, seed, copies, ways, tasks=TASKS):
    """Each task in each way once a round, and as many pairs as that."""
    generator = random.Random(seed)

    def hit(task, way, after=0.0):
        long = generator.random() < 0.6
        return Hit(task, way, after, generator.uniform(HEARTBEAT + 1.5, HEARTBEAT + 3) if long else generator.uniform(0.2, 1.5))

    faults, deck = [], []
    while len(faults) < count:
        if not deck:
            pairs = list(itertools.combinations(tasks, 2)) * 2
            deck = [(task,) for task in tasks for _ in ways] + generator.sample(pairs, min(len(pairs), len(tasks) * len(ways)))
            way = {task: itertools.cycle(generator.sample(ways, len(ways))) for task in tasks}
            generator.shuffle(deck)
        hit_tasks = deck.pop()
        hits = [hit(task, next(way[task]), generator.choice([0.0, generator.uniform(0, 2)]) if i else 0.0) for i, task in enumerate(hit_tasks)]
        if copies == 2 and set(hit_tasks) == set(SERVERS):
            if all(each.way == "kill" for each in hits):
                hits[1].way = "freeze"
            # A server that is killed after it has taken over loses the updates that were acknowledged since.
            hits[1].after = min(hits[1].after, 1.0)
        faults.append(hits)
    return faults


class Hang(Exception):
    pass


class Run:
    def __init__(self, folder, copies, network, quiet):
        self.folder, self.network, self.quiet = folder, network, quiet
        self.worker_hits = 0
        self.model_dir, self.used_dir, self.bin = folder / "model", folder / "used", folder / "bin"
        for path in self.used_dir, self.bin, folder / "logs":
            path.mkdir()
        for name in "chief", "worker", "evaluator":
            os.symlink((BIN / "../tests/counting_role").resolve(), self.bin / f"muster-{name}")
        os.symlink((BIN / "muster-ps").resolve(), self.bin / "muster-ps")
        if network is None:
            addresses = [f"127.0.0.1:{port}" for port in free_ports(5)]
        else:
            addresses = [f"{address}:5000" for address in network.addresses[:5]]
        self.cluster = {"chief": addresses[:1], "worker": addresses[1:3], "ps": addresses[3:]}
        self.job = folder / "job.json"
        self.job.write_text(json.dumps({
            "program": "counting", "program_args": {"examples": EXAMPLES, "sleep_ms": 10, "rows": 200}, "strategy": "parameter_server",
            "parameter_server": {"copies": copies, "chunk_bytes": 16384}, "global_batch_size": 2 * BATCH, "epochs": 100000,
            "model_dir": str(self.model_dir), "summary": {"every_steps": 100}, "checkpoint": {"every_steps": 100, "keep": 2},
            "timeouts": {"heartbeat": HEARTBEAT, "rejoin": 90, "join": 60}}))
        self.copies = copies
        self.live, self.starts, self.codes = {}, collections.Counter(), collections.Counter()
        self.killed, self.frozen, self.cut = set(), set(), set()
        self.placements, self.read = {}, {}
        self.wrong, self.ending = [], False
        self.journal = open(folder / "journal", "w")

    # ---- Processes

    def note(self, text):
        self.journal.write(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}\n")
        self.journal.flush()

    def start(self, task, sets=()):
        kind, index = task.split(":")
        self.starts[task] += 1
        log = self.folder / "logs" / f"{kind}-{index}.{self.starts[task]:03}"
        command = [str(self.bin / f"muster-{kind}"), "--job", str(self.job)] + [word for item in sets for word in ("--set", item)]
        if self.network is not None:
            command = self.network.command(TASKS.index(task), command)
        environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1", "MUSTER_TEST_DIR": str(self.used_dir),
                       "TMPDIR": str(self.folder), "TF_CONFIG": json.dumps({"cluster": self.cluster, "task": {"type": kind, "index": int(index)}})}
        with open(log, "wb") as out:
            popen = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        self.live[task] = (popen, log)
        self.note(f"{task} started, pid {popen.pid}")

    def poll(self):
        """Starts ended tasks again, and reads the chief's output."""
        for task, (popen, log) in list(self.live.items()):
            code = popen.poll()
            if task == "chief:0":
                self.hear(log)
            if code is None:
                continue
            del self.live[task]
            self.codes[code] += 1
            self.note(f"{task} ended with {code}")
            if self.ending:
                continue
            # A process that was taken for lost may end, to be started again.
            if not (code == KILLED and popen.pid in self.killed) and code != RETRYABLE:
                self.wrong.append(f"{task} ended with {code}: {log.read_text(errors='replace')[-600:]}")
            self.start(task)
        time.sleep(0.02)

    def hear(self, log):
        with open(log, "rb") as file:
            file.seek(self.read.get(log, 0))
            text = file.read()
        whole = text.rfind(b"\n") + 1
        self.read[log] = self.read.get(log, 0) + whole
        for line in text[:whole].decode(errors="replace").splitlines():
            if re.search(r"\| view \d+\.\d+: |the servers hold this run's state", line):
                for shard, primary, rest in re.findall(r"shard (\d+) (on ps \d+|nowhere)([^;]*)", line):
                    self.placements[int(shard)] = primary != "nowhere" and (self.copies == 1 or bool(re.search(r"backup ps", rest)))
            elif again := re.search(r"is backup of shard (\d+) again", line):
                self.placements[int(again[1])] = True
            elif re.search(r" W | E ", line):
                self.note(f"  chief: {line.split(' | ', 1)[-1]}")

    # ---- What they have done

    def acknowledged(self):
        """By process: the lines that it wrote, one for each of its batches whose push was acknowledged."""
        return {int(file.name[5:]): file.read_text().count("\n") for file in self.used_dir.glob("used-*")}

    def used(self):
        times = collections.Counter()
        for file in self.used_dir.glob("used-*"):
            times.update(map(int, file.read_text().split()))
        return times

    def wait(self, what, condition, seconds=None):
        end = time.monotonic() + (seconds or self.quiet)
        while not condition():
            if time.monotonic() > end:
                raise Hang(f"{what}: not within {seconds or self.quiet} s")
            self.poll()

    def wait_well(self):
        """Every worker makes batches again, and every shard is where it should be."""
        before = self.acknowledged()

        def goes_on():
            now = self.acknowledged()
            pids = [self.live[task][0].pid for task in WORKERS if task in self.live]
            return len(pids) == 2 and all(now.get(pid, 0) >= before.get(pid, 0) + GOES_ON for pid in pids)
        self.wait("all workers make batches", goes_on)
        self.wait("all shards are placed", lambda: len(self.placements) == 2 and all(self.placements.values()))

    # ---- Faults

    def begin(self, hit):
        if hit.task not in self.live:
            self.start(hit.task)
        popen, _ = self.live[hit.task]
        if hit.way == "cut":
            index = TASKS.index(hit.task)
            self.network.set_cut(self.network.from_host(index) + self.network.to_host(index))
            return
        if hit.way == "kill":
            self.killed.add(popen.pid)
        popen.send_signal(signal.SIGKILL if hit.way == "kill" else signal.SIGSTOP)

    def end(self, hit, others):
        if hit.way == "cut":
            # Two hosts may be cut off: links between them stay so until both are well.
            index = TASKS.index(hit.task)
            still = {TASKS.index(other.task) for other in others if other.way == "cut" and not other.over}
            self.network.set_cut([pair for pair in self.network.from_host(index) + self.network.to_host(index) if not set(pair) & still], False)
        elif hit.way == "freeze" and hit.task in self.live:
            self.live[hit.task][0].send_signal(signal.SIGCONT)

    def make(self, hits):
        start = time.monotonic()
        due = sorted([(hit.after, 0, i) for i, hit in enumerate(hits)] + [(hit.after + hit.lasts, 1, i) for i, hit in enumerate(hits) if hit.way != "kill"])
        for at, over, i in due:
            while time.monotonic() < start + at:
                self.poll()
            if over:
                hits[i].over = True
                self.end(hits[i], hits)
            else:
                self.begin(hits[i])

    def disturb(self, faults):
        for task in TASKS:
            self.start(task)
        self.wait_well()
        for number, hits in enumerate(faults, 1):
            self.worker_hits += sum(hit.task in WORKERS for hit in hits)
            self.note(f"fault {number}: {'; '.join(hit.describe() for hit in hits)}")
            begin = time.monotonic()
            self.make(hits)
            self.wait_well()
            self.note(f"fault {number} is over after {time.monotonic() - begin:.1f} s")

    # ---- The end

    def stop(self):
        """Asks the job to stop, and waits until all have ended."""
        self.ending = True
        self.live["chief:0"][0].send_signal(signal.SIGTERM)
        self.wait("all have stopped", lambda: not self.live)
        if result(self.model_dir)["status"] != "preempted":
            self.wrong.append(f"a job that was asked to stop is {result(self.model_dir)['status']}: {result(self.model_dir)['cause']}")

    def go_on(self, steps):
        for task in TASKS:
            self.start(task, [f"max_steps={steps}"])
        self.wait("the job is completed", lambda: not self.live)
        ended = result(self.model_dir)
        if (ended["status"], ended["steps"]) != ("completed", steps):
            self.wrong.append(f"after the stop it continued to step {ended['steps']} of {steps}: {ended['status']}, {ended['cause']}")

    def state(self, step):
        """([how many updates each element holds], {example: how often its row was updated}) of a checkpoint."""
        updates = numpy.concatenate([-values for values in tensors(self.model_dir, step).values()])
        rows = collections.Counter()
        for path in (self.model_dir / "checkpoints" / f"step-{step:08}").glob("tables-*"):
            from safetensors.numpy import load_file
            piece = load_file(path)
            for key, row in zip(piece["seen.keys"].tolist(), -piece["seen.rows"]):
                if (row != row[0]).any():
                    self.wrong.append(f"the row of example {key} is torn: {row}")
                rows[key] += int(row[0])
        return updates, rows

    def check(self):
        ended = result(self.model_dir)
        steps, servers = ended["steps"], ended["parameter_server"]
        lost, torn, repeated = servers["lost_updates"], servers["torn_pushes"], servers["repeated_examples"] // BATCH
        updates, rows = self.state(steps)
        low, high = int(updates.min()), int(updates.max())
        acknowledged, used = sum(self.acknowledged().values()), self.used()
        print(f"  {steps} steps, {acknowledged} pushes acknowledged; parameters hold {low} to {high}, rows {sum(rows.values()) / BATCH:g} in all; "
              f"lost_updates {lost}, torn_pushes {torn}, repeated batches {repeated}", flush=True)
        wrong = []
        ends = sum(self.starts[task] - 1 for task in SERVERS)
        if lost != 0 and (self.copies == 2 or ends == 0):
            wrong.append(f"lost_updates is {lost} with copies {self.copies}, and servers have ended {ends} times")
        if self.copies == 2:
            if low < acknowledged:
                wrong.append(f"parameters hold {low} updates and {acknowledged} were acknowledged")
            if missing := {example: (rows[example], times) for example, times in used.items() if rows[example] < times}:
                wrong.append(f"rows of examples lack updates that were acknowledged: {missing}")
        # For both shards together. Pushes that lost workers did not report come in addition: an acknowledged push that was made again, and
        # at most one for each loss that was not acknowledged.
        most = 2 * max(0, acknowledged - steps) + 2 * self.worker_hits
        if not 0 <= low + high - (2 * steps - lost) <= most:
            wrong.append(f"both shards hold {low} + {high} updates of {steps} steps with {lost} lost; {acknowledged} were acknowledged")
        missing = steps * BATCH - sum(rows.values())
        if not -most * BATCH <= missing <= lost * BATCH:
            wrong.append(f"rows lack {missing} updates of examples, and {lost} updates of {BATCH} are lost")
        if self.copies == 2 and high - low > torn:
            wrong.append(f"torn_pushes is {torn}, and parameters hold {low} to {high} updates")
        if acknowledged - steps > repeated:
            wrong.append(f"{repeated} batches are counted as repeated, and {acknowledged} pushes were acknowledged in {steps} steps")
        self.wrong += wrong
        return steps

    def kill_all(self):
        for popen, _ in self.live.values():
            popen.kill()
            popen.wait()

    def tell_who_waits(self):
        for task, (popen, log) in self.live.items():
            print(f"---- {task}, pid {popen.pid}; the last lines of {log}")
            print("\n".join(log.read_text(errors="replace").splitlines()[-12:]))
        print("---- the last lines of the journal")
        print("\n".join((self.folder / "journal").read_text().splitlines()[-25:]))


def soak(folder, copies, faults, network, quiet):
    """The errors that were found."""
    run = Run(folder, copies, network, quiet)
    begin = time.monotonic()
    try:
        run.disturb(faults)
        run.stop()
        disturbed = time.monotonic() - begin
        of = collections.Counter(f"{hit.task.split(':')[0]} {hit.way}" for hits in faults for hit in hits)
        print(f"{copies} {'copy' if copies == 1 else 'copies'}: {len(faults)} faults, {sum(len(hits) == 2 for hits in faults)} of them pairs, in {disturbed:.0f} s; "
              f"{sum(run.starts.values())} processes; exit codes {dict(sorted(run.codes.items()))}")
        print(f"  {', '.join(f'{what} {n}' for what, n in sorted(of.items()))}")
        steps = run.check()
        run.go_on(steps + 40)
    except Hang as hang:
        run.wrong.append(str(hang))
        run.tell_who_waits()
    finally:
        run.kill_all()
    return run.wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--copies", choices=["1", "2", "both"], default="both")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--ways", default="kill,freeze,cut")
    parser.add_argument("--tasks", default=",".join(TASKS), help="that faults hit")
    parser.add_argument("--quiet", type=int, default=90, help="seconds in which a run must be well again after a fault")
    parser.add_argument("--keep", action="store_true", help="keep the folder also when all is well")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    ways = arguments.ways.split(",")
    network = None
    if "cut" in ways:
        try:
            require()
        except Exception as why:
            print(f"nobody is cut off: {why}")
            ways.remove("cut")
        else:
            network = Network(len(TASKS), seed)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-soak-"))
    print(f"seed {seed}, in {folder}", flush=True)
    wrong = []
    try:
        for copies in (1, 2) if arguments.copies == "both" else [int(arguments.copies)]:
            faults = draw(arguments.faults, seed, copies, ways, arguments.tasks.split(","))
            (folder / f"copies-{copies}").mkdir()
            wrong += soak(folder / f"copies-{copies}", copies, faults, network, arguments.quiet)
    finally:
        if network is not None:
            network.close()
    for line in wrong[:50]:
        print(line)
    if wrong or arguments.keep:
        print(f"logs, checkpoints and the journal are in {folder}")
    else:
        shutil.rmtree(folder)
    print("FAILED" if wrong else "all is well")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
