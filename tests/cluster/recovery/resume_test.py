"""A run that was stopped or killed continues as if it had not been: the same losses, each example of an epoch once."""
import json
import re
import time
import unittest

from harness import CONFIGURATION, DAMAGED, PREEMPTED, ask_to_stop, checkpoints, curve, result
from recording import STEPS, RecordingTest


class Resume(RecordingTest):
    def finish_run(self, members, sets=(), directory=None):
        """Starts it again, to the end; returns the step after which it continued."""
        processes = self.start_run(members, self.run_job(), sets, directory)
        self.finish(processes)
        after = re.search(r"going on after step (\d+) ", processes[0].output())
        self.assertIsNotNone(after, processes[0].output())
        self.assertEqual(result(self.model_dir)["status"], "completed")
        return int(after[1])

    def stopped_and_restarted(self, moment, members, again, sets=(), sets_again=()):
        want = self.undisturbed()
        self.hold(moment, "first")
        processes = self.start_run(members, self.run_job(), sets, "first")
        first = self.where
        self.wait_held(moment)
        ask_to_stop(processes[-1])
        self.release(moment)
        self.finish(processes, code=PREEMPTED)
        self.assertEqual(result(self.model_dir)["status"], "preempted")
        stopped = max(self.used(first))
        self.assertEqual(checkpoints(self.model_dir)[-1], stopped)
        after = self.finish_run(again, sets_again)
        self.assertEqual(after, stopped, "not one step is made again")
        self.check_equal(want, [(first, 0), (self.where, after)])

    def killed_and_restarted(self, moment, saved, members=2):
        want = self.undisturbed()
        self.hold(moment, "first")
        processes = self.start_run(members, self.run_job(), directory="first", drain=True)
        first = self.where
        self.wait_held(moment)
        self.wait_saved(saved)
        self.kill_all(processes)
        after = self.finish_run(members)
        self.assertEqual(after, saved)
        self.check_equal(want, [(first, 0), (self.where, after)])

    def test_stopped_in_the_middle_of_an_epoch(self):
        self.stopped_and_restarted("step-9", 2, 2)

    def test_stopped_during_validation(self):
        self.stopped_and_restarted("validation-12", 2, 2)

    def test_from_two_members_to_three(self):
        self.stopped_and_restarted("step-9", 2, 3)

    def test_from_two_members_to_two_replicas_in_one(self):
        self.stopped_and_restarted("step-15", 2, 1, sets_again=["devices=cpu:2"])

    def test_killed_in_the_middle_of_an_epoch(self):
        self.killed_and_restarted("step-10", 8)

    def test_killed_during_validation(self):
        self.killed_and_restarted("validation-12", 12)

    def test_killed_in_the_middle_of_a_save(self):
        self.killed_and_restarted("save-8", 6)

    def test_killed_right_before_a_checkpoint_appears(self):
        self.killed_and_restarted("publish-8", 6)

    # ---- What a start does with what is there

    def test_a_finished_job_is_finished_until_it_has_more_to_do(self):
        job = self.run_job()
        self.finish(self.start_run(2, job))
        self.check_refused("global_batch_size", ["global_batch_size=12"])
        before = (self.model_dir / "result.json").read_bytes()
        curves = curve(self.model_dir)
        processes = self.start_run(2, job)
        self.finish(processes)
        for process in processes:
            self.assertIn(f"was trained to its end before: step {STEPS}, 4 epochs; more epochs or max_steps continue", process.output())
        self.assertEqual((self.model_dir / "result.json").read_bytes(), before)
        self.assertEqual(curve(self.model_dir), curves)
        processes = self.start_run(2, job, ["epochs=5"])
        self.finish(processes)
        self.assertIn(f"going on after step {STEPS} ", processes[0].output())
        self.assertEqual(sorted(curve(self.model_dir)), list(range(1, 31)))
        self.assertEqual(sorted(curve(self.model_dir, "validation", "epoch_loss")), [6, 12, 18, 24, 30])
        self.assertEqual(result(self.model_dir)["steps"], 30)

    def check_refused(self, key, sets):
        processes = self.start_run(2, self.run_job(), sets)
        self.finish(processes, code=CONFIGURATION)
        self.assertRegex(processes[0].output(), rf"model_dir '.*' was trained with another {re.escape(key)}: ")
        self.assertIn(key, processes[1].output())

    def test_a_chief_whose_workers_are_done_ends_by_itself(self):
        cluster = self.cluster(1)
        job = self.job(model_dir=str(self.model_dir))
        self.finish(self.start_all(cluster, job))
        start = time.monotonic()
        chief = self.start(cluster, "chief:0", job, ["timeouts.end=2"])
        self.finish([chief])
        self.assertGreater(time.monotonic() - start, 2)
        self.assertIn("was trained to its end before", chief.output())

    def test_what_must_stay_is_refused_by_name(self):
        self.finish(self.start_run(1, self.run_job(max_steps=3)))
        job = json.loads((self.model_dir / "job.json").read_text())
        for key, sets in [("seed", ["seed=4"]), ("optimizer.momentum", ['optimizer={"name":"sgd","momentum":0.5}']),
                          ("program_args.examples", ["program_args.examples=40"])]:
            with self.subTest(key=key):
                process = self.start_run(1, self.run_job(), sets)[0]
                self.finish([process], code=CONFIGURATION)
                self.assertIn(key.split(".")[0], process.output())
                self.assertEqual(json.loads((self.model_dir / "job.json").read_text()), job, "nothing is touched")

    def test_never_starts_anew_and_keeps_the_old_checkpoints(self):
        self.finish(self.start_run(1, self.run_job(max_steps=4)))
        run = json.loads((self.model_dir / "owner.json").read_text())["run_id"]
        process = self.start_run(1, self.run_job(max_steps=6), ["restore=never"])[0]
        self.finish([process])
        self.assertEqual(sorted(self.used(self.where)), [1, 2, 3, 4, 5, 6])
        self.assertEqual(sorted(p.name for p in (self.model_dir / f"checkpoints-{run}").glob("step-*")),
                         ["step-00000002", "step-00000004"])
        self.assertEqual(sorted(curve(self.model_dir)), [1, 2, 3, 4, 5, 6])
        self.assertNotEqual(json.loads((self.model_dir / "owner.json").read_text())["run_id"], run)

    def test_a_path_is_begun_with_once(self):
        constant = {"learning_rate": 0.05}  # a schedule's length follows max_steps
        want = self.undisturbed(**constant)
        self.finish(self.start_run(1, self.run_job(max_steps=9, **constant)))
        old, self.model_dir = self.model_dir, self.dir / "new"
        process = self.start_run(1, self.run_job(max_steps=14, **constant), [f"restore={old}"])[0]
        self.finish([process])
        self.assertEqual(sorted(self.used(self.where)), [10, 11, 12, 13, 14])
        process = self.start_run(1, self.run_job(**constant), [f"restore={old}"])[0]
        self.finish([process])
        self.assertEqual(min(self.used(self.where)), 15, "its own checkpoints go first")
        self.check_close(curve(self.model_dir), {s: v for s, v in want["loss"].items() if s > 9})
        process = self.start_run(1, self.run_job(model_dir=str(self.dir / "third")), [f"restore={self.dir}/nowhere"])[0]
        self.finish([process], code=CONFIGURATION)
        self.assertIn("nowhere", process.output())

    def damage(self, step):
        path = self.model_dir / "checkpoints" / f"step-{step:08}" / "model.safetensors"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)

    def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_taken(self):
        want = self.undisturbed()
        self.hold("step-10", "first")
        processes = self.start_run(1, self.run_job(), directory="first", drain=True)
        first = self.where
        self.wait_held("step-10")
        self.wait_saved(8)
        self.kill_all(processes)
        self.damage(8)
        processes = self.start_run(1, self.run_job())
        self.finish(processes)
        self.assertRegex(processes[0].output(), r"W \| .*step-00000008.*\n")
        self.assertIn("going on after step 6 ", processes[0].output())
        self.check_equal(want, [(first, 0), (self.where, 6)])

    def test_all_checkpoints_damaged_is_one_sentence(self):
        self.hold("step-7", "first")
        processes = self.start_run(1, self.run_job(), directory="first", drain=True)
        self.wait_held("step-7")
        self.wait_saved(6)
        self.kill_all(processes)
        for step in checkpoints(self.model_dir):
            self.damage(step)
        for members in 1, 2:
            processes = self.start_run(members, self.run_job())
            self.finish(processes, code=DAMAGED)
            errors = [line for line in processes[0].output().splitlines() if " E " in line[:24]]
            self.assertEqual(len(errors), 1, processes[0].output())
            self.assertIn("damaged", errors[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
