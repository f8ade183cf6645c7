#!/usr/bin/env python3
"""Faults drawn at random, all in one run: it must end well, with the curves of an undisturbed run.

  tests/soak/soak.py [--faults 100] [--seed S] [--program linear|fashion_mnist|both] [--keep]

A chief and two workers under `muster launch --restart on-failure`; the faults (kill, stop and continue, delay, drop and freeze of
links; of every role, in every phase, the writing of checkpoints included) happen by --fault inside the tasks, one every few
steps. Every point of the loss curve and of the validation curve, and the final parameters, must be those of a run without
faults, to the last bit. A run that does not end in time is a failure: who waits for whom is printed, and the folder is kept.
The seed is printed: the same seed draws the same faults.
"""
import argparse
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster"))
from harness import BIN, curve, result, tensors  # noqa: E402

TASKS = ["chief:0", "worker:0", "worker:1"]
PHASES = ["forming", "data", "forward", "reduce", "update", "evaluate", "save"]
HEARTBEAT = 3


def job(program, faults):
    """About as many steps as give each fault some of its own, and time to be recovered from."""
    keys = {"summary": {"every_steps": 1}, "collective": {"backend": "tcp"}, "timeouts": {"heartbeat": HEARTBEAT}, "seed": 11}
    if program == "linear":
        # 25 steps an epoch.
        return {**keys, "program": "linear", "global_batch_size": 40, "epochs": max(4, faults * 2), "checkpoint": {"every_steps": 10}}
    return {**keys, "program": "fashion_mnist", "program_args": {"hidden": 32}, "global_batch_size": 48, "steps_per_epoch": 40,
            "epochs": max(2, faults * 10 // 40), "checkpoint": {"every_steps": 20}}


def draw(generator, count, steps, passes):
    """At steps of their own, in order: a fault must not meet the recovery from the one before it too often to be counted."""
    faults = []
    for i in range(count):
        low, high = 2 + i * (steps - 4) // count, 2 + (i + 1) * (steps - 4) // count
        task, step = generator.choice(TASKS), generator.randrange(low, max(low + 1, high))
        # The chief alone saves, and not every program has validation data.
        phase = generator.choice([p for p in PHASES if (p != "save" or task == "chief:0") and (p != "evaluate" or passes)])
        kind = generator.choice(["kill", "kill", "stop", "delay", "drop", "freeze"])
        text = {"kill": "kill", "stop": "stop", "delay": f"delay={generator.randrange(50, 1000)}ms",
                "drop": f"drop={generator.choice(['data', 'control', 'all'])}", "freeze": f"freeze={generator.randrange(100, 1500)}ms"}[kind]
        text += f"@{task}:step={step}:phase={phase}"
        if kind == "stop":  # one in four for longer than the heartbeats' deadline
            text += f":for={generator.randrange(100, 1500) + (HEARTBEAT * 1000 if generator.random() < 0.25 else 0)}ms"
        if kind == "freeze":
            text += f":link={generator.choice(['data', 'control', 'all'])}"
        if phase == "save" and task == "chief:0":
            text += f":nth={generator.randrange(1, 7)}"
        faults.append(text)
    return faults


def environment():
    return {**{k: v for k, v in os.environ.items() if k != "TF_CONFIG"}, "OMP_WAIT_POLICY": "passive"}


def launch(folder, name, keys, faults, limit):
    """Returns (exit code or None, output, seconds)."""
    model_dir = folder / name
    path = folder / f"{name}.json"
    path.write_text(json.dumps({**keys, "model_dir": str(model_dir)}))
    command = [str(BIN / "muster"), "launch", "--workers", "2", "--restart", "on-failure", "--max-restarts", "1000", "--job", str(path)]
    for fault in faults:
        command += ["--fault", fault]
    log = folder / f"{name}.log"
    begin = time.monotonic()
    with open(log, "wb") as out:
        process = subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
            hung(process, log)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)  # its tasks go with it
                process.wait()
    return code, log.read_text(errors="replace"), time.monotonic() - begin


def hung(process, log):
    """Who waits for whom: what the tasks themselves said last, and where their threads are."""
    lines = log.read_text(errors="replace").splitlines()
    print("HANG. The last lines of each task:")
    for task in TASKS:
        print("\n".join([line for line in lines if line.startswith(f"[{task.replace(':', ' ')}]")][-8:]))
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            status = pathlib.Path(f"/proc/{entry}/status").read_text()
            if int(re.search(r"PPid:\s+(\d+)", status)[1]) != process.pid:
                continue
            config = re.search(r'"task":(\{.*?\})', pathlib.Path(f"/proc/{entry}/environ").read_text())
            print(f"pid {entry} {config[1] if config else ''} {re.search('State:.*', status)[0]}")
            for thread in os.listdir(f"/proc/{entry}/task"):
                where = pathlib.Path(f"/proc/{entry}/task/{thread}/wchan").read_text()
                print(f"  thread {thread} {pathlib.Path(f'/proc/{entry}/task/{thread}/comm').read_text().strip()}: {where}")
        except OSError:
            continue


def curves(model_dir):
    return {"loss": curve(model_dir), "epoch_loss": curve(model_dir, "train", "epoch_loss"), "validation": curve(model_dir, "validation", "epoch_loss")}


def final(model_dir):
    step = result(model_dir)["steps"]
    return {f"{file} {name}": values.tobytes() for file in ("model.safetensors", "optimizer.safetensors")
            for name, values in tensors(model_dir, step, file).items()}


def compare(got, want, what):
    wrong = []
    for name in want:
        for step in sorted(set(got[name]) | set(want[name])):
            a, b = got[name].get(step), want[name].get(step)
            if a != b:
                wrong.append(f"{what} {name} at {step}: {a if a is not None else 'missing'}, undisturbed {b if b is not None else 'missing'}")
    return wrong


def soak(program, count, seed, folder):
    """The list of what is wrong."""
    generator = random.Random(seed)
    keys = job(program, count)
    code, output, undisturbed = launch(folder, f"{program}-undisturbed", keys, [], 600)
    if code != 0:
        return [f"the undisturbed run ended with {code}:\n{output[-3000:]}"]
    want_dir = folder / f"{program}-undisturbed"
    steps = result(want_dir)["steps"]
    faults = draw(generator, count, steps, passes=(want_dir / "validation").exists())
    (folder / f"{program}-faults").write_text("\n".join(faults) + "\n")
    code, output, seconds = launch(folder, program, keys, faults, undisturbed * 3 + 60 + 25 * count)
    fired = {int(number) for number in re.findall(r"\| fault (\d+): ", output)}
    restarts = re.findall(r"started again: (.*)", output)
    print(f"{program}, seed {seed}: {len(fired)} of {count} faults in {steps} steps, {seconds:.0f} s (undisturbed {undisturbed:.0f} s), exit code {code}; "
          f"started again: {restarts[-1] if restarts else 'nobody'}", flush=True)
    if code is None:
        return [f"{program} did not end within {undisturbed * 3 + 60 + 25 * count:.0f} s"]
    if code != 0:
        return [f"{program} ended with {code}, and not with 0:\n{output[-3000:]}"]
    wrong = compare(curves(folder / program), curves(want_dir), program)
    got, want = final(folder / program), final(want_dir)
    wrong += [f"{program}: {name} differs at the end" for name in want if got.get(name) != want[name]]
    # The rest are void: planned for a step with which a process began, or its task was restarted for another reason.
    if len(fired) < count * 0.7:
        wrong.append(f"{program}: only {len(fired)} of {count} faults happened")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--program", choices=["linear", "fashion_mnist", "both"], default="both")
    parser.add_argument("--keep", action="store_true", help="keep the folder also when all is well")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-soak-"))
    os.environ["TMPDIR"] = str(folder)  # flight records that find no chief
    print(f"seed {seed}, in {folder}", flush=True)
    wrong = []
    for program in ["linear", "fashion_mnist"] if arguments.program == "both" else [arguments.program]:
        wrong += soak(program, arguments.faults, seed, folder)
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
