"""muster launch as supervisor, and what becomes of processes that freeze: SIGSTOP, with and without somebody to replace them."""
import os
import signal
import time
import unittest

from faulty import FAULTY_WORKER
from harness import BIN, PROGRAM, curve, result, task_pids, tensors
from recording import RecordingTest, WORKER

EXAMPLES = 600  # 100 steps an epoch


class Supervision(RecordingTest):
    def launch(self, members, job, *arguments, binary=WORKER, held=()):
        """`muster launch` of so many workers, worker 0 being the chief, that are `binary`. `held`: steps that wait to be released."""
        folder = self.dir / "bin"
        folder.mkdir(exist_ok=True)
        if not (folder / "muster-worker").is_symlink():
            (folder / "muster-worker").symlink_to((BIN / binary).resolve())
        where = self.dir / f"start-{len(self.processes)}"
        where.mkdir(exist_ok=True)
        self.where = where
        for step in held:
            self.hold(f"step-{step}", where)
        return self.start_launch("--workers", members, "--no-chief", "--bin-dir", folder, "--job", job, *arguments,
                                 environment={"MUSTER_TEST_DIR": str(where)})

    def slow_job(self, steps, **keys):
        timeouts = {"heartbeat": 1.5, "rejoin": 30, **keys.pop("timeouts", {})}
        return self.run_job(epochs=None, max_steps=steps, program_args={"examples": EXAMPLES, "sleep_ms": 10}, timeouts=timeouts,
                            checkpoint={"every_steps": 100}, **keys)

    def signal_at(self, step, launcher, task, number):
        """To a task whose run is held at `step`, which the others begin then. Its pid."""
        self.wait_held(f"step-{step}")
        pid = task_pids(launcher)[task]
        os.kill(pid, number)
        self.release(f"step-{step}")
        return pid

    def check_as_undisturbed(self, steps):
        """No step lost, none twice, the same parameters in the end."""
        got = curve(self.model_dir)
        model_dir, self.model_dir = self.model_dir, self.dir / "undisturbed"
        job = self.run_job(epochs=None, max_steps=steps, program_args={"examples": EXAMPLES})
        self.finish(self.start_run(1, job, directory="undisturbed-used"))
        want, want_tensors = curve(self.model_dir), tensors(self.model_dir, steps)
        self.model_dir = model_dir
        self.assertEqual(sorted(want), list(range(1, steps + 1)))
        self.check_close(got, want)
        got_tensors = tensors(self.model_dir, steps)
        for name, values in want_tensors.items():
            for a, b in zip(got_tensors[name], values):
                self.assertAlmostEqual(float(a), float(b), delta=1e-5, msg=name)

    def test_a_frozen_worker_is_named_killed_and_replaced(self):
        """With the default deadlines."""
        launcher = self.launch(3, self.slow_job(300, timeouts={"heartbeat": 10}), "--restart", "on-failure", held=[10])
        frozen = self.signal_at(10, launcher, "worker:1", signal.SIGSTOP)
        silence = float(launcher.matches(r"worker 1 on host .*no heartbeat for ([\d.]+) s", 90)[1])
        self.assertGreaterEqual(silence, 10)
        self.assertLess(silence, 60)  # below all other deadlines, and enough for a busy machine
        launcher.wait_for(f"killing worker 1 (pid {frozen}), which is lost to the job: worker 1 on host")
        self.finish([launcher])
        self.assertIn("started again: worker 1 once\n", launcher.output())
        self.check_as_undisturbed(300)

    def test_a_frozen_chief_is_killed_and_replaced_but_not_for_a_hiccup(self):
        launcher = self.launch(3, self.slow_job(300, timeouts={"heartbeat": 8}), "--restart", "on-failure", held=[10, 30])
        chief = self.signal_at(10, launcher, "worker:0", signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(chief, signal.SIGCONT)
        self.wait_held("step-30")
        self.assertNotIn("lost", launcher.output())
        self.assertEqual(self.signal_at(30, launcher, "worker:0", signal.SIGSTOP), chief)
        silence = float(launcher.matches(rf"killing worker 0 \(pid {chief}\), which is lost to the job: no answer for ([\d.]+) s", 90)[1])
        self.assertGreaterEqual(silence, 8)
        self.assertLess(silence, 60)
        self.finish([launcher])
        self.assertIn("started again: worker 0 once\n", launcher.output())
        self.check_as_undisturbed(300)

    def test_a_frozen_process_that_wakes_rejoins_as_new(self):
        """Nobody replaces it: it learns that its generation is over, and returns with its state."""
        for step in 20, 120, 220:
            self.hold(f"step-{step}", "run")
        members = self.start_run(3, self.slow_job(300), directory="run")
        for step, victim, survivor in (20, 1, 0), (120, 0, 1):
            self.wait_held(f"step-{step}")
            members[victim].signal(signal.SIGSTOP)
            self.release(f"step-{step}")
            members[survivor].wait_for("no heartbeat for " if victim == 1 else "lost the chief")
            time.sleep(0.5)
            members[victim].signal(signal.SIGCONT)
        self.wait_held("step-220")
        self.release("step-220")
        self.finish(members)
        self.check_as_undisturbed(300)

    def test_an_elastic_job_goes_on_without_a_killed_worker(self):
        job = self.slow_job(300, elastic={"min_workers": 2, "grace": 0.2})
        launcher = self.launch(3, job, "--verdict-timeout", "1", held=[10])
        self.signal_at(10, launcher, "worker:2", signal.SIGKILL)
        self.finish([launcher])
        self.assertIn("2 members, 2 replicas", launcher.output())
        self.assertIn("lost during training: worker 2 was killed by SIGKILL\n", launcher.output())
        self.assertEqual(result(self.model_dir)["status"], "completed")
        self.check_as_undisturbed(300)

    def faulty_job(self, replica, how):
        return self.job(program="faulty", program_args={"replica": replica, "step": 3, "how": how}, global_batch_size=8, epochs=1, max_steps=None)

    def test_a_program_that_fails_is_not_started_again(self):
        launcher = self.launch(2, self.faulty_job(1, "throw"), "--restart", "always", binary=FAULTY_WORKER)
        self.finish([launcher], code=PROGRAM)
        self.assertIn("no more luck", launcher.output())
        self.assertNotIn("again", launcher.output())

    def test_a_process_whose_device_or_host_fails_is_replaced_and_the_job_goes_on(self):
        for replica, how, said in (1, "ecc", "uncorrectable ECC error"), (0, "ecc", "uncorrectable ECC error"), (1, "memory", "this host has no memory left"):
            with self.subTest(replica=replica, how=how):
                launcher = self.launch(2, self.faulty_job(replica, how), "--restart", "on-failure", binary=FAULTY_WORKER)
                self.finish([launcher])
                printed = launcher.output()
                self.assertRegex(printed, rf"train_step failed: .*{said}; ending this process, another one can take its place")
                self.assertIn(f"starting worker {replica} again (1 of at most 10 times)", printed)
                self.assertNotIn(f"starting worker {1 - replica} again", printed)

    def test_a_fault_that_comes_back_in_every_life_is_the_programs(self):
        launcher = self.launch(2, self.faulty_job(1, "illegal"), "--restart", "on-failure", binary=FAULTY_WORKER)
        self.finish([launcher], code=PROGRAM)
        printed = launcher.output()
        self.assertIn("starting worker 1 again (3 of at most 10 times)", printed)
        self.assertNotIn("(4 of at most 10 times)", printed)
        self.assertIn("this task was started again 3 times, so that another host's or device's fault is unlikely", printed)


if __name__ == "__main__":
    unittest.main(verbosity=2)
