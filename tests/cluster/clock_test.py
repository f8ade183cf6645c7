"""A step of the wall clock changes nothing, also for who waits by it in a library."""
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "soak"))
from faults import Act, Fault  # noqa: E402
from harness import BIN, free_ports  # noqa: E402
from supervisor import Supervisor  # noqa: E402

CLOCK = BIN.parent / "tests" / "test_clock.so"


class Clock(unittest.TestCase):
    @unittest.skipUnless(CLOCK.exists(), "the test clock is for x86-64")
    def test_a_chief_that_is_lost_after_the_clock_went_back_is_found_again(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-test-"))
        (folder / "logs").mkdir()
        ports = free_ports(3)
        job = folder / "job.json"
        job.write_text(json.dumps({"program": "linear", "global_batch_size": 40, "epochs": 4, "timeouts": {"heartbeat": 3},
                                   "model_dir": str(folder / "model")}))
        # Between the two all of gRPC's timers come due, keepalive's every 10 s the last.
        faults = [Fault("clock", "chief:0", 50, "delay=150ms", "", [Act(0, "clock", [], -1)]), Fault("delay", "worker:0", 60, "delay=12s", ""),
                  Fault("kill", "chief:0", 62, "kill", "")]
        run = Supervisor(folder, {"chief": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{port}" for port in ports[1:]]},
                         {kind: [str(BIN / f"muster-{kind}")] for kind in ("chief", "worker", "evaluator")}, job, faults,
                         preload=CLOCK, environment={"TMPDIR": str(folder)}, quiet=60)
        self.assertTrue(run.run(200), f"{run.wrong}; logs in {folder}")
        self.assertEqual(run.wrong, [], folder)
        self.assertEqual(sorted(run.counts.elements()), ["clock", "delay", "kill"])
        shutil.rmtree(folder)


if __name__ == "__main__":
    unittest.main(verbosity=2)
