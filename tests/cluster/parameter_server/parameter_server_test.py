"""Parameter servers: what is promised while nothing happens, and when a process of each role is killed or frozen.

Real processes under `muster launch`, with what counting.py says.
"""
import json
import re
import signal
import time
import unittest

import numpy

from counting import BATCH, EXAMPLES, CountingTest, ParameterServerTest
from harness import CONFIGURATION, checkpoints, curve, losses, result, task_pids
from recording import wait_until
from recurrence import recurrence


# Where nothing is asked of the curves: a histogram of 300,000 parameters for each step costs more than the step.
SELDOM = {"every_steps": 8}


class Undisturbed(ParameterServerTest):
    LINEAR = {"max_steps": 60, "epochs": 2, "program_args": {"kernel_init": 0.7, "bias_init": -0.2}}

    def check_linear(self, steps=60):
        ones = numpy.ones(1000)
        want = recurrence(0.7, -0.2, ones, ones, steps)
        got = losses(self.model_dir)
        self.assertEqual(sorted(got), list(range(1, steps + 1)))
        self.assertLessEqual(max(abs(got[i + 1] - w) for i, w in enumerate(want)), 1e-6)

    def test_one_worker_is_the_recurrence(self):
        for ps in 1, 2:
            with self.subTest(ps=ps):
                self.model_dir = self.dir / f"model-{ps}"
                self.finish([self.launch(self.ps_job(**self.LINEAR), workers=1, ps=ps)])
                self.check_linear()
                self.assertEqual(result(self.model_dir)["status"], "completed")

    def test_without_a_chief_worker_0_is_one(self):
        self.finish([self.launch(self.ps_job(**self.LINEAR), workers=1, ps=1, options=["--no-chief"])])
        self.check_linear()

    def test_synchronous_steps_of_a_new_job_are_refused(self):
        refused = self.launch(self.ps_job(parameter_server={"max_staleness": 0}, **self.LINEAR), workers=2, ps=2)
        self.finish([refused], code=CONFIGURATION)
        self.assertIn('parameter_server.max_staleness is 0, which is synchronous training: set strategy to "multi_worker_mirrored"', refused.output())
        self.assertFalse((self.model_dir / "job.json").exists())

    def test_a_run_that_has_synchronous_steps_goes_on(self):
        """Started as before: the chief knows model_dir, and what workers and ps decide alone fits it."""
        keys = {**self.LINEAR, "checkpoint": {"every_steps": 10}}
        self.finish([self.launch(self.ps_job(**{**keys, "max_steps": 20}), workers=1, ps=2)])
        # job.json as a version with such steps recorded it.
        recorded = json.loads((self.model_dir / "job.json").read_text())
        recorded["parameter_server"]["max_staleness"] = 0
        (self.model_dir / "job.json").write_text(json.dumps(recorded))
        job = self.ps_job(parameter_server={"max_staleness": 0}, **keys)
        for options, max_steps in ([], 40), (["--no-chief"], 60):  # again, as the run has recorded itself
            cluster = self.launch(job, workers=2, ps=2, restart="always", options=[*options, "--set", f"max_steps={max_steps}"])
            self.finish([cluster])
            self.assertEqual(cluster.output().count("this ps task ends with exit code 0"), 2, "once each: that is no end that is mended by a restart")
            line = 'parameter_server.max_staleness is 0: this run continues under "multi_worker_mirrored", without its 2 ps tasks'
            self.assertEqual(cluster.output().count(line), 1)
            self.assertEqual(result(self.model_dir)["steps"], max_steps)
        self.check_linear()

    def test_goes_on_with_another_number_of_servers_and_synchronously(self):
        keys = {**self.LINEAR, "checkpoint": {"every_steps": 10}}
        self.finish([self.launch(self.ps_job(**{**keys, "max_steps": 20}), workers=1, ps=2)])
        self.finish([self.launch(self.ps_job(**{**keys, "max_steps": 40}), workers=1, ps=3)])
        self.finish([self.launch(self.job(**{**keys, "model_dir": str(self.model_dir), "max_steps": 60}), workers=1, ps=0)])
        self.check_linear()


class Counting(CountingTest):
    def test_each_example_once_and_every_update_whole(self):
        self.finish([self.start_counting()])
        self.check_exact()

    def test_a_bound_holds_while_input_is_loaded_ahead(self):
        """Batch c of each worker reads all of its own batches before, and all up to c - 1 - s of the others: with any worker faster, and
        at the end of an epoch, where a waiting lease moves to another worker. No worker waits for its input, which takes less than its steps."""
        for bound in 1, 3:
            with self.subTest(bound=bound):
                self.model_dir, self.used_dir = self.dir / f"model-{bound}", self.dir / f"used-{bound}"
                self.used_dir.mkdir()
                (self.used_dir / "slow").touch()
                self.finish([self.start_counting(section={"max_staleness": bound}, program_args={"examples": EXAMPLES, "sleep_ms": 60, "input_ms": 10})])
                self.check_exact()
                files = list(self.used_dir.glob("reads-*"))
                self.assertEqual(len(files), 2)
                for file in files:
                    for line in file.read_text().splitlines():
                        batch, updates = map(int, line.split())
                        self.assertGreaterEqual(updates, batch - 1 + max(0, batch - 1 - bound), line)
                self.assertLess(result(self.model_dir)["step_seconds"]["input"], 0.02)

    def test_with_backups(self):
        self.finish([self.start_counting(section={"copies": 2})])
        self.check_exact()

    def test_validation_sees_whole_updates_only(self):
        self.finish([self.start_counting(workers=3)])
        seen = curve(self.model_dir, "validation", "epoch_loss")
        self.assertEqual(len(seen), self.EPOCHS)
        self.assertEqual(set(seen.values()), {0.0})

    # ---- Deaths

    def check_after(self, launch, exact_updates):
        """Training continued: every example of every epoch was used at least once, and the final checkpoint has the accepted updates."""
        self.finish([launch], 90)
        self.assertNotIn("ROOT CAUSE", launch.output())
        got = result(self.model_dir)
        self.assertEqual((got["status"], got["steps"], got["epochs"]), ("completed", self.steps, self.epochs))
        servers = got["parameter_server"]
        used = self.used()
        self.assertEqual(sorted(used), list(range(EXAMPLES)))
        updates = self.updates(self.steps)
        if exact_updates:
            self.assertGreaterEqual(min(self.row_updates(self.steps)), self.epochs)
            # Every accepted update is there, once. What a killed worker pushed but did not report is repeated, and counted: a
            # push that was in all servers is twice in every element, a torn one in those of the servers that had it.
            repeated = servers["repeated_examples"] // BATCH
            self.assertGreaterEqual(min(updates), self.steps, updates)
            self.assertLessEqual(min(updates), self.steps + repeated, updates)
            self.assertLessEqual(max(updates), self.steps + servers["torn_pushes"] + repeated, updates)
            self.assertEqual(servers["lost_updates"], 0)
        return got

    def test_a_worker_is_killed(self):
        launch = self.start_counting(held=True, summary=SELDOM)
        self.wait_steps(launch, 10)
        before = self.kill(launch, "worker:1")
        wait_until("a successor", lambda: task_pids(launch).get("worker:1", before) != before)
        got = self.check_after(launch, exact_updates=True)
        self.assertLessEqual(got["parameter_server"]["repeated_examples"], 2 * BATCH)

    def test_a_worker_is_killed_between_its_push_and_its_report(self):
        launch = self.start_counting(held=True, summary=SELDOM)
        self.wait_steps(launch, 10)
        (self.used_dir / "die").touch()
        wait_until("a death", lambda: not (self.used_dir / "die").exists())
        (self.used_dir / "hold").unlink()
        servers = self.check_after(launch, exact_updates=True)["parameter_server"]
        # The batch that it had pushed, perhaps one loaded ahead, and on a busy machine the batch before, which was not reported yet.
        self.assertIn(servers["repeated_examples"], (BATCH, 2 * BATCH, 3 * BATCH))
        ((updates, _),) = self.updates(self.steps).items()
        twice = updates - self.steps
        self.assertIn(twice, (1, 2))
        self.assertLessEqual(twice * BATCH, servers["repeated_examples"])
        self.assertEqual(self.row_updates(self.steps), {self.epochs: EXAMPLES - twice * BATCH, self.epochs + 1: twice * BATCH})

    def test_a_worker_is_killed_and_nobody_takes_its_place(self):
        launch = self.start_counting(restart="never", held=True, summary=SELDOM)
        self.wait_steps(launch, 10)
        self.kill(launch, "worker:1")
        self.check_after(launch, exact_updates=True)
        self.assertIn("lost during training: worker 1 was killed by SIGKILL\n", launch.output())
        self.assertNotIn("again", launch.output())

    def test_the_chief_is_killed(self, section=None):
        launch = self.start_counting(section=section, held=True)
        self.wait_steps(launch, 30)
        before = self.kill(launch, "chief:0")
        wait_until("a successor", lambda: task_pids(launch).get("chief:0", before) != before)
        self.check_after(launch, exact_updates=True)
        self.assertEqual(sorted(curve(self.model_dir)), list(range(1, self.steps + 1)))

    def test_the_chief_is_killed_and_a_bound_holds(self):
        """The servers' record does not have the waiting workers."""
        self.test_the_chief_is_killed({"max_staleness": 1})

    def test_a_server_with_a_backup_is_killed(self):
        launch = self.start_counting(section={"copies": 2}, held=True, summary=SELDOM)
        self.wait_steps(launch, 20)
        before = self.kill(launch, "ps:0")
        wait_until("a successor", lambda: task_pids(launch).get("ps:0", before) != before)
        got = self.check_after(launch, exact_updates=True)
        # Nobody was lost but a server: nothing is repeated, nothing torn.
        self.check_nothing_lost()
        self.assertEqual(got["parameter_server"]["torn_pushes"], 0)
        self.assertEqual(got["parameter_server"]["repeated_examples"], 0)

    def test_each_server_in_turn(self):
        launch = self.start_counting(section={"copies": 2}, epochs=12, held=True, summary=SELDOM)
        self.wait_steps(launch, 20)
        self.kill(launch, "ps:0", last=False)
        wait_until("ps 0 is the backup of both", lambda: len(re.findall("ps 0 is backup of shard . again", launch.output())) == 2, 60)
        self.kill(launch, "ps:1")
        self.check_after(launch, exact_updates=True)
        self.check_nothing_lost()

    def test_a_server_without_a_backup_is_killed(self):
        launch = self.start_counting(held=True, summary=SELDOM)
        wait_until("a checkpoint", lambda: checkpoints(self.model_dir) or launch.popen.poll() is not None)
        self.wait_steps(launch, min(sum(self.used().values()) // BATCH + 8, 40))
        self.kill(launch, "ps:1")
        got = self.check_after(launch, exact_updates=False)
        # One server's part went back to the checkpoint, the other's did not.
        lost = self.check_lost()
        self.assertEqual(max(self.updates(self.steps)), self.steps)
        self.assertEqual(got["parameter_server"]["torn_pushes"], 0)
        logged_lost = sum(map(int, re.findall(r"shard 1 is restored as it was after step \d+: (\d+) updates of it are lost", launch.output())))
        late = len(re.findall("was reported after a shard that had its update was restored", launch.output()))
        self.assertEqual(logged_lost + late, lost, launch.output())

    def test_a_server_without_a_backup_is_killed_while_a_callback_predicts(self):
        """The callback's lookup waits until the server is back, and restored."""
        hold = self.used_dir / "hold_prediction"
        hold.touch()
        launch = self.start_counting(program_args={"examples": EXAMPLES, "predicts": "epoch_end"}, summary=SELDOM)
        wait_until("a prediction", lambda: (self.used_dir / "predicts").exists() or launch.popen.poll() is not None)
        before = self.kill(launch, "ps:1", last=False)
        wait_until("a successor", lambda: task_pids(launch).get("ps:1", before) != before)
        hold.unlink()
        self.check_after(launch, exact_updates=False)
        self.assertGreater(self.check_lost(), 0)

    def test_servers_without_a_backup_are_killed_again_and_again(self):
        launch = self.start_counting(epochs=16, held=True, summary=SELDOM)
        for loss, task in enumerate(["ps:0", "ps:1", "ps:1", "ps:0"]):
            self.wait_steps(launch, 27 * (loss + 1))
            self.kill(launch, task, last=loss == 3)
            wait_until("it is restored", lambda: launch.output().count("is restored as it was") > loss or launch.popen.poll() is not None, 30)
        self.check_after(launch, exact_updates=False)
        self.assertGreater(self.check_lost(), 0)

    def freeze_a_server(self, copies, heartbeat):
        """Without a supervisor: ps 0 sleeps until the others know that it is lost, and wakes."""
        tasks = self.counting_tasks(self.cluster(2, ps=2), copies=copies, timeouts={"heartbeat": heartbeat})
        chief, server = tasks["chief:0"], tasks["ps:0"]
        self.wait_steps(chief, 40)
        server.signal(signal.SIGSTOP)
        if copies == 2:
            # Pushes wait until the backup has taken over, and continue.
            at = sum(self.used().values())
            wait_until("training continues", lambda: sum(self.used().values()) > at + 20 * BATCH, 30)
        else:
            chief.wait_for("the chief waits for ps 0 to return")
        # It comes back as a backup, which its primary brings up to date, or with the shard that nobody else has.
        server.signal(signal.SIGCONT)
        self.finish(tasks.values(), 90)
        self.assertEqual(result(self.model_dir)["parameter_server"]["updates"], self.steps)

    def test_a_frozen_server_wakes_after_it_was_replaced(self):
        """The backup has taken over, and what the frozen one does then changes nothing."""
        self.freeze_a_server(copies=2, heartbeat=2)
        self.check_nothing_lost()

    def test_workers_that_wait_for_a_server_are_not_given_up(self):
        """In every use of the server: they look rows up (forward), or push rows (update)."""
        limits = {"heartbeat": 2, "phase": {"forward": 3, "update": 3}}
        tasks = self.counting_tasks(self.cluster(2, ps=2), copies=1, timeouts=limits)
        self.wait_steps(tasks["chief:0"], 40)
        tasks["ps:0"].signal(signal.SIGSTOP)
        tasks["chief:0"].wait_for("the chief waits for ps 0 to return")
        time.sleep(5)  # longer than these phases may take
        tasks["ps:0"].signal(signal.SIGCONT)
        self.finish(tasks.values(), 90)
        self.assertNotIn("in phase", tasks["chief:0"].output())
        self.assertEqual(result(self.model_dir)["parameter_server"]["torn_pushes"], 0)

    def test_a_worker_that_waits_for_another_is_not_given_up(self):
        """The epoch's last batch takes one worker longer than another may be in phase data."""
        launch = self.start_counting(options=["--fault", "delay=5s@worker:1:step=20:phase=forward"], timeouts={"phase": {"data": 2}})
        self.finish([launch], 90)
        self.assertNotIn("in phase", launch.output())
        self.check_exact()

    def test_a_frozen_server_without_a_backup_wakes(self):
        """It has the only copy, and comes back with it."""
        self.freeze_a_server(copies=1, heartbeat=2)
        self.check_nothing_lost()
        self.assertEqual(result(self.model_dir)["parameter_server"]["lost_updates"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
