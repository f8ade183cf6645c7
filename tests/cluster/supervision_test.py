"""muster launch as supervisor, and what becomes of processes that freeze: SIGSTOP, with and without somebody to replace them."""
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from harness import BIN, curve, result, tensors
from recording import RecordingTest, WORKER, wait_until

EXAMPLES = 600  # 100 steps an epoch
DETECTION = 12  # seconds, with the default deadlines


def tasks_of(launcher):
    """{"worker:1": pid} of a launcher's children, by their TF_CONFIG."""
    import json
    found = {}
    for pid in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        try:
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in environment:
            if variable.startswith(b"TF_CONFIG="):
                task = json.loads(variable[len(b"TF_CONFIG="):])["task"]
                found[f"{task['type']}:{task['index']}"] = int(pid)
    return found


class Supervision(RecordingTest):
    def launch(self, members, job, *arguments, binary=WORKER):
        """`muster launch` of so many workers, worker 0 being the chief, that are `binary`."""
        folder = self.dir / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "muster-worker").symlink_to((BIN / binary).resolve())
        where = self.dir / f"start-{len(self.processes)}"
        where.mkdir(exist_ok=True)
        self.where = where
        command = [BIN / "muster", "launch", "--workers", members, "--no-chief", "--bin-dir", folder, "--job", job, *arguments]
        environment = {**os.environ, "MUSTER_TEST_DIR": str(where), "OMP_WAIT_POLICY": "passive"}
        process = self.process_class("launch", list(map(str, command)), environment, self.dir / f"log-{len(self.processes)}")
        self.processes.append(process)
        return process

    def slow_job(self, steps, **keys):
        timeouts = {"heartbeat": 1.5, "rejoin": 30, **keys.pop("timeouts", {})}
        return self.run_job(epochs=None, max_steps=steps, program_args={"examples": EXAMPLES, "sleep_ms": 10}, timeouts=timeouts,
                            checkpoint={"every_steps": 100}, **keys)

    def wait_step(self, step):
        """Somebody has begun it."""
        wait_until(f"step {step}", lambda: self.newest_step() >= step)

    def newest_step(self):
        lines = [file.read_text().rpartition("\n")[0].rpartition("\n")[2] for file in self.where.glob("used-*")]
        return max((int(line.split()[0]) for line in lines if line), default=0)

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
        launcher = self.launch(3, self.slow_job(300, timeouts={"heartbeat": 10}), "--restart", "on-failure")
        self.wait_step(10)
        frozen = tasks_of(launcher.popen.pid)["worker:1"]
        os.kill(frozen, signal.SIGSTOP)
        at = time.monotonic()
        launcher.wait_for("worker 1 on host", timeout=DETECTION)
        launcher.wait_for("no heartbeat for 10.", timeout=1)
        self.assertLess(time.monotonic() - at, DETECTION)
        launcher.wait_for(f"killing worker 1 (pid {frozen}), which is lost to the job: worker 1 on host")
        self.finish([launcher])
        self.assertIn("started again: worker 1 once\n", launcher.output())
        self.check_as_undisturbed(300)

    def test_a_frozen_chief_is_killed_and_replaced_but_not_for_a_hiccup(self):
        launcher = self.launch(3, self.slow_job(300, timeouts={"heartbeat": 3}), "--restart", "on-failure")
        self.wait_step(10)
        chief = tasks_of(launcher.popen.pid)["worker:0"]
        os.kill(chief, signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(chief, signal.SIGCONT)
        self.wait_step(30)
        self.assertNotIn("lost", launcher.output())
        os.kill(chief, signal.SIGSTOP)
        launcher.wait_for(f"killing worker 0 (pid {chief}), which is lost to the job: no answer for 3.")
        self.finish([launcher])
        self.assertIn("started again: worker 0 once\n", launcher.output())
        self.check_as_undisturbed(300)

    def test_a_frozen_process_that_wakes_rejoins_as_new(self):
        """Nobody replaces it: it is told that its generation is over, and comes back with the state that it held."""
        members = self.start_run(3, self.slow_job(300))
        for process in members:
            process.wait_for("training starts anew" if process is members[0] else "data connections")
        for victim, survivor in (1, 0), (0, 1):
            done = self.newest_step()
            self.wait_step(done + 10)
            members[victim].signal(signal.SIGSTOP)
            members[survivor].wait_for("no heartbeat for " if victim == 1 else "lost the chief")
            time.sleep(0.5)
            members[victim].signal(signal.SIGCONT)
            at = time.monotonic()
            done = self.newest_step()
            self.wait_step(done + 5)
            print(f"\n{members[victim].name}: training again {time.monotonic() - at:.2f} s after SIGCONT", file=sys.stderr)
        self.finish(members)
        self.check_as_undisturbed(300)

    def test_an_elastic_job_goes_on_without_a_killed_worker(self):
        job = self.slow_job(300, elastic={"min_workers": 2, "grace": 0.2})
        launcher = self.launch(3, job, "--verdict-timeout", "1")
        self.wait_step(10)
        os.kill(tasks_of(launcher.popen.pid)["worker:2"], signal.SIGKILL)
        self.finish([launcher])
        self.assertIn("2 members, 2 replicas", launcher.output())
        self.assertIn("lost on the way: worker 2 was killed by SIGKILL\n", launcher.output())
        self.assertEqual(result(self.model_dir)["status"], "completed")
        self.check_as_undisturbed(300)

    def test_a_program_that_fails_is_not_started_again(self):
        job = self.job(program="faulty", program_args={"replica": 1, "step": 3, "how": "throw"}, global_batch_size=8, epochs=1,
                       max_steps=None)
        launcher = self.launch(2, job, "--restart", "always", binary="../tests/faulty_worker")
        self.finish([launcher], code=1)
        self.assertIn("no more luck", launcher.output())
        self.assertNotIn("again", launcher.output())


if __name__ == "__main__":
    unittest.main(verbosity=2)
