"""A lost member, a lost chief, and a stop: everybody ends, in time, with the right code and the right name on the screen."""
import signal
import time
import unittest

from harness import ClusterTest, result

RETRYABLE, PREEMPTED = 138, 143
# Long enough never to end by itself within a test.
LONG = {"max_steps": 10_000_000, "epochs": 1_000_000, "summary": {"every_steps": 100000}}


class Failures(ClusterTest):
    def running(self, workers, chief=True):
        self.model_dir = self.dir / "model"
        processes = self.start_all(self.cluster(workers, chief), self.job(model_dir=str(self.model_dir), **LONG))
        for process in processes:
            process.wait_for("Number of devices")
        time.sleep(0.3)  # into the steps; which one does not matter
        return processes

    def ends_within(self, seconds, processes, code):
        start = time.monotonic()
        self.finish(processes, seconds, code)
        self.assertLess(time.monotonic() - start, seconds)

    def test_a_killed_worker_ends_the_job_for_everybody_and_is_named(self):
        chief, first, lost = self.running(2)
        lost.signal(signal.SIGKILL)
        lost.wait(5)
        self.ends_within(5, [chief, first], RETRYABLE)
        self.assertRegex(chief.output(), r"ROOT CAUSE: worker 1 on host \S+ \(step \d+, \w+\)")
        self.assertIn("stopped because of worker 1", first.output())
        self.assertNotIn("ROOT CAUSE", first.output())
        got = result(self.model_dir)
        self.assertEqual(got["status"], "failed")
        self.assertIn("worker 1", got["cause"])

    def test_a_killed_chief_ends_its_members_by_themselves(self):
        chief, first, second = self.running(2)
        chief.signal(signal.SIGKILL)
        chief.wait(5)
        self.ends_within(5, [first, second], RETRYABLE)
        for process in first, second:
            self.assertRegex(process.output(), r"chief")
            self.assertIn("lost", process.output())

    def test_worker_0_without_a_chief_is_the_chief(self):
        first, second = self.running(2, chief=False)
        second.signal(signal.SIGKILL)
        second.wait(5)
        self.ends_within(5, [first], RETRYABLE)
        self.assertIn("ROOT CAUSE: worker 1", first.output())

    def test_sigterm_to_any_one_member_stops_all_at_one_step(self):
        for victim in 0, 2:
            with self.subTest(victim=victim):
                processes = self.running(2)
                processes[victim].signal(signal.SIGTERM)
                self.ends_within(10, processes, PREEMPTED)
                self.assertEqual(result(self.model_dir)["status"], "preempted")
                import shutil
                shutil.rmtree(self.model_dir)

    def test_sigterm_while_waiting_for_others_ends_at_once(self):
        chief = self.start(self.cluster(1), "chief:0", self.job(**LONG))
        chief.wait_for("joined")
        chief.signal(signal.SIGTERM)
        self.ends_within(5, [chief], PREEMPTED)

    def test_alone_sigint_stops_after_a_step(self):
        process = self.start(None, None, self.job(**LONG))
        process.wait_for("Number of devices")
        process.signal(signal.SIGINT)
        self.ends_within(10, [process], PREEMPTED)

    def test_a_member_that_never_comes_is_named_when_the_deadline_passes(self):
        cluster = self.cluster(2)
        job = self.job(timeouts={"join": 3})
        chief, first = [self.start(cluster, task, job) for task in ("chief:0", "worker:0")]
        self.ends_within(15, [chief, first], RETRYABLE)
        self.assertIn("worker 1", chief.output())
        self.assertIn(cluster["worker"][1], chief.output())

    def test_any_start_order(self):
        cluster = self.cluster(2)
        job = self.job()
        processes = [self.start(cluster, "worker:1", job)]
        time.sleep(1)  # long before the others
        processes += [self.start(cluster, "worker:0", job), self.start(cluster, "chief:0", job)]
        self.finish(processes, 30)


if __name__ == "__main__":
    unittest.main(verbosity=2)
