"""How a job's examples are loaded: threads and batches ahead, damaged examples, sharding, caches, and what waiting for input took."""
import os
import shutil
import subprocess
import unittest

import numpy
from PIL import Image

from harness import BIN, CONFIGURATION, DAMAGED, ClusterTest, losses, result
from recurrence import L2, RATE


def follow(batches, x, y, kernel=0.5, bias=0.1):
    """The losses of `linear` over these batches, each a list of indices: the mean over what is there."""
    out = []
    for batch in batches:
        xs, ys = x[batch], y[batch]
        z = kernel * xs + bias
        weight = 1 / max(1, len(batch))
        out.append(float(weight * (numpy.maximum(z, 0) - z * ys + numpy.log1p(numpy.exp(-numpy.abs(z)))).sum() + L2 * kernel**2))
        slope = weight * (1 / (1 + numpy.exp(-z)) - ys)
        kernel, bias = kernel - RATE * ((slope * xs).sum() + 2 * L2 * kernel), bias - RATE * slope.sum()
    return out


class InputPipeline(ClusterTest):
    def job_in(self, folder, data, **keys):
        keys = {"program_args": {"kernel_init": 0.5, "bias_init": 0.1}, "max_steps": None, **keys}
        return self.job(data=data, **keys).rename(folder / "job.json")

    def run_job(self, members, job, sets=()):
        """The losses by step, and result.json."""
        model_dir = self.dir / f"model-{len(self.processes)}"
        return self.train(members, job, sets), result(model_dir)

    def numbers(self, name, count=13):
        folder = self.dir / name
        folder.mkdir()
        generator = numpy.random.default_rng(21)
        x, y = generator.normal(size=count).astype("f4"), generator.integers(0, 2, count).astype("i8")
        numpy.save(folder / "x.npy", x)
        numpy.save(folder / "y.npy", y)
        return folder, x.astype(float), y.astype(float)

    NUMBERS = {"format": "npy", "x": "x.npy", "y": "y.npy"}
    RECORDS = {"format": "tfrecord", "path": "part-*", "x": "x", "y": "y"}

    def records(self, name, sizes):
        """Files part-0, part-1, ... of so many examples, and the indices of each among all."""
        folder, x, y = self.numbers(name, sum(sizes))
        parts, begin = [], 0
        for number, size in enumerate(sizes):
            parts.append(list(range(begin, begin + size)))
            for column, values in ("x", x.astype("f4")), ("y", y.astype("i8")):
                numpy.save(self.dir / f"{column}.npy", values[parts[-1]])
            written = subprocess.run([BIN / "muster", "data", "tfrecord", "--column", f"x={self.dir / 'x.npy'}", "--column", f"y={self.dir / 'y.npy'}",
                                      "--output", folder / f"part-{number}"], capture_output=True, text=True, timeout=60)
            self.assertEqual(written.returncode, 0, written.stdout + written.stderr)
            begin += size
        return folder, x, y, parts

    def assert_losses(self, got, want, delta=1e-6):
        self.assertEqual(sorted(got), list(range(1, len(want) + 1)))
        for step, loss in got.items():
            self.assertAlmostEqual(loss, want[step - 1], delta=delta, msg=f"step {step}")

    # ---- Threads and batches ahead

    def test_members_that_load_by_other_numbers_of_threads_train_as_one(self):
        folder, x, y = self.numbers("host")
        data = {"train": {**self.NUMBERS, "shuffle": False}}
        job = self.job_in(folder, data, epochs=20)
        want = follow([list(range(a, min(a + 5, 13))) for a in (0, 5, 10)] * 20, x, y)
        for members, sets in (1, ["data.threads=1", "data.prefetch=0"]), (1, ["data.threads=3"]), (2, ["data.prefetch=7"]), (2, ["devices=cpu:2", "data.threads=2"]):
            with self.subTest(members=members, sets=sets):
                self.assert_losses(self.train(members, job, sets), want)
        cluster, model_dir = self.cluster(1), self.dir / "apart"
        processes = [self.start(cluster, "chief:0", job, ["data.threads=4", f"model_dir={model_dir}"]),
                     self.start(cluster, "worker:0", job, ["data.prefetch=0", f"model_dir={model_dir}"])]
        self.finish(processes, 60)
        self.assert_losses(losses(model_dir), want)

    def test_members_with_other_numbers_of_devices_evaluate_as_one(self):
        folder, _, _ = self.numbers("host", 60)
        job = self.job_in(folder, {"train": self.NUMBERS, "validation": self.NUMBERS, "test": self.NUMBERS}, epochs=2, global_batch_size=24)
        losses_of_one, one = self.run_job(1, job)
        model_dir = self.dir / "uneven"
        cluster = self.cluster(1)
        self.finish([self.start(cluster, task, job, [f"devices={devices}", f"model_dir={model_dir}"])
                     for task, devices in (("chief:0", "cpu:2"), ("worker:0", "cpu"))])
        self.assertEqual(sorted(losses(model_dir)), sorted(losses_of_one))
        for split in "validation", "test":
            for name, want in one["metrics"][split].items():
                self.assertAlmostEqual(result(model_dir)["metrics"][split][name], want, delta=1e-6, msg=f"{split} {name}")

    def test_keys_are_for_the_programs_own_data_too(self):
        own = self.job(epochs=2, max_steps=None)
        want = self.train(2, own)
        job = self.job(epochs=2, max_steps=None, data={"threads": 2, "prefetch": 3, "on_error": "skip"})
        self.assertEqual(self.train(2, job), want)

    def test_the_share_of_waiting_is_reported(self):
        folder, _, _ = self.numbers("host", 400)
        for servers in 0, 1:
            with self.subTest(servers=servers):
                model_dir = self.dir / f"model-{servers}"
                job = self.job_in(folder, {"train": self.NUMBERS}, epochs=2, model_dir=str(model_dir), summary={"every_steps": 10})
                processes = self.start_all(self.cluster(1, ps=servers), job)
                self.finish(processes, 60)
                share = result(model_dir)["input_wait_share"]
                self.assertGreaterEqual(share, 0)
                self.assertLessEqual(share, 1)
                self.assertRegex(processes[0].output(), r"epoch 2/2: .*, input \d+ %")

    # ---- Damaged examples

    def pictures(self, name, damaged=()):
        generator = numpy.random.default_rng(12)
        for label in range(3):
            folder = self.dir / name / "photos" / f"class {label}"
            folder.mkdir(parents=True)
            for i in range(5):
                pixels = numpy.clip(generator.normal(60 + 60 * label, 25, (28, 28)), 0, 255).astype("u1")
                file = folder / f"{i}.{'jpg' if i % 2 else 'png'}"
                Image.fromarray(pixels).save(file)
                if (label, i) in damaged:
                    file.write_bytes(file.read_bytes()[:-30])
        return self.dir / name

    PICTURES = {"format": "image_folder", "path": "photos", "size": 28, "channels": 1, "x": {"scale": "1/255"}}
    SMALL = {"program": "fashion_mnist", "program_args": {"hidden": 8}}

    def test_damaged_examples_are_left_out_of_the_mean_on_any_number_of_members(self):
        # In the files' order, 5 a batch: 3, 5 and 0 are left.
        damaged = [(0, 1), (0, 4), (2, 0), (2, 1), (2, 2), (2, 3), (2, 4)]
        folder = self.pictures("host", damaged)
        split = {**self.PICTURES, "shuffle": False}
        keys = {**self.SMALL, "epochs": 3}
        skipping = self.job_in(folder, {"train": split, "validation": self.PICTURES, "on_error": "skip"}, **keys)
        alone, got = self.run_job(1, skipping)
        self.assertEqual(sorted(alone), list(range(1, 10)))
        self.assertEqual(got["left_out"]["examples"], {"train": 21, "validation": 21})
        self.assertEqual(len(got["left_out"]["damaged"]), 7)
        self.assertTrue(all("photos/class" in name for name in got["left_out"]["damaged"]), got["left_out"])
        self.assertEqual(got["examples"], 24)
        # Batches that lose all are steps whose loss is 0.
        self.assertEqual([alone[3], alone[6], alone[9]], [0, 0, 0])
        for members, sets in (2, []), (3, []), (1, ["devices=cpu:2"]):
            with self.subTest(members=members, sets=sets):
                more, outcome = self.run_job(members, skipping, sets)
                for step, loss in alone.items():
                    self.assertAlmostEqual(loss, more[step], delta=1e-5)
                self.assertEqual(outcome["left_out"]["examples"], {"train": 21, "validation": 21})
                self.assertEqual(outcome["examples"], 24)
                self.assertGreater(len(outcome["left_out"]["damaged"]), 2)
                for metric, value in got["metrics"]["validation"].items():
                    self.assertAlmostEqual(outcome["metrics"]["validation"][metric], value, delta=1e-5)

    def test_by_default_damage_ends_the_job(self):
        folder = self.pictures("host", [(1, 2)])
        process = self.start(None, None, self.job_in(folder, {"train": self.PICTURES}, **self.SMALL, epochs=1))
        self.finish([process], 60, DAMAGED)
        self.assertIn("class 1/2.png", process.output())

    def test_what_is_wholly_damaged_or_missing_ends_it_still(self):
        every = [(label, i) for label in range(3) for i in range(5)]
        folder = self.pictures("host", every)
        unsized = {key: value for key, value in self.PICTURES.items() if key != "size"}
        for split, words in (self.PICTURES, "all of its examples are damaged"), (unsized, "none of the examples is readable"), \
                ({**self.PICTURES, "path": "none"}, "none"):
            with self.subTest(words=words):
                process = self.start(None, None, self.job_in(folder, {"train": split, "on_error": "skip"}, **self.SMALL, epochs=1))
                self.finish([process], 60, DAMAGED)
                self.assertIn(words, process.output())

    def test_workers_of_parameter_servers_leave_them_out(self):
        folder = self.pictures("host", [(0, 0), (2, 3)])
        model_dir = self.dir / "model"
        job = self.job_in(folder, {"train": self.PICTURES, "validation": self.PICTURES, "on_error": "skip"}, **self.SMALL, epochs=2, model_dir=str(model_dir))
        self.finish(self.start_all(self.cluster(2, ps=1), job), 90)
        got = result(model_dir)
        self.assertEqual(got["left_out"]["examples"], {"train": 4, "validation": 4})
        self.assertEqual(got["examples"], 26)

    # ---- Sharding

    def test_by_file_each_replica_reads_its_own(self):
        folder, x, y, parts = self.records("host", [5, 3, 4])
        model_dir = self.dir / "model"
        job = self.job_in(folder, {"train": {**self.RECORDS, "shuffle": False}, "auto_shard": "file"}, global_batch_size=4, epochs=3)
        # Replica 0 has files 0 and 2, 9 examples and two at a time; replica 1 has file 1.
        shares = parts[0] + parts[2], parts[1]
        epoch = [shares[0][2 * s:2 * s + 2] + shares[1][2 * s:2 * s + 2] for s in range(5)]
        want = follow(epoch * 3, x, y)
        for members, sets in (2, []), (1, ["devices=cpu:2"]):
            with self.subTest(members=members):
                got, outcome = self.run_job(members, job, sets)
                self.assert_losses(got, want)
                self.assertEqual(outcome["examples"], 36)  # each once an epoch
        self.assert_losses(self.train(1, job), follow([list(range(4 * s, 4 * s + 4)) for s in range(3)] * 3, x, y))
        # Hosts on which the others' files hold nothing but room.
        cluster = self.cluster(1)
        jobs = []
        for host, foreign in ("a", ["part-1"]), ("b", ["part-2"]):  # the first tells all what an example is
            shutil.copytree(folder, self.dir / host)
            for name in foreign:
                path = self.dir / host / name
                path.write_bytes(b"\0" * path.stat().st_size)
            jobs.append(self.dir / host / "job.json")
        processes = [self.start(cluster, task, there, [f"model_dir={model_dir}"])
                     for task, there in zip(("chief:0", "worker:0"), jobs)]
        self.finish(processes, 60)
        self.assert_losses(losses(model_dir), want)

    def test_by_file_an_epoch_goes_on_at_its_step_on_another_number_of_replicas(self):
        folder, x, y, parts = self.records("host", [5, 3, 4])
        model_dir = self.dir / "model"
        job = self.job_in(folder, {"train": {**self.RECORDS, "shuffle": False}, "auto_shard": "file"}, global_batch_size=4, epochs=3, max_steps=2,
                          model_dir=str(model_dir), devices="cpu:2")
        self.finish([self.start(None, None, job)])
        # The second of two steps is done; alone an epoch has three, of which the third is next.
        process = self.start(None, None, job, ["devices=cpu", "max_steps=6"])
        self.finish([process])
        shares = parts[0] + parts[2], parts[1]
        before = [shares[0][2 * s:2 * s + 2] + shares[1][2 * s:2 * s + 2] for s in range(2)]
        alone = [list(range(4 * s, 4 * s + 4)) for s in range(3)]
        self.assert_losses(losses(model_dir), follow([*before, alone[2], *alone], x, y))
        # The same number, and nothing is lost or repeated.
        self.finish([self.start(None, None, job, ["max_steps=2", f"model_dir={self.dir / 'again'}"])])
        self.finish([self.start(None, None, job, ["max_steps=10", f"model_dir={self.dir / 'again'}"])])
        epoch = [shares[0][2 * s:2 * s + 2] + shares[1][2 * s:2 * s + 2] for s in range(5)]
        self.assert_losses(losses(self.dir / "again"), follow(epoch * 2, x, y))

    def test_off_each_replica_goes_through_all(self):
        folder, x, y = self.numbers("host")
        data = {"train": {**self.NUMBERS, "shuffle": False}, "auto_shard": "off"}
        job = self.job_in(folder, data, global_batch_size=4, epochs=2)
        # Without a shuffle all have the same order: each example twice in a batch.
        epoch = [2 * list(range(2 * s, min(2 * s + 2, 13))) for s in range(7)]
        got, outcome = self.run_job(2, job)
        self.assert_losses(got, follow(epoch * 2, x, y))
        self.assertEqual(outcome["examples"], 2 * 2 * 13)
        one, two = self.train(1, job, ["data.train.shuffle=true"]), self.train(2, job, ["data.train.shuffle=true"])
        self.assertEqual((len(one), len(two)), (8, 14))
        again = self.train(2, job, ["data.train.shuffle=true"])
        self.assertEqual(two, again)
        same = follow(epoch * 2, x, y)
        self.assertTrue(any(abs(two[step] - same[step - 1]) > 1e-4 for step in two))

    def test_by_file_each_replica_has_an_order_of_its_own(self):
        folder, _, _, _ = self.records("host", [8, 8])
        shutil.copy(folder / "part-0", folder / "part-1")
        job = self.job_in(folder, {"train": self.RECORDS, "auto_shard": "file"}, global_batch_size=2, epochs=1)
        two, alone = self.train(2, job), self.train(1, job, ["data.train.path=part-0", "global_batch_size=1"])
        self.assertEqual(sorted(two), sorted(alone))
        self.assertTrue(any(abs(loss - alone[step]) > 1e-4 for step, loss in two.items()))

    def test_sharding_that_makes_no_sense_is_refused(self):
        folder, _, _, _ = self.records("host", [5, 3])
        job = self.job_in(folder, {"train": self.RECORDS, "auto_shard": "file"}, epochs=1)
        process = self.start(None, None, job, ["devices=cpu:3"])
        self.finish([process], code=CONFIGURATION)
        self.assertIn('data.auto_shard is "file", and data.train.path means 2 files for 3 replicas', process.output())
        for shard in "file", "off":
            with self.subTest(shard=shard):
                processes = self.start_all(self.cluster(1, ps=1), job, [f"data.auto_shard={shard}"])
                self.finish(processes, 60, CONFIGURATION)
                self.assertIn(f'data.auto_shard is "{shard}", and the chief of a parameter-server job leases', processes[0].output())

    # ---- Caches

    def test_a_cache_on_disk_is_shared_and_fits_its_files(self):
        folder = self.pictures("host")
        job = self.job_in(folder, {"train": {**self.PICTURES, "cache": {"disk": "cache"}}}, **self.SMALL, epochs=2)
        plain = self.train(1, job, ["data.train.cache=null"])
        self.assertEqual(self.train(1, job, ["data.train.cache=memory"]), plain)
        two = self.train(2, job)
        for step, loss in plain.items():
            self.assertAlmostEqual(loss, two[step], delta=1e-5)
        kept = list((folder / "cache").iterdir())
        self.assertEqual(len(kept), 1, kept)
        self.assertEqual(self.train(1, job), plain)
        # A file with the name, size and time of a picture counts as that picture, and is not read again.
        picture = folder / "photos" / "class 1" / "0.png"
        before = picture.stat()
        picture.write_bytes(b"\0" * before.st_size)
        os.utime(picture, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.assertEqual(self.train(1, job), plain)
        os.utime(picture)
        process = self.start(None, None, job)
        self.finish([process], 60, DAMAGED)
        self.assertIn("class 1/0.png", process.output())

    def test_a_cache_folder_that_cannot_be_is_refused(self):
        folder, _, _ = self.numbers("host")
        (folder / "file").write_text("")
        process = self.start(None, None, self.job_in(folder, {"train": {**self.NUMBERS, "cache": {"disk": "file"}}}))
        self.finish([process], code=CONFIGURATION)
        self.assertIn("data.train.cache: cannot make the cache folder", process.output())


if __name__ == "__main__":
    unittest.main()
