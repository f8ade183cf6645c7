"""Callbacks do, epoch by epoch, what Keras' Model.fit does with those of the same names: stop, set rates, save, log and put weights back.

Keras runs beside each job (keras_fit.py, with the test tools' Python packages).
"""
import csv
import functools
import io
import json
import os
import pathlib
import struct
import subprocess
import sys
import unittest

import numpy

from harness import BIN, CONFIGURATION, PROGRAM, ClusterTest, checkpoints, curve, events, main, result, tensors

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = os.environ.get("MUSTER_TOOLS_VENV")
KERNEL, BIAS, RATE, BATCH, EPOCHS = -0.5, 1.0, 0.3, 7, 14
STEPS = 6  # an epoch of 40 examples; its last batch has 5

EARLY = {"name": "early_stopping", "patience": 3, "restore_best_weights": True}
PLATEAU = {"name": "reduce_lr_on_plateau", "factor": 0.3, "patience": 2, "cooldown": 1, "min_delta": 0.001, "min_lr": 0.01}
SCHEDULER = {"name": "learning_rate_scheduler", "values": {"1": 0.4, "4": 0.1, "7": 0.02}}
BEST = {"name": "model_checkpoint", "filepath": "best-{epoch:02d}-{val_loss:.3f}.safetensors", "save_best_only": True, "save_weights_only": True}
OFTEN = {"name": "model_checkpoint", "filepath": "often-{epoch:02d}-{loss:.2f}.safetensors", "save_freq": 10, "save_weights_only": True}
CSV = {"name": "csv_logger", "filename": "log.csv"}
LISTS = {
    "early_stopping": [CSV, EARLY],
    "min_delta": [CSV, {"name": "early_stopping", "patience": 2, "min_delta": 0.02, "start_from_epoch": 1}],
    "baseline": [CSV, {"name": "early_stopping", "monitor": "val_loss", "mode": "min", "patience": 4, "baseline": 0.9, "restore_best_weights": True}],
    "plateau": [PLATEAU, CSV, OFTEN],
    "plateau_alone": [PLATEAU, CSV],
    "scheduler": [SCHEDULER, BEST, CSV],
}


@functools.lru_cache(maxsize=None)
def keras(folder):
    """The result of Keras for each of LISTS, by its name; in one process, because the import of Keras costs more than all of them."""
    spec = {"folder": folder, "kernel": KERNEL, "bias": BIAS, "rate": RATE, "batch": BATCH, "epochs": EPOCHS, "lists": list(LISTS.values())}
    packages = next(pathlib.Path(TOOLS).glob("lib/python3*/site-packages"))
    done = subprocess.run([sys.executable, HERE / "keras_fit.py"], input=json.dumps(spec), capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": str(packages)})
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return dict(zip(LISTS, json.loads(done.stdout), strict=True))


def file_tensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    return {name: numpy.frombuffer(data[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]], numpy.float32)
            for name, t in header.items() if name != "__metadata__"}


@unittest.skipUnless(TOOLS, "the test tools are not installed: run deploy/bootstrap --test")
class Callbacks(ClusterTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        import tempfile
        cls.data = tempfile.TemporaryDirectory(prefix="muster-callbacks-")
        generator = numpy.random.default_rng(11)
        n = 40
        x = generator.normal(size=(n, 2))
        y = (x @ [1.5, -1] + 0.8 * generator.normal(size=n) > 0).astype(float)
        val_x = generator.normal(size=(25, 2))
        val_y = (val_x @ [0.6, 0.9] + generator.normal(size=25) > 0.2).astype(float)
        for name, values in {"x": x, "y": y, "val_x": val_x, "val_y": val_y}.items():
            numpy.save(pathlib.Path(cls.data.name) / f"{name}.npy", values.astype(numpy.float32))

    @classmethod
    def tearDownClass(cls):
        cls.data.cleanup()

    def fit_job(self, callbacks, **keys):
        split = lambda prefix, **more: {"format": "npy", "x": f"{self.data.name}/{prefix}x.npy", "y": f"{self.data.name}/{prefix}y.npy", **more}
        return self.job(**{"program_args": {"kernel_init": KERNEL, "bias_init": BIAS}, "global_batch_size": BATCH, "max_steps": None,
                           "epochs": EPOCHS, "optimizer": "sgd", "learning_rate": RATE, "callbacks": callbacks, "checkpoint": {"keep": 100},
                           "data": {"train": split("", shuffle=False), "validation": split("val_")}, **keys})

    def reference(self, name):
        return keras(self.data.name)[name]

    def fit(self, members, job, sets=(), timeout=90):
        self.model_dir = self.dir / f"model-{len(self.processes)}"
        sets = [*sets, f"model_dir={self.model_dir}"]
        processes = [self.start(None, None, job, sets)] if members == 1 else self.start_all(self.cluster(members - 1), job, sets)
        self.finish(processes, timeout)
        return self.model_dir

    def launch(self, job, *options, timeout=120):
        self.model_dir = self.dir / f"model-{len(self.processes)}"
        return self.run_launch("--job", job, *options, "--set", f"model_dir={self.model_dir}", timeout=timeout)

    def check(self, name):
        """The run in self.model_dir against Keras: losses, rates, the epoch that it stopped at, weights, files."""
        want = self.reference(name)
        epochs = len(want["loss"])
        steps = [STEPS * (epoch + 1) for epoch in range(epochs)]
        for folder, key in ("train", "loss"), ("validation", "val_loss"):
            got = curve(self.model_dir, folder, "epoch_loss")
            self.assertEqual(sorted(got), steps, f"{name}: {folder}")
            for step, value in zip(steps, want[key]):
                self.assertAlmostEqual(got[step], value, delta=1e-4, msg=f"{name}: {folder} after step {step}")
        rows = list(csv.DictReader(io.StringIO((self.model_dir / "log.csv").read_text())))
        self.assertEqual([int(row["epoch"]) for row in rows], list(range(epochs)), name)
        for row, loss, val_loss, rate in zip(rows, want["loss"], want["val_loss"], want["rates"]):
            self.assertAlmostEqual(float(row["loss"]), loss, delta=1e-4)
            self.assertAlmostEqual(float(row["val_loss"]), val_loss, delta=1e-4)
            self.assertAlmostEqual(float(row["learning_rate"]), rate, delta=1e-6, msg=f"{name}: rate of epoch {row['epoch']}")
        self.check_weights(tensors(self.model_dir, steps[-1]), want["weights"], name)
        outcome = result(self.model_dir)
        self.assertEqual((outcome["status"], outcome["steps"], outcome["epochs"]), ("completed", steps[-1], epochs))
        if epochs < EPOCHS:
            self.assertEqual(outcome["callbacks"]["early_stopping"]["stopped_after_epoch"], epochs)
            self.assertTrue(outcome["finished"])
        for saved in want["saved"]:
            prefix = saved[0][0].split("-")[0]
            self.assertEqual(sorted(path.name for path in self.model_dir.glob(f"{prefix}-*")), sorted({file for file, _ in saved}), name)
            for file, weights in dict(saved).items():
                self.check_weights(file_tensors(self.model_dir / file), weights, file)
        return want

    def check_weights(self, got, want, what):
        kernel, bias = numpy.array(want[0]).reshape(-1), numpy.array(want[1]).reshape(-1)
        by_size = {values.size: values.reshape(-1) for values in got.values()}
        numpy.testing.assert_allclose(by_size[2], kernel, atol=1e-4, err_msg=what)
        numpy.testing.assert_allclose(by_size[1], bias, atol=1e-4, err_msg=what)

    def test_alone_as_keras(self):
        for name in "early_stopping", "min_delta", "baseline", "plateau", "scheduler":
            callbacks = LISTS[name]
            with self.subTest(name):
                self.fit(1, self.fit_job(callbacks))
                self.check(name)

    def test_three_members_as_keras(self):
        for name in "early_stopping", "plateau", "scheduler":
            with self.subTest(name):
                self.fit(3, self.fit_job(LISTS[name]))
                self.check(name)

    def test_two_replicas_of_central_storage_as_keras(self):
        self.fit(1, self.fit_job(LISTS["early_stopping"], strategy="central_storage", devices="cpu:2"))
        self.check("early_stopping")

    def test_the_best_weights_are_the_last_checkpoint(self):
        self.fit(1, self.fit_job([EARLY, BEST]))
        outcome = result(self.model_dir)["callbacks"]["early_stopping"]
        last = outcome["stopped_after_epoch"] * STEPS
        self.assertEqual(outcome["restored_from_step"], outcome["best_epoch"] * STEPS)
        self.assertLess(outcome["best_epoch"] * STEPS, last)
        self.assertEqual(checkpoints(self.model_dir)[-1], last)
        best = file_tensors(max(self.model_dir.glob("best-*")))  # the last one that was better
        for file in "model.safetensors", "weights.early_stopping.safetensors":
            for name, values in tensors(self.model_dir, last, file).items():
                self.assertEqual(values.tobytes(), best[name].tobytes(), f"{file}: {name}")
        # Nothing is left to do, and no epoch more is made.
        self.assertIn("was trained to its end before", self.again())

    def again(self):
        process = self.start(None, None, self.last_job, [f"model_dir={self.model_dir}"])
        self.finish([process])
        return process.output()

    def job(self, **keys):
        self.last_job = super().job(**keys)
        return self.last_job

    def test_a_member_is_killed_in_the_middle_of_the_patience(self):
        # The best epoch is the third; the fourth and the fifth are waited for.
        for name in "early_stopping", "plateau":
            for fault in "kill@worker:0:step=29", "kill@chief:0:step=29", "kill@worker:1:step=31:phase=evaluate":
                with self.subTest(name, fault=fault):
                    printed = self.launch(self.fit_job(LISTS[name]), "--workers", 2, "--restart", "on-failure", "--fault", fault)
                    self.assertIn("was killed by SIGKILL", printed)
                    self.check(name)

    def test_a_member_is_killed_in_the_test_pass(self):
        """The best weights have been put back then, and this step was saved before that."""
        last = len(self.reference("early_stopping")["loss"]) * STEPS
        for member in "worker:0", "chief:0":
            with self.subTest(member):
                job = self.fit_job(LISTS["early_stopping"])
                test = {"data.test": {"format": "npy", "x": f"{self.data.name}/val_x.npy", "y": f"{self.data.name}/val_y.npy"}}
                sets = [option for key, value in test.items() for option in ("--set", f"{key}={json.dumps(value)}")]
                # Moments of evaluation at this step: the validation, its end, the test pass.
                printed = self.launch(job, "--workers", 2, "--restart", "on-failure", "--fault", f"kill@{member}:step={last}:phase=evaluate:nth=3",
                                      *sets)
                self.assertIn("was killed by SIGKILL", printed)
                self.check("early_stopping")
                state = json.loads((self.model_dir / "checkpoints" / f"step-{last:08d}" / "state.json").read_text())
                self.assertTrue(state["finished"] and state["callbacks"]["ended"])
                self.assertFalse(state["test_due"])
                outcome = result(self.model_dir)["callbacks"]["early_stopping"]
                self.assertEqual(outcome["restored_from_step"], state["callbacks"]["weights_of"])
                self.assertLess(outcome["restored_from_step"], last)

    def test_a_run_that_was_killed_goes_on_in_the_middle_of_the_patience(self):
        for name in "early_stopping", "plateau":
            with self.subTest(name):
                job = self.fit_job(LISTS[name])
                printed = self.launch(job, "--workers", 0, "--restart", "on-failure", "--fault", "kill@chief:0:step=29")
                self.assertIn("going on after step", printed)
                self.check(name)

    def test_one_worker_of_parameter_servers_as_keras(self):
        for name in "early_stopping", "min_delta", "baseline", "plateau_alone", "scheduler":
            with self.subTest(name):
                self.launch(self.fit_job(LISTS[name]), "--workers", 1, "--ps", 1)
                self.check(name)

    def test_a_chief_of_parameter_servers_is_killed_in_the_middle_of_the_patience(self):
        for name, step in ("plateau_alone", 27), ("min_delta", 15):
            with self.subTest(name):
                printed = self.launch(self.fit_job(LISTS[name]), "--workers", 1, "--ps", 1, "--restart", "on-failure", "--fault",
                                      f"kill@chief:0:step={step}")
                self.assertIn("was killed by SIGKILL", printed)
                self.check(name)

    def test_the_best_goes_by_the_loss_of_training(self):
        callbacks = [{"name": "model_checkpoint", "filepath": "m.safetensors", "monitor": "loss"},
                     {"name": "learning_rate_scheduler", "values": {"0": RATE, "3": 40.0}}]
        for options in ("--workers", 1), ("--workers", 1, "--ps", 1):
            with self.subTest(options):
                self.launch(self.fit_job(callbacks, checkpoint={"every_epochs": 100, "keep": 100}), *options)
                losses = curve(self.model_dir, "train", "epoch_loss")
                best = min(losses, key=losses.get)
                self.assertLess(best, max(losses))
                outcome = result(self.model_dir)
                self.assertEqual(outcome["best_checkpoint"], f"checkpoints/step-{best:08d}", losses)
                self.assertAlmostEqual(outcome["best"]["value"], losses[best], places=5)
                self.assertEqual(outcome["best"]["metrics"]["loss"], outcome["best"]["value"])

    def test_a_model_file_is_evaluated_and_gone_on_from(self):
        job = self.fit_job([{"name": "model_checkpoint", "filepath": "m-{epoch}.safetensors"}], optimizer={"name": "sgd", "momentum": 0.9}, epochs=5)
        model_dir = self.fit(2, job)
        file = model_dir / "m-3.safetensors"
        command = [BIN / "muster", "evaluate", "--job", job, "--set", "model_dir=", "--json", "--checkpoint", file]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        outcome = json.loads(done.stdout)
        self.assertEqual(outcome["step"], 3 * STEPS)
        self.assertAlmostEqual(outcome["metrics"]["loss"], curve(model_dir, "validation", "epoch_loss")[3 * STEPS], places=6)
        self.fit(2, job, [f"restore={file}"])
        for name, values in tensors(model_dir, 5 * STEPS).items():
            self.assertEqual(values.tobytes(), tensors(self.model_dir, 5 * STEPS)[name].tobytes(), name)

    def test_what_is_wrong_is_said_in_one_sentence(self):
        for callbacks, sets, said in [
                ([{"name": "early_stoping"}], [], 'callbacks[0].name is "early_stoping", did you mean "early_stopping"?'),
                ([{"name": "early_stopping", "patence": 3}], [], 'unknown key "callbacks[0].patence", did you mean "patience"?'),
                (["early_stopping"], [], 'callbacks[0] must be an object with a name, such as {"name": "early_stopping"}'),
                ([{"name": "early_stopping", "monitor": "val_kappa"}], [], 'set callbacks[0].mode to min or max'),
                ([{"name": "early_stopping"}, {"name": "early_stopping", "monitor": "val_loss"}], ["data.validation=null"],
                 "callbacks[1].monitor is \"val_loss\", but there is no validation data"),
                ([{"name": "reduce_lr_on_plateau"}], ['learning_rate={"name": "cosine", "initial": 0.1}'],
                 'follows the schedule "cosine": give a number as learning_rate, or leave the callback out'),
                ([{"name": "csv_logger", "filename": "log.csv"}], ["model_dir="], "model_dir is not set"),
                ([{"name": "model_checkpoint", "filepath": "x.keras"}], [], "callbacks[0].filepath must end in .safetensors"),
                ([{"name": "tensorboard", "log_dir": "logs"}], [], "TensorBoard's folder is model_dir: leave it out"),
                ([{"name": "learning_rate_scheduler", "values": {"a": 1}}], [], "callbacks[0].values must be rates"),
        ]:
            with self.subTest(said):
                process = self.start(None, None, self.fit_job(callbacks, model_dir=str(self.dir / "refused")), sets)
                self.finish([process], code=CONFIGURATION)
                self.assertIn(said, process.output())

    def test_terminate_on_nan(self):
        job = self.fit_job([{"name": "terminate_on_nan"}], learning_rate=1e38)
        self.model_dir = self.dir / "nan"
        process = self.start(None, None, job, [f"model_dir={self.model_dir}"])
        self.finish([process], code=PROGRAM)
        outcome = result(self.model_dir)
        self.assertEqual(outcome["status"], "failed")
        self.assertIn("terminate_on_nan ends training", outcome["cause"])
        noted = outcome["callbacks"]["terminate_on_nan"]
        self.assertEqual((noted["step"], noted["epoch"] + 1), (outcome["steps"], outcome["epochs"]))
        self.assertIn(noted["loss"], ("nan", "inf", "-inf"))
        (text,) = [(event.step, value.tensor.string_val[0].decode()) for event in events(self.model_dir / "train")
                   for value in event.summary.value if value.tag == "terminate_on_nan"]
        self.assertEqual(text, (outcome["steps"], outcome["cause"]))
        self.assertIn(outcome["cause"], process.output())

    def test_the_moving_average_is_reported(self):
        for members in 1, 3:
            with self.subTest(members=members):
                self.fit(members, self.fit_job([{"name": "ema", "decay": 0.9, "every_steps": 4}], epochs=3))
                outcome = result(self.model_dir)
                self.assertEqual(outcome["callbacks"]["ema"], {"decay": 0.9, "every_steps": 4, "last_step": 16})
                self.assertNotEqual(outcome["metrics"]["validation"]["ema_loss"], outcome["metrics"]["validation"]["loss"])
                log = self.processes[-members].output()
                self.assertIn("ema: each pass is made with the moving average of the parameters too (decay 0.9, every 4 steps)", log)
                self.assertIn("ema: the moving average of the parameters includes those after step 16", log)

    def test_a_chief_of_servers_is_killed_while_it_saves_the_end(self):
        # With an interval the best epoch is saved, and then the end alone; without one most likely the last epoch too, before its callbacks.
        name = "early_stopping"
        last = STEPS * len(self.reference(name)["loss"])
        for checkpoint, nth in ({"every_epochs": 100}, 1), ({"every_epochs": 100}, 4), ({}, 2):
            with self.subTest(checkpoint, nth=nth):
                printed = self.launch(self.fit_job(LISTS[name], checkpoint={"keep": 100, **checkpoint}), "--workers", 1, "--ps", 1, "--restart", "on-failure",
                                      "--fault", f"kill@chief:0:step={last}:phase=save:nth={nth}")
                self.assertIn("was killed by SIGKILL", printed)
                self.check(name)


if __name__ == "__main__":
    main()
