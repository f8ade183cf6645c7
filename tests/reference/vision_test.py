"""image_classifier beside torchvision: the same weights give the same logits, and one step the same parameters and buffers.

Usage: vision_test.py MUSTER, whose other programs are beside it.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy
import torch
import torchvision
from safetensors.torch import load_file, save_file

MUSTER = pathlib.Path(sys.argv.pop())
CLASSES = 3
MODELS = {"mobilenet_v2": lambda **keys: torchvision.models.mobilenet_v2(dropout=0.0, **keys),
          "resnet18": torchvision.models.resnet18, "resnet50": torchvision.models.resnet50}
MEAN, STD = (torch.tensor(values).view(1, 3, 1, 1) for values in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))


class Vision(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster-vision-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        generator = numpy.random.default_rng(3)
        self.images = generator.integers(0, 256, (6, 3, 80, 96), dtype=numpy.uint8)
        self.labels = numpy.arange(6) % CLASSES
        numpy.save(self.dir / "x.npy", self.images)
        numpy.save(self.dir / "y.npy", self.labels)
        self.pixels = (torch.tensor(self.images).float() / 255 - MEAN) / STD

    def job(self, model, args={}, **keys):
        split = {"format": "npy", "x": str(self.dir / "x.npy"), "y": str(self.dir / "y.npy"), "shuffle": False}
        job = {"program": "image_classifier", "program_args": {"model": model, "classes": CLASSES, "dropout": 0.0, **args}, "global_batch_size": 6,
               "data": {"train": split}, **keys}
        path = self.dir / "job.json"
        path.write_text(json.dumps(job))
        return path

    def run_program(self, program, *arguments, code=0):
        done = subprocess.run([MUSTER.with_name(program), *map(str, arguments)], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def reference(self, model):
        torch.manual_seed(5)
        net = MODELS[model](num_classes=CLASSES)
        for name, buffer in net.named_buffers():
            if name.endswith("running_mean"):
                buffer.uniform_(-0.2, 0.2)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
        save_file(net.state_dict(), self.dir / "w.safetensors")
        return net

    def test_logits(self):
        for model in MODELS:
            with self.subTest(model):
                net = self.reference(model).eval()
                output = self.dir / f"{model}.npy"
                self.run_program("muster", "predict", "--job", self.job(model), "--checkpoint", self.dir / "w.safetensors", "--input", self.dir / "x.npy", "--output", output)
                with torch.no_grad():
                    want = net(self.pixels).numpy()
                self.assertGreater(numpy.abs(want).max(), 1e-3)
                numpy.testing.assert_allclose(numpy.load(output), want, atol=1e-4 * numpy.abs(want).max())

    def step(self, net, rate):
        optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=rate)
        torch.nn.functional.cross_entropy(net(self.pixels), torch.tensor(self.labels)).backward()
        optimizer.step()

    def test_one_step(self):
        for model in MODELS:
            with self.subTest(model):
                net = self.reference(model).train()
                before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
                job = self.job(model, load={"net": str(self.dir / "w.safetensors")}, model_dir=str(self.dir / model), max_steps=1, optimizer="sgd", learning_rate=1e-3)
                self.run_program("muster-worker", "--job", job)
                # Muster computes with channels last on a CPU. With channels first, PyTorch itself differs by up to 6e-5.
                net = net.to(memory_format=torch.channels_last)
                self.pixels = self.pixels.contiguous(memory_format=torch.channels_last)
                self.step(net, 1e-3)
                got = load_file(self.dir / model / "checkpoints/step-00000001/model.safetensors")
                want = net.state_dict()
                self.assertEqual(set(got), set(want))
                moved = 0
                for name, tensor in want.items():
                    numpy.testing.assert_allclose(got[name].numpy(), tensor.numpy(), atol=1e-5, rtol=1e-4, err_msg=name)
                    moved += not torch.equal(tensor, before[name])
                self.assertGreater(moved, 0.9 * len(want))

    def test_an_exported_one_trains_alike(self):
        """torchvision's MobileNetV2 as a file of torch.export, on two members, beside the program with the same weights.

        Small steps on 16 images each: with fewer images batch normalisation makes of a rounding error more than that within four
        steps, in PyTorch with channels first and last as well.
        """
        net = self.reference("mobilenet_v2")

        class Normalised(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net = net
                self.register_buffer("mean", MEAN, persistent=False)
                self.register_buffer("std", STD, persistent=False)

            def forward(self, images):
                return self.net((images - self.mean) / self.std)

        numpy.save(self.dir / "x.npy", numpy.random.default_rng(4).random((32, 3, 80, 96), numpy.float32))
        numpy.save(self.dir / "y.npy", numpy.arange(32) % CLASSES)
        batch = torch.export.Dim("batch", min=1)
        torch.export.save(torch.export.export(Normalised().train(), (torch.rand(4, 3, 80, 96),), dynamic_shapes=({0: batch},)), self.dir / "model.pt2")
        losses = {}
        for name, keys in ("program", {"load": {"net": str(self.dir / "w.safetensors")}}), (
                "exported", {"program": {"exported": str(self.dir / "model.pt2"), "loss": "cross_entropy"}, "program_args": {}}):
            job = self.job("mobilenet_v2", model_dir=str(self.dir / name), epochs=4, global_batch_size=32, optimizer="sgd",
                           learning_rate=1e-5, callbacks=[{"name": "csv_logger", "filename": "log.csv"}], **keys)
            self.run_program("muster", "launch", "--workers", 1, "--job", job)
            losses[name] = numpy.genfromtxt(self.dir / name / "log.csv", delimiter=",", names=True)["loss"]
        self.assertEqual(len(losses["program"]), 4)
        self.assertLess(losses["program"][3], losses["program"][0] - 0.01, "it learns, by far more than the tolerance")
        numpy.testing.assert_allclose(losses["exported"], losses["program"], rtol=1e-4)

    def test_a_frozen_base_keeps_its_bits_and_the_last_layer_is_new(self):
        self.reference("resnet18")
        weights = load_file(self.dir / "w.safetensors")
        weights["fc.weight"], weights["fc.bias"] = torch.zeros(7, 512), torch.zeros(7)  # of other classes
        other = self.dir / "other.safetensors"
        save_file(weights, other)
        for step, frozen in (1, True), (2, True), (3, False):  # each continues from the one before
            job = self.job("resnet18", {"weights": str(other), "frozen_epochs": 2}, epochs=step, model_dir=str(self.dir / "run"))
            self.run_program("muster", "launch", "--workers", 1, "--job", job)
            got = load_file(self.dir / f"run/checkpoints/step-{step:08}/model.safetensors")
            self.assertEqual(tuple(got["fc.weight"].shape), (CLASSES, 512))
            for name, tensor in weights.items():
                if not name.startswith("fc."):
                    self.assertEqual(torch.equal(got[name], tensor), frozen, f"step {step}: {name}")

    def test_bad_input(self):
        for args, said in [({"classes": 0}, "classes must be the number of classes, is 0"), ({"std": [1, 0, 1]}, "std must be 3 numbers above 0"),
                           ({"frozen_epochs": -1}, "frozen_epochs must not be below 0")]:
            with self.subTest(said):
                self.assertIn(said, self.run_program("muster-worker", "--job", self.job("resnet18", args), code=2))
        self.assertIn('model must be "mobilenet_v2", "resnet18" or "resnet50", is "vgg"', self.run_program("muster-worker", "--job", self.job("vgg"), code=2))
        self.assertIn("the job has no data.train: name the images there", self.run_program("muster-worker", "--job", self.job("resnet18", data=None), code=2))
        numpy.save(self.dir / "x.npy", self.images[:, 0])
        self.assertIn("an example of data.train must be an image [3, height, width] and a label [], is x [80,96]", self.run_program("muster-worker", "--job", self.job("resnet18"), code=2))


if __name__ == "__main__":
    unittest.main(verbosity=2)
