"""Links between the hosts of a job with parameter servers that are cut and healed."""
import time
import unittest

from counting import BATCH, CountingTest
from harness import Process, main, result
from hosts import Network
from recording import wait_until


class Hosts(CountingTest):
    """The chief on one host, both workers on another one, each ps on one of its own."""
    CHIEF, SERVERS, WORKERS = 0, (1, 2), 3

    def setUp(self):
        super().setUp()
        self.network = Network(4)
        self.addCleanup(self.network.close)

    def process_class(self, name, command, environment, log):
        kind, index = name.split(":")
        host = {"chief": self.CHIEF, "worker": self.WORKERS, "ps": self.SERVERS[int(index)]}[kind]
        return Process(name, self.network.command(host, command), environment, log)

    def start_on_hosts(self, epochs):
        chief, first, second, workers = self.network.addresses
        cluster = {"chief": [f"{chief}:5000"], "worker": [f"{workers}:5001", f"{workers}:5002"], "ps": [f"{first}:5000", f"{second}:5000"]}
        tasks = self.counting_tasks(cluster, epochs=epochs, timeouts={"heartbeat": 3})
        self.wait_steps(tasks["chief:0"], 40)
        return tasks

    def wait_goes_on(self):
        at = sum(self.used().values())
        wait_until("training continues", lambda: sum(self.used().values()) > at + 20 * BATCH, 30)

    def test_a_link_between_two_servers_is_cut_and_healed(self):
        """Each is the other's backup; the chief hears of both. Training continues without backups, and with them again."""
        tasks = self.start_on_hosts(epochs=16)
        leader = tasks["chief:0"]
        self.network.set_cut(self.network.between(1, 2))
        leader.wait_for("until the backup is up to date again")
        self.wait_goes_on()
        self.network.set_cut(self.network.between(1, 2), False)
        for shard in 0, 1:
            leader.wait_for(f"is backup of shard {shard} again")
        self.finish(tasks.values(), 180)
        self.check_exact()
        self.assertNotIn("lost", leader.output())

    def test_a_server_that_the_chief_alone_does_not_reach(self):
        """It stops acknowledging before the chief gives it up, so the state of its backup lacks nothing."""
        tasks = self.start_on_hosts(epochs=14)
        cut = self.network.between(self.CHIEF, self.SERVERS[0])
        self.network.set_cut(cut)
        tasks["chief:0"].wait_for("its backup on ps 1 takes over shard 0")
        self.wait_goes_on()
        self.network.set_cut(cut, False)
        for shard in 0, 1:
            tasks["chief:0"].wait_for(f"ps 0 is backup of shard {shard} again")
        self.finish(tasks.values(), 180)
        self.check_nothing_lost()
        servers = result(self.model_dir)["parameter_server"]
        self.assertEqual((servers["lost_updates"], servers["torn_pushes"]), (0, 0))

    def test_a_chief_that_reaches_no_server(self):
        """It takes both for lost, and they hold what they held: it waits for one of them, and nothing is lost."""
        tasks = self.start_on_hosts(epochs=14)
        cut = [pair for server in self.SERVERS for pair in self.network.between(self.CHIEF, server)]
        self.network.set_cut(cut)
        for shard in 0, 1:
            tasks["chief:0"].wait_for(f"no other server has shard {shard}")
        self.network.set_cut(cut, False)
        self.wait_goes_on()
        for shard in 0, 1:
            tasks["chief:0"].wait_for(f"is backup of shard {shard} again")
        self.finish(tasks.values(), 180)
        self.check_nothing_lost()
        servers = result(self.model_dir)["parameter_server"]
        self.assertEqual((servers["lost_updates"], servers["torn_pushes"]), (0, 0))

    def test_a_server_that_workers_do_not_reach(self):
        """The chief hears of both: nobody is lost, pushes wait until the link is well, and are there once."""
        tasks = self.start_on_hosts(epochs=16)
        cut = self.network.between(self.WORKERS, self.SERVERS[0])
        self.network.set_cut(cut)
        at = sum(self.used().values())
        time.sleep(4)  # longer than the heartbeat
        self.assertLessEqual(sum(self.used().values()), at + 4 * BATCH, "each push is for both servers")
        self.network.set_cut(cut, False)
        self.wait_goes_on()
        self.finish(tasks.values(), 180)
        self.check_exact()


if __name__ == "__main__":
    main()
