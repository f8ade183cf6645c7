"""Parameter groups, schedules, unused parameters and buffers: every strategy makes the run that one process makes.

Real processes of grouped_role, a small network.
"""
import json
import os
import struct
import unittest

import numpy

from harness import BIN, CONFIGURATION, ClusterTest

GROUPS = [{"parameters": "*.bias", "weight_decay": 0}, {"parameters": ["base.*", "network.rare"], "learning_rate_scale": 0.1}]
ADAMW = {"name": "adamw", "weight_decay": 0.5, "groups": GROUPS}
WARM_UP = {"name": "cosine", "initial": 0.05, "warmup_steps": 6, "decay_steps": 18}
TYPES = {"F32": numpy.float32, "I64": numpy.int64}


def tensors(model_dir, step):
    """{name: values} of all tensors of a checkpoint."""
    found = {}
    for file in "model.safetensors", "optimizer.safetensors":
        data = (model_dir / "checkpoints" / f"step-{step:08}" / file).read_bytes()
        (length,) = struct.unpack_from("<Q", data)
        for name, t in json.loads(data[8:8 + length]).items():
            if name != "__metadata__":
                begin, end = (8 + length + at for at in t["data_offsets"])
                found[name] = numpy.frombuffer(data[begin:end], TYPES[t["dtype"]])
    return found


class GroupsTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.bin_dir = self.dir / "bin"
        self.bin_dir.mkdir()
        for name in "muster-chief", "muster-worker":
            os.symlink((BIN / "../tests/grouped_role").resolve(), self.bin_dir / name)
        os.symlink((BIN / "muster-ps").resolve(), self.bin_dir / "muster-ps")

    def run_job(self, model_dir, options, **keys):
        """`options` of muster launch; none: one process alone."""
        job = self.job(**{"program": "grouped", "global_batch_size": 8, "epochs": 3, "max_steps": None, "optimizer": ADAMW,
                          "learning_rate": WARM_UP, "model_dir": str(model_dir), **keys})
        if options:
            return self.run_launch(*options, "--bin-dir", self.bin_dir, "--job", job)
        process = self.start(None, None, job, binary=self.bin_dir / "muster-worker")
        self.finish([process])
        return process.output()

    def check_same(self, got, want, tolerance=2e-5):
        self.assertEqual(sorted(got), sorted(want))
        for name, values in want.items():
            numpy.testing.assert_allclose(got[name], values, rtol=1e-4, atol=tolerance, err_msg=name)

    # How muster launch starts it, and the job's keys.
    STRATEGIES = {
        "multi_worker_mirrored": (["--workers", "2", "--no-chief"], {}),
        "central_storage": ([], {"strategy": "central_storage", "devices": "cpu:2"}),
        "parameter_server": (["--workers", "1", "--ps", "2"], {}),
        "parameter_server in small chunks": (["--workers", "1", "--ps", "2"], {"parameter_server": {"chunk_bytes": 64}}),
    }

    def test_every_strategy_makes_the_run_of_one_process(self):
        log = self.run_job(self.dir / "alone", [])
        self.assertIn('optimizer "optimizer", group 1 (*.bias: weight_decay=0): 2 parameters, 9 numbers', log)
        self.assertIn('optimizer "optimizer", group 2 (base.*, network.rare: learning_rate_scale=0.1): 2 parameters, 54 numbers', log)
        self.assertIn('optimizer "optimizer", in no group: 1 parameter, 8 numbers', log)
        want = tensors(self.dir / "alone", 24)
        self.assertEqual(want["optimizer.rare.step"], 8)
        self.run_job(self.dir / "plain", [], optimizer={"name": "adamw", "weight_decay": 0.5})
        self.assertGreater(abs(tensors(self.dir / "plain", 24)["base.weight"] - want["base.weight"]).max(), 1e-2)
        for name, (options, keys) in self.STRATEGIES.items():
            with self.subTest(strategy=name):
                model_dir = self.dir / name.replace(" ", "-")
                log = self.run_job(model_dir, options, **keys)
                self.assertIn("group 1 (*.bias: weight_decay=0)", log)
                self.check_same(tensors(model_dir, 24), want)
                self.assertEqual(json.loads((model_dir / "job.json").read_text())["optimizer"], ADAMW)

    def test_one_worker_of_servers_is_one_process_with_statistics_and_counters_also_after_a_stop(self):
        # A bias in front of batch normalisation has a gradient of rounding errors alone, which Adam would make steps of.
        still = {"parameters": "base.bias", "learning_rate_scale": 0, "weight_decay": 0}
        for optimizer in {**ADAMW, "groups": [still, *ADAMW["groups"]]}, {"name": "ftrl", "l1": 1e-3}:
            with self.subTest(optimizer=optimizer["name"]):
                keys = {"program_args": {"norm": True}, "optimizer": optimizer}
                alone, served = self.dir / f"alone-{optimizer['name']}", self.dir / f"served-{optimizer['name']}"
                self.run_job(alone, [], **keys)
                want = tensors(alone, 24)
                self.assertEqual(want["norm.num_batches_tracked"], 24)
                self.assertTrue(all(numpy.isfinite(values).all() for values in want.values()))
                options = ["--workers", "1", "--ps", "2"]
                self.run_job(served, options, **keys, max_steps=10)
                self.assertEqual(tensors(served, 10)["norm.num_batches_tracked"], 10)
                # The rate's decay is over the whole run.
                self.run_job(served, options, **keys)
                self.check_same(tensors(served, 24), want)

    def test_tied_weights_go_from_servers_to_one_process_and_back(self):
        keys = {"program_args": {"tied": True}}
        self.run_job(self.dir / "alone", [], **keys)
        want = tensors(self.dir / "alone", 24)
        slots = sorted(name for name in want if name.startswith("optimizer.") and name.endswith(".exp_avg"))
        tied = [name for name in slots if "head.weight" in name or "tied_gate" in name]
        self.assertEqual(len(tied), 1, f"one set of slots for both names, of {slots}")
        numpy.testing.assert_array_equal(want["tied_gate"], want["head.weight"])
        servers = ["--workers", "1", "--ps", "2"]
        for name, first, second in ("to-one", servers, []), ("to-servers", [], servers):
            with self.subTest(name):
                self.run_job(self.dir / name, first, **keys, max_steps=10)
                log = self.run_job(self.dir / name, second, **keys)
                self.assertIn("going on after step 10", log)
                self.check_same(tensors(self.dir / name, 24), want)

    def test_a_group_that_matches_nothing_is_refused(self):
        job = self.job(program="grouped", optimizer={"name": "sgd", "groups": [{"parameters": "base.wieght", "weight_decay": 0}]})
        process = self.start(None, None, job, binary=self.bin_dir / "muster-worker")
        self.finish([process], code=CONFIGURATION)
        self.assertIn('optimizer.groups[0].parameters ["base.wieght"] matches no parameter of optimizer "optimizer": the nearest names are base.weight',
                      process.output())


if __name__ == "__main__":
    unittest.main(verbosity=2)
