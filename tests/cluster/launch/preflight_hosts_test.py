"""`muster preflight` on several hosts, which are network namespaces: MTU, rate, and hosts that differ."""
import json
import os
import subprocess

from harness import BIN, RETRYABLE, ClusterTest, inherited, main
from hosts import Network, PREFIX, remove_leftovers, require, run

HOSTS = 3
PORT = 5000


class PreflightHosts(ClusterTest):
    def setUp(self):
        self.network = Network(HOSTS)
        self.addCleanup(self.network.close)
        super().setUp()
        self.file = self.job()

    def check(self, code, *arguments, of=None):
        """Runs it on all hosts. `of`: arguments of one host, by number. What each has printed."""
        cluster = {"worker": [f"{address}:{PORT}" for address in self.network.addresses]}
        processes = []
        for index in range(HOSTS):
            environment = inherited(TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}))
            command = [BIN / "muster", "preflight", "--job", self.file, *arguments, *(of or {}).get(index, ())]
            processes.append(self.start_process(f"worker {index}", self.network.command(index, command), environment))
        self.finish(processes, code=code)
        return [process.output() for process in processes]

    def test_every_pair_is_measured(self):
        for answer in self.check(0):
            for a, b in (0, 1), (0, 2), (1, 2):
                self.assertRegex(answer, rf"worker {a}, worker {b} +MTU 1500 and 1500, [0-9.]+ and [0-9.]+ Gbit/s, round trip ")
        paths = json.loads(self.check(0, "--json")[2])["paths"]
        self.assertEqual(sorted((path["from"], path["to"]) for path in paths),
                         [(f"worker:{a}", f"worker:{b}") for a in range(HOSTS) for b in range(HOSTS) if a != b])
        for path in paths:
            self.assertEqual((path["mtu"], path["problem"]), (1500, ""))
            self.assertGreater(path["bits_per_second"], 1e6)
        self.assertIn("0 of 6 measured within 0 s", self.check(0, "--measure", 0)[1])

    def test_an_interface_with_a_smaller_mtu_is_named(self):
        run("ip", "-n", self.network.names[2], "link", "set", "eth0", "mtu", "1280")
        for answer in self.check(0):
            self.assertRegex(answer, r"warn +worker 0, worker 2 +MTU 1500 and 1280, .*the interface of worker 0 has MTU 1500, that of worker 2 1280")
            self.assertNotIn("FAILED", answer)

    def test_a_switch_that_swallows_long_packets_fails(self):
        """Like a tunnel behind a firewall that drops ICMP: the job's connections would stall."""
        ethernet = 14
        self.network.passes = lambda frame: frame if len(frame) <= 1400 + ethernet else b"\x02" + bytes(11)  # to nobody
        for answer in self.check(2):
            for a, b in (0, 1), (0, 2), (1, 2):
                self.assertRegex(answer, rf"FAILED +worker {a}, worker {b} +MTU 1400 and 1400, ")
            self.assertIn("packets of more than 1400 bytes do not pass from worker 0 to worker 1", answer)
            self.assertIn("no router reports this to the sender: connections stall", answer)

    def test_a_slow_link_is_named(self):
        shaped = subprocess.run(["ip", "netns", "exec", self.network.names[2], "tc", "qdisc", "add", "dev", "eth0", "root", "tbf",
                                 "rate", "8mbit", "burst", "32kbit", "latency", "50ms"], capture_output=True, text=True)
        if shaped.returncode != 0:
            self.skipTest(f"no token bucket here: {shaped.stderr.strip()}")
        for answer in self.check(0):
            for other in 0, 1:
                self.assertRegex(answer, rf"warn +worker {other}, worker 2 .*slow from worker 2 to worker {other}: [0-9] percent of the ")
            self.assertNotIn("to worker 1: look", answer.split("worker 0, worker 1")[1].split("\n")[0])

    def test_a_data_address_that_others_cannot_reach_fails(self):
        """The port of the task is open, and a firewall drops the ports that the kernel chooses."""
        run("ip", "-n", self.network.names[2], "link", "add", "other0", "type", "veth", "peer", "name", "other1")
        run("ip", "-n", self.network.names[2], "addr", "add", "10.99.0.1/24", "dev", "other0")
        for device in "other0", "other1":
            run("ip", "-n", self.network.names[2], "link", "set", device, "up")
        answers = self.check(RETRYABLE, of={2: ("--set", "collective.interface=other0")})
        for text in answers:
            self.assertRegex(text, "FAILED +worker 0, worker 2 .*worker 0 cannot reach the data address of worker 2: ")
            self.assertRegex(text, r"(ok|warn) +worker 0, worker 1 +MTU")

    def test_a_host_with_another_job_file(self):
        for answer in self.check(2, of={1: ("--set", "seed=7")}):
            self.assertRegex(answer, "FAILED +job +worker 1 has another seed than worker 0: 7, not 42")


class PreflightBehindRouter(ClusterTest):
    """Two hosts in networks of their own, and a router between them whose way to the second one is narrow."""
    NARROW = 1400

    def setUp(self):
        require()
        remove_leftovers()
        super().setUp()
        self.names = [f"{PREFIX}-{os.getpid()}-{name}" for name in ("a", "b", "router")]
        router = self.names[2]
        for name in self.names:
            run("ip", "netns", "add", name)
            self.addCleanup(run, "ip", "netns", "del", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        for i, mtu in (0, 1500), (1, self.NARROW):
            host, there = self.names[i], f"to{i}"
            run("ip", "-n", host, "link", "add", "eth0", "mtu", str(mtu), "type", "veth", "peer", "name", there, "mtu", str(mtu), "netns", router)
            run("ip", "-n", host, "addr", "add", f"10.78.{i}.1/24", "dev", "eth0")
            run("ip", "-n", router, "addr", "add", f"10.78.{i}.254/24", "dev", there)
            run("ip", "-n", host, "link", "set", "eth0", "up")
            run("ip", "-n", router, "link", "set", there, "up")
            run("ip", "-n", host, "route", "add", "default", "via", f"10.78.{i}.254")
        run("ip", "netns", "exec", router, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")

    def test_a_router_that_tells_its_mtu_is_a_warning(self):
        cluster, key = {"worker": [f"10.78.{i}.1:{PORT}" for i in range(2)]}, self.run_key()
        for index in range(2):
            config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
            self.start_process(f"worker {index}", ["ip", "netns", "exec", self.names[index], BIN / "muster", "preflight"],
                               inherited(TF_CONFIG=config, MUSTER_RUN_KEY_FILE=str(key)))
        self.finish(self.processes)
        for process in self.processes:
            self.assertRegex(process.output(), "warn +worker 0, worker 1 +MTU 1400 and 1400, .*packets of more than 1400 bytes do not pass from worker 0 to "
                                               "worker 1, and the interface sends up to 1500; routers report this to the sender")
            self.assertIn("the interface of worker 0 has MTU 1500, that of worker 1 1400", process.output())


if __name__ == "__main__":
    main()
