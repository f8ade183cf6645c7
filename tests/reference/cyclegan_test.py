"""cyclegan beside the same networks and losses in PyTorch: the ten values of a step, all parameters after it, the test pass, translations.

Usage: cyclegan_test.py MUSTER, whose other programs are beside it.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy
import torch
from safetensors.torch import load_file, save_file
from torch import nn

MUSTER = pathlib.Path(sys.argv.pop())
WIDTH, BLOCKS, SIDE, RATE = 4, 2, 24, 2e-4


def normalised(channels, act):
    return [nn.InstanceNorm2d(channels), act]


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv_block = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3), *normalised(channels, nn.ReLU()),
                                        nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3), nn.InstanceNorm2d(channels))

    def forward(self, x):
        return x + self.conv_block(x)


class Generator(nn.Module):
    def __init__(self, w=WIDTH):
        super().__init__()
        layers = [nn.ReflectionPad2d(3), nn.Conv2d(3, w, 7), *normalised(w, nn.ReLU())]
        for c in w, 2 * w:
            layers += [nn.Conv2d(c, 2 * c, 3, stride=2, padding=1), *normalised(2 * c, nn.ReLU())]
        layers += [Block(4 * w) for _ in range(BLOCKS)]
        for c in 4 * w, 2 * w:
            layers += [nn.ConvTranspose2d(c, c // 2, 3, stride=2, padding=1, output_padding=1), *normalised(c // 2, nn.ReLU())]
        self.model = nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(w, 3, 7), nn.Tanh())

    def forward(self, x):
        return self.model(x)


class Discriminator(nn.Module):
    def __init__(self, w=WIDTH):
        super().__init__()
        layers = [nn.Conv2d(3, w, 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
        for c, stride in (w, 2), (2 * w, 2), (4 * w, 1):
            layers += [nn.Conv2d(c, 2 * c, 4, stride=stride, padding=1), *normalised(2 * c, nn.LeakyReLU(0.2))]
        self.model = nn.Sequential(*layers, nn.Conv2d(8 * w, 1, 4, padding=1))

    def forward(self, x):
        return self.model(x)


class CycleGan(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster-cyclegan-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        torch.manual_seed(1)
        # In double precision: a bias ahead of a normalisation has no gradient but rounding, from which Adam would make a whole step.
        self.nets = {"G": Generator(), "F": Generator(), "X": Discriminator(), "Y": Discriminator()}
        for name, net in self.nets.items():
            for parameter in net.parameters():
                nn.init.normal_(parameter, 0, 0.1)  # so that no loss is near its value without a network
            save_file(net.state_dict(), self.dir / f"{name}.safetensors")
            net.double()
        draw = numpy.random.default_rng(0)
        self.pictures = {name: draw.integers(0, 256, (7, 3, SIDE, SIDE), dtype=numpy.uint8) for name in "xy"}
        for name, values in self.pictures.items():
            numpy.save(self.dir / f"{name}.npy", values)

    def job(self, batch, **keys):
        args = keys.pop("args", {})
        files = {"format": "npy", "x": "x.npy", "y": "y.npy"}
        job = {"program": "cyclegan", "program_args": {"width": WIDTH, "discriminator_width": WIDTH, "blocks": BLOCKS, **args}, "global_batch_size": batch,
               "data": {"train": {**files, "shuffle": False, "take": batch}, "test": {**files, "skip": 2}}, "max_steps": 1,
               "load": {name: f"{name}.safetensors" for name in self.nets}, "model_dir": str(self.dir / "run"), **keys}
        path = self.dir / "job.json"
        path.write_text(json.dumps(job))
        return path

    def run_program(self, program, *arguments, code=0):
        done = subprocess.run([MUSTER.with_name(program), *map(str, arguments)], capture_output=True, timeout=120,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})  # tiny networks: threads would only wait for one another
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr.decode()

    def launch(self, members, job, **sets):
        self.run_program("muster", "launch", "--workers", members - 1, "--job", job, *(f"--set={key}={value}" for key, value in sets.items()))

    def scaled(self, name, first, last):
        return torch.tensor(self.pictures[name][first:last]).double() / 127.5 - 1

    def losses(self, x, y):
        """{network: (what it minimizes, {value: ...})}, and the mean absolute errors."""
        g, f, dx, dy = self.nets.values()
        mse, mae = nn.functional.mse_loss, nn.functional.l1_loss
        real = lambda patches: mse(patches, torch.ones_like(patches))
        fake = lambda patches: mse(patches, torch.zeros_like(patches))
        errors = {"MAE(X, F(G(X)))": mae(f(g(x)), x), "MAE(X, F(X))": mae(f(x), x), "MAE(Y, G(F(Y)))": mae(g(f(y)), y), "MAE(Y, G(Y))": mae(g(y), y)}
        values = {"loss_G/loss": real(dy(g(x))), "loss_G/cycle": 10 * errors["MAE(Y, G(F(Y)))"], "loss_G/identity": 5 * errors["MAE(Y, G(Y))"],
                  "loss_F/loss": real(dx(f(y))), "loss_F/cycle": 10 * errors["MAE(X, F(G(X)))"], "loss_F/identity": 5 * errors["MAE(X, F(X))"],
                  "loss_X/loss": 0.5 * (real(dx(x)) + fake(dx(f(y).detach()))), "loss_Y/loss": 0.5 * (real(dy(y)) + fake(dy(g(x).detach())))}
        for net in "GF":
            values[f"loss_{net}/total"] = sum(values[f"loss_{net}/{part}"] for part in ("loss", "cycle", "identity"))
        return values, errors

    def reference_step(self, x, y, make_optimizer):
        """The ten values; all networks make one step from the same weights."""
        values, _ = self.losses(x, y)
        steps = []
        for name, net in self.nets.items():
            parameters = list(net.parameters())
            loss = values[f"loss_{name}/" + ("total" if name in "GF" else "loss")]
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters, retain_graph=True)):
                parameter.grad = gradient
            steps.append(make_optimizer(parameters))
        for optimizer in steps:
            optimizer.step()
        return values

    def check_values(self, got, want):
        self.assertLessEqual(set(want), set(got))
        for name, value in want.items():
            self.assertAlmostEqual(got[name], value.item(), delta=1e-4 * max(1, value.item()), msg=name)

    def check_step(self, members, batch, job_optimizer, make_optimizer, tolerance):
        run = f"run-{members}-{batch}-{job_optimizer['name']}"
        job = self.job(batch, optimizer=job_optimizer, model_dir=str(self.dir / run), **({"learning_rate": 1.0} if job_optimizer["name"] == "sgd" else {}))
        self.launch(members, job)
        for name, net in self.nets.items():
            net.load_state_dict(load_file(self.dir / f"{name}.safetensors"))
        before = {name: {k: v.clone() for k, v in net.state_dict().items()} for name, net in self.nets.items()}
        values = self.reference_step(self.scaled("x", 0, batch), self.scaled("y", 0, batch), make_optimizer)
        metrics = json.loads((self.dir / run / "result.json").read_text())["metrics"]
        self.check_values(metrics["train"], values)
        self.assertAlmostEqual(metrics["train"]["loss"], sum(values[f"loss_{net}"].item() for net in ("G/total", "F/total", "X/loss", "Y/loss")), delta=1e-3)
        got = load_file(self.dir / run / "checkpoints/step-00000001/model.safetensors")
        want = {f"{name}.{key}": value for name, net in self.nets.items() for key, value in net.state_dict().items()}
        self.assertEqual(set(got), set(want))
        for name, value in want.items():
            moved = (value - before[name[0]][name[2:]]).abs().max().item()
            numpy.testing.assert_allclose(got[name].numpy(), value.numpy(), rtol=0, atol=tolerance * (moved if tolerance < 1e-4 else 1) + 1e-6, err_msg=name)
        with torch.no_grad():
            after, errors = self.losses(self.scaled("x", 2, 7), self.scaled("y", 2, 7))
        if job_optimizer["name"] == "adam":
            self.check_values(metrics["test"], {**after, **errors})

    def test_a_step(self):
        # 5 pictures on 3 members are 2, 2 and 1; of 2 the last member has none.
        for members, batch in (1, 5), (2, 5), (3, 5), (3, 2):
            with self.subTest(members=members, batch=batch):
                self.check_step(members, batch, {"name": "adam", "beta1": 0.5}, lambda p: torch.optim.Adam(p, lr=RATE, betas=(0.5, 0.999), eps=1e-7), 1e-4)

    def test_gradients(self):
        # Adam's first step is a sign: by SGD at rate 1 what moves is the gradient.
        self.check_step(2, 5, {"name": "sgd"}, lambda p: torch.optim.SGD(p, lr=1.0), 9e-5)

    def test_the_programs_own_optimizer_is_the_papers(self):
        self.launch(1, self.job(5, model_dir=str(self.dir / "own")))
        self.launch(1, self.job(5, model_dir=str(self.dir / "named"), optimizer={"name": "adam", "beta1": 0.5, "beta2": 0.999}, learning_rate=RATE))
        own, named = (load_file(self.dir / run / "checkpoints/step-00000001/model.safetensors") for run in ("own", "named"))
        for name in own:
            self.assertTrue(torch.equal(own[name], named[name]), name)

    def all_weights(self):
        path = self.dir / "all.safetensors"
        save_file({f"{name}.{key}": value for name in self.nets for key, value in load_file(self.dir / f"{name}.safetensors").items()}, path)
        return path

    def test_translations(self):
        weights, job = self.all_weights(), self.job(5)
        (self.dir / "of_y").mkdir()
        numpy.save(self.dir / "of_y/y.npy", self.scaled("y", 0, 7).float().numpy())
        for source, net, name in (self.dir / "x.npy", "G", "x"), (self.dir / "of_y", "F", "y"):
            self.run_program("muster", "predict", "--job", job, "--checkpoint", weights, "--input", source, "--output", self.dir / "out.npy")
            with torch.no_grad():
                want = self.nets[net](self.scaled(name, 0, 7))
            numpy.testing.assert_allclose(numpy.load(self.dir / "out.npy"), want.numpy(), atol=1e-5)

    def test_the_rate_falls_over_the_second_half(self):
        rates = self.dir / "rates"
        job = self.job(2, max_steps=None, epochs=8, learning_rate={"name": "linear_second_half"}, summary={"every_steps": 1}, model_dir=str(rates),
                       callbacks=[{"name": "csv_logger", "filename": "log.csv"}])
        self.launch(1, job)
        got = [float(line.split(",")[1]) for line in (rates / "log.csv").read_text().splitlines()[1:]]
        numpy.testing.assert_allclose(got, [RATE] * 5 + [RATE * part for part in (0.75, 0.5, 0.25)], rtol=1e-6)

    def test_bad_input(self):
        numpy.save(self.dir / "odd.npy", numpy.zeros((7, 3, 26, 26), "u1"))
        numpy.save(self.dir / "small.npy", numpy.zeros((7, 3, 20, 20), "u1"))
        train = lambda x, y: {"data": {"train": {"format": "npy", "x": x, "y": y}}}
        for keys, said in [({"args": {"width": 0}}, "program_args.width must not be below 1, is 0"), ({"args": {"pools": 50}}, "did you mean \"pool\"?"),
                           ({"args": {"cycle": -1}}, "program_args.cycle must not be below 0, is -1"), ({"data": None}, "the job has no data.train: name the pictures there"),
                           (train("x.npy", None), "must be two pictures [channels, height, width] of one shape, is x [3,24,24]"),
                           (train("x.npy", "odd.npy"), "must be two pictures [channels, height, width] of one shape, is x [3,24,24], y [3,26,26]"),
                           (train("odd.npy", "odd.npy"), "24 pixels or more high and wide, in multiples of 4, and are x [3,26,26], y [3,26,26]: set \"size\" there"),
                           (train("small.npy", "small.npy"), "24 pixels or more"),
                           (train({"path": "x.npy", "scale": "1/255"}, "y.npy"), "numbers from 0 to 1: give bytes, or numbers from -1 to 1"),
                           (train("x.npy", {"path": "y.npy", "dtype": "float32"}), "numbers from 0 to 255: give bytes, or numbers from -1 to 1"),
                           ({"learning_rate": {"name": "linear_second_half", "initial": -1}}, "initial must not be below 0, is -1")]:
            with self.subTest(said):
                self.assertIn(said, self.run_program("muster-worker", "--job", self.job(5, **keys), code=2))
        self.assertEqual(list((self.dir / "run").glob("checkpoints/step-*")), [])
        (self.dir / "both").mkdir()
        for name in "xy":
            numpy.save(self.dir / f"both/{name}.npy", self.pictures[name])
        predict = "predict", "--job", self.job(5), "--checkpoint", self.all_weights(), "--output", self.dir / "out.npy"
        self.assertIn("give x.npy or y.npy", self.run_program("muster", *predict, "--input", self.dir / "both", code=2))
        self.assertIn("with multiples of 4 from 8 on for height and width, are [",
                      self.run_program("muster", *predict, "--input", self.dir / "odd.npy", code=2))
        self.assertFalse((self.dir / "out.npy").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
