"""One host for each member: delay, loss, links that are cut and healed, names that resolve late.

The hosts are network namespaces (hosts.py). No process is restarted here: the same processes continue.
"""
import sys
import time
import unittest

from harness import RETRYABLE, Process, curve, main, tensors
from hosts import Network
from recording import RecordingTest, WORKER, wait_until

PORT, EXAMPLES = 5000, 600
HEARTBEAT = 2
HEAL = 15  # seconds at most from the moment that the network is well again to the next steps, on a slow machine


class HostsTest(RecordingTest):
    HOSTS = 3
    SPARE = 0  # hosts without a member

    def setUp(self):
        self.network = Network(self.HOSTS + self.SPARE)
        self.moved = {}  # the hosts of tasks that are not on their own
        self.addCleanup(self.network.close)
        super().setUp()
        self.where = self.dir / "used"
        self.where.mkdir()
        self.on_hosts = True

    def process_class(self, name, command, environment, log):
        if self.on_hosts:
            command = self.network.command(self.moved.get(name, int(name.split(":")[1])), command)
        return Process(name, command, environment, log)

    def hosts_job(self, steps, sleep_ms=10, **keys):
        timeouts = {"heartbeat": HEARTBEAT, "formation": 3, "join": 30, "rejoin": 30, **keys.pop("timeouts", {})}
        return self.run_job(epochs=None, max_steps=steps, program_args={"examples": EXAMPLES, "sleep_ms": sleep_ms},
                            checkpoint={"every_steps": 100}, timeouts=timeouts, **keys)

    def addresses(self, names=None):
        return {"worker": [f"{(names or self.network.addresses)[i]}:{PORT}" for i in range(self.HOSTS)]}

    def member(self, index, job, cluster=None):
        return self.start(cluster or self.addresses(), f"worker:{index}", job, environment={"MUSTER_TEST_DIR": str(self.where)},
                          binary=WORKER)

    def members(self, job, held=()):
        """`held`: steps that wait until they are released."""
        for step in held:
            self.hold(f"step-{step}", self.where)
        return [self.member(i, job) for i in range(self.HOSTS)]

    def newest_step(self):
        lines = [file.read_text().rpartition("\n")[0].rpartition("\n")[2] for file in self.where.glob("used-*")]
        return max((int(line.split()[0]) for line in lines if line), default=0)

    def wait_step(self, step, timeout=30):
        wait_until(f"step {step}", lambda: self.newest_step() >= step, timeout)

    def check_as_undisturbed(self, steps):
        got, got_tensors = curve(self.model_dir), tensors(self.model_dir, steps)
        self.model_dir, self.on_hosts = self.dir / "undisturbed", False
        self.finish(self.start_run(1, self.run_job(epochs=None, max_steps=steps, program_args={"examples": EXAMPLES})))
        self.check_close(got, curve(self.model_dir))
        for name, values in tensors(self.model_dir, steps).items():
            for a, b in zip(got_tensors[name], values):
                self.assertAlmostEqual(float(a), float(b), delta=1e-5, msg=name)

    def lines(self, process, text):
        return [line for line in process.output().splitlines() if text in line]


class Hosts(HostsTest):
    def test_delay_and_loss(self):
        self.network.shape(delay=0.005, loss=0.01)
        # The switch is a thread of this process: where it is not scheduled, all of them are silent.
        members = self.members(self.hosts_job(60, sleep_ms=0, timeouts={"heartbeat": 10, "formation": 20}))
        self.finish(members)
        self.assertGreater(self.network.forwarded, 500)
        self.assertEqual(self.lines(members[0], "lost"), [])
        self.check_as_undisturbed(60)

    def test_partitions_and_a_link_that_goes_down(self):
        network = self.network
        steps = 300
        held = 10, 80, 150, 220
        members = self.members(self.hosts_job(steps), held)
        cut, heal = network.set_cut, lambda pairs: network.set_cut(pairs, False)
        both_ways = network.from_host(2) + network.to_host(2)
        for step, (what, break_it, mend_it) in zip(held, (
                ("cut off", lambda: cut(both_ways), lambda: heal(both_ways)),
                ("heard by nobody", lambda: cut(network.from_host(2)), lambda: heal(network.from_host(2))),
                ("hears nobody", lambda: cut(network.to_host(2)), lambda: heal(network.to_host(2))),
                ("link down", lambda: network.link_down(2), lambda: network.link_up(2)))):
            with self.subTest(what):
                self.wait_held(f"step-{step}")
                lost = len(self.lines(members[0], "worker 2 on host"))
                break_it()
                self.release(f"step-{step}")
                at = time.monotonic()
                wait_until(f"{what}: worker 2 is named",
                           lambda: any("lost" in line or "could not reach" in line for line in
                                       self.lines(members[0], "worker 2 on host")[lost:]), 10 * HEARTBEAT)
                named = time.monotonic() - at
                time.sleep(1)
                mend_it()
                at = time.monotonic()
                self.wait_step(step + 5)
                again = time.monotonic() - at
                print(f"\n{what}: named after {named:.2f} s, training again {again:.2f} s after the end of it", file=sys.stderr)
                self.assertLess(again, HEAL)
        self.finish(members)
        self.check_as_undisturbed(steps)

    def test_a_link_between_two_workers_is_cut_before_the_start(self):
        self.network.set_cut(self.network.between(1, 2))
        members = self.members(self.hosts_job(50))
        self.finish(members, code=RETRYABLE)
        for process in members:
            self.assertIn("3 formations failed", process.output())
            self.assertRegex(process.output().splitlines()[-1], "worker 1 <-> worker 2")

    def test_a_link_between_two_workers_is_cut_while_they_train_and_healed(self):
        members = self.members(self.hosts_job(100, timeouts={"formation": 8}), held=[10])  # there are three, and the link heals in time
        self.wait_held("step-10")
        self.network.set_cut(self.network.between(1, 2))
        self.release("step-10")
        at = time.monotonic()
        wait_until("the link is named", lambda: "worker 1 <-> worker 2" in members[0].output(), 60)
        print(f"\nlink between two workers: named after {time.monotonic() - at:.2f} s", file=sys.stderr)
        members[0].wait_for("formation 1 of 3 failed: worker")
        self.network.set_cut(self.network.between(1, 2), False)
        self.finish(members)
        self.check_as_undisturbed(100)


if __name__ == "__main__":
    main()
