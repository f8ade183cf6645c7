"""A full disk and a read-only one, for real: a small tmpfs in a mount namespace of the test's own."""
import errno
import pathlib
import re
import shutil
import subprocess
import unittest

from harness import CONFIGURATION, RETRYABLE, checkpoints, main, result
from recording import RecordingTest


def mounting_is_refused():
    """Why this process may not mount anything, "" if it may."""
    if not all(map(shutil.which, ("unshare", "nsenter", "mount"))):
        return "unshare, nsenter or mount is not installed"
    done = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True)
    return done.stderr.strip()


REFUSED = mounting_is_refused()


@unittest.skipIf(REFUSED, f"mounting is not permitted here: {REFUSED}")
class Disk(RecordingTest):
    def setUp(self):
        super().setUp()
        self.inside = self.dir / "disk"
        self.inside.mkdir()
        # Holds the namespace, with the disk in it, until the test is over.
        self.holder = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", f"mount -t tmpfs -o size=512k none '{self.inside}' && echo ready && exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.assertEqual(self.holder.stdout.readline().strip(), "ready")
        # The path for this process.
        self.disk = pathlib.Path(f"/proc/{self.holder.pid}/root{self.inside}")
        self.model_dir = self.disk / "model"

    def tearDown(self):
        self.holder.stdin.close()
        self.holder.wait(10)
        self.holder.stdout.close()
        super().tearDown()

    def on_the_disk(self, *command):
        return ["nsenter", "-t", str(self.holder.pid), "-m", *map(str, command)]

    def start_on_disk(self, job, **where):
        """Like start_run of one member, within the namespace."""
        process_class = self.process_class
        self.process_class = lambda name, command, environment, log: process_class(name, self.on_the_disk(*command), environment, log)
        try:
            return self.start_run(1, job, [f"model_dir={self.inside}/model"], **where)[0]
        finally:
            self.process_class = process_class

    def fill(self):
        with open(self.disk / "filler", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError as error:
                self.assertEqual(error.errno, errno.ENOSPC)

    def whole(self, step):
        path = self.model_dir / "checkpoints" / f"step-{step:08}"
        return {file.name: file.read_bytes() for file in path.iterdir()}

    def test_full_while_saving(self):
        for moment in "step-9", "step-15":
            self.hold(moment, "run")
        process = self.start_on_disk(self.run_job(), directory="run", drain=True)
        self.wait_held("step-9")
        self.assertEqual(checkpoints(self.model_dir)[-1], 8)
        before = self.whole(8)
        self.fill()
        self.release("step-9")
        self.wait_held("step-15")  # training continued
        self.assertEqual(self.whole(8), before, "the old checkpoint is not intact")
        self.assertEqual(checkpoints(self.model_dir)[-1], 8)
        self.assertEqual((self.model_dir / "checkpoints" / "latest").read_text().strip(), "step-00000008")
        (self.disk / "filler").unlink()
        self.release("step-15")
        self.finish([process])
        output = process.output()
        self.assertEqual(len(re.findall(r"W \| could not save .*No space left on device; training continues", output)), 1, output)
        self.assertIn("checkpoints are written again", output)
        got = result(self.model_dir)
        self.assertEqual((got["status"], got["saves"]["failed"]), ("completed", 3))
        self.assertIn("No space left on device", got["saves"]["last_error"])
        self.assertEqual(got["checkpoint"], "checkpoints/step-00000024")

    def test_full_until_the_end_is_no_success_and_goes_on_when_there_is_space(self):
        self.hold("step-21", "run")
        process = self.start_on_disk(self.run_job(), directory="run", drain=True)
        self.wait_held("step-21")
        self.fill()
        self.release("step-21")
        self.finish([process], code=RETRYABLE)
        errors = [line for line in process.output().splitlines() if " E " in line[:24]]
        self.assertEqual(len(errors), 1, process.output())
        self.assertIn("No space left on device", errors[0])
        self.fill()
        process = self.start_on_disk(self.run_job())
        self.finish([process], code=RETRYABLE)
        self.assertRegex(process.output(), r"model_dir '.*' cannot be written to: No space left on device")
        (self.disk / "filler").unlink()
        process = self.start_on_disk(self.run_job())
        self.finish([process])
        self.assertIn("going on after step 20 ", process.output())
        self.assertEqual(checkpoints(self.model_dir)[-1], 24)

    def test_read_only_at_the_start_is_one_sentence(self):
        self.finish([self.start_on_disk(self.run_job(max_steps=4))])
        subprocess.run(self.on_the_disk("mount", "-o", "remount,ro", self.inside), check=True)
        process = self.start_on_disk(self.run_job())
        self.finish([process], code=CONFIGURATION)
        lines = process.output().splitlines()
        self.assertEqual(len(lines), 1, process.output())
        self.assertRegex(lines[0], r"model_dir '.*' is not writable: Read-only file system")


if __name__ == "__main__":
    main()
