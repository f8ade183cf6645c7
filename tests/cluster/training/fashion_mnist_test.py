"""`fashion_mnist` computes the same on 1, 2 and 3 members and on 2 x cpu:2, short and tiny last batches included."""
import unittest

from harness import ClusterTest, result

# Batches of 32; the last one of each epoch has 2 examples, fewer than the replicas.
JOB = {"program": "fashion_mnist", "global_batch_size": 32, "epochs": 4, "max_steps": 50, "seed": 7, "learning_rate": 1e-3,
       "program_args": {"train_examples": 17 * 32 + 2, "validation": 100}}


class FashionMnist(ClusterTest):
    def test_same_losses_on_any_number_of_replicas(self):
        job = self.job(**JOB)
        want = self.train(1, job, ["devices=cpu"])
        self.assertEqual(sorted(want), list(range(1, 51)))
        self.assertLess(min(want[s] for s in range(45, 51)), 0.8 * want[1], "it learns")
        for members, devices in (2, "cpu"), (3, "cpu"), (2, "cpu:2"):
            with self.subTest(members=members, devices=devices):
                got = self.train(members, job, [f"devices={devices}"], timeout=120)
                worst = max(abs(got[s] - want[s]) / abs(want[s]) for s in want)
                self.assertEqual(sorted(got), sorted(want))
                self.assertLessEqual(worst, 1e-5)

    def test_result_names_what_was_measured(self):
        self.train(2, self.job(**JOB))
        model_dir = next(self.dir.glob("model-*"))
        got = result(model_dir)
        self.assertEqual((got["status"], got["steps"], got["world_size"], got["num_replicas"]), ("completed", 50, 2, 2))
        self.assertGreater(got["examples_per_second"], 0)
        for split in "train", "validation", "test":
            self.assertIn("accuracy", got["metrics"][split])
            self.assertIn("loss", got["metrics"][split])


if __name__ == "__main__":
    unittest.main(verbosity=2)
