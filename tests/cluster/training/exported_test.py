"""A file of torch.export.save trains on two members to the losses that Python gets alone, is evaluated as in Python, and is
written back in a form that Python reads."""
import gzip
import json
import struct
import subprocess
import unittest

import numpy
import safetensors.torch
import torch

import exported_models as models
from harness import BIN, CONFIGURATION, ClusterTest, losses

STEPS, RATE = 12, 0.05
KINDS = "convnet", "transformer", "padded", "recurrent", "two", "second"


class ExportedTest(ClusterTest):
    def write_job(self, kind, dropout=0.0, **keys):
        """The model beside the job file, and its data, in files of the columns' names."""
        models.export(kind, self.dir / f"{kind}.pt2", dropout)
        columns = {}
        for name, values in models.data(kind).items():
            numpy.save(self.dir / f"{kind}-{name}.npy", values)
            columns[name] = f"{kind}-{name}.npy"
        # Named in another order than forward's: inputs are found by name.
        columns = dict(reversed(list(columns.items())))
        split = {"format": "npy", "columns": columns, "shuffle": False}
        test = {"format": "npy", "columns": columns}
        program = {"exported": str(self.dir / f"{kind}.pt2"), "loss": models.LOSSES[kind]}
        if models.LOSSES[kind] == "cross_entropy":
            program["metrics"] = ["accuracy"]
        if kind in models.OUTPUTS:
            program["output"] = models.OUTPUTS[kind]
        job = {"program": program, "data": {"train": split, "test": test}, "global_batch_size": models.BATCH,
               "optimizer": "sgd", "learning_rate": RATE, "max_steps": STEPS, "epochs": 100}
        job.update(keys)
        return self.job(**job)

    def trained(self, model_dir):
        (newest,) = sorted((model_dir / "checkpoints").glob("step-*"))[-1:]
        return safetensors.torch.load_file(newest / "model.safetensors")

    def model_dir(self):
        return sorted(self.dir.glob("model-*"), key=lambda p: int(p.name[6:]))[-1]

    def export(self, model_dir, output):
        done = subprocess.run([BIN / "muster", "export", "--checkpoint", model_dir, "--output", output],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def check_losses(self, got, want):
        self.assertEqual(sorted(got), list(range(1, len(want) + 1)))
        for step, loss in enumerate(want, 1):
            self.assertAlmostEqual(got[step], loss, delta=2e-5 * max(1, abs(loss)), msg=f"step {step}")

    def check_state(self, model):
        """The names of the newest checkpoint are the state_dict's, and so are the numbers."""
        state = self.trained(self.model_dir())
        for name, value in model.state_dict().items():
            torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
        self.assertEqual(set(state), set(model.state_dict()))
        return state

    def check_evaluation(self, kind, state, replicas=2, size=models.BATCH):
        """The test pass's numbers are those that Python gets with these weights."""
        got = json.loads((self.model_dir() / "result.json").read_text())["metrics"]["test"]
        model = models.make(kind)
        model.load_state_dict(state)
        for metric, value in models.evaluate(kind, model, replicas, size).items():
            self.assertAlmostEqual(got[metric], value, delta=2e-5 * max(1, abs(value)), msg=metric)

    def refused(self, job, code, *words):
        process = self.start(None, None, job, [f"model_dir={self.dir / 'refused'}"])
        self.finish([process], code=code)
        (cause,) = [line for line in process.output().splitlines() if "ROOT CAUSE" in line][:1] or [process.output()]
        for word in words:
            self.assertIn(word, cause)


class Exported(ExportedTest):
    def test_two_members_get_pythons_losses(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                job = self.write_job(kind)
                model = models.make(kind).train()
                want = models.train_alone(kind, model, STEPS, RATE)
                got = self.train(2, job, timeout=120)
                self.check_losses(got, want)
                state = self.check_state(model)
                # With running statistics; what the pass writes is dropped.
                self.check_evaluation(kind, state)

                # Written back: the same program with these weights.
                output = self.dir / f"{kind}-trained.pt2"
                self.export(self.model_dir(), output)
                loaded = torch.export.load(output)
                self.assertEqual(set(loaded.state_dict), set(state))
                for name, value in state.items():
                    self.assertTrue(torch.equal(loaded.state_dict[name], value), name)
                columns = [torch.from_numpy(c) for c in models.data(kind).values()]
                again = models.make(kind).train()
                again.load_state_dict(state)
                torch.testing.assert_close(models.outputs(loaded.module(), columns), models.outputs(again, columns))

    def test_dropout_is_on_in_training_and_off_in_evaluation(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                off = self.train(1, self.write_job(kind, max_steps=2), timeout=120)
                on = self.train(1, self.write_job(kind, dropout=0.4, max_steps=2), timeout=120)
                self.assertNotAlmostEqual(off[1], on[1], delta=1e-6)
                self.check_evaluation(kind, self.trained(self.model_dir()), replicas=1)

    def test_one_three_and_devices_agree_where_no_statistics_are_taken(self):
        job = self.write_job("padded")
        alone = self.train(1, job, timeout=120)
        # 8 replicas have empty slices at the end of an epoch, and 2 micro-batches of 3 replicas too.
        for members, *sets in ((3, "accumulate_steps=2"), (1, "devices=cpu:2"), (2, "devices=cpu:4"),
                               (1, "devices=cpu:2", "strategy=central_storage")):
            with self.subTest(members=members, sets=sets):
                got = self.train(members, job, sets, timeout=120)
                for step, loss in alone.items():
                    self.assertAlmostEqual(got[step], loss, delta=2e-5)
                self.check_evaluation("padded", self.trained(self.model_dir()))

    def test_what_cannot_train_is_refused_at_the_start(self):
        job = self.write_job("recurrent")
        path = self.dir / "recurrent.pt2"
        whole = path.read_bytes()
        for size in 0, 100, len(whole) // 2, len(whole) - 1:
            path.write_bytes(whole[:size])
            self.refused(job, 3, "recurrent.pt2", "damaged")
        at = whole.index(b"PK\x01\x02") // 2
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1:])
        self.refused(job, 3, "recurrent.pt2")
        path.unlink()
        self.refused(job, 2, "recurrent.pt2")
        torch.jit.save(torch.jit.trace(torch.nn.Linear(3, 5), torch.randn(2, 3)), path)
        self.refused(job, 2, "TorchScript", "torch.export")

    def test_sizes_that_the_file_does_not_admit_are_refused_at_the_start(self):
        job = self.write_job("recurrent")
        model = models.make("recurrent").train()
        torch.export.save(torch.export.export(model, (torch.randn(3, 9, 3),)), self.dir / "recurrent.pt2")
        self.refused(job, 2, "exactly 3 examples", "torch.export.Dim")
        torch.export.save(torch.export.export(model, (torch.randn(8, 4, 3),)), self.dir / "recurrent.pt2")
        self.refused(job, 2, "series", "[batch, 9, 3]", "dynamic_shapes")

    def test_a_fixed_batch_trains_where_it_fits(self):
        job = self.write_job("recurrent", max_steps=4)
        model = models.make("recurrent").train()
        torch.export.save(torch.export.export(model, (torch.randn(4, 9, 3),)), self.dir / "recurrent.pt2")
        got = self.train(2, job, timeout=120)  # 22 examples: the last 6 of each epoch are left out
        self.assertEqual(sorted(got), [1, 2, 3, 4])
        # The pass over 22 examples goes in pieces of four.
        self.check_evaluation("recurrent", self.trained(self.model_dir()))

    def test_operators_that_python_alone_has_are_named_with_their_line(self):
        job = self.write_job("recurrent")
        for module, words in models.REFUSED.items():
            with self.subTest(module=module.__name__):
                program = torch.export.export(module().train(), (torch.randn(4, 3),), dynamic_shapes=({0: models.Dim("batch", min=1)},))
                torch.export.save(program, self.dir / "recurrent.pt2")
                words = ("recurrent.pt2 cannot run here: ", "exported_models.py, line ", *words)
                self.refused(job, 2, *words)
                check = subprocess.run([BIN / "muster", "check", "--job", job], capture_output=True, text=True, timeout=120)
                self.assertEqual(check.returncode, 2, check.stdout + check.stderr)
                self.assertNotIn("no problem was found", check.stdout)
                for word in words:
                    self.assertIn(word, check.stderr)

    def test_members_with_different_files_are_refused_at_join(self):
        job = self.write_job("second")
        other = self.dir / "other" / "second.pt2"
        other.parent.mkdir()
        other.write_bytes((self.dir / "second.pt2").read_bytes())
        # The same bytes in another place are the same program.
        cluster = self.cluster(1)
        sets = ["max_steps=2"]
        moved = [*sets, f"program.exported={other}"]
        self.finish([self.start(cluster, "chief:0", job, sets), self.start(cluster, "worker:0", job, moved)])
        for difference in {"dropout": 0.1}, {"seed": 4}:  # another graph; the same graph with other weights
            with self.subTest(difference=difference):
                models.export("second", other, **difference)
                cluster = self.cluster(1)
                processes = [self.start(cluster, "chief:0", job, sets), self.start(cluster, "worker:0", job, moved)]
                self.finish(processes, code=CONFIGURATION)
                for process in processes:
                    causes = [line for line in process.output().splitlines() if "ROOT CAUSE" in line]
                    self.assertEqual(len(causes), 1, process.output())
                    self.assertIn("worker 0 has another file for 'program' than the chief", causes[0])


class Jobs(ExportedTest):
    """An exported program is a program: the job's other keys go with it."""

    def test_load_begins_with_the_weights_of_a_file(self):
        for kind in "convnet", "two":
            with self.subTest(kind=kind):
                job = self.write_job(kind, load={"model": "weights.safetensors"})
                torch.manual_seed(8)
                model = models.CLASSES[kind]().train()
                # Python's safetensors writes one name of tied weights.
                state = {name: value for name, value in model.state_dict().items() if name != "second.weight"}
                parameters = dict(model.named_parameters())
                for name, buffer in state.items():
                    if name not in parameters:
                        buffer.add_(3)  # another one than that of the exported file
                safetensors.torch.save_file(state, self.dir / "weights.safetensors")
                want = models.train_alone(kind, model, STEPS, RATE)
                self.check_losses(self.train(2, job, timeout=120), want)
                self.check_state(model)

    def test_idx_files(self):
        """Files like those of MNIST: bytes, one of them compressed."""
        r = numpy.random.default_rng(6)
        pixels, labels = r.integers(0, 256, (models.EXAMPLES, 12, 12), "u1"), r.integers(0, 10, models.EXAMPLES, "u1")
        header = struct.pack(">BBBBIII", 0, 0, 8, 3, *pixels.shape)
        (self.dir / "images.gz").write_bytes(gzip.compress(header + pixels.tobytes()))
        (self.dir / "labels").write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, len(labels)) + labels.tobytes())
        columns = {"target": "labels", "image": {"path": "images.gz", "scale": "1/255", "shape": [1, 12, 12]}}
        job = self.write_job("convnet", data={"train": {"format": "idx", "columns": columns, "shuffle": False}})
        model = models.make("convnet").train()
        images = (pixels.astype("f4") / 255)[:, None]
        want = models.train_alone("convnet", model, STEPS, RATE, columns={"image": images, "target": labels.astype("i8")})
        self.check_losses(self.train(2, job, timeout=120), want)
        self.check_state(model)


class OnParameterServers(ExportedTest):
    def launch(self, kind, workers=2, **keys):
        model_dir = self.dir / f"model-{len(self.processes)}"
        job = self.write_job(kind, strategy="parameter_server", model_dir=str(model_dir), **keys)
        cluster = self.cluster(workers, ps=1)
        self.finish(self.start_all(cluster, job), timeout=120)
        return losses(model_dir)

    def test_one_worker_is_synchronous_training(self):
        for kind in "convnet", "transformer", "recurrent", "two", "second":
            with self.subTest(kind=kind):
                model = models.make(kind).train()
                want = models.train_alone(kind, model, STEPS, RATE, replicas=1)
                self.check_losses(self.launch(kind, workers=1), want)
                self.check_evaluation(kind, self.check_state(model), replicas=1)

    def test_workers_on_their_own(self):
        for kind in "convnet", "padded":
            with self.subTest(kind=kind):
                steps = 60
                got = self.launch(kind, max_steps=steps)
                self.assertEqual(sorted(got), list(range(1, steps + 1)))
                self.assertLess(sum(got[s] for s in range(steps - 5, steps + 1)), sum(got[s] for s in range(1, 7)))
                state = self.trained(self.model_dir())
                self.assertEqual(set(state), set(models.make(kind).state_dict()))
                # A part of the pass is a worker's batch; the mean is over the tokens of all parts.
                self.check_evaluation(kind, state, replicas=1, size=models.BATCH // 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
