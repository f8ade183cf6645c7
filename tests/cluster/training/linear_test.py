"""`linear` follows its recurrence (recurrence.py), for any number of members and replicas."""
import math
import unittest

import numpy

from harness import ClusterTest, tensors
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

    def initial_kernel(self, features, seed, members=1):
        """Returns the kernel after one step with a learning rate of 0."""
        numpy.save(self.dir / "x.npy", numpy.ones((5, features), numpy.float32))
        numpy.save(self.dir / "y.npy", numpy.ones(5, numpy.float32))
        job = self.job(max_steps=1, learning_rate=0, seed=seed, program_args={"x": str(self.dir / "x.npy"), "y": str(self.dir / "y.npy")})
        model_dir = self.dir / f"model-{len(self.processes)}"
        self.train(members, job)
        return tensors(model_dir, 1)["weight"]

    def test_default_initialisation_is_glorot_uniform_and_equal_everywhere(self):
        kernels = {}
        for features, seed in (1000, 1), (1000, 2), (250, 1):
            with self.subTest(features=features, seed=seed):
                kernel = kernels[features, seed] = self.initial_kernel(features, seed)
                self.assertEqual(kernel.shape, (features,))
                limit = math.sqrt(6 / (features + 1))
                self.assertLessEqual(numpy.abs(kernel).max(), limit * (1 + 1e-6))
                # The values reach both ends, and their spread and shape are those of the distribution. The limits are for less than one
                # seed of 100, 10,000 and 2,000; the last one is the Kolmogorov-Smirnov test.
                self.assertGreater(min(kernel.max(), -kernel.min()), limit * (1 - 12 / features))
                self.assertAlmostEqual(kernel.std() * math.sqrt(3) / limit, 1, delta=2 / math.sqrt(features))
                expected = (numpy.sort(kernel) + limit) / (2 * limit)
                below = numpy.arange(features) / features
                distance = max((expected - below).max(), (below + 1 / features - expected).max())
                self.assertLess(distance, 2.03 / math.sqrt(features))
        self.assertNotEqual(kernels[1000, 1].tobytes(), kernels[1000, 2].tobytes())
        self.assertEqual(self.initial_kernel(1000, 1, members=3).tobytes(), kernels[1000, 1].tobytes())
        job = self.job(max_steps=3)
        alone, three = self.train(1, job), self.train(3, job)
        for step, loss in alone.items():
            self.assertAlmostEqual(loss, three[step], delta=1e-6)
        # One feature, one unit: within sqrt(6 / 2), so the first loss is within that of log(1 + exp(-w)).
        limit = math.sqrt(3)
        self.assertLess(alone[1], math.log1p(math.exp(limit)) + L2 * 3 + 1e-6)


if __name__ == "__main__":
    unittest.main(verbosity=2)
