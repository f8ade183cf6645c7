"""elastic.min_workers: members come and go, the others stay, and the maths is that of one process."""
import signal
import time
import unittest

from harness import curve, result
from recording import STEPS, RecordingTest

RETRYABLE, PREEMPTED = 138, 143


class Elastic(RecordingTest):
    def start_elastic(self, members=4, held=(), min_workers=2, grace=0.5, **keys):
        """`held`: the steps at which all wait to be released."""
        for step in held:
            self.hold(f"step-{step}", "steps")
        job = self.run_job(elastic={"min_workers": min_workers, "grace": grace}, **keys)
        return self.start_run(members, job, directory="steps")

    def wait_all_held(self, step, processes):
        """All of `processes` wait at the beginning of `step`: each has committed, and recorded, the one before."""
        for process in processes:
            process.wait_for("Number of devices")
            self.wait_held(f"step-{step}-{process.popen.pid}")

    def pass_on(self, step):
        self.release(f"step-{step}")
        for held in self.where.glob(f"held-step-{step}*"):
            held.unlink()

    def check_as_one(self):
        """Losses, examples and parameters are those of one process with the same global batch."""
        where = self.where
        want = self.undisturbed()
        self.check_close(curve(self.model_dir), want["loss"], 1e-6)
        self.check_equal(want, [(where, 0)])

    def test_four_three_four_members_without_a_restart_of_the_others(self):
        processes = self.start_elastic(held=(6, 14, 20))
        *others, lost = processes
        self.wait_all_held(6, processes)
        lost.signal(signal.SIGKILL)
        lost.wait(5)
        self.pass_on(6)
        self.wait_held("step-14")
        for process in others:
            self.assertEqual(process.output().count("Number of devices: 3"), 1)
        newcomer = self.start_again(3)
        others[0].wait_for("taking in worker 3")
        self.pass_on(14)
        self.wait_held("step-20")
        newcomer.wait_for("Number of devices: 4")
        self.pass_on(20)
        self.finish(others + [newcomer])
        got = result(self.model_dir)
        self.assertEqual((got["steps"], got["generations"], got["world_size"]), (STEPS, 3, 4))
        self.check_as_one()

    def test_a_member_that_is_asked_to_stop_leaves_alone_and_may_come_again(self):
        # No grace is waited for: nobody expects it back at once.
        processes = self.start_elastic(held=(6, 14), grace=300)
        *others, leaver = processes
        self.wait_all_held(6, processes)
        leaver.signal(signal.SIGTERM)
        others[0].wait_for("worker 3 leaves")
        self.pass_on(6)
        self.finish([leaver], 10, PREEMPTED)
        self.wait_held("step-14")
        newcomer = self.start_again(3)
        others[0].wait_for("taking in worker 3")
        self.pass_on(14)
        self.finish(others + [newcomer])
        self.check_as_one()

    def test_a_chief_lost_while_three_of_four_train_waits_no_longer_than_the_grace(self):
        # Longer than the second in which the two others try to reach the chief again.
        processes = self.start_elastic(held=(6, 14), grace=3)
        self.wait_all_held(6, processes)
        processes[3].signal(signal.SIGKILL)
        self.pass_on(6)
        self.wait_all_held(14, processes[:3])
        processes[0].signal(signal.SIGKILL)
        processes[0].wait(5)
        start = time.monotonic()
        chief = self.start_again(0)
        self.pass_on(14)
        chief.wait_for("Number of devices: 3", 20)
        self.assertLess(time.monotonic() - start, 20)  # timeouts.rejoin is 600 s
        self.finish([chief] + processes[1:3])
        self.check_as_one()

    def test_half_of_a_generation_is_no_majority(self):
        processes = self.start_elastic(held=(6,), timeouts={"rejoin": 2})
        self.wait_all_held(6, processes)
        for lost in processes[2:]:
            lost.signal(signal.SIGKILL)
            lost.wait(5)
        self.pass_on(6)
        self.finish(processes[:2], 20, RETRYABLE)
        self.assertRegex(processes[0].output(), r"ROOT CAUSE: worker [23].*nobody took its place within 2 s \(timeouts.rejoin\)")


if __name__ == "__main__":
    unittest.main(verbosity=2)
