"""The workloads of examples/ with their own job files, on less data: the same numbers on any number of workers, nothing lost after a
kill, and with parameter servers.
"""
import pathlib
import re
import subprocess
import sys
import unittest

import numpy
import safetensors.numpy

from harness import BIN, SOURCE, ClusterTest, checkpoints, curve, inherited, result, tensors

EXAMPLES = SOURCE / "examples"


class Workloads(ClusterTest):
    def setUp(self):
        super().setUp()
        self.count = 0

    def launch(self, job, workers, sets=(), more=()):
        """`muster launch` of a job file with `sets`: a chief and so many workers; 0: one process. Returns (model_dir, what it printed)."""
        self.count += 1
        model_dir = self.dir / f"model-{self.count}"
        sets = [*sets, f"model_dir={model_dir}", "devices=cpu", "summary.every_steps=1"]
        command = [BIN / "muster-worker"] if workers == 0 else [BIN / "muster", "launch", "--workers", workers, *more]
        command += ["--job", job, *(word for item in sets for word in ("--set", item))]
        process = self.start_process("run", command, inherited(OMP_NUM_THREADS="1"))
        self.finish([process], 200)
        return model_dir, process.output()

    def equal(self, one, other, delta, tag="loss"):
        got, want = curve(one, tag=tag), curve(other, tag=tag)
        self.assertEqual(sorted(got), sorted(want))
        for step in want:
            self.assertAlmostEqual(got[step], want[step], delta=delta * max(1, abs(want[step])), msg=f"step {step}")

    def killed(self, job, sets, step, steps, delta, alone):
        """A worker dies in the middle, then the chief: every step is made once, with the losses of the run that nobody disturbed."""
        model_dir, printed = self.launch(job, 1, sets, ["--restart", "on-failure", "--fault", f"kill@worker:0:step={step}",
                                                        "--fault", f"kill@chief:0:step={step + 3}"])
        self.assertEqual(len(re.findall(r"fault \d: kill", printed)), 2, printed)
        self.assertEqual(sorted(curve(model_dir)), list(range(1, steps + 1)))
        self.equal(model_dir, alone, delta)
        return model_dir

    # ---- fashion_mnist

    CALLBACKS = ["program_args.train_examples=640", "program_args.validation=200"]  # ten steps an epoch

    def test_the_classifier_with_callbacks(self):
        job = EXAMPLES / "fashion_mnist_callbacks.json"
        alone, printed = self.launch(job, 0, self.CALLBACKS)
        steps = 120
        self.assertEqual(sorted(curve(alone)), list(range(1, steps + 1)))
        for epoch, rate in (1, "0.001"), (3, "0.001"), (4, "0.0001"), (7, "0.0001"), (8, "1e-05"), (12, "1e-05"):
            self.assertIn(f"epoch {epoch}: learning rate {rate}\n", printed)
        files = sorted(path.name for path in alone.glob("ckpt_*"))
        self.assertEqual(files, sorted(f"ckpt_{epoch}.safetensors" for epoch in range(1, 13)))
        two, _ = self.launch(job, 1, self.CALLBACKS)
        self.equal(two, alone, 1e-5)
        killed = self.killed(job, self.CALLBACKS, 43, steps, 1e-5, alone)
        self.assertEqual(sorted(path.name for path in killed.glob("ckpt_*")), files)
        last = [tensors(folder, steps) for folder in (alone, killed)]
        for name, values in last[0].items():
            numpy.testing.assert_allclose(last[1][name], values, atol=1e-5)

    def test_the_classifier_on_parameter_servers(self):
        model_dir, _ = self.launch(EXAMPLES / "fashion_mnist_callbacks.json", 1, [*self.CALLBACKS, "strategy=parameter_server", "program_args.validation=640"],
                                   ["--ps", "1"])
        got = result(model_dir)
        self.assertEqual(got["steps"], 120)
        self.assertGreater(got["metrics"]["test"]["accuracy"], 0.6)
        self.assertEqual(len(list(model_dir.glob("ckpt_*"))), 12)

    # ---- image_classifier

    def pictures(self, count=10, size=40):
        """The sets that `make classifier` draws, but small, and weights that are MobileNetV2's initial ones."""
        folder = self.dir / "pictures"
        if not folder.exists():
            for name, classes in ("photos", "fish,flowers"), ("base", "boats,houses,mushrooms,trees"):
                subprocess.run([sys.executable, EXAMPLES / "pictures.py", "photos", folder / name, "--classes", classes, "--count", str(count),
                                "--size", str(size)], check=True)
        small = [f"data.{split}.{key}={value}" for split in ("train", "validation") for key, value in (("size", 32), ("shorter_side", 36))]
        return [f"folder={folder}", "global_batch_size=4", *small]

    def base(self, sets):
        model_dir, _ = self.launch(EXAMPLES / "image_classifier_base.json", 1, [*sets, "epochs=1"])
        file = self.dir / "weights.safetensors"
        subprocess.run([BIN / "muster", "export", "--checkpoint", model_dir, "--output", file], check=True, stdout=subprocess.DEVNULL)
        return file

    def test_the_image_classifier(self):
        job = EXAMPLES / "image_classifier.json"
        sets = self.pictures()
        weights = self.base(sets)
        self.assertEqual(len(safetensors.numpy.load_file(weights)["classifier.1.bias"]), 4)
        sets += [f"program_args.weights={weights}", "per_replica_batch_size=null", "epochs=3", "program_args.dropout=0"]
        # The rate goes by the replicas on purpose; here all runs are to have the same one.
        sets += ["learning_rate.scale_with_replicas=false"]
        frozen = [*sets, "program_args.frozen_epochs=3"]
        alone, _ = self.launch(job, 0, frozen)
        self.assertEqual(sorted(curve(alone)), list(range(1, 13)))
        for workers in 1, 2:
            with self.subTest(workers=workers):
                self.equal(self.launch(job, workers, frozen)[0], alone, 1e-5)
        # With the whole network in training each worker normalises its own part of the batch: the same on the same number of workers alone.
        two, _ = self.launch(job, 1, sets)
        self.killed(job, sets, 6, 12, 1e-5, two)
        start, end = safetensors.numpy.load_file(weights), tensors(alone, 12)
        for name, values in end.items():
            same = numpy.array_equal(values.view(numpy.uint32), start[name].reshape(-1).view(numpy.uint32)) if "classifier" not in name else None
            self.assertIsNot(same, False, f"{name} is a part of the base, which was frozen")
        moved = tensors(two, 12)
        self.assertTrue(all(not numpy.array_equal(moved[name], end[name]) for name in end if name.endswith("weight")), "the whole network trains")

    def test_the_image_classifier_on_parameter_servers_and_in_bfloat16(self):
        sets = self.pictures()
        for more, launch in (["strategy=parameter_server"], ["--ps", "1"]), (["precision=bfloat16"], []):
            with self.subTest(more=more):
                model_dir, _ = self.launch(EXAMPLES / "image_classifier_base.json", 1, [*sets, "epochs=2", *more], launch)
                self.assertEqual(result(model_dir)["steps"], 16)
                self.assertLess(result(model_dir)["metrics"]["train"]["loss"], 3)

    # ---- language_model

    def text(self):
        """A tenth of the text of Debian's Python: 43 windows' batches."""
        lines = pathlib.Path("/usr/lib/python3.11/pydoc_data/topics.py").read_text()[:40_000]
        (self.dir / "text").write_text(lines)
        path = self.dir / "text"
        return [f"data.{split}.path={path}" for split in ("train", "validation")] + [
            "epochs=3", "global_batch_size=16", "program_args.width=32", "program_args.layers=2", "learning_rate.warmup_steps=5"]

    def test_the_language_model(self):
        job = EXAMPLES / "language_model.json"
        alone, _ = self.launch(job, 0, self.text())
        seen = curve(alone)
        steps = max(seen)
        self.assertLess(seen[steps], 0.8 * seen[1], "it learns")
        two, _ = self.launch(job, 1, self.text())
        self.equal(two, alone, 1e-4)
        self.killed(job, self.text(), 20, steps, 1e-4, alone)
        self.assertEqual(checkpoints(two)[-1], steps)
        for more in ["precision=bfloat16"], ["program_args.activation_checkpoint=true", "accumulate_steps=2"]:
            with self.subTest(more=more):
                other, _ = self.launch(job, 1, [*self.text(), *more])
                self.assertAlmostEqual(result(other)["metrics"]["train"]["loss"], result(alone)["metrics"]["train"]["loss"],
                                       delta=0.05 if "bfloat16" in more[0] else 1e-3)

    def test_the_language_model_on_parameter_servers(self):
        model_dir, _ = self.launch(EXAMPLES / "language_model.json", 1, [*self.text(), "strategy=parameter_server"], ["--ps", "2"])
        self.assertLess(result(model_dir)["metrics"]["validation"]["loss"], 5)

    # ---- bad input

    def refused(self, job, sets, code, sentence):
        """On both tasks of a cluster: one sentence, and no file of a checkpoint."""
        self.count += 1
        model_dir = self.dir / f"model-{self.count}"
        sets = [*sets, f"model_dir={model_dir}", "devices=cpu"]
        processes = self.start_all(self.cluster(1), job, sets)
        self.finish(processes, 60, code)
        for process in processes:
            said = [line for line in process.output().splitlines() if "ROOT CAUSE" in line]
            self.assertLessEqual(len(said), 1, process.output())
            self.assertNotIn("Traceback", process.output())
        self.assertTrue(any(sentence in process.output() for process in processes), "\n".join(process.output() for process in processes))
        self.assertEqual([path for path in model_dir.glob("checkpoints/**/*") if path.name != ".staging"], [])

    def test_bad_files(self):
        sets = self.pictures()
        classifier, photos = EXAMPLES / "image_classifier_base.json", self.dir / "pictures" / "base"
        text = (EXAMPLES / "language_model.json", [*self.text(), "data.validation=null"])
        self.refused(classifier, [*sets, "data.train.path=nowhere"], 3, "nowhere' cannot be read: No such file or directory")
        (photos / "ships").mkdir()
        self.refused(classifier, sets, 3, "/base/ships' holds no JPEG or PNG file")
        (photos / "ships").rmdir()
        for path in (photos / "boats").glob("*"):
            path.write_text("a text")
        self.refused(classifier, sets, 3, "is no JPEG and no PNG file")
        (self.dir / "odd").write_bytes(b"\0" * 4001)
        self.refused(text[0], [*text[1], "data.train.path=" + str(self.dir / "odd"), "data.train.format=tokens", "data.train.dtype=uint16"], 3,
                     "has 4001 bytes, which is no whole number of uint16 tokens of 2 bytes")
        subprocess.run([BIN / "muster", "data", "tfrecord", "--images", str(photos.parent / "photos"), "--output", str(self.dir / "some.tfrecord")], check=True,
                       stdout=subprocess.DEVNULL)
        whole = (self.dir / "some.tfrecord").read_bytes()
        (self.dir / "some.tfrecord").write_bytes(whole[:-5])
        record = ["data.validation=null", 'data.train={"format": "tfrecord", "path": "some.tfrecord", "size": 32, "x": {"from": "image/encoded", "decode": "image"}, '
                  '"y": "image/class/label"}', f"folder={self.dir}", "global_batch_size=4"]
        self.refused(classifier, record, 3, "some.tfrecord' is truncated")


if __name__ == "__main__":
    unittest.main(verbosity=2)
