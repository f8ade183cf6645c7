"""Runs in float16: the reports of the loss scale and of skipped steps, both of which continue after a loss, and the end of a broken run.

Also the treatment of gradients that are not finite by parameter servers, in any precision."""
import unittest

import numpy

import counting
from harness import PROGRAM, curve, result

BATCH, EXAMPLES = 5, 40
STEPS_PER_EPOCH = EXAMPLES // BATCH
# `linear` computes in float32 even so, but its gradients are multiplied by the scale: that many times LARGE is not finite with the first
# scales, INFINITE with all of them.
LARGE, INFINITE = 3e35, float("inf")
CAUSE = "steps in a row, up to step {}, were not finite, and the loss scale is 1, its least"


class Float16(counting.ParameterServerTest):
    def float16_job(self, scale, epochs=4, **keys):
        """`scale` of the only feature: gradients are as large, and change nothing."""
        numpy.save(self.dir / "x.npy", numpy.full((EXAMPLES, 1), scale, numpy.float32))
        numpy.save(self.dir / "y.npy", (numpy.arange(EXAMPLES) % 2).astype(numpy.float32))
        return self.job(**{"precision": "float16", "global_batch_size": BATCH, "max_steps": None, "epochs": epochs, "learning_rate": 0,
                           "program_args": {"x": str(self.dir / "x.npy"), "y": str(self.dir / "y.npy"), "kernel_init": 0.0},
                           "model_dir": str(self.model_dir), **keys})

    def loss_scales(self):
        """(loss scale, skipped steps) after each step, as TensorBoard has them."""
        scales, skipped = (curve(self.model_dir, tag=tag) for tag in ("loss_scale", "skipped_steps"))
        self.assertEqual(sorted(scales), sorted(skipped))
        return {step: (scales[step], skipped[step]) for step in scales}

    def run_alone(self, job, code=0):
        process = self.start(None, None, job, [f"model_dir={self.model_dir}"])
        self.finish([process], code=code)
        return process.output()

    def test_skipped_steps_and_the_scale_are_reported(self):
        log = self.run_alone(self.float16_job(LARGE))
        by_step = self.loss_scales()
        self.assertEqual(sorted(by_step), list(range(1, 4 * STEPS_PER_EPOCH + 1)))
        # Each of the first steps is skipped and halves the scale, until it fits.
        skipped = int(by_step[max(by_step)][1])
        self.assertGreater(skipped, 1)
        self.assertLess(skipped, STEPS_PER_EPOCH)
        self.assertEqual(by_step, {step: (65536 / 2**min(step, skipped), min(step, skipped)) for step in by_step})
        self.assertEqual(result(self.model_dir)["float16"], {"loss_scale": 65536 / 2**skipped, "skipped_steps": skipped})
        self.assertEqual(log.count(" is skipped"), 1, log)
        self.assertIn("step 1 is skipped: its float16 gradients are not finite", log)
        self.assertIn(f"epoch 1: {skipped} of {STEPS_PER_EPOCH} steps were skipped (float16); the loss scale is {65536 // 2**skipped}", log)
        self.assertEqual(log.count("steps were skipped"), 1, log)

    def launch_three(self, job, fault=None, code=0):
        """How many steps overflow depends on how a batch is divided: all of these are of three members."""
        self.model_dir = self.dir / f"model-{len(self.processes)}"
        launch = self.launch(job, 2, 0, options=["--set", f"model_dir={self.model_dir}", *(["--fault", fault] if fault else [])])
        self.finish([launch], 120, code=code)
        if fault:
            self.assertIn("was killed by SIGKILL", launch.output())
        return launch.output()

    def test_a_run_that_loses_a_member_counts_on(self):
        job = self.float16_job(LARGE)
        self.launch_three(job)
        want, undisturbed = self.loss_scales(), result(self.model_dir)["float16"]
        self.assertGreater(undisturbed["skipped_steps"], 2)
        for fault in "kill@worker:1:step=3", "kill@chief:0:step=3", "kill@chief:0:step=12":
            with self.subTest(fault):
                self.launch_three(job, fault)
                self.assertEqual(self.loss_scales(), want)
                self.assertEqual(result(self.model_dir)["float16"], undisturbed)

    def test_a_broken_run_that_loses_a_member_ends_at_the_same_step(self):
        for fault in "kill@worker:1:step=9", "kill@chief:0:step=18":
            with self.subTest(fault):
                log = self.launch_three(self.float16_job(INFINITE), fault, code=1)
                self.assertEqual(self.check_broken(log)["float16"]["skipped_steps"], 20)

    def test_a_broken_run_ends(self):
        for members in 1, 2:
            with self.subTest(members=members):
                self.model_dir = self.dir / f"model-{members}"
                job, sets = self.float16_job(INFINITE), [f"model_dir={self.model_dir}"]
                processes = [self.start(None, None, job, sets)] if members == 1 else self.start_all(self.cluster(members - 1), job, sets)
                self.finish(processes, code=PROGRAM)
                self.check_broken(processes[0].output())

    def check_broken(self, log, step=20):
        outcome = result(self.model_dir)
        self.assertEqual(outcome["status"], "failed")
        self.assertIn("the float16 gradients of 20 " + CAUSE.format(step), outcome["cause"])
        self.assertIn('set "precision" to "bfloat16" or "float32"', outcome["cause"])
        self.assertIn(outcome["cause"], log)
        self.assertEqual(outcome["float16"]["loss_scale"], 1)
        self.assertIn("20 skipped steps in a row end the job", log)
        return outcome

    def test_each_worker_of_parameter_servers_has_its_own_scale(self):
        job = self.float16_job(LARGE, strategy="parameter_server")
        self.finish([self.launch(job, 2, 1)], 120)
        by_step = self.loss_scales()
        skipped = [by_step[step][1] for step in sorted(by_step)]
        self.assertEqual(skipped, sorted(skipped))
        self.assertEqual(result(self.model_dir)["float16"], {"loss_scale": by_step[max(by_step)][0], "skipped_steps": skipped[-1]})
        # The worker with the most steps has reduced its scale to one that fits.
        most = numpy.log2(65536 / min(scale for scale, _ in by_step.values()))
        self.assertGreater(most, 1)
        self.assertTrue(most <= skipped[-1] <= 2 * most, by_step)

    def test_a_broken_worker_of_parameter_servers_ends_the_job(self):
        for workers in 1, 2:
            with self.subTest(workers=workers):
                self.model_dir = self.dir / f"model-ps-{workers}"
                launch = self.launch(self.float16_job(INFINITE, epochs=40, strategy="parameter_server"), workers, 1)
                self.finish([launch], 120, code=PROGRAM)
                outcome = result(self.model_dir)
                self.assertIn("the float16 gradients of 20 steps in a row", outcome["cause"])
                # The worker may have ended before it reported the last ones, up to 16 of which are reported at a time.
                self.assertGreaterEqual(outcome["float16"]["skipped_steps"], 20 - 16)

    def test_servers_refuse_what_is_not_finite(self):
        """In any precision. One example has a NaN: its batches change nothing, and the others continue."""
        job = self.float16_job(1, precision="float32", strategy="parameter_server", learning_rate=0.1)
        x = numpy.load(self.dir / "x.npy")
        x[17] = numpy.nan
        numpy.save(self.dir / "x.npy", x)
        numpy.save(self.dir / "y.npy", numpy.ones(EXAMPLES, numpy.float32))  # so that the loss falls with each step
        launch = self.launch(job, 2, 2)
        self.finish([launch], 120)
        servers = result(self.model_dir)["parameter_server"]
        self.assertEqual(servers["refused_pushes"], 4, "one in each epoch")
        self.assertRegex(launch.output(), r"step \d+: worker [01] pushed numbers that are not finite for unit.bias, unit.weight: parameter servers have "
                                          r"refused them and left these variables as they were; look at the data")
        losses = curve(self.model_dir)
        self.assertEqual(sum(not numpy.isfinite(loss) for loss in losses.values()), 4)
        self.assertLess(losses[max(step for step in losses if numpy.isfinite(losses[step]))], losses[1])

    def test_terminate_on_nan_goes_by_the_loss(self):
        """Not by gradients that the scale alone makes too large."""
        callbacks = [{"name": "terminate_on_nan"}]
        self.run_alone(self.float16_job(LARGE, callbacks=callbacks))
        self.assertGreater(result(self.model_dir)["float16"]["skipped_steps"], 1)
        self.model_dir = self.dir / "model-2"
        log = self.run_alone(self.float16_job(INFINITE, callbacks=callbacks), code=1)
        self.assertIn("the loss is nan in step 1 (epoch 1), and terminate_on_nan ends training", log)


if __name__ == "__main__":
    unittest.main(verbosity=2)
