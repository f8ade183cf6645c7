"""What torch.export.save wrote trains on two members to the losses that Python gets alone, is evaluated as Python evaluates
it, and is written back as Python reads it."""
import json
import subprocess
import unittest

import numpy
import safetensors.torch
import torch

import exported_models as models
from harness import BIN, ClusterTest

STEPS, RATE = 12, 0.05
KINDS = "convnet", "transformer", "recurrent", "two"


class Exported(ClusterTest):
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

    def test_two_members_get_pythons_losses(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                job = self.write_job(kind)
                model = models.make(kind).train()
                want = models.train_alone(kind, model, STEPS, RATE)
                got = self.train(2, job, timeout=120)
                self.assertEqual(sorted(got), list(range(1, STEPS + 1)))
                for step, loss in enumerate(want, 1):
                    self.assertAlmostEqual(got[step], loss, delta=2e-5 * max(1, abs(loss)), msg=f"step {step}")

                # The names are the state_dict's, and so are the numbers.
                state = self.trained(self.model_dir())
                for name, value in model.state_dict().items():
                    torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
                self.assertEqual(set(state), set(model.state_dict()))

                # Evaluated as Python does, with running statistics; what the pass writes is dropped.
                result = json.loads((self.model_dir() / "result.json").read_text())["metrics"]["test"]
                again = models.make(kind)
                again.load_state_dict(state)
                for metric, value in models.evaluate(kind, again, replicas=2).items():
                    self.assertAlmostEqual(result[metric], value, delta=2e-5 * max(1, abs(value)), msg=metric)

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
                model = models.make(kind, 0.4)
                model.load_state_dict(self.trained(self.model_dir()))
                result = json.loads((self.model_dir() / "result.json").read_text())["metrics"]["test"]
                for metric, value in models.evaluate(kind, model).items():
                    self.assertAlmostEqual(result[metric], value, delta=2e-5 * max(1, abs(value)), msg=metric)

    def test_one_three_and_devices_agree_where_no_statistics_are_taken(self):
        job = self.write_job("transformer")
        alone = self.train(1, job, timeout=120)
        for members, devices in (3, "cpu"), (1, "cpu:2"), (2, "cpu:4"):  # 8 replicas have empty slices at the end
            with self.subTest(members=members, devices=devices):
                got = self.train(members, job, [f"devices={devices}"], timeout=120)
                for step, loss in alone.items():
                    self.assertAlmostEqual(got[step], loss, delta=2e-5)

    def refused(self, job, code, *words):
        process = self.start(None, None, job, [f"model_dir={self.dir / 'refused'}"])
        self.finish([process], code=code)
        (cause,) = [line for line in process.output().splitlines() if "ROOT CAUSE" in line][:1] or [process.output()]
        for word in words:
            self.assertIn(word, cause)

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
        model.load_state_dict(self.trained(self.model_dir()))
        result = json.loads((self.model_dir() / "result.json").read_text())["metrics"]["test"]
        self.assertAlmostEqual(result["loss"], models.evaluate("recurrent", model, replicas=2)["loss"], delta=2e-5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
