"""Bad input of every kind: one clear sentence, the right exit code, no stack of noise, nothing half-written."""
import gzip
import json
import pathlib
import struct
import time
import unittest

import numpy

from harness import BIN, CONFIGURATION, DAMAGED, RETRYABLE, ClusterTest, take_port

FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")


class BadInput(ClusterTest):
    def refused(self, process, code, *words, timeout=60):
        """Ends by itself with `code`; its error is one line that says all of `words`."""
        self.finish([process], timeout, code)
        errors = [line for line in process.output().splitlines() if " E" in line[:16] or line.startswith(("--", "muster"))]
        text = process.output()
        self.assertEqual(len(errors), 1, text)
        for word in words:
            self.assertIn(word, errors[0])
        for noise in "terminate called", "Traceback", "frame #", "Aborted", "AddressSanitizer":
            self.assertNotIn(noise, text)

    def alone(self, job, sets=()):
        return self.start(None, None, job, sets)

    # ---- TF_CONFIG

    def with_tf_config(self, text, binary="muster-worker"):
        return self.start(None, None, self.job(), environment={"TF_CONFIG": text}, binary=binary)

    def test_tf_config(self):
        worker = {"cluster": {"chief": ["127.0.0.1:2222"], "worker": ["127.0.0.1:2223"]}, "task": {"type": "worker", "index": 0}}

        def changed(**task):
            return json.dumps({**worker, "task": {**worker["task"], **task}})
        for text, words in [
            ("{\"cluster\": ", ["TF_CONFIG", "line 1"]),
            (changed(index=-1), ["-1"]),
            (changed(index=1.5), ["1.5"]),
            (changed(index=1), ["index"]),
            (changed(type="wroker"), ["wroker"]),
            (json.dumps({"cluster": worker["cluster"]}), ["task"]),
            (json.dumps({**worker, "cluster": {"chief": ["a:1"], "worker": ["b:99999"]}}), ["99999"]),
        ]:
            with self.subTest(text=text):
                self.refused(self.with_tf_config(text), CONFIGURATION, *words)

    def test_the_wrong_binary_names_the_right_one(self):
        cluster = {"chief": ["127.0.0.1:2222"], "worker": ["127.0.0.1:2223"]}
        text = json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})
        self.refused(self.with_tf_config(text), CONFIGURATION, "muster-chief")

    # ---- Job file

    def test_job_file(self):
        bad = self.dir / "bad.json"
        bad.write_text("{\n  \"program\": \"linear\",\n  \"epochs\" 3\n}")
        self.refused(self.alone(bad), CONFIGURATION, "bad.json", "line 3")
        self.refused(self.alone(self.dir / "missing.json"), CONFIGURATION, "missing.json")
        for keys, words in [
            ({"epocs": 3}, ["epocs", "epochs"]),
            ({"global_batch_size": 0}, ["global_batch_size"]),
            ({"program": "lineer"}, ["lineer", "linear"]),
            ({"devices": "cpu:0"}, ["cpu:0"]),
            ({"optimizer": {"name": "sdg"}}, ["sdg", "sgd"]),
            ({"learning_rate": {"name": "cosin"}}, ["cosin", "cosine"]),
            ({"program_args": {"kernel_int": 1}}, ["kernel_int", "kernel_init"]),
            ({"strategy": "parameter_server"}, ["parameter_server"]),
            ({"loss_reduction": "mean"}, ["loss_reduction"]),
        ]:
            with self.subTest(keys=keys):
                self.refused(self.alone(self.job(**keys)), CONFIGURATION, *words)

    def test_jobs_that_differ_between_tasks_name_the_key(self):
        cluster = self.cluster(1)
        chief = self.start(cluster, "chief:0", self.job(seed=1))
        worker = self.start(cluster, "worker:0", self.job(seed=2))
        self.refused(worker, CONFIGURATION, "seed")
        self.finish([chief], code=CONFIGURATION)
        self.assertIn("ROOT CAUSE: worker 0", chief.output())

    def test_more_members_demanded_than_there_are(self):
        cluster = self.cluster(1)
        job = self.job(elastic={"min_workers": 3})
        sentence = "elastic.min_workers is 3, but the cluster has 2 members (chief and workers)"
        for task in "chief:0", "worker:0":
            self.refused(self.start(cluster, task, job), CONFIGURATION, sentence)
        self.refused(self.start_launch("--workers", 1, "--job", job), CONFIGURATION, sentence)
        self.finish(self.start_all(cluster, self.job(elastic={"min_workers": 2})))

    def test_a_limit_on_open_files_that_nothing_can_begin_with(self):
        job = self.job()
        for limit in 11, 14, 31:
            process = self.start_process(f"limit-{limit}", ["prlimit", f"--nofile={limit}:{limit}", BIN / "muster-worker", "--job", job])
            self.refused(process, CONFIGURATION, f"may open {limit} files")

    def test_clusters_that_differ_between_tasks_name_the_field(self):
        cluster = self.cluster(2)
        other = {**cluster, "worker": [cluster["worker"][0], "127.0.0.1:9"]}
        job = self.job(timeouts={"join": 20})
        chief = self.start(cluster, "chief:0", job)
        worker = self.start(other, "worker:0", job)
        self.refused(worker, CONFIGURATION, "worker", "127.0.0.1:9")
        chief.popen.kill()

    # ---- Data

    def idx_dir(self):
        folder = self.dir / "data"
        folder.mkdir(exist_ok=True)
        for file in FASHION.iterdir():
            if file.name.endswith(".gz"):
                (folder / file.name).write_bytes(file.read_bytes())
        return folder

    def fashion(self, folder):
        return self.alone(self.job(program="fashion_mnist", program_args={"data_dir": str(folder)}))

    def test_missing_truncated_and_damaged_idx_files(self):
        folder = self.idx_dir()
        images = folder / "train-images-idx3-ubyte.gz"
        whole = images.read_bytes()
        images.unlink()
        self.refused(self.fashion(folder), DAMAGED, "train-images")
        images.write_bytes(whole[:len(whole) // 2])
        self.refused(self.fashion(folder), DAMAGED, "train-images")
        images.write_bytes(whole[:1000] + bytes([whole[1000] ^ 0xFF]) + whole[1001:])
        self.refused(self.fashion(folder), DAMAGED, "train-images")
        images.write_bytes(gzip.compress(struct.pack(">IIII", 0x803, 0xFFFFFFFF, 28, 28)))
        self.refused(self.fashion(folder), DAMAGED, "train-images")

    def test_files_that_the_job_names(self):
        folder = self.dir / "files"
        (folder / "photos" / "cats").mkdir(parents=True)
        (folder / "photos" / "empty").mkdir()
        (folder / "texts" / "cats").mkdir(parents=True)
        (folder / "texts" / "cats" / "1.jpg").write_text("This is no picture.")
        (folder / "cut.tfrecord").write_bytes(struct.pack("<Q", 100) + b"1234")
        (folder / "tokens.bin").write_bytes(b"odd")
        (folder / "table.csv").write_text("a,b\n1,one\n")
        for split, words in [
            ({"format": "image_folder", "path": "photos"}, ["data.train.path", "class folder", "photos/cats"]),
            ({"format": "image_folder", "path": "texts"}, ["data.train.path", "texts/cats/1.jpg' is no JPEG and no PNG file"]),
            ({"format": "image_folder", "path": "nowhere"}, ["data.train.path", "nowhere", "No such file or directory"]),
            ({"format": "tfrecord", "path": "cut.tfrecord", "x": "x"}, ["data.train.path", "cut.tfrecord' is"]),
            ({"format": "tokens", "path": "tokens.bin", "dtype": "uint16", "length": 1}, ["data.train.path", "tokens.bin' has 3 bytes"]),
            ({"format": "csv", "path": "table.csv"}, ["data.train.path", "table.csv', line 2, column 2 (b): is 'one'"]),
            ({"format": "tar", "path": "cut.tfrecord"}, ["data.train.path", "cut.tfrecord' is truncated"]),
        ]:
            with self.subTest(split=split):
                self.refused(self.alone(self.job(data={"train": split}, folder=str(folder), model_dir=str(self.dir / "model"))), DAMAGED, *words)
                self.assertEqual(list(self.dir.glob("model/checkpoints/step-*")), [])

    def test_missing_and_damaged_npy_files(self):
        x, y = self.dir / "x.npy", self.dir / "y.npy"
        numpy.save(y, numpy.ones(4, numpy.float32))

        def run():
            return self.alone(self.job(program_args={"x": str(x), "y": str(y)}))
        self.refused(run(), DAMAGED, "x.npy")
        numpy.save(x, numpy.ones(4, numpy.float32))
        whole = x.read_bytes()
        x.write_bytes(whole[:-3])
        self.refused(run(), DAMAGED, "x.npy")
        x.write_bytes(b"\x93NUMPZ" + whole[6:])
        self.refused(run(), DAMAGED, "x.npy")
        numpy.save(x, numpy.array([{}], dtype=object), allow_pickle=True)
        self.refused(run(), DAMAGED, "x.npy")
        numpy.save(x, numpy.ones(5, numpy.float32))  # 5 against 4
        self.finish([run()], code=DAMAGED)

    # ---- Places

    def test_a_port_in_use_is_tried_again_and_then_named(self):
        cluster = self.cluster(1)
        with take_port(cluster["chief"][0]):
            start = time.monotonic()
            self.refused(self.start(cluster, "chief:0", self.job(timeouts={"bind": 2})), CONFIGURATION, cluster["chief"][0])
            self.assertGreater(time.monotonic() - start, 2)

    def test_a_port_that_becomes_free_is_taken(self):
        cluster = self.cluster(1)
        job = self.job()
        with take_port(cluster["chief"][0]):
            processes = self.start_all(cluster, job)
            time.sleep(1)
        self.finish(processes)

    def test_a_model_dir_that_cannot_be_written(self):
        (self.dir / "file").write_text("")
        self.refused(self.alone(self.job(model_dir=str(self.dir / "file" / "model"))), CONFIGURATION, "model_dir", "file/model")

    def test_two_clusters_on_one_model_dir(self):
        model_dir = self.dir / "shared"
        job = self.job(model_dir=str(model_dir), max_steps=10_000_000, epochs=1_000_000)
        first = self.start(self.cluster(1), "chief:0", job)
        first.wait_for("joined")
        other = self.job(model_dir=str(model_dir), program="matrix_factorization")
        self.refused(self.start(self.cluster(1), "chief:0", other), CONFIGURATION, str(model_dir), "belongs to a running job")
        # The same job may have come back under other addresses: the process before it may be about to leave.
        again = self.job(model_dir=str(model_dir), timeouts={"join": 2})
        self.refused(self.start(self.cluster(1), "chief:0", again), RETRYABLE, "if that one is another job, give this one a model_dir")
        self.assertIsNone(first.popen.poll(), "the first one continues")
        first.popen.kill()
        first.popen.wait()
        third = self.start(self.cluster(1), "chief:0", job)
        third.wait_for("joined")  # the dead owner's place is free


if __name__ == "__main__":
    unittest.main(verbosity=2)
