"""`muster preflight` in every task of a cluster of real processes."""
import json
import os
import socket
import unittest

from harness import BIN, ClusterTest
from recording import wait_until


class Preflight(ClusterTest):
    def preflight(self, cluster, task, *arguments):
        kind, index = task.split(":")
        config = json.dumps({"cluster": cluster, "task": {"type": kind, "index": int(index)}})
        environment = {**os.environ, "TF_CONFIG": config}
        process = self.process_class(task, [str(BIN / "muster"), "preflight", *map(str, arguments)], environment,
                                     self.dir / f"log-{len(self.processes)}")
        self.processes.append(process)
        return process

    def test_all_reach_all(self):
        cluster = self.cluster(2, ps=1)
        job = self.job(model_dir=str(self.dir / "model"))
        tasks = ["chief:0", "worker:0", "worker:1", "ps:0"]
        processes = [self.preflight(cluster, task, "--job", job) for task in tasks]
        self.finish(processes)
        chief = processes[0].output()
        self.assertIn("is writable", chief)
        self.assertFalse((self.dir / "model").exists())
        self.assertRegex(chief, r"ok +worker 1 +127\.0\.0\.1:\d+ on host \S+, both ways")
        self.assertRegex(chief, r"chief 0 +- +yes +yes +yes")
        self.assertNotIn("FAILED", chief)
        for process in processes:
            self.assertIn("not needed: what parameter servers share is in no file system", process.output())
            self.assertIn("parameter_server", process.output())

    def test_more_replicas_than_servers_are_a_configuration_error(self):
        cluster = self.cluster(1, ps=1)
        job = self.job(parameter_server={"copies": 2})
        processes = [self.preflight(cluster, task, "--job", job) for task in ("chief:0", "worker:0", "ps:0")]
        self.finish(processes, code=2)
        for process in processes:
            self.assertRegex(process.output(), "FAILED +strategy +parameter_server.copies is 2, but the cluster has 1 ps task: set it to 1")
        # So every task says, before it waits for anybody.
        self.finish([self.start(cluster, task, job) for task in ("chief:0", "worker:0", "ps:0")], code=2)

    def test_one_that_does_not_come_is_named_in_time(self):
        cluster = self.cluster(2)
        processes = [self.preflight(cluster, task, "--timeout", 1) for task in ("chief:0", "worker:0")]
        self.finish(processes, code=138)
        for process in processes:
            self.assertRegex(process.output(), r"FAILED +worker 1 +\S+ was not reached within 1 s: connection refused")
            self.assertRegex(process.output(), r"worker 1 +\? +\? +-")

    def test_another_cluster_is_a_configuration_error(self):
        cluster = self.cluster(1)
        other = {**cluster, "ps": ["127.0.0.1:9"]}
        processes = [self.preflight(cluster, "chief:0", "--timeout", 10), self.preflight(other, "worker:0", "--timeout", 8, "--json")]
        self.finish(processes, code=2)
        self.assertIn("worker 0 was started with another cluster", processes[0].output())
        said = json.loads(processes[1].output())
        self.assertEqual(said["exit_code"], 2)
        self.assertIn("chief 0 was started with another cluster", [check["what"] for check in said["checks"] if not check["ok"]])
        self.assertEqual(said["reached"]["worker:0"], ["chief:0"])

    def test_a_taken_port_and_a_bad_job_are_configuration_errors(self):
        cluster = self.cluster(1)
        first = self.preflight(cluster, "chief:0", "--timeout", 10)
        host, port = cluster["chief"][0].split(":")

        def listens():
            with socket.socket() as probe:
                return probe.connect_ex((host, int(port))) == 0
        wait_until("the first one listens", listens)
        self.finish([self.preflight(cluster, "chief:0", "--timeout", 1)], code=2)
        self.finish([first], code=138)
        self.finish([self.preflight(cluster, "chief:0", "--job", self.job(epoch=1))], code=2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
