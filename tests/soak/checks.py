"""Checks of an ended run, after any faults."""
import json
import math
import pathlib
import re

from harness import curve, result, tensors

# All files of a model_dir in which no process works. Any other file is unfinished work.
KNOWN = re.compile(r"checkpoints(/\.staging|/latest|/best(\.json)?|/step-\d{8}(/(manifest|state)\.json|/(model|optimizer)\.safetensors)?)?"
                   r"|logs/[a-z]+-\d+\.log|flight(/\d{4}-\d{6}(/[a-z]+-\d+\.json)?)?|logs|(job|owner|recovery|result|status)\.json|owner\.lock"
                   r"|(train|validation|test|eval|system)(/events\.out\.tfevents\.\d{10,}\.[^/]+)?")
PARTS = {"manifest.json", "state.json", "model.safetensors", "optimizer.safetensors"}
SHARED = pathlib.Path("/dev/shm")


def curves(model_dir):
    found = {"loss": curve(model_dir), "epoch_loss": curve(model_dir, "train", "epoch_loss")}
    for split in "validation", "test":
        if (model_dir / split).exists():
            found[split] = curve(model_dir, split, "epoch_loss")
    return found


def final(model_dir):
    step = result(model_dir)["steps"]
    return {f"{file} {name}": values for file in ("model.safetensors", "optimizer.safetensors")
            for name, values in tensors(model_dir, step, file).items()}


def differs(a, b, tolerance):
    if a is None or b is None:
        return a is not b
    return a != b if tolerance == 0 else not math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance * 1e-3)


def compare(got, want, what, tolerance=0.0):
    wrong = []
    if sorted(got) != sorted(want):
        wrong.append(f"{what} has the curves {sorted(got)}, undisturbed {sorted(want)}")
    for name in set(got) & set(want):
        for step in sorted(set(got[name]) | set(want[name])):
            a, b = got[name].get(step), want[name].get(step)
            if differs(a, b, tolerance):
                wrong.append(f"{what} {name} at {step}: {a if a is not None else 'missing'}, undisturbed {b if b is not None else 'missing'}")
    return wrong


def compare_evaluations(model_dir, want_dir, what):
    """Which checkpoints the evaluator comes to depends on time; what it finds there does not."""
    got, want = [{} if not (folder / "eval").exists() else curve(folder, "eval", "epoch_loss") for folder in (model_dir, want_dir)]
    wrong = [f"{what} eval at {step}: {got[step]}, undisturbed {want[step]}" for step in sorted(set(got) & set(want)) if got[step] != want[step]]
    if want and max(want) not in got:
        wrong.append(f"{what}: the last checkpoint, of step {max(want)}, was not evaluated")
    return wrong


def compare_ends(model_dir, want_dir, what, tolerance=0.0):
    wrong = []
    got, want = result(model_dir), result(want_dir)
    for key in ("status", "steps", "epochs", "examples", "cause"):
        if got[key] != want[key]:
            wrong.append(f"{what}: {key} of result.json is {got[key]}, undisturbed {want[key]}")
    if tolerance == 0 and got["metrics"] != want["metrics"]:
        wrong.append(f"{what}: the metrics of result.json are {json.dumps(got['metrics'])}, undisturbed {json.dumps(want['metrics'])}")
    if wrong:
        return wrong
    a, b = final(model_dir), final(want_dir)
    for name in sorted(set(a) | set(b)):
        if name not in a or name not in b:
            wrong.append(f"{what}: {name} is only in one of the last checkpoints")
        elif tolerance == 0 and a[name].tobytes() != b[name].tobytes():
            wrong.append(f"{what}: {name} differs at the end")
    return wrong


def left_over(model_dir, shared_before, temporary):
    """Files that nobody will ever finish or remove."""
    wrong = []
    for path in sorted(model_dir.rglob("*")):
        name = str(path.relative_to(model_dir))
        if not KNOWN.fullmatch(name):
            wrong.append(f"{name} was left in model_dir")
    if any((model_dir / "checkpoints" / ".staging").glob("*")):
        wrong.append("checkpoints/.staging is not empty")
    for checkpoint in (model_dir / "checkpoints").glob("step-*"):
        if missing := PARTS - {path.name for path in checkpoint.iterdir()}:
            wrong.append(f"{checkpoint.name} is without {', '.join(sorted(missing))}")
    wrong += [f"{path} was left" for path in sorted(set(SHARED.iterdir()) - shared_before) if path.name.startswith(("muster", "sem.muster"))]
    wrong += [f"{path.name} was left in TMPDIR" for path in sorted(temporary.iterdir()) if not path.name.startswith("muster-flight")]
    return wrong


def digests(folder):
    """{generation's beginning: the digests of all its replicas}, as recording_worker writes them: each process a file, a line for each
    generation, "step digest digest ...". All that differ, and how many generations there were."""
    wrong, count = [], 0
    for file in sorted(folder.glob("digests-*")):
        for line in file.read_text().splitlines():
            step, *found = line.split()
            count += 1
            if len(set(found)) != 1:
                wrong.append(f"replicas hold different parameters after step {step}: {line} ({file.name})")
    return wrong, count
