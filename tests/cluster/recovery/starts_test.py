"""Every process started alone, in every order, with names that resolve late and members that never come. One host for each (hosts.py)."""
import itertools
import json
import subprocess
import time
import unittest

from harness import BIN, CONFIGURATION, RETRYABLE, ClusterTest, Process, main, result
from hosts import Network
from hosts_test import PORT, HostsTest

JOIN = 12  # above the 10 s after which a waiting process logs this


class Starts(HostsTest):
    NAMES = [f"host-{i}" for i in range(HostsTest.HOSTS)]

    def test_in_every_order_with_names_that_resolve_late(self):
        for number, order in enumerate(itertools.permutations(range(self.HOSTS))):
            with self.subTest(order):
                for i in range(self.HOSTS):
                    self.network.set_hosts(i, {})
                self.model_dir = self.dir / f"model-{number}"
                job = self.hosts_job(5, sleep_ms=0, timeouts={"formation": 25})
                members = []
                for i in order:
                    members.append(self.member(i, job, self.addresses(self.NAMES)))
                    time.sleep(0.2)
                for i in reversed(order):  # each host learns the names at another time
                    self.network.set_hosts(i, dict(zip(self.NAMES, self.network.addresses)))
                    time.sleep(0.2)
                self.finish(members)  # timeouts.join is 30 s: they find the names before
                # A member that finishes first, and leaves, does not disturb the others.
                self.assertEqual(result(self.model_dir)["generations"], 1)

    def test_a_member_that_never_comes_is_named(self):
        job = self.hosts_job(5, timeouts={"join": JOIN})
        at = time.monotonic()
        members = [self.member(i, job) for i in (0, 1)]
        # Another job on the same hosts, whose chief never comes.
        self.model_dir = self.dir / "model-other"
        other = {"worker": [f"{address}:{PORT + 1}" for address in self.network.addresses]}
        orphan = self.member(1, self.hosts_job(5, timeouts={"join": JOIN}), other)
        self.finish([*members, orphan], JOIN + 60, code=RETRYABLE)
        self.assertGreaterEqual(time.monotonic() - at, JOIN)
        missing = f"2/3 joined, missing worker 2 ({self.network.addresses[2]}:{PORT}, never connected)"
        for process in members:
            self.assertEqual(len([line for line in self.lines(process, missing) if "timeouts.join" not in line]), 1, process.output())
            self.assertIn(f"not all members joined within {JOIN} s (timeouts.join): {missing}", process.output().splitlines()[-1])
        where = f"{self.network.addresses[0]}:{PORT + 1}"
        self.assertEqual(len(self.lines(orphan, f"waits for the chief worker:0 ({where}): connection refused")), 1, orphan.output())
        self.assertIn(f"could not reach the chief worker:0 ({where}) for {JOIN} s (timeouts.join): connection refused",
                      orphan.output().splitlines()[-1])


class BrokenJob(ClusterTest):
    """Two hosts, and a worker whose job file is refused: the worker reports this to the chief, under every kind of identity."""
    def setUp(self):
        self.network = Network(2)
        self.addCleanup(self.network.close)
        super().setUp()
        chief, worker = self.network.addresses
        self.addresses = {"chief": [f"{chief}:{PORT}"], "worker": [f"{worker}:{PORT}"]}

    def process_class(self, name, command, environment, log):
        host = self.network.names[["chief:0", "worker:0"].index(name)]
        nothing = {"MUSTER_RUN_KEY_FILE": "", "HOME": str(self.dir), "XDG_CONFIG_HOME": ""}
        return Process(name, ["ip", "netns", "exec", host, *command], {**environment, **nothing}, log)

    def check_reported(self, text, *words, **keys):
        """`text`: the worker's job file."""
        chief = self.start(self.addresses, "chief:0", self.job(timeouts={"join": 60}, **keys))
        broken = self.dir / f"broken-{len(self.processes)}.json"
        broken.write_text(text)
        worker = self.start(self.addresses, "worker:0", broken)
        self.finish([worker, chief], 30, code=CONFIGURATION)
        for word in ("ROOT CAUSE: worker 0", *words):
            self.assertIn(word, chief.output())
        self.assertNotIn("could not notify the chief", worker.output())

    def test_on_a_trusted_network(self):
        trusted = {"insecure": True}
        self.check_reported(json.dumps({"epoch": 1, "security": trusted}), "did you mean", security=trusted)
        # A job file that cannot be parsed gives no identity.
        self.check_reported('{"security": {"insecure": true}, ', "JSON", security=trusted)

    def test_with_a_key_of_the_job_file(self):
        key = {"key_file": str(self.run_key())}
        self.check_reported(json.dumps({"epoch": 1, "security": key}), "did you mean", security=key)

    def test_with_certificates(self):
        (self.dir / "cluster.json").write_text(json.dumps(self.addresses))
        folder = self.dir / "certificates"
        subprocess.run([BIN / "muster", "key", "certificates", self.dir / "cluster.json", "--output", folder], check=True,
                       stdout=subprocess.DEVNULL)
        tls = {"certificate": f"{folder}/{{type}}-{{index}}.pem", "key": f"{folder}/{{type}}-{{index}}.key", "authority": f"{folder}/authority.pem"}
        self.check_reported(json.dumps({"epoch": 1, "tls": tls}), "did you mean", tls=tls)

    def test_who_cannot_tell_says_so(self):
        worker = self.start(self.addresses, "worker:0", self.job(epoch=1))
        self.finish([worker], 30, code=CONFIGURATION)
        self.assertIn("could not notify the chief: ", worker.output())


class Moved(HostsTest):
    """A pod that is started again on another node: its name is the same, its address is not."""
    SPARE = 1
    NAMES = Starts.NAMES

    def move(self, index):
        """The host of that member is dead; its name leads to the spare one."""
        self.network.link_down(index)
        for i in range(self.HOSTS + self.SPARE):
            self.network.set_hosts(i, {**dict(zip(self.NAMES, self.network.addresses)), self.NAMES[index]: self.network.addresses[-1]})
        self.moved[f"worker:{index}"] = self.HOSTS

    def check_moved(self, index):
        for i in range(self.HOSTS + self.SPARE):
            self.network.set_hosts(i, dict(zip(self.NAMES, self.network.addresses)))
        cluster = self.addresses(self.NAMES)
        job = self.hosts_job(60)
        self.hold("step-20", self.where)
        members = [self.member(i, job, cluster) for i in range(self.HOSTS)]
        self.wait_held("step-20")
        members[index].popen.kill()
        members[index].popen.wait()
        self.move(index)
        self.release("step-20")
        members[index] = self.member(index, job, cluster)
        self.finish(members)
        # The others kept their processes and their state.
        self.assertEqual(result(self.model_dir)["generations"], 2)
        self.check_as_undisturbed(60)

    def test_a_chief_that_comes_back_under_another_address(self):
        self.check_moved(0)

    def test_a_worker_that_comes_back_under_another_address(self):
        self.check_moved(2)


if __name__ == "__main__":
    main()
