"""elastic.spares: a member that waits replaces a lost one at once, and the maths is that of one process."""
import os
import signal
import unittest
import unittest.mock

from harness import CONFIGURATION, PREEMPTED, RETRYABLE, curve, result
from recording import STEPS, RecordingTest, wait_until


class Spares(RecordingTest):
    def start_spares(self, members=4, held=(), rejoin=60, log_level="info"):
        """`held`: the steps at which all wait to be released."""
        for step in held:
            self.hold(f"step-{step}", "steps")
        job = self.run_job(elastic={"spares": 1}, timeouts={"rejoin": rejoin})
        with unittest.mock.patch.dict(os.environ, MUSTER_LOG_LEVEL=log_level):
            processes = self.start_run(members, job, directory="steps")
        processes[0].wait_for(f"{members - 1} members, {members - 1} replicas")
        return processes

    def wait_all_held(self, step, processes):
        for process in processes:
            self.wait_held(f"step-{step}-{process.popen.pid}")

    def waits(self, process):
        """No step of it has begun."""
        return not list(self.where.glob(f"held-*-{process.popen.pid}")) and not list(self.where.glob(f"used-*{process.popen.pid}*"))

    def check_as_one(self, generations):
        where = self.where
        got = result(self.model_dir)
        self.assertEqual((got["steps"], got["generations"], got["world_size"]), (STEPS, generations, 3))
        want = self.undisturbed()
        self.check_close(curve(self.model_dir), want["loss"], 1e-6)
        self.check_equal(want, [(where, 0)])

    def test_without_a_loss_the_spare_only_waits(self):
        processes = self.start_spares(held=(6,))
        training = self.training(processes)
        self.wait_all_held(6, training)
        spare = next(process for process in processes if process not in training)
        self.assertTrue(self.waits(spare))
        self.release("step-6")
        self.finish(processes)
        self.assertTrue(self.waits(spare))
        self.check_as_one(generations=1)

    def training(self, processes):
        """The members of the first generation: usually all but the last, but the chief waits for none of them for long."""
        wait_until("three are held", lambda: sum(bool(list(self.where.glob(f"held-*-{p.popen.pid}"))) for p in processes) == 3)
        return [p for p in processes if list(self.where.glob(f"held-*-{p.popen.pid}"))]

    def test_the_spare_replaces_a_lost_worker_without_a_restart(self):
        processes = self.start_spares(held=(6,))
        training = self.training(processes)
        spare = next(process for process in processes if process not in training)
        self.wait_all_held(6, training)
        lost = training[1]
        lost.signal(signal.SIGKILL)
        lost.wait(5)
        self.release("step-6")
        self.finish([p for p in processes if p is not lost])
        self.assertFalse(self.waits(spare))
        self.check_as_one(generations=2)

    def test_the_replacement_of_a_lost_worker_is_the_next_spare(self):
        processes = self.start_spares(held=(6, 14), log_level="debug")  # who joins, though not taken in
        first = self.training(processes)
        spare = next(process for process in processes if process not in first)
        self.wait_all_held(6, first)
        lost = first[1]
        lost.signal(signal.SIGKILL)
        lost.wait(5)
        again = self.start_again(processes.index(lost))
        processes[0].matches(rf"joined from host \S+ \(pid {again.popen.pid}\)")
        self.release("step-6")
        second = [process for process in first if process is not lost] + [spare]
        self.wait_all_held(14, second)
        self.assertTrue(self.waits(again))
        spare.signal(signal.SIGKILL)
        spare.wait(5)
        self.release("step-14")
        self.finish([process for process in second if process is not spare] + [again])
        self.assertFalse(self.waits(again))
        self.check_as_one(generations=3)

    def test_a_worker_that_is_asked_to_stop_leaves_and_the_spare_takes_its_place(self):
        processes = self.start_spares(held=(6,))
        training = self.training(processes)
        self.wait_all_held(6, training)
        leaver = training[2]
        leaver.signal(signal.SIGTERM)
        processes[0].wait_for("leaves, as asked")
        self.release("step-6")
        self.finish([leaver], code=PREEMPTED)
        self.finish([process for process in processes if process is not leaver])
        self.check_as_one(generations=2)

    def test_two_lost_workers_are_one_too_many(self):
        processes = self.start_spares(held=(6,), rejoin=5)
        training = self.training(processes)
        self.wait_all_held(6, training)
        for lost in training[1:]:
            lost.signal(signal.SIGKILL)
            lost.wait(5)
        self.release("step-6")
        self.finish([process for process in processes if process not in training[1:]], code=RETRYABLE)
        self.assertRegex(processes[0].output(), r"ROOT CAUSE: worker \d.*no process took its place within 5 s \(timeouts.rejoin\)")

    def test_as_many_spares_as_members_are_refused(self):
        job = self.run_job(elastic={"spares": 2})
        self.finish(self.start_run(2, job), code=CONFIGURATION)
        self.assertIn("elastic.spares is 2, but the cluster has 2 members (chief and workers)", self.processes[0].output())


if __name__ == "__main__":
    unittest.main(verbosity=2)
