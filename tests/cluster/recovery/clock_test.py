"""A step of the wall clock changes nothing, also for who waits by it in a library."""
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "soak"))
from faults import Act, Fault  # noqa: E402
from harness import BIN, free_ports, main  # noqa: E402
from supervisor import Supervisor  # noqa: E402

CLOCK = BIN.parent / "tests" / "test_clock.so"


@unittest.skipUnless(CLOCK.exists(), "the test clock is for x86-64")
class Clock(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-test-"))
        (self.folder / "logs").mkdir()

    def run_job(self, kinds, faults, **keys):
        """`kinds`: of each how many; the clock goes back an hour in the first fault."""
        ports = iter(free_ports(sum(kinds.values())))
        job = self.folder / "job.json"
        job.write_text(json.dumps({"program": "linear", "global_batch_size": 40, "epochs": 4, "timeouts": {"heartbeat": 3},
                                   "model_dir": str(self.folder / "model"), **keys}))
        cluster = {kind: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for kind, count in kinds.items()}
        run = Supervisor(self.folder, cluster, {kind: [str(BIN / f"muster-{kind}")] for kind in ("chief", "worker", "ps", "evaluator")}, job, faults,
                         evaluator="ps" not in kinds, preload=CLOCK, environment={"TMPDIR": str(self.folder)}, quiet=60)
        self.assertTrue(run.run(200), f"{run.wrong}; logs in {self.folder}")
        self.assertEqual(run.wrong, [], self.folder)
        self.assertEqual(sorted(run.counts.elements()), sorted(fault.kind for fault in faults))
        shutil.rmtree(self.folder)

    def test_a_chief_that_is_lost_after_the_clock_went_back_is_found_again(self):
        # Between the two all of gRPC's timers come due, keepalive's every 10 s the last.
        self.run_job({"chief": 1, "worker": 2}, [
            Fault("clock", "chief:0", 50, "delay=150ms", "", [Act(0, "clock", [], -1)]), Fault("delay", "worker:0", 60, "delay=12s", ""),
            Fault("kill", "chief:0", 62, "kill", "")])

    def test_a_chief_that_leases_work_is_found_again(self):
        """A parameter-server job, in which leases have a channel of their own."""
        self.run_job({"chief": 1, "worker": 2, "ps": 2}, [
            Fault("clock", "chief:0", 50, "delay=150ms", "", [Act(0, "clock", [], -1)]), Fault("delay", "worker:0", 60, "delay=12s", ""),
            Fault("delay", "worker:1", 60, "delay=12s", ""), Fault("kill", "chief:0", 250, "kill", "")],
            strategy="parameter_server", epochs=8, checkpoint={"every_steps": 20}, parameter_server={"max_staleness": 4})

    def test_a_server_that_is_lost_after_the_chiefs_clock_went_back_is_found_again(self):
        """The chief calls servers on channels that it keeps; it must not wait an hour to connect again."""
        self.run_job({"chief": 1, "worker": 2, "ps": 2}, [
            Fault("clock", "chief:0", 50, "delay=150ms", "", [Act(0, "clock", [], -1)]), Fault("delay", "worker:0", 60, "delay=12s", ""),
            Fault("delay", "worker:1", 60, "delay=12s", ""), Fault("kill", "ps:1", 250, "kill", "")],
            strategy="parameter_server", epochs=8, checkpoint={"every_steps": 20}, parameter_server={"max_staleness": 4})


if __name__ == "__main__":
    main()
