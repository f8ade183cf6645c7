"""One model_dir, one owner: a second start, a dead owner, and one that was frozen while another took over."""
import json
import signal
import unittest

from harness import CONFIGURATION, PREEMPTED, RETRYABLE, checkpoints, result
from recording import RecordingTest, wait_until

LONG = {"epochs": 1_000_000, "learning_rate": 0.05}


class Ownership(RecordingTest):
    def owner(self):
        return json.loads((self.model_dir / "owner.json").read_text())

    def test_another_job_is_refused_while_the_first_lives_and_the_same_accepted_when_it_is_dead(self):
        job = self.run_job(**LONG)
        first = self.start_run(1, job)[0]
        self.wait_saved(2)
        second = self.start_run(2, job)[0]
        self.finish([second], code=CONFIGURATION)
        self.assertIn("belongs to a running job", second.output())
        self.kill_all(self.processes[2:])
        self.assertIsNone(first.popen.poll())
        self.kill_all([first])
        newest = checkpoints(self.model_dir)[-1]
        third = self.start_run(1, job)[0]
        third.wait_for(f"its last owner (pid {first.popen.pid}) is gone")  # no watch is needed
        third.wait_for(f"going on after step {newest} ")
        self.assertEqual(self.owner()["epoch"], 2)
        third.signal(signal.SIGTERM)
        self.finish([third], code=PREEMPTED)

    def files(self, besides=()):
        return {path: path.read_bytes() for path in sorted(self.model_dir.rglob("*")) if path.is_file() and path.name not in besides}

    def taken_over(self, members):
        """The first chief is frozen right before it publishes step 8; the second one takes over and is held at step 13."""
        job = self.run_job(timeouts={"heartbeat": 2, "rejoin": 1}, **LONG)
        self.hold("publish-8", "first")
        processes = self.start_run(members, job, directory="first", drain=True)
        self.wait_held("publish-8")
        first, where = processes[0], self.where
        first.signal(signal.SIGSTOP)
        self.finish(processes[1:], code=RETRYABLE)
        self.assertEqual(checkpoints(self.model_dir)[-1], 6)
        self.hold("step-13", "second")
        second = self.start_run(1, job, directory="second", drain=True)[0]
        self.wait_held("step-13")
        self.wait_saved(12)
        second.wait_for("going on after step 6 ")
        wait_until("step 12 is the latest",
                   lambda: (self.model_dir / "checkpoints" / "latest").read_text().strip() == "step-00000012")
        before = self.files(besides=["owner.json"])
        (where / "hold-publish-8").unlink()
        first.signal(signal.SIGCONT)
        self.finish([first], code=RETRYABLE)
        self.assertRegex(first.output(), rf"taken by another chief \(host \S+, pid {second.popen.pid}, epoch 2\)")
        self.assertEqual(self.files(besides=["owner.json"]), before, "the one that was superseded published something")
        self.assertEqual(self.owner()["pid"], second.popen.pid)
        self.release("step-13")
        self.wait_saved(14)
        second.signal(signal.SIGTERM)
        self.finish([second], code=PREEMPTED)
        self.assertEqual(result(self.model_dir)["status"], "preempted")

    def test_a_frozen_chief_that_wakes_up_publishes_nothing(self):
        self.taken_over(1)

    def test_nor_does_one_with_members(self):
        self.taken_over(2)

    def test_a_model_dir_that_is_removed_ends_the_job(self):
        import shutil
        for members in 1, 2:
            with self.subTest(members=members):
                processes = self.start_run(members, self.run_job(**LONG))
                self.wait_saved(2)
                while self.model_dir.exists():  # it is being written to
                    shutil.rmtree(self.model_dir, ignore_errors=True)
                self.finish(processes, code=RETRYABLE)
                errors = [line for line in processes[0].output().splitlines() if " E " in line[:24]]
                self.assertEqual(len(errors), 1, processes[0].output())
                self.assertIn("is gone: model_dir was removed", errors[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
