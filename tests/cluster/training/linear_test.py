"""`linear` follows its recurrence (recurrence.py), whatever the number of members and replicas."""
import math
import unittest

import numpy

from harness import ClusterTest
from recurrence import L2, recurrence

STEPS = 210


class Linear(ClusterTest):
    def check(self, got, want, what):
        self.assertEqual(sorted(got), list(range(1, len(want) + 1)), what)
        worst = max(abs(got[i + 1] - w) for i, w in enumerate(want))
        self.assertLessEqual(worst, 1e-6, what)

    # (members, devices of each): 5 divides by neither 2 nor 3.
    SHAPES = [(1, "cpu"), (2, "cpu"), (3, "cpu"), (1, "cpu:2"), (1, "cpu:3"), (2, "cpu:2")]

    def test_equals_the_recurrence_on_any_number_of_replicas(self):
        job = self.job(max_steps=STEPS, epochs=2, program_args={"kernel_init": 0.7, "bias_init": -0.2})
        ones = numpy.ones(1000)
        want = recurrence(0.7, -0.2, ones, ones, STEPS)
        for members, devices in self.SHAPES:
            with self.subTest(members=members, devices=devices):
                self.check(self.train(members, job, [f"devices={devices}"]), want, f"{members} x {devices}")

    def test_distinct_samples_and_short_batches_for_each_loss_reduction(self):
        generator = numpy.random.default_rng(3)
        x, y = generator.normal(size=13), generator.integers(0, 2, 13).astype(float)  # batches of 5, 5, 3
        numpy.save(self.dir / "x.npy", x.astype(numpy.float32))
        numpy.save(self.dir / "y.npy", y.astype(numpy.float32))
        x = x.astype(numpy.float32).astype(float)
        for reduction in "global", "nominal", "local_mean":
            job = self.job(max_steps=STEPS, epochs=100, loss_reduction=reduction, program_args={
                "x": str(self.dir / "x.npy"), "y": str(self.dir / "y.npy"), "kernel_init": 0.5, "bias_init": 0.1})
            for members, devices in (1, "cpu"), (2, "cpu"), (3, "cpu"), (1, "cpu:2"), (1, "cpu:3"):
                replicas = members * int(devices[4:] or 1)
                with self.subTest(reduction=reduction, members=members, devices=devices):
                    want = recurrence(0.5, 0.1, x, y, STEPS, reduction=reduction, replicas=replicas)
                    self.check(self.train(members, job, [f"devices={devices}"]), want, f"{reduction} {members} x {devices}")

    def test_default_initialisation_is_glorot_uniform_and_equal_everywhere(self):
        job = self.job(max_steps=3)
        alone, three = self.train(1, job), self.train(3, job)
        for step, loss in alone.items():
            self.assertAlmostEqual(loss, three[step], delta=1e-6)
        # One feature, one unit: within sqrt(6 / 2), so the first loss is within that of log(1 + exp(-w)).
        limit = math.sqrt(3)
        self.assertLess(alone[1], math.log1p(math.exp(limit)) + L2 * 3 + 1e-6)


if __name__ == "__main__":
    unittest.main(verbosity=2)
