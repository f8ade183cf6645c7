"""elastic.min_workers: members come and go, the others stay, and the maths is that of one process."""
import os
import signal
import time
import unittest
import unittest.mock

from harness import PREEMPTED, RETRYABLE, curve, result
from recording import STEPS, RecordingTest, wait_until


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
            process.wait_for("Number of devices: 3")
        added = self.start_again(3)
        others[0].wait_for("a new generation includes worker 3")
        self.pass_on(14)
        self.wait_held("step-20")
        added.wait_for("Number of devices: 4")
        self.pass_on(20)
        self.finish(others + [added])
        for process in others:
            self.assertEqual(process.output().count("Number of devices: 3"), 1)
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
        self.finish([leaver], code=PREEMPTED)
        self.wait_held("step-14")
        added = self.start_again(3)
        others[0].wait_for("a new generation includes worker 3")
        self.pass_on(14)
        self.finish(others + [added])
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
        chief = self.start_again(0)
        self.pass_on(14)
        chief.wait_for("Number of devices: 3", 60)  # timeouts.rejoin is 600 s
        self.finish([chief] + processes[1:3])
        self.check_as_one()

    def test_one_that_is_lost_in_its_first_step_again_and_again_does_not_stall_the_others(self):
        # Nobody waits for it, although others would be waited for so long.
        holds = (6, 10, 14, 18)
        with unittest.mock.patch.dict(os.environ, MUSTER_LOG_LEVEL="debug"):  # logs members that join and are not admitted
            processes = self.start_elastic(held=holds, grace=300)
        *others, lost = processes
        self.wait_all_held(6, processes)
        lost.signal(signal.SIGTERM)  # leaves, so that no grace runs
        others[0].wait_for("worker 3 leaves")
        self.pass_on(6)
        self.finish([lost], code=PREEMPTED)
        aside = self.dir / "flapping"
        aside.mkdir()
        for step in range(1, STEPS + 1):
            (aside / f"hold-step-{step}").write_text("")
        chief = others[0]
        for count, step in enumerate(holds[1:3], 1):
            self.wait_all_held(step, others)
            added = self.start_again(3, MUSTER_TEST_DIR=str(aside))
            wait_until("it is taken in", lambda: chief.output().count("| a new generation includes worker 3") == count)
            self.pass_on(step)
            wait_until("it is in its first step", lambda: list(aside.glob(f"held-*-{added.popen.pid}")))
            added.signal(signal.SIGKILL)
            added.wait(5)
            lost_at = time.monotonic()
            wait_until("the others continue", lambda: chief.output().count("3 members, 3 replicas") == count + 1)
        chief.wait_for("worker 3 was lost 2 times in its first step")
        self.wait_all_held(18, others)
        added = self.start_again(3)
        chief.matches(rf"worker 3 joined from host \S+ \(pid {added.popen.pid}\)")
        self.pass_on(18)
        self.finish(others + [added])  # it was not admitted again, and learns the end of the job
        if time.monotonic() - lost_at < 10:  # held back for so long (MembershipOptions::backoff); less, but on a machine that stalls
            self.assertEqual(chief.output().count("| a new generation includes worker 3"), 2)
        self.check_as_one()

    def test_half_of_a_generation_is_no_majority(self):
        processes = self.start_elastic(held=(6,), timeouts={"rejoin": 2})
        self.wait_all_held(6, processes)
        for lost in processes[2:]:
            lost.signal(signal.SIGKILL)
            lost.wait(5)
        self.pass_on(6)
        self.finish(processes[:2], code=RETRYABLE)
        self.assertRegex(processes[0].output(), r"ROOT CAUSE: worker [23].*no process took its place within 2 s \(timeouts.rejoin\)")


if __name__ == "__main__":
    unittest.main(verbosity=2)
