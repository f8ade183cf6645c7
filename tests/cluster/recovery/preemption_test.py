"""SIGTERM to any one member, at any time: all stop at one step, with everything saved, and end with 143; in an elastic job a worker
leaves alone. A later start continues as if there had been no stop."""
import signal
import time
import unittest

from harness import PREEMPTED, ask_to_stop, checkpoints, result
from recording import STEPS, RecordingTest, wait_until


class PreemptionTest(RecordingTest):
    def setUp(self):
        super().setUp()
        self.starts = []

    def held_run(self, *moments, members=3, **keys):
        """A first start, waiting at all of `moments`."""
        for moment in moments:
            self.hold(moment, "first")
        processes = self.start_run(members, self.run_job(**keys), directory="first")
        for moment in moments:
            self.wait_held(moment)
        return processes

    def lose(self, process):
        process.signal(signal.SIGKILL)
        process.wait(5)

    def all_stop(self, processes):
        self.finish(processes, code=PREEMPTED)
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
        ask_to_stop(processes[2])  # known to the others or not: they agree on a step
        self.release("validation-6")
        self.assertIn(self.all_stop(processes), (6, 7))
        self.goes_on_to_the_end()

    def test_while_a_checkpoint_is_written(self):
        processes = self.held_run("save-2", "step-5")  # otherwise the run would finish meanwhile
        ask_to_stop(processes[1])
        self.release("step-5")
        self.release("save-2")
        self.all_stop(processes)
        self.goes_on_to_the_end()

    def test_the_chief_in_a_step(self):
        processes = self.held_run("step-9")
        ask_to_stop(processes[0])
        self.release("step-9")
        self.assertIn(self.all_stop(processes), (9, 10))
        self.goes_on_to_the_end()

    def test_before_the_first_generation(self):
        cluster = self.cluster(3, chief=False)
        job = self.run_job()
        chief, worker = [self.start(cluster, f"worker:{i}", job, environment={"MUSTER_TEST_DIR": str(self.dir)},
                                    binary="../tests/recording_worker") for i in range(2)]
        for process in chief, worker:
            process.wait_for("data connections use")
        time.sleep(0.3)  # about to join, or waiting for worker 2
        worker.signal(signal.SIGTERM)
        self.finish([chief, worker], code=PREEMPTED)
        self.assertEqual(result(self.model_dir)["status"], "preempted")

    def test_while_a_lost_member_is_awaited(self):
        processes = self.held_run("step-9")
        self.lose(processes[2])
        self.release("step-9")
        processes[0].wait_for("worker 2")
        processes[1].signal(signal.SIGTERM)
        self.assertEqual(self.all_stop(processes[:2]), 8, "fewer make no step")
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
        self.finish(others, 60, PREEMPTED)
        self.assertGreater(time.monotonic() - start, 8, "a successor would have saved the state")
        for process in others:
            self.assertIn("the chief did not return to save the state", process.output())

    def test_while_the_chief_is_lost_and_its_successor_saves(self):
        chief, *others = self.held_run("step-9")
        self.lose(chief)
        self.release("step-9")
        others[0].wait_for("lost the chief")
        ask_to_stop(others[0])
        self.assertEqual(self.all_stop([self.start_again(0)] + others), 8)
        self.goes_on_to_the_end()


class RepeatedSignals(PreemptionTest):
    """Slurm and a container's runtime signal more than once, at any moment: a process that exits with 143 has saved."""

    def ask(self, process, times, first=True):
        """Sends signals one after the other, with enough time between them that the kernel does not merge them."""
        before = 0 if first else 1
        for i in range(times):
            process.signal(signal.SIGTERM)
            if i + before < 2:
                process.wait_for("SIGTERM received again" if i + before else "SIGTERM received:")
            time.sleep(0.05)
        self.assertIsNone(process.popen.poll(), "asked again, it ended before the state was saved")

    def test_ten_times_in_a_step(self):
        processes = self.held_run("step-9")
        self.ask(processes[1], 10)
        self.ask(processes[0], 10)
        self.release("step-9")
        self.assertIn(self.all_stop(processes), (9, 10))
        self.goes_on_to_the_end()

    def test_twice_while_a_checkpoint_is_written(self):
        processes = self.held_run("save-2", "step-5")
        for process in processes:
            self.ask(process, 2)
        self.release("step-5")
        self.release("save-2")
        self.all_stop(processes)
        self.goes_on_to_the_end()

    def test_while_the_state_of_the_stop_itself_is_written(self):
        for step in 9, 10:
            self.hold(f"save-{step}", "first")
        processes = self.held_run("step-9", checkpoint={"every_steps": 1000})
        ask_to_stop(processes[0])
        self.release("step-9")
        wait_until("held in the save", lambda: any((self.where / f"held-save-{step}").exists() for step in (9, 10)))
        for process in processes:
            self.ask(process, 10, first=process is not processes[0])
        self.assertLess(max(checkpoints(self.model_dir)), 9, "it is not saved yet")
        for step in 9, 10:
            self.release(f"save-{step}")
        self.assertIn(self.all_stop(processes), (9, 10))
        self.goes_on_to_the_end()

    def while_building(self, moment):
        processes = self.held_run(moment)
        wait_until("all are there", lambda: len(list(self.where.glob(f"held-{moment}-*"))) == len(processes))
        self.ask(processes[2], 10)
        self.ask(processes[0], 2)
        self.release(moment)
        self.finish(processes, code=PREEMPTED)
        self.assertEqual(result(self.model_dir)["status"], "preempted")
        self.assertEqual(checkpoints(self.model_dir), [], "there was nothing to save")
        self.goes_on_to_the_end()

    def test_while_models_are_built(self):
        self.while_building("build")

    def test_while_datasets_are_built(self):
        self.while_building("datasets")

    def test_while_a_lost_member_is_awaited(self):
        self.hold("save-8", "first")
        processes = self.held_run("step-9", checkpoint={"every_steps": 1000})
        self.lose(processes[2])
        self.release("step-9")
        processes[0].wait_for("worker 2")
        self.ask(processes[1], 1)
        self.wait_held("save-8")
        self.ask(processes[1], 9, first=False)
        self.ask(processes[0], 10)
        self.release("save-8")
        self.assertEqual(self.all_stop(processes[:2]), 8)
        self.goes_on_to_the_end()

    def test_while_a_lost_chief_is_awaited(self):
        chief, *others = self.held_run("step-9")
        self.lose(chief)
        self.release("step-9")
        for process in others:
            process.wait_for("lost the chief")
            self.ask(process, 3)
        self.assertEqual(self.all_stop([self.start_again(0)] + others), 8)
        self.goes_on_to_the_end()

    def test_a_second_interrupt_ends_at_once_and_claims_nothing(self):
        processes = self.held_run("save-2", "step-5")
        for name in "SIGINT received:", "":
            processes[0].signal(signal.SIGINT)
            processes[0].wait_for(name)
        self.assertEqual(processes[0].wait(5), 128 + signal.SIGINT)
        self.kill_all(processes[1:])
        self.assertEqual(checkpoints(self.model_dir), [])


class ElasticPreemption(PreemptionTest):
    def run_job(self, **keys):
        return super().run_job(**{"elastic": {"min_workers": 2, "grace": 0.5}, **keys})

    def leaves(self, process, *others):
        """The rest of the run continues without it, to the end."""
        self.finish([process], code=PREEMPTED)
        self.assertIn("the others continue without", process.output())
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
        processes = self.held_run("save-2", "step-5")
        processes[1].signal(signal.SIGTERM)
        processes[0].wait_for("worker 1 leaves")
        self.release("step-5")
        self.release("save-2")
        self.leaves(processes[1], processes[0], processes[2])

    def test_while_a_lost_member_is_awaited(self):
        """One of three would remain: all stop."""
        processes = self.held_run("step-9", elastic={"min_workers": 2, "grace": 60})
        self.wait_reported(2)  # nobody awaits a member that is lost in its first step
        self.lose(processes[2])
        self.release("step-9")
        processes[0].wait_for("worker 2")
        processes[1].signal(signal.SIGTERM)
        self.assertEqual(self.all_stop(processes[:2]), 8, "fewer make no step")

    def test_the_chief_stops_all(self):
        processes = self.held_run("step-9")
        ask_to_stop(processes[0])
        self.release("step-9")
        self.all_stop(processes)

    def test_all_at_once(self):
        processes = self.held_run("step-9", members=4)
        ask_to_stop(*reversed(processes))
        self.release("step-9")
        self.all_stop(processes)
        self.goes_on_to_the_end(members=4)

    def test_all_workers_at_once(self):
        """Too few would remain: the chief stops too."""
        processes = self.held_run("step-9", members=4)
        ask_to_stop(*processes[1:])
        self.release("step-9")
        self.all_stop(processes)
        self.goes_on_to_the_end(members=4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
