"""Two processes of one task at a time: the old one saves and ends, its successor is there already (a drained pod, a requeued job).
It ends in waiting, never in a permanent failure. And those that come after the end."""
import signal
import unittest

from harness import PREEMPTED, RETRYABLE, result
from recording import STEPS, WORKER, RecordingTest


class Overlap(RecordingTest):
    def start_task(self, cluster, i, job, directory):
        where = self.dir / directory
        where.mkdir(exist_ok=True)
        # With each checkpoint written before the next step: none is left out.
        environment = {"MUSTER_TEST_DIR": str(where), "MUSTER_TEST_DRAIN": "1"}
        return self.start(cluster, f"worker:{i}", job, environment=environment, binary=WORKER)

    def saving(self, processes, step):
        """All are asked to stop, and the chief is held right before it publishes what it saves for that."""
        self.wait_held(f"step-{step}")
        for process in processes:
            process.signal(signal.SIGTERM)
            process.wait_for("SIGTERM received")
        self.release(f"step-{step}")
        self.wait_held(f"publish-{step}")

    def held(self, step, members, **keys):
        for moment in f"step-{step}", f"publish-{step}":
            self.hold(moment, "old")
        # The stop's checkpoint is the only one, at any agreed step.
        return self.start_run(members, self.run_job(checkpoint={"every_steps": 1}, **keys), directory="old", drain=True)

    def test_a_start_waits_for_the_process_before_it_to_save(self):
        old = self.held(9, 1)
        self.saving(old, 9)
        new = self.start(None, None, self.run_job(), environment={"MUSTER_TEST_DIR": str(self.dir / "old")}, binary=WORKER)
        new.wait_for("waits for another process of this job to leave it (run ")
        self.assertIn(f"pid {old[0].popen.pid})", new.output())
        self.release("publish-9")
        self.finish(old, code=PREEMPTED)
        self.finish([new])
        self.assertRegex(new.output(), "going on after step (9|10) ")  # the signal came in step 9
        self.assertEqual(result(self.model_dir)["steps"], STEPS)

    def test_a_start_that_waits_in_vain_is_retried(self):
        old = self.held(9, 1)
        self.wait_held("step-9")
        new = self.start(None, None, self.run_job(timeouts={"join": 2}), environment={"MUSTER_TEST_DIR": str(self.dir)}, binary=WORKER)
        self.finish([new], code=RETRYABLE)
        self.assertIn("still belongs to another process of this job", new.output())
        new = self.start(None, None, self.run_job(), environment={"MUSTER_TEST_DIR": str(self.dir)}, binary=WORKER)
        new.wait_for("waits for another process of this job to leave it")
        new.signal(signal.SIGTERM)
        self.finish([new], code=PREEMPTED)
        self.kill_all(old)

    def test_old_and_new_members_of_a_whole_job(self):
        """With more epochs, as after an edit of the job file."""
        cluster = self.cluster(2, chief=False)
        for moment in "step-9", "publish-9":
            self.hold(moment, "old")
        self.where = self.dir / "old"
        job = self.run_job(checkpoint={"every_steps": 1}, epochs=3)
        old = [self.start_task(cluster, i, job, "old") for i in range(2)]
        self.saving(old, 9)
        job = self.run_job()
        worker = self.start_task(cluster, 1, job, "new")
        old[0].wait_for(f"(pid {worker.popen.pid}) waits: ")
        chief = self.start_task(cluster, 0, job, "new")
        chief.wait_for("waits for another process of this job to leave it")
        self.release("publish-9")
        self.finish(old, code=PREEMPTED)
        self.finish([chief, worker])
        self.assertRegex(chief.output(), "going on after step (9|10) ")
        self.assertEqual(result(self.model_dir)["steps"], STEPS)

    def test_a_replacement_that_starts_after_the_end_ends_too(self):
        processes = self.start_run(2, self.run_job())
        self.finish(processes)
        self.finish([self.start_again(1)])
        self.assertIn("was trained to its end before", self.processes[-1].output())

    def test_one_that_finds_neither_a_chief_nor_a_result_is_retried(self):
        self.finish(self.start_run(2, self.run_job(timeouts={"join": 20})))
        (self.model_dir / "result.json").unlink()
        late = self.start_again(1)
        self.finish([late], 60, RETRYABLE)
        self.assertRegex(late.output().splitlines()[-1], r"could not reach the chief .* for 20 s \(timeouts.join\): connection refused")


if __name__ == "__main__":
    unittest.main(verbosity=2)
