"""SIGKILL at random moments of a run that saves every other step, until it has finished: never a half checkpoint, never a step back.

Takes about half a minute: each of the kills costs a start of LibTorch.
"""
import os
import random
import re
import signal
import subprocess
import time
import unittest

from harness import BIN, checkpoints, curve, result, tensors
from recording import RecordingTest

KILLS, SEED, EPOCHS = 30, 20240611, 400
STEPS = 6 * EPOCHS


class Kill(RecordingTest):
    def inspect(self):
        """`muster checkpoint inspect` reads every byte; 2: there is none yet."""
        done = subprocess.run([BIN / "muster", "checkpoint", "inspect", self.model_dir], capture_output=True, text=True, timeout=30)
        self.assertIn(done.returncode, (0, 2), done.stdout + done.stderr)

    def test_killed_again_and_again(self):
        keys = {"epochs": EPOCHS, "program_args": {"examples": 34, "sleep_ms": 5}}
        generator = random.Random(int(os.environ.get("MUSTER_TEST_SEED", SEED)))
        newest = kills = 0
        while True:
            process = self.start_run(1, self.run_job(**keys))[0]
            process.wait_for("training starts from the beginning" if newest == 0 else f"going on after step {newest} ")
            if kills == KILLS:
                break
            # From before the first step on until some way behind it; now and then behind a checkpoint, however slow the machine.
            if kills % 8 == 7:
                process.wait_for("saved step")
            time.sleep(generator.uniform(0, 0.25))
            process.signal(signal.SIGKILL)
            process.wait(10)
            kills += 1
            self.inspect()
            steps = checkpoints(self.model_dir)
            self.assertGreaterEqual(steps[-1] if steps else 0, newest, "progress went back")
            newest = steps[-1] if steps else 0
            self.assertLess(newest, STEPS, "the run is too short for this machine: all kills must meet it alive")
        self.finish([process], 60)
        self.assertGreater(newest, 0, "no kill came after a checkpoint")
        self.assertEqual(result(self.model_dir)["steps"], STEPS)
        survived = self.model_dir
        self.model_dir = self.dir / "undisturbed"
        self.finish(self.start_run(1, self.run_job(**{**keys, "program_args": {"examples": 34}})))
        self.check_close(curve(survived), curve(self.model_dir), 0)
        for file in "model.safetensors", "optimizer.safetensors":
            got, want = tensors(survived, STEPS, file), tensors(self.model_dir, STEPS, file)
            self.assertEqual(sorted(got), sorted(want))
            for name in want:
                self.assertEqual(got[name].tobytes(), want[name].tobytes(), f"{file}: {name}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
