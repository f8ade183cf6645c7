"""Parameter servers beside synchronous training, with real processes: every step of one worker, and the statistics of sixteen."""
import unittest

import numpy

from harness import ClusterTest, checkpoints, result, tensors

WORKER = "../tests/convnet_worker"
EXAMPLES = 96


class Convnet(ClusterTest):
    def run_job(self, name, workers=1, ps=0, **keys):
        """Trains on so many processes; they write their states to a folder of their own."""
        self.model_dir = self.dir / name
        used = self.dir / f"{name}-states"
        used.mkdir()
        job = self.job(**{"program": "convnet", "program_args": {"examples": EXAMPLES}, "global_batch_size": 16, "max_steps": None, "epochs": 5,
                          "seed": 5, "model_dir": str(self.model_dir), "summary": {"every_steps": 1000}, **keys})
        environment = {"MUSTER_TEST_DIR": str(used), "OMP_NUM_THREADS": "1"}
        if ps == 0:
            processes = [self.start(None, None, job, (), environment, WORKER)]
        else:
            cluster = self.cluster(workers, chief=False, ps=ps)
            processes = [self.start(cluster, f"worker:{i}", job, (), environment, WORKER) for i in range(workers)]
            processes += [self.start(cluster, f"ps:{i}", job) for i in range(ps)]
        self.finish(processes, 90)
        return used

    def states(self, folder):
        """{step: all elements as it began}, of one process."""
        (file,) = folder.glob("states-*")
        records = numpy.frombuffer(file.read_bytes()).reshape(-1, 1 + self.elements())
        found = {int(record[0]): record[1:] for record in records}
        self.assertEqual(len(found), len(records), "no step is made twice")
        return found

    def elements(self):
        return sum(values.size for values in tensors(self.model_dir, max(checkpoints(self.model_dir))).values())

    def test_every_step_of_one_worker_is_the_synchronous_one(self):
        """Adam under a schedule with a warm-up, dropout, and parameters that are frozen or that only some steps use."""
        rate = {"name": "cosine", "initial": 0.02, "warmup_steps": 6}
        want = self.states(self.run_job("alone", learning_rate=rate))
        self.assertEqual(sorted(want), list(range(1, 31)))
        self.assertGreater(numpy.abs(want[30] - want[1]).max(), 0.05)
        for ps, chunk_bytes in (1, 262144), (1, 64), (3, 100), (4, 4096):
            with self.subTest(ps=ps, chunk_bytes=chunk_bytes):
                got = self.states(self.run_job(f"served-{ps}-{chunk_bytes}", ps=ps, learning_rate=rate, strategy="parameter_server",
                                               parameter_server={"chunk_bytes": chunk_bytes}))
                self.assertEqual(sorted(got), sorted(want))
                for step in sorted(want):
                    apart = numpy.abs(got[step] - want[step]) - 1e-6 * numpy.abs(want[step])
                    self.assertLessEqual(apart.max(), 1e-6, f"before step {step}")

    def test_statistics_of_sixteen_workers_are_the_synchronous_ones(self):
        """At a rate of 0, for all delays: with whole differences of each worker they diverge."""
        keys = {"learning_rate": 0.0, "program_args": {"examples": 1024}, "global_batch_size": 64, "epochs": 4}
        self.run_job("alone", **keys)
        want = tensors(self.model_dir, result(self.model_dir)["steps"])
        self.assertEqual(result(self.model_dir)["steps"], 64)
        self.run_job("sixteen", workers=16, ps=4, strategy="parameter_server", **keys)
        ended = result(self.model_dir)
        self.assertEqual(ended["steps"], 16 * 64)
        self.assertGreater(ended["parameter_server"]["staleness"]["mean"], 1, "workers were at it at the same time")
        got = tensors(self.model_dir, 16 * 64)
        for name in "running_mean", "running_var":
            self.assertGreater(numpy.abs(want[name] - (name == "running_var")).min(), 0.01, "steps have moved it")
            numpy.testing.assert_allclose(got[name], want[name], rtol=0.05, err_msg=name)
        for name in set(want) - {"running_mean", "running_var"}:
            self.assertEqual(got[name].tobytes(), want[name].tobytes(), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
