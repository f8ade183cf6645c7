"""Sixty-four processes on one host: they form, train, lose ten at once, and end, as one process would."""
import os
import signal
import unittest

from harness import curve, result, tensors
from recording import RecordingTest

MEMBERS, LOST, STEPS = 64, 10, 8


def sockets(process):
    count, folder = 0, f"/proc/{process.popen.pid}/fd"
    for name in os.listdir(folder):
        try:
            count += os.readlink(f"{folder}/{name}").startswith("socket:")
        except FileNotFoundError:  # closed meanwhile
            pass
    return count


class Scale(RecordingTest):
    def run_job(self, **keys):
        return super().run_job(program_args={"examples": 512}, global_batch_size=128, epochs=2, **keys)

    def test_sixty_four_members_lose_ten_at_once(self):
        self.hold("step-3", "many")
        elastic = {"min_workers": 8, "grace": 5}  # ten processes do not die in one moment
        # Two cores start 64 processes one after the other.
        processes = self.start_run(MEMBERS, self.run_job(elastic=elastic, timeouts={"formation": 120}), directory="many")
        processes[0].wait_for(f"{MEMBERS} members, {MEMBERS} replicas: generation 1", 300)
        for process in processes[-LOST:]:
            self.wait_held(f"step-3-{process.popen.pid}")
            # Two links, the listener and the session, with what gRPC has of its own; not one to each of the others.
            self.assertLessEqual(sockets(process), 12)
        for process in processes[-LOST:]:
            process.signal(signal.SIGKILL)
        for process in processes[-LOST:]:
            process.wait(60)
        self.release("step-3")
        self.finish(processes[:-LOST], 120)
        got = result(self.model_dir)
        self.assertEqual((got["steps"], got["world_size"], got["generations"]), (STEPS, MEMBERS - LOST, 2))
        many = curve(self.model_dir), tensors(self.model_dir, STEPS)
        self.model_dir = self.dir / "alone"
        self.finish(self.start_run(1, self.run_job(), directory="alone-used"))
        self.check_close(many[0], curve(self.model_dir))
        for name, values in tensors(self.model_dir, STEPS).items():
            for a, b in zip(many[1][name], values):
                self.assertAlmostEqual(float(a), float(b), delta=1e-5, msg=name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
