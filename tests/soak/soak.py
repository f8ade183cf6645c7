#!/usr/bin/env python3
"""Faults drawn at random, all in one run: it must end well, with the curves of an undisturbed run.

  tests/soak/soak.py [--faults 100] [--seed S] [--program linear|fashion_mnist|matrix_factorization|all] [--plane shared_memory|tcp]
                     [--kinds kill,term-twice,...] [--keep]
  tests/soak/soak.py --elastic [--faults 40] [--seed S]
  tests/soak/soak.py --launched [--faults 100] [--seed S] [--program ...]

A chief, two workers and an evaluator under a supervisor that starts each again, as an orchestrator does, after a crash and after 143.
The faults (faults.KINDS) are made by --fault inside the processes and by signals from outside, one every few steps; the wall clock,
which the processes have from test_clock.so, goes an hour back and forth. Every point of every curve, and the final parameters and slots,
must be those of a run without faults, to the last bit; every process ends with a code that what was done to it explains; no step is lost
that a survivor had; nothing is left half done. With --elastic four members come and go: each loss is within 1e-5 of the undisturbed
run's, and in every generation all replicas begin with the same bits. With --launched the supervisor is `muster launch`, and the
faults are those that processes make themselves.

A run that does not end in time is a failure: the waiting processes are printed, and the folder is kept. The seed is printed: the same
seed draws the same faults.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cluster" / "base")]
import checks  # noqa: E402
import faults  # noqa: E402
import launched  # noqa: E402
from harness import BIN, free_ports, inherited, result  # noqa: E402
from supervisor import Supervisor  # noqa: E402

CLOCK = BIN.parent / "tests" / "test_clock.so"
# Planned faults that never happen: for a step with which a process began, or that a fault before it left out.
SPARE = 1.5
PROGRAMS = ["linear", "fashion_mnist", "matrix_factorization"]


def idx(path, array):
    """An IDX file of bytes."""
    path.write_bytes(struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes())


def write_data(folder):
    """Small, so that processes start soon, and no two examples alike, so that none can be taken for another one."""
    import numpy
    generator = numpy.random.default_rng(1)
    x = generator.standard_normal((1000, 8)).astype(numpy.float32)
    numpy.save(folder / "x.npy", x)
    numpy.save(folder / "y.npy", (x.sum(1) + generator.standard_normal(1000) > 0).astype(numpy.float32))
    for prefix, count in ("train", 1160), ("t10k", 150):
        labels = generator.integers(0, 10, count).astype(numpy.uint8)
        images = generator.integers(0, 120, (count, 28, 28)).astype(numpy.uint8)
        for image, label in zip(images, labels):
            image[2 * label:2 * label + 6] += 100
        idx(folder / f"{prefix}-images-idx3-ubyte", images)
        idx(folder / f"{prefix}-labels-idx1-ubyte", labels)


def job(program, planned, plane, data):
    """About as many steps as give each fault some of its own, and time to be recovered from."""
    keys = {"program": program, "summary": {"every_steps": 1}, "collective": {"backend": "auto" if plane == "shared_memory" else "tcp"},
            "timeouts": {"heartbeat": faults.HEARTBEAT}, "seed": 11}
    if program == "linear":  # 25 steps an epoch
        return {**keys, "program_args": {"x": str(data / "x.npy"), "y": str(data / "y.npy"), "shuffle": True}, "global_batch_size": 40,
                "epochs": max(4, planned), "checkpoint": {"every_steps": 10}}
    if program == "fashion_mnist":  # 20 steps an epoch
        return {**keys, "program_args": {"data_dir": str(data), "hidden": 32, "validation": 200}, "global_batch_size": 48,
                "epochs": max(3, planned * 10 // 20), "checkpoint": {"every_steps": 10, "best": "loss"}}
    return {**keys, "program_args": {"users": 3000, "items": 500, "rank": 4, "width": 8, "examples": 10000, "validation": 500},
            "global_batch_size": 500, "epochs": max(3, planned * 15 // 20), "checkpoint": {"every_steps": 10}}


def try_clock(folder):
    """Steps that no process sees would show nothing."""
    offset = folder / "clock-tried"
    offset.write_bytes(struct.pack("<q", 3600 * 10**9))
    environment = {**os.environ, "LD_PRELOAD": str(CLOCK), "MUSTER_TEST_CLOCK": str(offset)}
    answer = subprocess.run(["date", "+%s"], env=environment, capture_output=True, text=True)
    if not answer.stdout or abs(int(answer.stdout) - time.time() - 3600) > 60:
        sys.exit(f"{CLOCK} does not move the clock: {answer.stdout}{answer.stderr}")


class Soak:
    def __init__(self, arguments, seed, folder, program):
        self.arguments, self.seed, self.folder, self.program = arguments, seed, folder, program
        self.count = arguments.faults
        self.planned = int(self.count * SPARE) + 3

    def keys(self):
        return job(self.program, self.planned, self.arguments.plane, self.folder)

    def cluster(self):
        ports = free_ports(3)
        return {"chief": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{port}" for port in ports[1:]]}

    def commands(self):
        return {kind: [str(BIN / f"muster-{kind}")] for kind in ("chief", "worker", "evaluator")}

    kinds, tolerance, evaluator = faults.KINDS, 0.0, True

    def supervisor(self, name, planned):
        folder = self.folder / name
        (folder / "logs").mkdir(parents=True)
        (folder / "tmp").mkdir()
        self.test_dir(folder).mkdir(exist_ok=True)
        model_dir = folder / "model"
        path = folder / "job.json"
        path.write_text(json.dumps({**self.keys(), "model_dir": str(model_dir)}))
        environment = {"TMPDIR": str(folder / "tmp"), "MUSTER_TEST_DIR": str(self.test_dir(folder)), "MUSTER_TEST_DIGESTS": "1"}
        return self.make_run(folder, path, planned, environment), model_dir

    def make_run(self, folder, path, planned, environment):
        return Supervisor(folder, self.cluster(), self.commands(), path, planned, self.evaluator, self.seed, CLOCK if CLOCK.exists() else None,
                          environment, self.arguments.quiet)

    @staticmethod
    def test_dir(folder):
        return folder / "test"

    def run(self):
        """The list of what is wrong."""
        shared = set(checks.SHARED.iterdir())
        first, want_dir = self.supervisor(f"{self.program}-undisturbed", [])
        begin = time.monotonic()
        if not first.run(900) or first.wrong:
            return [f"the undisturbed run: {line}" for line in first.wrong]
        undisturbed = time.monotonic() - begin
        steps = result(want_dir)["steps"]
        phases = [p for p in faults.PHASES if p != "evaluate" or (want_dir / "validation").exists()]
        kinds = {k: n for k, n in self.kinds.items() if not self.arguments.kinds or k in self.arguments.kinds.split(",")}
        if not CLOCK.exists():
            kinds.pop("clock", None)
        planned = faults.Drawer(random.Random(self.seed), first.members, phases, kinds).draw(self.planned, steps)
        (self.folder / f"{self.program}-faults").write_text("\n".join(f.describe() for f in planned) + "\n")
        run, model_dir = self.supervisor(self.program, planned)
        begin = time.monotonic()
        ended = run.run(undisturbed * 3 + 120 + 30 * self.planned)
        happened = sum(run.counts.values())
        print(f"{self.program}, seed {self.seed}, {self.arguments.plane}: {happened} faults in {steps} steps, {run.generations} generations, "
              f"{sum(run.starts.values())} processes, {time.monotonic() - begin:.0f} s (undisturbed {undisturbed:.0f} s)")
        print(f"  faults: {', '.join(f'{kind} {n}' for kind, n in sorted(run.counts.items()))}")
        print(f"  exit codes: {', '.join(f'{code}: {n}' for code, n in sorted(run.codes.items()))}", flush=True)
        if not ended:
            return run.wrong
        wrong = run.wrong + checks.compare(checks.curves(model_dir), checks.curves(want_dir), self.program, self.tolerance)
        wrong += checks.compare_ends(model_dir, want_dir, self.program, self.tolerance)
        wrong += checks.left_over(model_dir, shared, self.folder / self.program / "tmp")
        if self.evaluator:
            wrong += checks.compare_evaluations(model_dir, want_dir, self.program)
        if happened < self.count:
            wrong.append(f"{self.program}: only {happened} of {self.count} faults happened ({self.planned} were planned)")
        return wrong + self.more_checks(run)

    def more_checks(self, run):
        return []


class Elastic(Soak):
    """Four members, worker 0 with the chief's role, of a program that writes down every replica's digest at each generation's start."""
    kinds, tolerance, evaluator = faults.ELASTIC_KINDS, 1e-5, False

    def keys(self):
        epoch = 20
        return {"program": "recording", "program_args": {"examples": 12 * epoch, "sleep_ms": 20 if self.count > 5 else 8}, "global_batch_size": 12,
                "epochs": max(4, self.planned * 50 // epoch), "summary": {"every_steps": 1}, "checkpoint": {"every_steps": 20}, "seed": 11,
                "collective": {"backend": "auto" if self.arguments.plane == "shared_memory" else "tcp"},
                "learning_rate": {"name": "cosine", "initial": 0.05}, "timeouts": {"heartbeat": faults.HEARTBEAT},
                "elastic": {"min_workers": 2, "grace": 0.5}}

    def cluster(self):
        return {"worker": [f"127.0.0.1:{port}" for port in free_ports(4)]}

    def commands(self):
        return {"worker": [str(BIN.parent / "tests" / "recording_worker")]}

    def more_checks(self, run):
        wrong, count = checks.digests(self.test_dir(run.folder))
        print(f"  digests of all replicas compared at the start of {count} generations")
        return wrong + ([] if count > 0 else ["no digest was written"])


class LaunchedSoak(Soak):
    kinds = launched.KINDS

    def make_run(self, folder, path, planned, environment):
        command = [str(BIN / "muster"), "launch", "--workers", "2", "--evaluator", "--restart", "on-failure", "--max-restarts", "1000"]
        return launched.Launched(folder, command, path, planned, inherited(**environment), self.arguments.quiet)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=None)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--program", choices=[*PROGRAMS, "all"], default="all")
    parser.add_argument("--plane", choices=["shared_memory", "tcp"], default=None, help="between members; drawn where it is not said")
    parser.add_argument("--kinds", help="only these, comma-separated")
    parser.add_argument("--elastic", action="store_true")
    parser.add_argument("--launched", action="store_true", help="under muster launch")
    parser.add_argument("--quiet", type=int, default=180, help="seconds without an event that count as a hang")
    parser.add_argument("--keep", action="store_true", help="keep the folder also when all is well")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    if arguments.plane is None:
        arguments.plane = random.Random(seed).choice(["shared_memory", "tcp"])
    if arguments.faults is None:
        arguments.faults = 40 if arguments.elastic else 100
    folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-soak-"))
    print(f"seed {seed}, in {folder}", flush=True)
    if CLOCK.exists():
        try_clock(folder)
    write_data(folder)
    wrong = []
    if arguments.elastic:
        wrong += Elastic(arguments, seed, folder, "recording").run()
    else:
        for program in PROGRAMS if arguments.program == "all" else [arguments.program]:
            wrong += (LaunchedSoak if arguments.launched else Soak)(arguments, seed, folder, program).run()
    for line in wrong[:50]:
        print(line)
    if wrong or arguments.keep:
        print(f"logs, curves and faults are in {folder}")
    else:
        shutil.rmtree(folder)
    print("FAILED" if wrong else "all is well")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
