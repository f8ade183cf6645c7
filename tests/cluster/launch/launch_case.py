"""A job that `muster launch` trains on this host. Tests compare other ways of starting it with this one."""
from harness import ClusterTest, losses

STEPS, FAULT = 60, 20  # of 40 steps an epoch: the fault comes in the middle of the first one, the end in that of the second one
reference = {}  # the losses of `muster launch`


class LaunchTest(ClusterTest):
    def short_job(self, **keys):
        return self.job(max_steps=STEPS, global_batch_size=25, **keys)

    def long_job(self, **keys):
        """Saves every 200 steps, and does not end by itself."""
        return self.job(max_steps=10**7, epochs=10**6, summary={"every_steps": 1000}, **keys)

    def launched(self):
        """The losses of `muster launch` with a chief and two workers, and short_job. Run once for all tests of a process."""
        if not reference:
            model_dir = self.dir / "launched"
            self.run_launch("--workers", 2, "--job", self.short_job(), "--set", f"model_dir={model_dir}")
            reference.update(losses(model_dir))
            self.assertEqual(sorted(reference), list(range(1, STEPS + 1)))
        return reference
