#!/usr/bin/env python3
"""Five ways to fine-tune the image classifier for ten epochs, and what each of them takes: one table.

  bench/image_classifier.py OUT [--pictures FOLDER] [--weights FILE] [--replicas 2] [--epochs 10]

(1) one replica, batches of 16, one rate; (2) the same with a rate that ramps up, holds and decays; (3) that on N replicas, 16 each,
the peak scaled with them; (4) as 3 with 32 each and batches loaded ahead; (5) as 3 with batches loaded ahead. Each replica is a process
with one thread for its operators. FOLDER has one folder of pictures for each of two classes; without it both pictures and weights are made as
`make classifier` makes them. Everything stays in OUT: the curves of training and validation are for TensorBoard (tensorboard --logdir OUT).
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[1]
BIN = pathlib.Path(os.environ.get("MUSTER_BIN_DIR", SOURCE / "build" / "bin"))
EXAMPLES = SOURCE / "examples"
VARIANTS = [  # name, replicas (0: N), examples a replica, whether the rate ramps, whether batches are loaded ahead
    ("1 one replica", 1, 16, False, False), ("2 rate ramps, holds, decays", 1, 16, True, False), ("3 N replicas", 0, 16, True, False),
    ("4 N replicas, 32 each, loaded ahead", 0, 32, True, True), ("5 N replicas, loaded ahead", 0, 16, True, True)]


def launch(job, replicas, sets, log):
    environment = {**{name: value for name, value in os.environ.items() if name != "TF_CONFIG"}, "OMP_NUM_THREADS": "1"}
    command = [BIN / "muster-worker"] if replicas == 1 else [BIN / "muster", "launch", "--workers", replicas - 1]
    command += ["--job", job, "--set", "devices=cpu", *(word for item in sets for word in ("--set", item))]
    with open(log, "w") as out:
        code = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment).returncode
    if code:
        raise SystemExit(f"exit code {code}; {log} says why")


def make_inputs(out, replicas):
    """Pictures and weights, once."""
    pictures, weights = out / "pictures", out / "weights.safetensors"
    if not weights.exists():
        print("drawing pictures and training the weights to begin with", file=sys.stderr)
        for name, classes in ("photos", "fish,flowers"), ("base", "boats,houses,mushrooms,trees"):
            subprocess.run([sys.executable, EXAMPLES / "pictures.py", "photos", pictures / name, "--classes", classes], check=True)
        launch(EXAMPLES / "image_classifier_base.json", replicas, [f"folder={pictures}", f"model_dir={out / 'base'}"], out / "base.log")
        subprocess.run([BIN / "muster", "export", "--checkpoint", out / "base" / "checkpoints" / "best", "--output", weights], check=True, stdout=subprocess.DEVNULL)
    return pictures / "photos", weights


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path)
    parser.add_argument("--weights", type=pathlib.Path, help="of torchvision's mobilenet_v2; with --pictures alone training begins from scratch")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    pictures, weights = (arguments.pictures, arguments.weights) if arguments.pictures else make_inputs(out, arguments.replicas)
    start = [f"program_args.weights={weights.resolve()}"] if weights else ["program_args.weights=", "program_args.frozen_epochs=0"]
    print(f"{'':38}  seconds  images/s  accuracy   best  input wait")
    for number, (name, replicas, each, ramps, ahead) in enumerate(VARIANTS, 1):
        model_dir = out / str(number)
        sets = [f"folder={pictures.resolve().parent}", *(f"data.{split}.path={pictures.name}" for split in ("train", "validation")), *start,
                f"epochs={arguments.epochs}", f"per_replica_batch_size={each}", f"model_dir={model_dir}", "restore=never", "checkpoint.best=accuracy",
                f"data.prefetch={'auto' if ahead else 0}", *([] if ramps else ["learning_rate=0.001"])]
        launch(EXAMPLES / "image_classifier.json", replicas or arguments.replicas, sets, out / f"{number}.log")
        got = json.loads((model_dir / "result.json").read_text())
        print(f"{name:38}  {got['wall_seconds']:7.1f}  {got['examples_per_second']:8.1f}  {got['metrics']['validation']['accuracy']:8.4f}  "
              f"{got['best']['metrics']['accuracy']:5.3f}  {got['input_wait_share']:10.1%}", flush=True)


if __name__ == "__main__":
    main()
