"""A lost member, a lost chief, and a stop: everybody ends, in time, with the right code and the right name on the screen."""
import contextlib
import itertools
import json
import os
import shutil
import signal
import time
import unittest
import unittest.mock

from faulty import ALONE, FaultyTest
from harness import PREEMPTED, PROGRAM, RETRYABLE, result

# Long enough never to end by itself within a test.
LONG = {"max_steps": 10_000_000, "epochs": 1_000_000, "summary": {"every_steps": 100000}, "timeouts": ALONE}


class Failures(FaultyTest):
    def running(self, workers, chief=True):
        processes = self.start_all(self.cluster(workers, chief), self.job(model_dir=str(self.model_dir), **LONG))
        for process in processes:
            process.wait_for("Number of devices")
        time.sleep(0.3)  # into the steps; which one does not matter
        return processes

    def end(self, processes, code):
        """By themselves, long before a deadline that is not meant, however slow the machine."""
        self.finish(processes, 60, code)

    def test_a_killed_worker_ends_the_job_for_everybody_and_is_named(self):
        chief, first, lost = self.running(2)
        lost.signal(signal.SIGKILL)
        lost.wait(5)
        self.end([chief, first], RETRYABLE)
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
        self.end([first, second], RETRYABLE)
        for process in first, second:
            self.assertIn("lost the chief chief:0", process.output())

    def test_an_exception_in_a_program_ends_the_job_with_1_and_its_message(self):
        chief, culprit, other = processes = self.faulty("throw")
        self.end(processes, PROGRAM)
        for process in chief, culprit:
            self.assertRegex(process.output(), r"ROOT CAUSE: worker 1 on host \S+ \(step 5, \w+\): train_step failed: no more luck")
        self.assertIn("stopped because of worker 1: train_step failed: no more luck", other.output())
        self.assertIn("no more luck", result(self.model_dir)["cause"])

    def test_an_exception_whose_message_is_not_utf_8_ends_the_job_all_the_same(self):
        for replica in 1, 0:  # a worker, whose message travels, and the chief itself
            with self.subTest(replica=replica):
                chief, *others = processes = self.faulty("bytes", replica)
                self.end(processes, PROGRAM)
                for process in chief, processes[replica]:
                    self.assertRegex(process.output(), rf"ROOT CAUSE: worker {replica} on host \S+ \(step 5, \w+\): train_step failed: "
                                                       "no luck with \N{REPLACEMENT CHARACTER}+ in caf")
                got = json.loads((self.model_dir / "result.json").read_bytes().decode("utf-8"))
                self.assertEqual(got["status"], "failed")
                self.assertIn("no luck with", got["cause"])
                shutil.rmtree(self.model_dir)

    def test_a_log_that_nobody_reads_stops_nobody(self):
        """stdout and stderr are pipes that are full from the beginning: as a terminal after Ctrl-S, or a log's reader that hangs."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"x" * 4096)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"x")
        os.set_blocking(writer, True)
        job = self.job(max_steps=50, epochs=1000, model_dir=str(self.model_dir), checkpoint={"every_steps": 10})
        cluster = self.cluster(2)
        with unittest.mock.patch.dict(os.environ, {"MUSTER_LOG_LEVEL": "trace"}):
            processes = [self.start(cluster, task, job, output=writer) for task in ("chief:0", "worker:0", "worker:1")]
        try:
            self.finish(processes, 60)
            self.assertEqual(result(self.model_dir)["status"], "completed")
        finally:
            os.close(reader)
            os.close(writer)

    def test_a_loss_that_is_not_per_example_is_one_sentence(self):
        chief, culprit, other = processes = self.faulty("reduced")
        self.end(processes, PROGRAM)
        self.assertIn("ROOT CAUSE: worker 1", culprit.output())
        self.assertIn("the loss needs one value for each example, shape [2], and got shape []", culprit.output())

    def test_a_chief_whose_program_does_not_come_back_still_writes_the_result(self):
        chief, lost, other = self.faulty("hang", replica=0)
        chief.wait_for("hanging")
        lost.signal(signal.SIGKILL)
        lost.wait(5)
        self.end([chief, other], RETRYABLE)
        self.assertRegex(chief.output(), "did not (return|come back)")
        self.assertIn("worker 1", result(self.model_dir)["cause"])

    def test_a_frozen_worker_is_found_by_its_silence(self):
        chief, first, frozen = self.start_all(self.cluster(2), self.job(model_dir=str(self.model_dir), **{**LONG, "timeouts": {**ALONE, "heartbeat": 2}}))
        for process in chief, first, frozen:
            process.wait_for("Number of devices")
        frozen.signal(signal.SIGSTOP)
        self.end([chief, first], RETRYABLE)
        self.assertIn("ROOT CAUSE: worker 1", chief.output())
        frozen.signal(signal.SIGCONT)  # with a verdict, or without a chief: it ends by itself
        self.end([frozen], RETRYABLE)

    def test_worker_0_without_a_chief_is_the_chief(self):
        first, second = self.running(2, chief=False)
        second.signal(signal.SIGKILL)
        second.wait(5)
        self.end([first], RETRYABLE)
        self.assertIn("ROOT CAUSE: worker 1", first.output())

    def test_sigterm_to_any_one_member_stops_all_at_one_step(self):
        for victim in 0, 2:
            with self.subTest(victim=victim):
                processes = self.running(2)
                processes[victim].signal(signal.SIGTERM)
                self.end(processes, PREEMPTED)
                self.assertEqual(result(self.model_dir)["status"], "preempted")
                shutil.rmtree(self.model_dir)

    def test_sigterm_while_waiting_for_others_ends_at_once(self):
        chief = self.start(self.cluster(1), "chief:0", self.job(**LONG))
        chief.wait_for("joined")
        chief.signal(signal.SIGTERM)
        self.end([chief], PREEMPTED)

    def test_alone_sigint_stops_after_a_step(self):
        process = self.start(None, None, self.job(**LONG))
        process.wait_for("Number of devices")
        process.signal(signal.SIGINT)
        self.end([process], PREEMPTED)

    def test_a_member_that_never_comes_is_named_when_the_deadline_passes(self):
        cluster = self.cluster(2)
        job = self.job(timeouts={"join": 3})
        chief, first = [self.start(cluster, task, job) for task in ("chief:0", "worker:0")]
        self.end([chief, first], RETRYABLE)
        self.assertIn("worker 1", chief.output())
        self.assertIn(cluster["worker"][1], chief.output())

    def test_any_start_order(self):
        for order in itertools.permutations(("chief:0", "worker:0", "worker:1")):
            with self.subTest(order):
                cluster, job, processes = self.cluster(2), self.job(), []
                for task in order:
                    processes.append(self.start(cluster, task, job))
                    processes[-1].wait_for("data connections use")  # its next action is to connect to the others
                self.finish(processes)


if __name__ == "__main__":
    unittest.main(verbosity=2)
