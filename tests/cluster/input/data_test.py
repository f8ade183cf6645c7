"""The job's `data`: files take the place of a program's datasets, and all members must have the same."""
import json
import os
import pathlib
import subprocess
import signal
import unittest

import numpy
from PIL import Image

from harness import BIN, CONFIGURATION, DAMAGED, PREEMPTED, RETRYABLE, ClusterTest, losses, result
from recurrence import recurrence


class Data(ClusterTest):
    def folder(self, name, **arrays):
        """A job file's folder on a host of its own, with these files in it."""
        folder = self.dir / name
        folder.mkdir()
        for file, values in arrays.items():
            numpy.save(folder / f"{file}.npy", values)
        return folder

    def job_in(self, folder, data, **keys):
        path = self.job(data=data, **keys)
        return path.rename(folder / "job.json")

    def examples(self):
        generator = numpy.random.default_rng(11)
        x, y = generator.normal(size=13), generator.integers(0, 2, 13)  # float64, int64; batches of 5, 5, 3
        return x, y

    TRAIN = {"format": "npy", "x": "x.npy", "y": "y.npy"}

    def test_launched_from_elsewhere_it_trains_on_the_files_beside_the_job(self):
        x, y = self.examples()
        folder = self.folder("host", x=x, y=y)
        job = self.job_in(folder, {"train": {**self.TRAIN, "shuffle": False}, "test": {**self.TRAIN, "take": 4}},
                          epochs=10, program_args={"kernel_init": 0.5, "bias_init": 0.1})
        model_dir = self.dir / "model"
        self.run_launch("--workers", 2, "--job", job, "--set", f"model_dir={model_dir}", "--set", "timeouts.join=60", directory=self.dir / "tmp")
        want = recurrence(0.5, 0.1, x.astype(numpy.float32).astype(float), y.astype(float), 20)
        got = losses(model_dir)
        self.assertEqual(sorted(got), list(range(1, 21)))
        for step, loss in got.items():
            self.assertAlmostEqual(loss, want[step - 1], delta=1e-6)
        self.assertIn("test", result(model_dir)["metrics"])
        # The resolved job is a job file, wherever it lies.
        resolved = json.loads((model_dir / "job.json").read_text())
        self.assertEqual(resolved["folder"], str(folder))
        self.assertEqual(set(resolved["digests"]), {"data.train.x", "data.train.y", "data.test.x", "data.test.y"})
        again = self.train(1, model_dir / "job.json", ["restore=never"])
        self.assertEqual(sorted(again), list(range(1, 21)))
        for step, loss in again.items():
            self.assertAlmostEqual(loss, got[step], delta=1e-6)

    def test_a_folder_whose_name_is_no_utf8_trains_too(self):
        x, y = self.examples()
        folder = self.folder("host", x=x, y=y)
        odd = os.fsencode(self.dir) + b"/h\xf6st"  # latin-1
        os.rename(folder, odd)
        job = self.job_in(pathlib.Path(os.fsdecode(odd)), {"train": self.TRAIN, "test": self.TRAIN}, epochs=1)
        self.assertEqual(sorted(self.train(1, job)), [1, 2, 3])
        self.assertEqual(sorted(self.train(2, job)), [1, 2, 3])

    def test_shuffled_splits_of_one_file_are_the_same_on_any_number_of_members(self):
        x, y = self.examples()
        job = self.job_in(self.folder("host", x=x, y=y), {
            "train": {**self.TRAIN, "fraction": [0, 0.7]}, "validation": {**self.TRAIN, "fraction": [0.7, 1]}},
            epochs=20, program_args={"kernel_init": 0.5})
        alone = self.train(1, job)
        two = self.train(2, job)
        in_order = self.train(1, job, ["data.train.shuffle=false"])
        for step, loss in alone.items():
            self.assertAlmostEqual(loss, two[step], delta=1e-6)
        self.assertGreater(max(abs(loss - in_order[step]) for step, loss in alone.items()), 1e-3)

    def test_a_run_goes_on_only_with_the_examples_that_it_began_with(self):
        x, y = self.examples()
        folder, model_dir = self.folder("host", x=x, y=y), self.dir / "model"
        job = self.job_in(folder, {"train": self.TRAIN}, epochs=50, max_steps=10, model_dir=str(model_dir))
        self.finish([self.start(None, None, job)])
        moved = folder.rename(self.dir / "moved") / "job.json"
        self.finish([self.start(None, None, moved, ["max_steps=15"])])
        self.assertEqual(sorted(losses(model_dir)), list(range(1, 16)))
        numpy.save(moved.parent / "x.npy", x + 1)
        process = self.start(None, None, moved, ["max_steps=20"])
        self.finish([process], code=CONFIGURATION)
        self.assertRegex(process.output(), r"was trained with another data.train.x: 232 bytes, \w{16} there, 232 bytes, \w{16} here; training")

    def pictures(self, name, classes=3, each=5):
        """A folder of grey 28 x 28 pictures, some JPEG and some PNG, in a folder for each class."""
        generator = numpy.random.default_rng(12)
        for label in range(classes):
            folder = self.dir / name / "photos" / f"class {label}"
            folder.mkdir(parents=True)
            for i in range(each):
                pixels = numpy.clip(generator.normal(60 + 60 * label, 25, (28, 28)), 0, 255).astype("u1")
                Image.fromarray(pixels).save(folder / f"{i}.{'jpg' if i % 2 else 'png'}")
        return self.dir / name

    PICTURES = {"format": "image_folder", "path": "photos", "size": 28, "channels": 1, "x": {"scale": "1/255"}}

    def test_pictures_train_to_the_same_losses_on_any_number_of_members(self):
        folder = self.pictures("host")
        job = self.job_in(folder, {"train": {**self.PICTURES, "fraction": [0, 0.8]}, "validation": {**self.PICTURES, "fraction": [0.8, 1]}},
                          program="fashion_mnist", program_args={"hidden": 8}, epochs=3, max_steps=None)
        alone, two = self.train(1, job), self.train(2, job)
        self.assertEqual(sorted(alone), list(range(1, 10)))  # 12 examples in batches of 5
        for step, loss in alone.items():
            self.assertAlmostEqual(loss, two[step], delta=1e-5)
        resolved = json.loads((self.dir / "model-0" / "job.json").read_text())
        self.assertRegex(resolved["digests"]["data.train.path"], r"^15 files, \d+ bytes, \w{16}$")

    AUGMENT = [{"name": "random_resized_crop", "size": 28, "scale": [0.5, 1]}, {"name": "random_horizontal_flip"},
               {"name": "color_jitter", "brightness": 0.3, "contrast": 0.3}, {"name": "normalize", "range": [0, 1]}]

    def test_augmented_pictures_are_the_same_on_any_number_of_members_and_after_a_kill(self):
        folder = self.pictures("host")
        split = {"format": "image_folder", "path": "photos", "channels": 1, "transforms": self.AUGMENT}
        job = self.job_in(folder, {"train": split}, program="fashion_mnist", program_args={"hidden": 8}, epochs=4, max_steps=None)
        alone, two = self.train(1, job), self.train(2, job)
        self.assertEqual(sorted(alone), list(range(1, 13)))
        model_dir = self.dir / "killed"
        printed = self.run_launch("--workers", 2, "--job", job, "--set", f"model_dir={model_dir}", "--set", "timeouts.join=60",
                               "--restart", "on-failure", "--fault", "kill@worker:1:step=5", timeout=180)
        self.assertIn("was killed by SIGKILL", printed)
        for other in two, losses(model_dir):
            for step, loss in alone.items():
                self.assertAlmostEqual(loss, other[step], delta=1e-5)
        self.assertNotEqual(self.train(1, job, ["seed=99"])[1], alone[1])

    def test_mixed_labels_train_an_image_classifier(self):
        folder = self.pictures("host")
        transforms = [{"name": "resize", "size": [36, 36]}, {"name": "random_crop", "size": 32}, {"name": "normalize", "range": [0, 1]},
                      {"name": "mixup", "alpha": 0.4}]
        data = {"train": {"format": "image_folder", "path": "photos", "transforms": transforms},
                "validation": {"format": "image_folder", "path": "photos", "size": 32}}
        args = {"classes": 3, "model": "resnet18"}
        job = self.job_in(folder, data, program="image_classifier", program_args=args, optimizer="adam", learning_rate=1e-3, epochs=6, max_steps=None)
        self.train(1, job, timeout=120)
        metrics = result(self.dir / "model-0")["metrics"]
        self.assertIn("accuracy", metrics["train"])
        self.assertGreater(metrics["validation"]["accuracy"], 0.5)

        def check(*sets):
            done = subprocess.run([BIN / "muster", "check", "--job", job, *(word for set in sets for word in ("--set", set))], capture_output=True,
                                  text=True, timeout=120)
            return done.returncode, done.stdout + done.stderr
        code, said = check()
        self.assertEqual(code, 0, said)
        self.assertIn("train data: 15 examples, a batch: Float [5, 3, 32, 32], Float [5, 3]", said)
        for sets, code, sentence in [
                (["data.train.transforms=" + json.dumps([{"name": "random_crop", "size": 40}])], DAMAGED,
                 "is 40 x 40, and the picture is 28 x 28 there: a crop must fit into the picture"),
                (["data.train.transforms=" + json.dumps([{"name": "random_crop"}])], CONFIGURATION, "data.train.transforms[0].size is missing"),
                (["program_args.classes=4"], CONFIGURATION, "program_args.classes is 4, and labels of data.train are probabilities [3]")]:
            with self.subTest(sets=sets):
                self.assertEqual(check(*sets)[0], code, check(*sets)[1])
                self.assertIn(sentence, check(*sets)[1])

    def test_a_worker_with_another_picture_is_refused(self):
        here, there = (self.job_in(self.pictures(name), {"train": self.PICTURES}, program="fashion_mnist", program_args={"hidden": 8}) for name in "ab")
        with open(self.dir / "b" / "photos" / "class 1" / "0.png", "ab") as file:
            file.write(b"one byte more")
        cluster = self.cluster(1)
        processes = [self.start(cluster, "chief:0", here), self.start(cluster, "worker:0", there)]
        self.finish(processes, 60, CONFIGURATION)
        for process in processes:
            self.assertIn("worker 0 has another file for 'data.train.path' than the chief", process.output())

    # ---- members whose files differ

    def hosts_that_differ(self, **keys):
        x, y = self.examples()
        other = x.copy()
        other[-1] += 1e-9
        data = {"train": self.TRAIN, "validation": {**self.TRAIN, "take": 5}}
        return (self.job_in(self.folder("a", x=x, y=y), data, **keys), self.job_in(self.folder("b", x=other, y=y), data, **keys))

    def test_a_worker_with_another_file_is_refused_by_its_key(self):
        here, there = self.hosts_that_differ()
        for servers in 0, 1:
            with self.subTest(servers=servers):
                cluster = self.cluster(2, ps=servers)
                processes = [self.start(cluster, "chief:0", here), self.start(cluster, "worker:0", here), self.start(cluster, "worker:1", there)]
                processes += [self.start(cluster, f"ps:{i}", here) for i in range(servers)]
                self.finish(processes, 60, CONFIGURATION)
                sentence = "worker 1 has another file for 'data.train.x' than the chief: give all tasks the same files"
                for process in processes[0], processes[2]:
                    self.assertIn(sentence, process.output())

    def test_an_evaluator_with_another_file_is_refused_by_its_key(self):
        here, there = self.hosts_that_differ(epochs=10**6, max_steps=None)  # until it is stopped
        cluster = {**self.cluster(1), "evaluator": self.cluster(1)["worker"]}
        model_dir = self.dir / "model"
        members = [self.start(cluster, task, here, [f"model_dir={model_dir}"]) for task in ("chief:0", "worker:0")]
        evaluator = self.start(cluster, "evaluator:0", there)
        self.finish([evaluator], 60, RETRYABLE)  # an evaluator's own failure never fails a job
        members[0].signal(signal.SIGTERM)
        self.finish(members, 60, PREEMPTED)
        self.assertIn("has another file for 'data.train.x' than the chief", evaluator.output())

    def test_the_same_files_in_other_folders_train(self):
        x, y = self.examples()
        jobs = [self.job_in(self.folder(name, x=x, y=y), {"train": self.TRAIN}, epochs=5) for name in ("a", "b")]
        cluster = self.cluster(1)
        processes = [self.start(cluster, task, job) for task, job in zip(("chief:0", "worker:0"), jobs)]
        self.finish(processes, 60)

    def test_parameter_servers_train_on_the_files(self):
        x, y = self.examples()
        job = self.job_in(self.folder("host", x=x, y=y), {"train": self.TRAIN}, epochs=5)
        self.finish(self.start_all(self.cluster(2, ps=1), job), 60)

    # ---- what is wrong

    def test_bad_files_and_keys_are_named(self):
        x, y = self.examples()
        folder = self.folder("host", x=x, y=y, few=y[:3])
        (folder / "cut.npy").write_bytes((folder / "x.npy").read_bytes()[:-5])
        for split, code, words in [
            ({**self.TRAIN, "x": "none.npy"}, DAMAGED, ["data.train.x: ", "none.npy' cannot be opened: No such file"]),
            ({**self.TRAIN, "x": "cut.npy"}, DAMAGED, ["data.train.x: ", "cut.npy' is truncated", "104 bytes of data, and there are 99"]),
            ({**self.TRAIN, "y": "few.npy"}, DAMAGED, ["'x.npy' has 13 examples and 'few.npy' has 3"]),
            ({**self.TRAIN, "format": "npyy"}, CONFIGURATION, ["data.train.format is \"npyy\", did you mean \"npy\"?"]),
            ({**self.TRAIN, "shufle": False}, CONFIGURATION, ["data.train.shufle", "did you mean \"shuffle\"?"]),
            ({**self.TRAIN, "take": 14}, CONFIGURATION, ["data.train.take is 14, but there are 13 examples"]),
        ]:
            with self.subTest(split=split):
                process = self.start(None, None, self.job_in(folder, {"train": split}))
                self.finish([process], code=code)
                errors = [line for line in process.output().splitlines() if " E" in line[:16] or line.startswith("muster")]
                self.assertEqual(len(errors), 1, process.output())
                for word in words:
                    self.assertIn(word, errors[0])

    def test_a_worker_without_the_file_ends_the_job_with_the_reason(self):
        x, y = self.examples()
        data = {"train": self.TRAIN}
        here, there = self.job_in(self.folder("a", x=x, y=y), data), self.job_in(self.folder("b", y=y), data)
        cluster = self.cluster(1)
        processes = [self.start(cluster, "chief:0", here), self.start(cluster, "worker:0", there)]
        self.finish(processes, 60, DAMAGED)
        for process in processes:
            self.assertIn("x.npy' cannot be opened: No such file or directory", process.output())


if __name__ == "__main__":
    unittest.main()
