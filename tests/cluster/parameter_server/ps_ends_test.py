"""Ends of a job with parameter servers: it is asked to stop, killed as a whole, or cannot continue."""
import signal
import subprocess
import unittest

from counting import CountingTest
from harness import BIN, PREEMPTED, RETRYABLE, checkpoints, result
from recording import wait_until


class Ends(CountingTest):
    def all_stop(self, tasks):
        self.finish(tasks.values(), code=PREEMPTED)
        got = result(self.model_dir)
        self.assertEqual(got["status"], "preempted")
        self.assertEqual(checkpoints(self.model_dir)[-1], got["steps"], "what is there at the stop is saved")
        self.assertEqual(list(self.updates(got["steps"])), [got["steps"]])
        return got["steps"]

    def test_asked_to_stop_at_any_task_and_going_on(self):
        """Each batch that was leased is finished and saved: over all starts every example is used once an epoch."""
        cluster, at = self.cluster(2, ps=2), 0
        for copies, task in (1, "chief:0"), (2, "worker:1"), (1, "ps:0"):
            with self.subTest(task):
                tasks = self.counting_tasks(cluster, epochs=12, copies=copies)
                self.wait_steps(tasks["chief:0"], at + 15)
                tasks[task].signal(signal.SIGTERM)
                stopped = self.all_stop(tasks)
                self.assertGreaterEqual(stopped, at + 15)
                self.assertLess(stopped, self.steps)
                at = stopped
        self.finish(self.counting_tasks(cluster, epochs=12).values(), 90)
        self.check_exact()

    def test_the_whole_job_is_killed_and_goes_on_from_its_checkpoint(self):
        cluster = self.cluster(2, ps=2)
        tasks = self.counting_tasks(cluster, epochs=8)
        wait_until("a checkpoint", lambda: checkpoints(self.model_dir) or tasks["chief:0"].popen.poll() is not None)
        self.wait_steps(tasks["chief:0"], 40)
        for process in tasks.values():
            process.signal(signal.SIGKILL)
        for process in tasks.values():
            process.wait(10)
        saved = checkpoints(self.model_dir)[-1]
        self.assertEqual(list(self.updates(saved)), [saved])
        again = self.counting_tasks(cluster, epochs=8)
        self.finish(again.values(), 90)
        self.assertRegex(again["chief:0"].output(), rf"step-{saved:08}|after step {saved}\b")
        self.check_nothing_lost()
        self.assertEqual(result(self.model_dir)["steps"], self.steps)

    def test_explain_tells_why_a_job_ended_that_lost_a_server_for_good(self):
        tasks = self.counting_tasks(self.cluster(2, ps=2), copies=1, timeouts={"rejoin": 1})
        self.wait_steps(tasks["chief:0"], 20)
        lost = tasks.pop("ps:1")
        lost.signal(signal.SIGKILL)
        lost.wait(10)
        self.finish(tasks.values(), code=RETRYABLE)
        self.assertIn("ROOT CAUSE", tasks["chief:0"].output())
        explained = subprocess.run([BIN / "muster", "explain", self.model_dir], capture_output=True, text=True, timeout=30)
        self.assertEqual(explained.returncode, 0, explained.stderr)
        self.assertRegex(explained.stdout, r"Why it ended: ps 1 on host \S+ \((step \d+, )?\w+\): lost: .*no process took its place within 1 s \(timeouts.rejoin\)")
        # Each member is a generation of its own.
        self.assertRegex(explained.stdout, r"1 member, (ps 0|worker [01])\.")
        self.assertIn("Generations with records: 1.1, 1.2, 1.3 ", explained.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
