"""Processes die and come back: no step is lost or repeated, and the end is that of an undisturbed run, to the last bit.

Three members under `muster launch --restart on-failure`, or started by the test alone; what each committed step used is written
down by recording_worker.
"""
import collections
import json
import os
import re
import signal
import time
import unittest

from harness import BIN, PROGRAM, RETRYABLE, checkpoints, curve, result, task_pids, tensors
from recording import EPOCHS, EXAMPLES, STEPS, STEPS_PER_EPOCH, WORKER, RecordingTest, wait_until

MEMBERS = 3
undisturbed = {}  # by program_args: {"loss", "validation", "used", files}


class Recovery(RecordingTest):
    examples, program_args = EXAMPLES, {}

    def keys(self, collective="auto"):
        return {"program_args": {"examples": self.examples, **self.program_args}, "collective": {"backend": collective}}

    # ---- Runs

    def launch(self, faults=(), restart="on-failure", **keys):
        """The whole cluster, worker 0 the chief."""
        bin_dir = self.dir / "bin"
        bin_dir.mkdir()
        os.symlink((BIN / WORKER).resolve(), bin_dir / "muster-worker")
        self.where = self.dir / "used"
        self.where.mkdir(exist_ok=True)
        job = self.run_job(**{**self.keys(), **keys})
        return self.start_launch("--workers", MEMBERS, "--no-chief", "--restart", restart, "--bin-dir", bin_dir, "--job", job,
                              *(word for fault in faults for word in ("--fault", fault)),
                              environment={"MUSTER_TEST_DIR": str(self.where), "MUSTER_TEST_DRAIN": "1"})

    def want(self, collective="auto"):
        keys = self.keys(collective)
        key = json.dumps(keys, sort_keys=True)
        if key not in undisturbed:
            model_dir, self.model_dir = self.model_dir, self.dir / "undisturbed"
            self.finish(self.start_run(MEMBERS, self.run_job(**keys), directory="undisturbed-used"))
            undisturbed[key] = {**self.curves(), "used": self.committed(self.where), "files": self.final(),
                                "metrics": result(self.model_dir)["metrics"]}
            self.assertEqual(sorted(undisturbed[key]["loss"]), list(range(1, STEPS + 1)))
            self.assertEqual(sorted(undisturbed[key]["validation"]), [6, 12, 18, 24])
            self.model_dir = model_dir
        return undisturbed[key]

    def committed(self, where):
        """{step: the examples that processes wrote down when they had committed it, sorted}: twice where it was made twice."""
        steps = {}
        for file in where.glob("used-*"):
            for line in file.read_text().splitlines():
                step, *examples = map(int, line.split())
                steps.setdefault(step, []).extend(examples)
        return {step: sorted(examples) for step, examples in steps.items()}

    def curves(self):
        return {"loss": curve(self.model_dir), "validation": curve(self.model_dir, "validation", "epoch_loss"),
                "epoch": curve(self.model_dir, "train", "epoch_loss"), "own": curve(self.model_dir, "train", "target")}

    def final(self):
        return {f"{file} {name}": values.tobytes() for file in ("model.safetensors", "optimizer.safetensors")
                for name, values in tensors(self.model_dir, STEPS, file).items()}

    def check(self, torn=(), repeated=False, collective="auto"):
        """`torn`: steps that a process may have died in before it wrote down its part. `repeated`: steps may be made again, whole."""
        want = self.want(collective)
        self.assertEqual(self.curves(), {key: want[key] for key in ("loss", "validation", "epoch", "own")})
        self.assertEqual(self.final(), want["files"])
        self.assertEqual(result(self.model_dir)["status"], "completed")
        self.assertEqual(result(self.model_dir)["metrics"], want["metrics"])
        used = self.committed(self.where)
        self.assertEqual(sorted(used), list(range(1, STEPS + 1)))
        for step, examples in used.items():
            times = collections.Counter(examples)
            if step in torn:
                self.assertLessEqual(set(times), set(want["used"][step]), step)
            else:
                self.assertEqual(sorted(times), want["used"][step], step)
            if not repeated:
                self.assertEqual(set(times.values()), {1}, f"step {step} was made twice: {examples}")
        if not torn:
            for epoch in range(EPOCHS):
                steps = range(epoch * STEPS_PER_EPOCH + 1, (epoch + 1) * STEPS_PER_EPOCH + 1)
                self.assertEqual({e for step in steps for e in used[step]}, set(range(self.examples)), "each example once")

    def wait_all_held(self, moment):
        """Waits for all: when the first one is held, the others may not have committed the step before yet."""
        self.wait_held(moment)
        before = int(moment.rsplit("-", 1)[1]) - 1
        wait_until(f"all have committed step {before}",
                   lambda: self.committed(self.where).get(before) == self.want()["used"][before])

    def killed_in_step(self, victims, step=10, faults=(), **check):
        self.want()
        self.hold(f"step-{step}", "used")
        launch = self.launch(faults)
        self.wait_all_held(f"step-{step}")
        before = task_pids(launch)
        self.assertEqual(sorted(before), [f"worker:{i}" for i in range(MEMBERS)])
        victims = [f"worker:{i}" for i in victims]
        for victim in victims:
            os.kill(before[victim], signal.SIGKILL)
        wait_until("the victims have successors", lambda: all(task_pids(launch).get(v, before[v]) != before[v] for v in victims))
        self.release(f"step-{step}")
        self.finish([launch], 60)
        self.assertNotIn("ROOT CAUSE", launch.output())
        self.check(**check)
        return launch

    # ---- A kill from outside, in the middle of a step

    def test_a_worker(self):
        self.killed_in_step([1])

    def test_the_chief(self):
        self.killed_in_step([0])
        got = result(self.model_dir)
        history = got["recovery"]
        self.assertEqual((history["restarts"], history["losses"]), (1, 1), history)
        self.assertGreaterEqual(history["generations"], 2)
        self.assertEqual(history["generations"], got["generations"])
        self.assertEqual(history["last_losses"][0]["cause"], "the chief was lost")
        self.assertEqual(history["last_losses"][0]["step"], 9)
        self.assertGreater(history["seconds_lost"], 0)

    def test_the_chief_and_a_worker(self):
        self.killed_in_step([0, 2])

    def test_everybody(self):
        """Nobody has the state: on from the newest checkpoint."""
        launch = self.killed_in_step([0, 1, 2], repeated=True)
        after = int(re.findall(r"going on after step (\d+) ", launch.output())[-1])
        self.assertLess(after, 10)

    # ---- Kills by the processes themselves, in every phase

    def rehearsed(self, faults, collective="auto"):
        self.want(collective)
        launch = self.launch(faults, **self.keys(collective))
        self.finish([launch], 90)
        for number, fault in enumerate(faults, 1):
            self.assertIn(f"fault {number}: ", launch.output(), fault)
        # Where a fault struck somebody may have been lost between a step's last reduction and its commit, or before its result came.
        steps = [int(step) for fault in faults for step in re.findall(r":step=(\d+)", fault)]
        self.check({s for step in steps for s in (step - 1, step)}, collective=collective)
        return launch

    def test_workers_in_every_phase(self):
        faults = ["kill@worker:1:step=3:phase=data", "kill@worker:2:step=5:phase=reduce", "kill@worker:1:step=8:phase=update",
                  "kill@worker:2:step=12:phase=evaluate", "kill@worker:1:step=15:phase=forward", "kill@worker:2:step=15:phase=forming",
                  "kill@worker:1:step=24:phase=ending"]
        self.rehearsed(faults)

    def test_the_chief_in_every_phase(self):
        faults = ["kill@worker:0:phase=starting", "kill@worker:0:step=4:phase=save:nth=4", "kill@worker:0:step=9:phase=update",
                  "kill@worker:0:step=12:phase=evaluate"]
        self.rehearsed(faults)

    def test_the_chief_at_the_end(self):
        self.rehearsed(["kill@worker:0:step=18:phase=save", "kill@worker:0:step=24:phase=save:nth=4"])

    def test_the_chief_after_a_pass_that_nobody_has_reported(self):
        """Between its last reduction and its point in the curve: the survivors keep its result, because they do not repeat the pass."""
        self.rehearsed(["kill@worker:0:step=12:phase=evaluate:nth=2", "kill@worker:0:step=24:phase=evaluate:nth=2"])

    def test_the_chief_when_all_is_saved(self):
        self.rehearsed(["kill@worker:0:phase=ending"])

    def test_all_at_the_same_step_get_past_it(self):
        self.want()
        launch = self.launch(["kill@*:step=11"])
        self.finish([launch], 60)
        self.assertEqual(len(re.findall("fault 1: kill", launch.output())), 3)
        self.check(repeated=True)

    # ---- Other faults

    def test_what_does_not_kill(self):
        faults = ["delay=300ms@worker:1:step=3", "drop@worker:1:step=5", "drop=control@worker:2:step=7", "stop@worker:2:step=9:for=500ms",
                  "freeze=500ms@worker:1:step=11:link=all", "stop@worker:0:step=13:for=500ms", "drop=all@worker:0:step=16"]
        launch = self.rehearsed(faults, collective="tcp")
        self.assertNotIn("started again", launch.output())

    def a_program_hangs(self, task):
        self.want()
        # A step of the others may wait for a disk meanwhile, but not for so long.
        launch = self.launch([f"delay=60s@{task}:step=11"], timeouts={"phase": {"data": 8, "forward": 8}})
        self.finish([launch], 60)
        self.assertRegex(launch.output(), rf"ROOT CAUSE: worker {task[-1]} .*timeouts\.phase\.\w+ is 8 s")
        self.check({10, 11})

    def test_a_worker_whose_program_hangs_is_replaced(self):
        self.a_program_hangs("worker:1")

    def test_a_chief_whose_program_hangs_is_replaced(self):
        self.a_program_hangs("worker:0")

    def test_a_full_disk_is_a_warning_and_saves_go_on_after_it(self):
        self.want()
        self.hold("step-9", "used")
        launch = self.launch(["disk-full@worker:0:step=3:for=4s"])
        self.wait_held("step-9")  # three saves were tried
        time.sleep(4)  # from here on there is space again
        self.release("step-9")
        self.finish([launch], 60)
        self.assertRegex(launch.output(), r"W \| .*No space left on device")
        self.assertGreater(result(self.model_dir)["saves"]["failed"], 0)
        self.assertEqual(checkpoints(self.model_dir)[-1], STEPS)
        self.check()

    def test_an_exception_ends_the_job_and_nothing_is_started_again(self):
        launch = self.launch(["exception@worker:1:step=4"])
        self.finish([launch], 60, code=PROGRAM)
        self.assertRegex(launch.output(), r"ROOT CAUSE: worker 1 on host \S+ \(step 4, .*an exception that --fault 1 asked for")
        self.assertNotIn("started again", launch.output())

    # ---- Without the launcher

    def test_replaced_by_hand(self):
        self.want()
        self.where = self.dir / "used"
        self.hold("step-10", "used")
        job = self.run_job(**self.keys())
        cluster = self.cluster(MEMBERS, chief=False)
        environment = {"MUSTER_TEST_DIR": str(self.where)}
        first = [self.start(cluster, f"worker:{i}", job, (), environment, WORKER) for i in range(MEMBERS)]
        self.wait_all_held("step-10")
        self.kill_all([first[0], first[2]])
        again = [self.start(cluster, f"worker:{i}", job, (), environment, WORKER) for i in (0, 2)]
        self.release("step-10")
        self.finish([first[1], *again])
        self.check()

    def test_a_leftover_of_an_older_run_is_refused(self):
        """`restore: never` begins a new run where an old one's worker still lives."""
        self.hold("step-10", "old")
        cluster = self.cluster(2, chief=False)
        old = [self.start(cluster, f"worker:{i}", self.run_job(**self.keys()), (), {"MUSTER_TEST_DIR": str(self.dir / "old"), "MUSTER_TEST_DRAIN": "1"}, WORKER) for i in range(2)]
        self.where = self.dir / "old"
        self.wait_held("step-10")
        self.wait_saved(8)
        self.kill_all([old[0]])
        self.where = self.dir / "used"
        self.where.mkdir()
        environment = {"MUSTER_TEST_DIR": str(self.where)}
        job = self.run_job(restore="never", **self.keys())
        chief = self.start(cluster, "worker:0", job, (), environment, WORKER)
        self.finish([old[1]], code=RETRYABLE)
        self.assertRegex(old[1].output(), r"E worker 1 \| .*holds state of run")
        worker = self.start(cluster, "worker:1", job, (), environment, WORKER)
        self.finish([chief, worker])
        self.assertEqual(sorted(self.committed(self.where)), list(range(1, STEPS + 1)), "all of the new run's own steps")
        self.assertEqual(sorted(curve(self.model_dir)), list(range(1, STEPS + 1)))

    def test_a_second_chief_and_a_second_worker_wait_in_vain_while_the_first_live(self):
        self.hold("step-10", "used")
        self.where = self.dir / "used"
        job = self.run_job(timeouts={"join": 15}, **self.keys())
        cluster = self.cluster(MEMBERS, chief=False)
        environment = {"MUSTER_TEST_DIR": str(self.where)}
        first = [self.start(cluster, f"worker:{i}", job, (), environment, WORKER) for i in range(MEMBERS)]
        self.wait_held("step-10")
        second = [self.start(cluster, f"worker:{i}", job, (), environment, WORKER) for i in (0, 1)]
        self.finish(second, 45, RETRYABLE)
        self.assertIn("still belongs to another process of this job", second[0].output())
        self.assertIn("another process is worker 1 already", second[1].output())
        self.release("step-10")
        self.finish(first)
        self.check()

    def test_a_frozen_chief_wakes_and_goes_on(self):
        """Longer than its members are patient: they join it again, with all that they hold."""
        self.hold("step-10", "used")
        # The launcher replaces it after two seconds more.
        launch = self.launch(["stop@worker:0:step=7:for=5s"], timeouts={"heartbeat": 4})
        self.wait_held("step-10")
        launch.wait_for("lost the chief worker:0")
        self.release("step-10")
        self.finish([launch], 60)
        self.check()


class InterruptedTransfer(Recovery):
    """The owner of the newest state is lost while it gives it to the others, whose tables are half its own then."""
    program_args = {"table": True}
    for name in dir(Recovery):
        if name.startswith("test_"):
            locals()[name] = None
    del name

    # Moments of worker 1, the only survivor at step 10: the join, the first byte, and two of the pieces. It waits before its end, so
    # that the others process the pieces that have arrived.
    faults = ["delay=1s@worker:1:step=9:phase=starting:nth=3", "kill@worker:1:step=9:phase=starting:nth=4"]

    def interrupted(self, victims, **check):
        launch = self.killed_in_step(victims, faults=self.faults, **check)
        self.assertIn("fault 2: kill", launch.output())
        self.assertIn("phase starting", launch.output())
        return launch.output()

    def test_of_the_only_state_ends_in_the_last_checkpoints(self):
        output = self.interrupted([0, 2], repeated=True)
        self.assertRegex(output, r"worker 2\] .* joins the next one without a state")
        self.assertIn("no process has a whole state of the run", output)
        self.assertGreaterEqual(int(re.findall(r"going on after step (\d+) ", output)[-1]), 6)

    def test_of_one_of_two_states_ends_in_the_other_one(self):
        output = self.interrupted([0], torn={8, 9, 10})
        self.assertNotIn("no process has a whole state of the run", output)
        self.assertRegex(output, r"with the state of worker 2 after step (8|9)")


class TwoMinimizeCalls(Recovery):
    """With batch normalization, killed between the two: no trace of the half step."""
    examples, program_args = 36, {"twice": True}  # two examples for each replica: one alone has no variance
    # The rest has nothing to do with what a step does.
    for name in dir(Recovery):
        if name.startswith("test_"):
            locals()[name] = None
    del name

    def killed_between(self, victims, **check):
        self.want()
        self.hold("between-10", "used")
        launch = self.launch()
        self.wait_all_held("between-10")
        before = task_pids(launch)
        victims = [f"worker:{i}" for i in victims]
        for victim in victims:
            os.kill(before[victim], signal.SIGKILL)
        wait_until("the victims have successors", lambda: all(task_pids(launch).get(v, before[v]) != before[v] for v in victims))
        self.release("between-10")
        self.finish([launch], 60)
        self.check(**check)

    def test_a_worker_between_two_updates(self):
        self.killed_between([1])

    def test_the_chief_between_two_updates(self):
        self.killed_between([0])

    def test_in_the_second_reduction(self):
        self.rehearsed(["kill@worker:2:step=5:phase=reduce:nth=2", "kill@worker:0:step=9:phase=reduce:nth=2",
                        "kill@worker:1:step=12:phase=forward:nth=2"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
