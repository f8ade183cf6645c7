"""The process of a parameter server by itself: what it refuses, how long it waits, how it stops."""
import signal
import unittest

from harness import CONFIGURATION, PREEMPTED, RETRYABLE, ClusterTest, take_port


class PsProcess(ClusterTest):
    def ps(self, cluster, *sets, task="ps:0", strategy="parameter_server"):
        return self.start(cluster, task, self.job(strategy=strategy, timeouts={"join": 1, "bind": 1}), sets, binary="muster-ps")

    def test_another_task_learns_its_binary(self):
        process = self.ps(self.cluster(1, ps=1), task="worker:0")
        self.finish([process], code=CONFIGURATION)
        self.assertIn("start muster-worker for this task", process.output())

    def test_a_strategy_without_servers_is_refused(self):
        process = self.ps(self.cluster(1, ps=1), strategy="multi_worker_mirrored")
        self.finish([process], code=CONFIGURATION)
        self.assertIn("has no use for the 1 ps of the cluster", process.output())

    def test_without_steps_to_serve_it_ends_with_success_at_once(self):
        """Whether or not the chief is there: nothing is to be waited for, and nothing is to be started again."""
        cluster = self.cluster(1, ps=2)
        for index in range(2):
            process = self.ps(cluster, "parameter_server.max_staleness=0", "timeouts.join=600", task=f"ps:{index}")
            self.finish([process])
            self.assertEqual(process.output().count("this ps task ends with exit code 0, because it has nothing to serve"), 1)
            self.assertNotIn("this server listens on", process.output())

    def test_a_chief_that_does_not_come_is_named(self):
        cluster = self.cluster(1, ps=1)
        process = self.ps(cluster)
        self.finish([process], code=RETRYABLE)
        self.assertIn(f"could not reach the chief chief:0 ({cluster['chief'][0]}) for 1 s (timeouts.join)", process.output())

    def test_a_port_that_is_taken_is_named(self):
        cluster = self.cluster(1, ps=1)
        with take_port(cluster["ps"][0]):
            process = self.ps(cluster)
            self.finish([process], code=CONFIGURATION)
        self.assertIn(f"cannot listen on {cluster['ps'][0]}: the port is in use", process.output())

    def test_stops_before_the_chief_is_there(self):
        process = self.ps(self.cluster(1, ps=1), "timeouts.join=60")
        process.wait_for("this server listens on")
        process.signal(signal.SIGTERM)
        self.finish([process], code=PREEMPTED)

    def test_waits_for_the_workers_and_stops_with_the_job(self):
        cluster = self.cluster(1, ps=2)
        sets = ["timeouts.join=60"]
        job = self.job(strategy="parameter_server")
        chief = self.start(cluster, "chief:0", job, sets)
        servers = [self.start(cluster, f"ps:{i}", job, sets) for i in range(2)]
        chief.wait_for("model_dir is not set")
        for process in servers:
            process.wait_for("this server listens on")
        chief.signal(signal.SIGTERM)
        self.finish([chief, *servers], code=PREEMPTED)


if __name__ == "__main__":
    unittest.main(verbosity=2)
