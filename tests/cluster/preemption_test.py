"""SIGTERM to any one member, at any time: all stop at one step, with everything saved, and end with 143; in an elastic job a worker
leaves alone. A later start goes on as if nothing had been."""
import signal
import time
import unittest

from harness import checkpoints, result
from recording import STEPS, RecordingTest

PREEMPTED = 143


class PreemptionTest(RecordingTest):
    def setUp(self):
        super().setUp()
        self.starts = []

    def held_run(self, moment, members=3, **keys):
        """A first start, waiting at `moment`."""
        self.hold(moment, "first")
        processes = self.start_run(members, self.run_job(**keys), directory="first")
        self.wait_held(moment)
        return processes

    def lose(self, process):
        process.signal(signal.SIGKILL)
        process.wait(5)

    def all_stop(self, processes, seconds=15):
        self.finish(processes, seconds, PREEMPTED)
        got = result(self.model_dir)
        self.assertEqual(got["status"], "preempted")
        self.assertEqual(checkpoints(self.model_dir)[-1], got["steps"], "the state at the stop is saved")
        self.starts.append((self.where, got["steps"]))
        return got["steps"]

    def goes_on_to_the_end(self, members=3, **keys):
        """From where the run was stopped, and all in all it is as if it had not been."""
        self.finish(self.start_run(members, self.run_job(**keys), directory="second"))
        after = [0] + [step for _, step in self.starts]
        starts = [(where, step) for (where, _), step in zip(self.starts, after)] + [(self.where, after[-1])]
        self.check_equal(self.undisturbed(), starts)


class Preemption(PreemptionTest):
    def test_during_validation(self):
        processes = self.held_run("validation-6")
        processes[2].signal(signal.SIGTERM)
        processes[2].wait_for("SIGTERM received")
        time.sleep(0.2)  # known to the others or not: they agree on a step
        self.release("validation-6")
        self.assertIn(self.all_stop(processes), (6, 7))
        self.goes_on_to_the_end()

    def test_while_a_checkpoint_is_written(self):
        processes = self.held_run("save-2")
        processes[1].signal(signal.SIGTERM)
        self.release("save-2")
        self.all_stop(processes)
        self.goes_on_to_the_end()

    def test_the_chief_in_a_step(self):
        processes = self.held_run("step-9")
        processes[0].signal(signal.SIGTERM)
        self.release("step-9")
        self.assertIn(self.all_stop(processes), (9, 10))
        self.goes_on_to_the_end()

    def test_before_the_first_generation(self):
        cluster = self.cluster(3, chief=False)
        job = self.run_job()
        chief, worker = [self.start(cluster, f"worker:{i}", job, environment={"MUSTER_TEST_DIR": str(self.dir)},
                                    binary="../tests/recording_worker") for i in range(2)]
        for process in chief, worker:
            process.wait_for("data connections on")
        time.sleep(0.3)  # about to join, or waiting for worker 2
        worker.signal(signal.SIGTERM)
        self.finish([chief, worker], 10, PREEMPTED)
        self.assertEqual(result(self.model_dir)["status"], "preempted")

    def test_while_a_lost_member_is_awaited(self):
        processes = self.held_run("step-9")
        self.lose(processes[2])
        self.release("step-9")
        processes[0].wait_for("worker 2")
        processes[1].signal(signal.SIGTERM)
        self.assertIn(self.all_stop(processes[:2]), (8, 9, 10))
        self.goes_on_to_the_end()

    def test_while_the_chief_is_lost_and_does_not_come_back(self):
        chief, *others = self.held_run("step-9")
        self.lose(chief)
        self.release("step-9")
        for process in others:
            process.wait_for("lost the chief")
        start = time.monotonic()
        for process in others:
            process.signal(signal.SIGTERM)
        self.finish(others, 15, PREEMPTED)
        self.assertGreater(time.monotonic() - start, 8, "a successor would have saved the state")
        for process in others:
            self.assertIn("the chief did not come back to save the state", process.output())

    def test_while_the_chief_is_lost_and_its_successor_saves(self):
        chief, *others = self.held_run("step-9")
        self.lose(chief)
        self.release("step-9")
        others[0].wait_for("lost the chief")
        others[0].signal(signal.SIGTERM)
        self.assertIn(self.all_stop([self.start_again(0)] + others), (8, 9, 10))
        self.goes_on_to_the_end()


class ElasticPreemption(PreemptionTest):
    def run_job(self, **keys):
        return super().run_job(**{"elastic": {"min_workers": 2, "grace": 0.5}, **keys})

    def leaves(self, process, *others):
        """The rest of the run goes on without it, to the end."""
        self.finish([process], 10, PREEMPTED)
        self.assertIn("the others go on without", process.output())
        self.finish(others)
        where = self.where
        self.assertEqual(result(self.model_dir)["steps"], STEPS)
        self.check_equal(self.undisturbed(), [(where, 0)])

    def test_during_validation(self):
        processes = self.held_run("validation-6")
        processes[2].signal(signal.SIGTERM)
        processes[0].wait_for("worker 2 leaves")
        self.release("validation-6")
        self.leaves(processes[2], *processes[:2])

    def test_while_a_checkpoint_is_written(self):
        processes = self.held_run("save-2")
        processes[1].signal(signal.SIGTERM)
        processes[0].wait_for("worker 1 leaves")
        self.release("save-2")
        self.leaves(processes[1], processes[0], processes[2])

    def test_while_a_lost_member_is_awaited(self):
        """One of three would remain: all stop."""
        processes = self.held_run("step-9", elastic={"min_workers": 2, "grace": 60})
        self.lose(processes[2])
        self.release("step-9")
        processes[0].wait_for("worker 2")
        processes[1].signal(signal.SIGTERM)
        self.assertIn(self.all_stop(processes[:2]), (8, 9, 10))

    def test_the_chief_stops_all(self):
        processes = self.held_run("step-9")
        processes[0].signal(signal.SIGTERM)
        self.release("step-9")
        self.all_stop(processes)

    def test_all_at_once(self):
        processes = self.held_run("step-9", members=4)
        for process in reversed(processes):
            process.signal(signal.SIGTERM)
        self.release("step-9")
        self.all_stop(processes)
        self.goes_on_to_the_end(members=4)

    def test_all_workers_at_once(self):
        """Too few would remain: the chief stops too."""
        processes = self.held_run("step-9", members=4)
        for process in processes[1:]:
            process.signal(signal.SIGTERM)
        self.release("step-9")
        self.all_stop(processes)
        self.goes_on_to_the_end(members=4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
