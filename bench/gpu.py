#!/usr/bin/env python3
"""Speed of training on one GPU, compared with PyTorch: ratios from one run.

  bench/gpu.py [--models resnet50,mobilenet_v2,gpt,convnet] [--precisions float32,bfloat16] [--rounds 2]

ResNet-50 (128 images of 224 x 224), MobileNetV2 (256 images of 128 x 128), GPT-2 small over bytes (16 sequences of 512) and the
tutorial's convnet (128 images of 28 x 28), in turns with the same model in PyTorch (bench/peers/gpu.py) in the Python that runs this
script. Muster loads its batches from files and copies them to the GPU; the peer has them there. Muster's rate is that of its median step,
the peer's the mean over all of its steps. Medians over the rounds are compared.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import needs

needs.gpu()
needs.modules("numpy", "torch", "torchvision")
import numpy  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "cluster" / "base"))
from harness import BIN, result, write_idx  # noqa: E402

BATCHES = 16  # in an epoch
PEER = pathlib.Path(__file__).resolve().parent / "peers" / "gpu.py"


def images(folder, batch, size, classes):
    random = numpy.random.default_rng(1)
    numpy.save(folder / "x.npy", random.integers(0, 256, (BATCHES * batch, 3, size, size), numpy.uint8))
    numpy.save(folder / "y.npy", random.integers(0, classes, BATCHES * batch))
    return {"program": "image_classifier", "optimizer": "adam", "learning_rate": 0.001,
            "data": {"train": {"format": "npy", "x": "x.npy", "y": "y.npy"}}}


def resnet50(folder, batch):
    return {**images(folder, batch, 224, 1000), "program_args": {"model": "resnet50", "classes": 1000}}


def mobilenet_v2(folder, batch):
    return {**images(folder, batch, 128, 2), "program_args": {"classes": 2, "dropout": 0.2}}


def gpt(folder, batch):
    (folder / "text").write_bytes(numpy.random.default_rng(1).integers(0, 256, BATCHES * batch * 512 + 1, numpy.uint8).tobytes())
    return {"program": "language_model", "program_args": {"layers": 12, "heads": 12, "width": 768}, "learning_rate": 0.001,
            "data": {"train": {"format": "text", "path": "text", "length": 512}}}


def convnet(folder, batch):
    random = numpy.random.default_rng(1)
    for name, values in ("images-idx3", random.integers(0, 256, (60000, 28, 28), numpy.uint8)), ("labels-idx1", random.integers(0, 10, 60000, numpy.uint8)):
        for split in "train", "t10k":
            write_idx(folder / f"{split}-{name}-ubyte", values)
    return {"program": "fashion_mnist", "program_args": {"hidden": 64, "validation": 0, "data_dir": str(folder)}, "optimizer": "sgd", "learning_rate": 0.01}


# Examples in a batch, steps, and what the job says.
MODELS = {"resnet50": (128, 150, resnet50), "mobilenet_v2": (256, 200, mobilenet_v2), "gpt": (16, 100, gpt), "convnet": (128, 2000, convnet)}


def muster(model, precision):
    batch, steps, keys = MODELS[model]
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = pathlib.Path(name)
        (folder / "job.json").write_text(json.dumps({
            "epochs": 100000, "max_steps": steps, "devices": "cuda", "precision": precision, "global_batch_size": batch,
            "summary": {"every_steps": 100000}, "checkpoint": {"every_epochs": 100000}, "model_dir": str(folder / "model"), **keys(folder, batch)}))
        done = subprocess.run([str(BIN / "muster-worker"), "--job", str(folder / "job.json")], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=600)
        if done.returncode != 0:
            raise SystemExit(done.stderr.decode())
        return result(folder / "model")


def peer(model, precision):
    batch, steps, _ = MODELS[model]
    out = subprocess.run([sys.executable, str(PEER), model, str(batch), str(steps), precision], check=True, stdout=subprocess.PIPE, timeout=600).stdout
    return json.loads(out.splitlines()[-1])["examples_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet50,mobilenet_v2,gpt,convnet", help=f"some of {', '.join(MODELS)}")
    parser.add_argument("--precisions", default="float32,bfloat16")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    for model in arguments.models.split(","):
        for precision in arguments.precisions.split(","):
            ours, theirs, parts = [], [], {}
            for _ in range(arguments.rounds):
                got = muster(model, precision)
                ours.append(got["examples_per_second"])
                parts = got["step_seconds"]
                theirs.append(peer(model, precision))
            a, b = statistics.median(ours), statistics.median(theirs)
            print(f"{model}, {precision}: Muster {a:,.0f} examples/s, PyTorch {b:,.0f}: {a / b:.3f} times that; a step takes "
                  + ", ".join(f"{1e3 * seconds:.2f} ms {part}" for part, seconds in parts.items()), flush=True)


if __name__ == "__main__":
    main()
