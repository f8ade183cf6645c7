"""Embedding tables with real processes: two equal one, a killed run goes on where it was saved, and Python reads what is saved."""
import signal
import unittest

import numpy

from safetensors.numpy import load_file

from harness import ClusterTest, checkpoints, curve, result

ARGS = {"users": 400, "items": 100, "rank": 2, "examples": 12800, "validation": 2000, "width": 4}
STEPS = 50  # of an epoch of batches of 256


def tensors(model_dir, step, file="model.safetensors"):
    return load_file(model_dir / "checkpoints" / f"step-{step:08}" / file)


class MatrixFactorization(ClusterTest):
    def ratings(self, name, **keys):
        self.model_dir = self.dir / name
        return self.job(**{"program": "matrix_factorization", "global_batch_size": 256, "epochs": 6, "max_steps": None, "program_args": ARGS,
                           "model_dir": str(self.model_dir), "summary": {"every_steps": 1}, **keys})

    def run_to_end(self, members, job, sets=()):
        cluster = self.cluster(members, chief=False)
        self.finish(self.start_all(cluster, job, sets))

    def check_tables(self, got_dir, want_dir, step, tolerance):
        for file in "model.safetensors", "optimizer.safetensors":
            got, want = tensors(got_dir, step, file), tensors(want_dir, step, file)
            self.assertEqual(sorted(got), sorted(want))
            for name in want:
                if tolerance == 0 or want[name].dtype != numpy.float32:
                    self.assertEqual(got[name].tobytes(), want[name].tobytes(), f"{file}: {name}")
                else:
                    numpy.testing.assert_allclose(got[name], want[name], rtol=0, atol=tolerance, err_msg=f"{file}: {name}")

    def test_comes_near_the_noise_and_two_processes_equal_one(self):
        self.run_to_end(1, self.ratings("one"))
        one = self.model_dir
        rmse = curve(one, "validation", "epoch_rmse")
        self.assertLess(rmse[max(rmse)], 0.32)  # noise 0.25, and 32 ratings of a user for 3 numbers
        self.assertGreater(rmse[min(rmse)], 1.2 * rmse[max(rmse)])
        saved = tensors(one, 6 * STEPS)
        self.assertEqual(saved["users.keys"].tolist(), list(range(400)))
        self.assertEqual(saved["users.rows"].shape, (400, 4))
        self.assertEqual(saved["items.keys"].dtype, numpy.int64)
        slots = tensors(one, 6 * STEPS, "optimizer.safetensors")
        self.assertEqual(slots["users.sum"].shape, (400, 4))
        self.assertEqual(int(slots["users.step"]), 6 * STEPS)

        self.run_to_end(2, self.ratings("two"))
        self.check_tables(self.model_dir, one, 6 * STEPS, 2e-3)
        rmse_of_two = curve(self.model_dir, "validation", "epoch_rmse")
        for step, value in rmse.items():
            self.assertAlmostEqual(rmse_of_two[step], value, delta=1e-3)

    def test_parameter_servers_hold_tables(self):
        self.run_to_end(1, self.ratings("one"))
        one = self.model_dir
        for workers in 2, 1:
            job = self.ratings(f"served-{workers}", strategy="parameter_server")
            self.finish(self.start_all(self.cluster(workers, chief=False, ps=2), job))
            rmse = curve(self.model_dir, "validation", "epoch_rmse")
            self.assertLess(rmse[max(rmse)], 0.32)
        self.check_tables(self.model_dir, one, 6 * STEPS, 2e-3)  # of the one worker

    def test_a_capped_table_stays_below_its_cap(self):
        """Under either strategy; `result.json` and TensorBoard say what went."""
        limits = {"users": {"max_rows": 160, "eviction": "least_frequent", "dtype": "bfloat16"}, "*": {"admit_after": 2}}
        keys = {"epochs": 2, "embeddings": limits, "optimizer": {"users": "rowwise_adagrad", "items": {"name": "adagrad", "clipnorm": 1.0}}}
        for name, ps in ("synchronous", 0), ("served", 2):
            with self.subTest(name):
                job = self.ratings(name, **keys, **({"strategy": "parameter_server", "parameter_server": {"replicas": 2}} if ps else {}))
                self.finish(self.start_all(self.cluster(2, chief=False, ps=ps), job))
                tables = result(self.model_dir)["embeddings"]
                self.assertEqual(sorted(tables), ["items", "users"])
                users = tables["users"]
                steps = result(self.model_dir)["steps"]
                saved = tensors(self.model_dir, steps)
                self.assertEqual(users["rows"], len(saved["users.keys"]))
                self.assertLessEqual(users["rows"], 160)
                self.assertGreater(users["rows"], 80)
                self.assertEqual(saved["users.rows"].dtype, numpy.float32)
                self.assertEqual(users["bytes"], users["rows"] * (4 * 2 + 4 + 16))
                for count in "evictions", "refused", "hits":
                    self.assertGreater(users[count], 0, count)
                self.assertGreater(users["lookups"], users["hits"])
                self.assertEqual((tables["items"]["rows"], tables["items"]["evictions"]), (100, 0))
                slots = tensors(self.model_dir, steps, "optimizer.safetensors")
                self.assertEqual(slots["users.sum"].shape, (users["rows"], 1))
                for column in "updated_at", "update_count":
                    self.assertEqual((slots[f"users.{column}"].dtype, slots[f"users.{column}"].shape), (numpy.int64, (users["rows"],)))
                self.assertGreater(slots["users.update_count"].min(), 0)
                rows = curve(self.model_dir, "train", "embeddings/users/rows")
                self.assertLessEqual(max(rows.values()), 160)
                self.assertEqual(max(rows), steps)

    def test_a_killed_run_goes_on_as_if_nothing_had_happened(self):
        self.run_to_end(1, self.ratings("whole", epochs=4))
        whole = self.model_dir
        job = self.ratings("killed", epochs=4, checkpoint={"every_steps": 30})
        cluster = self.cluster(1, chief=False)
        process = self.start_all(cluster, job)[0]
        process.wait_for("epoch 2/4", 60)
        process.wait_for("saved step", 60)
        process.signal(signal.SIGKILL)
        process.wait(10)
        self.assertTrue(checkpoints(self.model_dir))
        self.finish(self.start_all(cluster, job))
        self.assertEqual(result(self.model_dir)["steps"], 4 * STEPS)
        self.check_tables(self.model_dir, whole, 4 * STEPS, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
