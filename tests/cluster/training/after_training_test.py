"""`muster evaluate`, `predict` and `export`: with any checkpoint, the numbers of training, and those that Python gets.

Training is real processes: one, two workers, parameter servers, an exported program.
"""
import json
import os
import pty
import subprocess
import unittest

import numpy
import safetensors
import safetensors.torch
import torch

import exported_models as models
from harness import BIN, CONFIGURATION, DAMAGED, ClusterTest, inherited, losses, result

FEATURES, EXAMPLES = 3, 60


class AfterTraining(ClusterTest):
    def setUp(self):
        super().setUp()
        self.model_dir = self.dir / "model"

    def muster(self, command, *arguments, code=0):
        """Its output on stdout. An error is the only line on stderr."""
        done = subprocess.run([BIN / "muster", command, *map(str, arguments)], capture_output=True, text=True, timeout=120,
                              env=inherited(), cwd=self.dir)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        if code == 0:
            self.assertEqual(done.stderr, "")
            return done.stdout
        self.assertRegex(done.stderr, rf"^muster {command}: .*\n$")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def evaluate(self, job, *arguments):
        return json.loads(self.muster("evaluate", "--job", job, "--json", *arguments))

    def refused(self, words, command, *arguments, code=CONFIGURATION):
        printed = self.muster(command, *arguments, code=code)
        for word in words if isinstance(words, tuple) else (words,):
            self.assertIn(word, printed)

    def close(self, got, want, delta=2e-6):
        self.assertEqual(set(got), set(want))
        for name, value in want.items():
            self.assertAlmostEqual(got[name], value, delta=delta * max(1, abs(value)), msg=name)

    def linear(self, **keys):
        """Random examples, in files; a momentum, so that there are slots."""
        random = numpy.random.default_rng(5)
        split = {}
        for name, size in ("train", EXAMPLES), ("validation", 17), ("test", 23):
            x = random.normal(size=(size, FEATURES)).astype(numpy.float32)
            y = (x.sum(1) + random.normal(size=size) > 0).astype(numpy.float32)
            numpy.save(self.dir / f"{name}-x.npy", x)
            numpy.save(self.dir / f"{name}-y.npy", y)
            split[name] = {"format": "npy", "x": f"{name}-x.npy", "y": f"{name}-y.npy"}
        job = {"program": "linear", "data": split, "global_batch_size": 12, "max_steps": None, "epochs": 2,
               "optimizer": {"name": "sgd", "momentum": 0.9}, "learning_rate": 0.05, "model_dir": str(self.model_dir)}
        return self.job(**{**job, **keys})

    def train_linear(self, members=1, sets=(), **keys):
        job = self.linear(**keys)
        if members == 1:
            self.finish([self.start(None, None, job, sets)])
        else:
            self.finish(self.start_all(self.cluster(members - 1), job, sets))
        return job

    def check_evaluations(self, job):
        """Evaluates both splits, with the checkpoint and with the file that is exported from it."""
        metrics = result(self.model_dir)["metrics"]
        file = self.model_dir / "weights.safetensors"
        self.muster("export", "--checkpoint", self.model_dir, "--output", file)
        for split, size in ("validation", 17), ("test", 23):
            for more in (), ("--checkpoint", file), ("--set", "devices=cpu:3", "--set", "evaluate.batch_size=2"):
                got = self.evaluate(job, "--split", split, *more)
                self.assertEqual(set(got), {"checkpoint", "step", "split", "examples", "seconds", "metrics"})
                self.close(got["metrics"], metrics[split])
                self.assertEqual((got["split"], got["examples"], got["step"]), (split, size, 10))

    # ---- evaluate

    def test_evaluate_prints_what_training_measured(self):
        for members, sets in ((1, ()), (2, ()), (3, ()), (1, ("devices=cpu:2",)), (1, ("devices=cpu:2", "strategy=central_storage")),
                              (2, ("accumulate_steps=3", "evaluate.batch_size=4"))):
            with self.subTest(members=members, sets=sets):
                self.model_dir = self.dir / f"model-{len(self.processes)}"
                self.check_evaluations(self.train_linear(members, sets))

    def test_evaluate_a_checkpoint_of_parameter_servers(self):
        job = self.linear(strategy="parameter_server", max_steps=10)
        self.run_launch("--workers", 2, "--ps", 2, "--job", job)
        self.check_evaluations(job)

    def test_which_checkpoint(self):
        job = self.train_linear(checkpoint={"every_steps": 5})
        by_path = {step: self.evaluate(job, "--checkpoint", self.model_dir / "checkpoints" / f"step-{step:08}")["metrics"]["loss"] for step in (5, 10)}
        self.assertNotEqual(by_path[5], by_path[10])
        best = int((self.model_dir / "checkpoints" / "best").read_text().split("\n")[0][5:])
        for words, step in ((), 10), (("--checkpoint", "latest"), 10), (("--checkpoint", self.model_dir), 10), (("--checkpoint", "best"), best), \
                (("--checkpoint", self.model_dir / "checkpoints"), 10), (("--checkpoint", self.model_dir / "checkpoints" / "best"), best):
            with self.subTest(words=words):
                got = self.evaluate(job, *words)
                self.assertEqual(got["step"], step)
                self.assertEqual(got["checkpoint"], str(self.model_dir / "checkpoints" / f"step-{step:08}"))
                self.assertEqual(got["metrics"]["loss"], by_path[step])
                self.assertEqual(got["split"], "validation")
        printed = self.muster("evaluate", "--job", job, "--split", "train").splitlines()
        self.assertEqual(printed[0], f"{self.model_dir}/checkpoints/step-00000010: step 10")
        self.assertRegex(printed[1], r"^train: 60 examples, \d+\.\d s$")
        self.assertRegex(printed[2], r"^  loss  0\.\d+$")

    def test_weights_that_python_wrote(self):
        job = self.linear()
        weight, bias = torch.tensor([[0.5, -0.25, 1.0]]), torch.tensor([0.125])
        safetensors.torch.save_file({"weight": weight, "bias": bias}, self.dir / "python.safetensors")
        x, y = (torch.from_numpy(numpy.load(self.dir / f"test-{name}.npy")) for name in "xy")
        logits = x @ weight[0] + bias
        want = torch.nn.functional.binary_cross_entropy_with_logits(logits, y).item()
        got = self.evaluate(job, "--checkpoint", self.dir / "python.safetensors", "--split", "test")
        self.assertAlmostEqual(got["metrics"]["loss"], want, delta=1e-6)
        # Nobody says of which step it is.
        printed = self.muster("evaluate", "--job", job, "--checkpoint", self.dir / "python.safetensors").splitlines()
        self.assertEqual(printed[0], f"{self.dir}/python.safetensors")

    # ---- export and predict

    def test_python_reads_the_export_and_predicts_the_same(self):
        job = self.train_linear(2)
        file = self.dir / "weights.safetensors"
        self.assertEqual(self.muster("export", "--checkpoint", self.model_dir, "--output", file), f"{file}: step-00000010\n")
        model = torch.nn.Linear(FEATURES, 1)
        model.load_state_dict(safetensors.torch.load_file(file))
        with safetensors.safe_open(file, "pt") as opened:
            metadata = opened.metadata()
        self.assertEqual({name: metadata[name] for name in ("format", "program", "program_args", "step", "slots")},
                         {"format": "pt", "program": '"linear"', "program_args": "{}", "step": "10", "slots": "false"})
        self.assertEqual(set(metadata), {"format", "muster", "libtorch", "program", "program_args", "step", "slots", "state"})
        want = model(torch.from_numpy(numpy.load(self.dir / "test-x.npy"))).squeeze(1).detach().numpy()
        for checkpoint, sets in ((file, ()), ("best", ()), (self.model_dir, ("--set", "devices=cpu:3", "--set", "evaluate.batch_size=2"))):
            output = self.dir / "outputs.npy"
            self.muster("predict", "--job", job, "--checkpoint", checkpoint, "--input", self.dir / "test-x.npy", "--output", output, *sets)
            got = numpy.load(output)
            self.assertEqual(got.dtype, numpy.float32)
            if checkpoint != "best":
                numpy.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)  # in the input's order
            self.assertEqual(got.shape, (23,))

    def test_predict_converts_the_input_as_the_job_does_its_data(self):
        column = {"path": "test-x.npy", "scale": "1/4", "shape": [FEATURES]}
        job = self.linear()
        keys = json.loads(job.read_text())
        keys["data"]["test"]["x"] = column
        scaled = self.job(**keys)
        safetensors.torch.save_file({"weight": torch.ones(1, FEATURES), "bias": torch.zeros(1)}, self.dir / "ones.safetensors")
        x = numpy.random.default_rng(1).normal(size=(5, FEATURES, 1)).astype(numpy.float64)
        folder = self.dir / "input"
        folder.mkdir()
        numpy.save(folder / "x.npy", x)
        for source in folder / "x.npy", folder:
            self.muster("predict", "--job", scaled, "--checkpoint", "ones.safetensors", "--input", source, "--output", "out.npy")
            numpy.testing.assert_allclose(numpy.load(self.dir / "out.npy"), x.sum((1, 2)) / 4, rtol=1e-5, atol=1e-6)
        numpy.save(folder / "z.npy", x)
        self.refused(("has z.npy", "columns x, y"), "predict", "--job", scaled, "--checkpoint", "ones.safetensors", "--input", folder,
                     "--output", "out.npy")

    def test_an_exported_program(self):
        for kind in "convnet", "two", "transformer", "second":
            with self.subTest(kind=kind):
                self.model_dir = self.dir / f"model-{kind}"
                models.export(kind, self.dir / f"{kind}.pt2")
                folder = self.dir / f"{kind}-input"
                folder.mkdir()
                columns = {}
                for name, values in models.data(kind).items():
                    numpy.save(folder / f"{name}.npy", values)
                    columns[name] = f"{folder}/{name}.npy"
                split = {"format": "npy", "columns": columns}
                program = {"exported": f"{kind}.pt2", "loss": models.LOSSES[kind]}
                if kind in models.OUTPUTS:
                    program["output"] = models.OUTPUTS[kind]
                job = self.job(program=program, data={"train": split, "test": split}, global_batch_size=models.BATCH, optimizer="adam",
                               max_steps=12, epochs=100, model_dir=str(self.model_dir))
                self.finish(self.start_all(self.cluster(1), job), timeout=120)
                # In the same parts as in training, as a program may compute with a batch's own statistics.
                got = self.evaluate(job, "--set", "devices=cpu:2")
                self.close(got["metrics"], result(self.model_dir)["metrics"]["test"], 2e-5)
                file = self.dir / f"{kind}.safetensors"
                self.muster("export", "--checkpoint", self.model_dir, "--output", file)
                self.assertEqual(self.evaluate(job, "--set", "devices=cpu:2", "--checkpoint", file)["metrics"], got["metrics"])
                model = models.make(kind)
                model.eval()
                output = self.dir / f"{kind}.npy"
                self.muster("predict", "--job", job, "--checkpoint", file, "--input", folder, "--output", output, "--set",
                            f"evaluate.batch_size={models.BATCH}")
                want = []
                rows = [torch.from_numpy(c) for c in models.data(kind).values()]
                with torch.no_grad():
                    for begin in range(0, len(rows[0]), models.BATCH):
                        model.load_state_dict(safetensors.torch.load_file(file))  # what it writes meanwhile is dropped
                        want.append(models.outputs(model, [row[begin:begin + models.BATCH] for row in rows]))
                numpy.testing.assert_allclose(numpy.load(output), torch.cat(want).numpy(), rtol=1e-4, atol=1e-5)

    def test_an_exported_batch_of_a_fixed_size(self):
        model = models.make("recurrent").eval()
        torch.export.save(torch.export.export(model, (torch.randn(4, 9, 3),)), self.dir / "fixed.pt2")
        safetensors.torch.save_file(model.state_dict(), self.dir / "fixed.safetensors")
        series = numpy.random.default_rng(2).normal(size=(10, 9, 3)).astype(numpy.float32)
        numpy.save(self.dir / "series.npy", series)
        numpy.save(self.dir / "target.npy", numpy.zeros(10, numpy.int64))
        split = {"format": "npy", "columns": {"series": "series.npy", "target": "target.npy"}}
        job = self.job(program={"exported": "fixed.pt2", "loss": models.LOSSES["recurrent"]}, data={"train": split}, global_batch_size=4)
        self.muster("predict", "--job", job, "--checkpoint", "fixed.safetensors", "--input", "series.npy", "--output", "out.npy")
        with torch.no_grad():
            want = model(torch.from_numpy(series)).numpy()
        numpy.testing.assert_allclose(numpy.load(self.dir / "out.npy"), want, rtol=1e-4, atol=1e-5)
        numpy.save(self.dir / "long.npy", series[:, :, :2])
        self.refused("fixed.pt2: its input series has the shape", "predict", "--job", job, "--checkpoint", "fixed.safetensors", "--input",
                     "long.npy", "--output", "out.npy")

    def test_tables(self):
        job = self.job(program="matrix_factorization", global_batch_size=20, max_steps=None, epochs=2, model_dir=str(self.model_dir),
                       program_args={"users": 40, "items": 20, "examples": 200, "validation": 30, "width": 4})
        self.run_launch("--workers", 2, "--ps", 2, "--job", job)
        self.close(self.evaluate(job)["metrics"], result(self.model_dir)["metrics"]["validation"], 2e-5)
        self.muster("export", "--checkpoint", self.model_dir, "--output", "weights.safetensors")
        self.close(self.evaluate(job, "--checkpoint", "weights.safetensors")["metrics"], result(self.model_dir)["metrics"]["validation"], 2e-5)
        tensors = safetensors.torch.load_file(self.dir / "weights.safetensors")
        users, items = tensors["users.keys"][:3], tensors["items.keys"][:3]
        user, item = tensors["users.rows"][:3], tensors["items.rows"][:3]
        want = (user[:, 1:] * item[:, 1:]).sum(1) + user[:, 0] + item[:, 0] + tensors["bias"]
        folder = self.dir / "pairs"
        folder.mkdir()
        numpy.save(folder / "users.npy", users.numpy())
        numpy.save(folder / "items.npy", items.numpy())
        numpy.save(self.dir / "pairs.npy", torch.stack([users, items], 1).numpy())
        for source in folder, "pairs.npy":
            self.muster("predict", "--job", job, "--checkpoint", "weights.safetensors", "--input", source, "--output", "out.npy")
            numpy.testing.assert_allclose(numpy.load(self.dir / "out.npy"), want.numpy(), rtol=1e-5, atol=1e-6)

    def test_one_table(self):
        job = self.job(program="matrix_factorization", global_batch_size=20, max_steps=None, epochs=1, model_dir=str(self.model_dir),
                       program_args={"users": 40, "items": 20, "examples": 200, "validation": 0, "width": 4})
        self.finish([self.start(None, None, job)])
        self.muster("export", "--checkpoint", self.model_dir, "--output", "weights.safetensors")
        whole = safetensors.torch.load_file(self.dir / "weights.safetensors")
        order = numpy.argsort(whole["users.keys"].numpy())
        keys, rows = whole["users.keys"].numpy()[order], whole["users.rows"].numpy()[order]
        self.assertGreater(len(keys), 20)
        for file in "users.safetensors", "users.npy":
            self.muster("export", "--checkpoint", self.model_dir, "--table", "users", "--output", file)
        table = safetensors.torch.load_file(self.dir / "users.safetensors")
        self.assertEqual(sorted(table), ["keys", "rows"])
        for got_keys, got_rows in ((table["keys"].numpy(), table["rows"].numpy()),
                                   (numpy.load(self.dir / "users.keys.npy"), numpy.load(self.dir / "users.npy"))):
            self.assertEqual(got_keys.dtype, numpy.int64)
            self.assertEqual(got_rows.dtype, numpy.float32)
            numpy.testing.assert_array_equal(got_keys, keys)
            numpy.testing.assert_array_equal(got_rows, rows)
        self.assertFalse(list(self.dir.glob("*.tmp")))
        export = "export", "--checkpoint", self.model_dir, "--table"
        self.refused('--table is "user", did you mean "users"?', *export, "user", "--output", "x.npy")
        self.refused("ends in .safetensors or .npy, which x.bin does not", *export, "users", "--output", "x.bin")
        self.refused("--table goes without --optimizer", *export, "users", "--optimizer", "--output", "x.safetensors")
        self.model_dir = self.dir / "linear"
        self.train_linear(1)
        self.refused("has no embedding tables", "export", "--checkpoint", self.model_dir, "--table", "users", "--output", "x.npy")

    def test_images(self):
        job = self.job(program="fashion_mnist", program_args={"train_examples": 256, "validation": 128, "hidden": 8}, global_batch_size=128,
                       max_steps=2, model_dir=str(self.model_dir))
        self.finish([self.start(None, None, job)])
        self.muster("export", "--checkpoint", self.model_dir, "--output", "weights.safetensors")
        weights = safetensors.torch.load_file(self.dir / "weights.safetensors")
        images = numpy.random.default_rng(3).integers(0, 256, (130, 28, 28), dtype=numpy.uint8)
        numpy.save(self.dir / "images.npy", images)
        self.muster("predict", "--job", job, "--input", "images.npy", "--output", "out.npy")
        x = torch.from_numpy(images).float().div(255).unsqueeze(1)
        x = torch.max_pool2d(torch.relu(torch.conv2d(x, weights["conv.weight"], weights["conv.bias"])), 2).flatten(1)
        x = torch.relu(torch.nn.functional.linear(x, weights["dense.weight"], weights["dense.bias"]))
        want = torch.nn.functional.linear(x, weights["output.weight"], weights["output.bias"])
        numpy.testing.assert_allclose(numpy.load(self.dir / "out.npy"), want.numpy(), rtol=1e-4, atol=1e-4)
        numpy.save(self.dir / "small.npy", images[:, :27])
        self.refused("images must be [n, 28, 28] or [n, 1, 28, 28]", "predict", "--job", job, "--input", "small.npy", "--output", "out.npy")

    # ---- training from an export

    def test_training_goes_on_from_an_export_with_slots(self):
        self.train_linear(2, epochs=4)  # 20 steps
        whole = losses(self.model_dir)
        self.model_dir = self.dir / "half"
        self.train_linear(2, epochs=2)
        self.muster("export", "--checkpoint", self.model_dir, "--optimizer", "--output", "half.safetensors")
        self.muster("export", "--checkpoint", self.model_dir, "--output", "weights.safetensors")
        names = set(safetensors.torch.load_file(self.dir / "half.safetensors"))
        self.assertEqual(names, {"weight", "bias", "optimizer/sgd.weight.momentum_buffer", "optimizer/sgd.bias.momentum_buffer"})
        for members, sets in (1, ()), (3, ()), (1, ("devices=cpu:2", "strategy=central_storage")):
            with self.subTest(members=members, sets=sets):
                self.model_dir = self.dir / f"more-{len(self.processes)}"
                self.train_linear(members, sets, epochs=4, restore=str(self.dir / "half.safetensors"))
                got = losses(self.model_dir)
                self.assertEqual(sorted(got), list(range(11, 21)))
                for step, loss in got.items():
                    self.assertAlmostEqual(loss, whole[step], delta=1e-6, msg=f"step {step}")
        self.model_dir = self.dir / "served"
        served = self.linear(epochs=4, restore=str(self.dir / "half.safetensors"), strategy="parameter_server")
        self.run_launch("--workers", 1, "--ps", 2, "--job", served)
        for step, loss in losses(self.model_dir).items():
            self.assertAlmostEqual(loss, whole[step], delta=1e-6, msg=f"step {step}")
        # Weights alone begin a run, or none.
        self.model_dir = self.dir / "refused"
        job = self.linear(epochs=4, restore=str(self.dir / "weights.safetensors"))
        process = self.start(None, None, job)
        self.finish([process], code=CONFIGURATION)
        self.assertIn("has weights and no state of the optimizers", process.output())
        for file in "half.safetensors", "weights.safetensors":
            self.model_dir = self.dir / f"loaded-{file}"
            self.train_linear(1, load={"unit": f"{self.dir}/{file}"}, epochs=1)
            first = losses(self.model_dir)[1]
            self.assertNotAlmostEqual(first, whole[1], delta=1e-4)
            self.assertLess(first, whole[1])

    # ---- what is refused

    def test_bad_input(self):
        job = self.train_linear(epochs=1)
        other = self.job(program="fashion_mnist", global_batch_size=8, model_dir=str(self.model_dir), program_args={"hidden": 8})
        self.refused(("does not fit the program", '"linear"', '"fashion_mnist"'), "evaluate", "--job", other)
        x = self.dir / "test-x.npy"
        self.refused(('"linear"', '"fashion_mnist"'), "predict", "--job", other, "--input", x, "--output", "out.npy")
        keys = json.loads(job.read_text())
        del keys["data"]["test"]
        self.refused(("no test dataset", "has train, validation"), "evaluate", "--job", self.job(**keys), "--split", "test")
        self.refused("--split is tests: it must be train", "evaluate", "--job", job, "--split", "tests")
        fresh = ("--set", f"model_dir={self.dir / 'none'}")
        self.refused("none is not there", "evaluate", "--job", job, *fresh)
        (self.dir / "empty").mkdir()
        self.refused("empty holds no checkpoint", "evaluate", "--job", job, "--checkpoint", "empty")
        self.refused("gone.safetensors is not there", "evaluate", "--job", job, "--checkpoint", "gone.safetensors")
        self.refused("set model_dir in the job", "evaluate", "--job", job, "--set", "model_dir=")
        self.refused("holds no checkpoint", "export", "--checkpoint", "empty", "--output", "w.safetensors")
        self.refused("--optimizer goes with", "export", "--checkpoint", self.model_dir, "--output", "w.pt2", "--optimizer")
        self.refused('only one with "exported"', "export", "--checkpoint", self.model_dir, "--output", "w.pt2")
        self.refused("cannot write no/w.safetensors", "export", "--checkpoint", self.model_dir, "--output", "no/w.safetensors")
        numpy.save(self.dir / "wide.npy", numpy.ones((4, FEATURES + 1), numpy.float32))
        numpy.save(self.dir / "none.npy", numpy.ones((0, FEATURES), numpy.float32))
        predict = ("predict", "--job", job, "--output", "out.npy")
        self.refused("x must be [n, 3], as the model has so many features, is [4, 4]", *predict, "--input", "wide.npy")
        self.refused("has no examples", *predict, "--input", "none.npy")
        self.refused("--input gone.npy: ", *predict, "--input", "gone.npy")
        self.refused("holds no .npy file", *predict, "--input", "empty")
        self.refused("the program takes no text", *predict, "--prompt", "hello")
        self.refused("name --input or --prompt", *predict)
        self.refused("cannot write no/out.npy", "predict", "--job", job, "--input", x, "--output", "no/out.npy")
        self.refused("must end in .npy", "predict", "--job", job, "--input", x, "--output", "out.txt")
        no_best = self.train_linear_without_validation()
        (self.dir / "latest").symlink_to(self.model_dir)
        # A folder of that name, and callbacks, which look at training alone.
        self.muster("evaluate", "--job", no_best, "--checkpoint", self.dir / "latest", "--split", "train", "--set", "model_dir=",
                    "--set", 'callbacks=[{"name": "csv_logger", "filename": "log.csv"}, {"name": "early_stopping", "monitor": "val_loss"}]')
        self.refused("has no best checkpoint", "evaluate", "--job", no_best, "--checkpoint", "best", "--split", "train")
        (self.dir / "short.safetensors").write_bytes(b"\x10\0\0\0")
        self.refused("short.safetensors: ", "evaluate", "--job", job, "--checkpoint", "short.safetensors", code=DAMAGED)
        self.assertFalse((self.dir / "out.npy").exists())

    def train_linear_without_validation(self):
        self.model_dir = self.dir / "unvalidated"
        keys = json.loads(self.linear().read_text())
        del keys["data"]["validation"]
        job = self.job(**keys)
        self.finish([self.start(None, None, job)])
        return job

    def test_a_bar_is_shown_on_a_terminal_alone(self):
        job = self.train_linear(epochs=1)
        for command in (["evaluate"], ["predict", "--input", self.dir / "test-x.npy", "--output", self.dir / "out.npy"]):
            ours, theirs = pty.openpty()
            done = subprocess.run([BIN / "muster", command[0], "--job", job, "--set", "evaluate.batch_size=1", *command[1:]],
                                  stdout=subprocess.PIPE, stderr=theirs, timeout=120, env={**os.environ, "LC_ALL": "C", "TERM": "xterm"})
            os.close(theirs)
            shown = b""
            try:
                while piece := os.read(ours, 65536):
                    shown += piece
            except OSError:  # the other end is closed
                pass
            os.close(ours)
            self.assertEqual(done.returncode, 0, shown)
            self.assertRegex(shown.decode(), r"(validation|predict)  \[=*>")
            self.assertNotIn(b"[=", done.stdout)


if __name__ == "__main__":
    unittest.main()
