"""The rendered pods, run as local processes with the commands, arguments and environment that the kubelet would give them.

Two things are put in place of what a cluster has: each pod's DNS name becomes an address of its own on the loopback
interface (ports stay as they are), and each volume a folder. Nothing else is inherited from this environment but PATH. Two things are added:
OpenMP's threads, of which all pods together have more than there are cores, sleep while they wait; and a test may slow the workers.
"""
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import time
import unittest

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster" / "base"))
from harness import BIN, ClusterTest, Process, result  # noqa: E402
from manifests import BASE, PARAMETER_SERVER, json_with_comments, render  # noqa: E402
from recording import wait_until  # noqa: E402

LINEAR = {"program": "linear", "global_batch_size": 5, "epochs": 1000, "summary": {"every_steps": 100}}


def addresses(pods):
    """One loopback address for each pod's name; the port 2222 is free there."""
    while True:
        network = f"127.{random.randrange(1, 255)}.{random.randrange(1, 255)}"
        found = {pod.name: f"{network}.{i}" for i, pod in enumerate(pods, 1)}
        try:
            for address in found.values():
                with socket.socket() as probe:
                    probe.bind((address, 2222))
            return found
        except OSError:
            continue


class PodsTest(ClusterTest):
    folder = BASE
    world_size = 3  # of result.json: the members that train

    @classmethod
    def setUpClass(cls):
        cls.manifests = cls.rendered()

    @classmethod
    def rendered(cls):
        return render(cls.folder)

    def setUp(self):
        super().setUp()
        self.added = {}  # {hostname: arguments after those of the pod}
        self.pods = {f"muster-{p.role}-{p.index}": p for p in self.manifests.pods()}
        self.local = addresses(self.pods.values())
        chief = self.pods["muster-chief-0"]
        self.assertTrue(any("secret" in volume for volume in chief.mounts().values()))
        for path, volume in chief.mounts().items():
            if "persistentVolumeClaim" in volume:
                self.local[path] = str(self.dir / "volume")
            elif "configMap" in volume:
                self.local[path] = str(self.dir / "config")
                self.config_map = volume["configMap"]["name"]
            elif "secret" in volume:
                self.place_secret(path, volume["secret"])
        (self.dir / "volume").mkdir()
        (self.dir / "config").mkdir()

    def place_secret(self, path, secret):
        """The run key, with the mode that the kubelet gives its files."""
        self.local[path] = str(self.dir / "key")
        (self.dir / "key").mkdir()
        self.run_key().rename(self.dir / "key" / "run.key")
        (self.dir / "key" / "run.key").chmod(secret["defaultMode"])

    def here(self, text):
        for name, local in sorted(self.local.items(), key=lambda item: -len(item[0])):  # /etc/muster-key before /etc/muster
            text = text.replace(name, local)
        return text

    def job_file(self, **keys):
        """The rendered job file with other keys; the program is linear, where they do not say otherwise."""
        job = json_with_comments(self.manifests.data(self.config_map, "job.json"))
        self.model_dir = pathlib.Path(self.here(job["model_dir"]))
        for key in "program_args", "optimizer", "learning_rate":
            job.pop(key, None)
        job.update(LINEAR, **keys)
        (self.dir / "config" / "job.json").write_text(self.here(json.dumps(job)))

    def start_pod(self, hostname):
        pod = self.pods[hostname]
        at = self.dir / f"{hostname}-{len(self.processes)}"
        at.mkdir()
        (at / "termination-log").touch()  # as the kubelet does
        environment = {name: self.here(value) for name, value in pod.environment().items()}
        environment.update(PATH=os.environ["PATH"], OMP_WAIT_POLICY="passive", MUSTER_TERMINATION_LOG=str(at / "termination-log"))
        command = [self.here(word) for word in pod.command()] + self.added.get(hostname, [])
        process = Process(hostname, self.command_line(pod, at, [str(BIN / command[0]), *command[1:]], environment), environment, at / "log")
        process.termination_log = at / "termination-log"
        self.processes.append(process)
        return process

    def command_line(self, pod, at, command, environment):
        """The command that starts the pod's command; `at` is a folder of its own."""
        return command

    def slow_workers(self, milliseconds):
        """Workers that start later and begin with step 1 sleep in each step, so that a run of a few hundred steps still
        lasts when the test disturbs it, also on a fast machine."""
        fault = ["--fault", f"slow={milliseconds}ms@worker:*:step=1"]
        self.added = {name: fault for name, pod in self.pods.items() if pod.role == "worker"}

    def start_pods(self):
        """{hostname: process} of all pods, the evaluator at work."""
        order = list(self.pods)
        random.shuffle(order)  # nobody waits for anybody's start
        # But for the last member: these jobs are so short that an evaluator could come when all is over.
        last = next(name for name in reversed(order) if self.pods[name].role == "worker")
        order.remove(last)
        processes = {name: self.start_pod(name) for name in order}
        processes["muster-chief-0"].wait_for("evaluator 0 on host")
        return {**processes, last: self.start_pod(last)}

    def ended(self, processes, timeout=150):  # thousands of steps on a busy machine, too
        """{hostname: exit code of its container}, once all of them have ended."""
        deadline = time.monotonic() + timeout
        for p in processes.values():
            try:
                p.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.fail(f"{p.name} did not end:\n{p.output()}")
        return {name: p.popen.returncode if p.popen.returncode >= 0 else 128 - p.popen.returncode
                for name, p in processes.items()}

    def all_ended(self, processes, code):
        codes = self.ended(processes)
        self.assertEqual(codes, {name: code for name in codes},
                         "\n".join(f"--- {p.name}\n{p.output()}" for p in processes.values()))

    def completed(self, processes, steps):
        self.all_ended(processes, 0)
        outcome = result(self.model_dir)
        self.assertEqual((outcome["status"], outcome["steps"], outcome["world_size"]), ("completed", steps, self.world_size))
        for p in processes.values():
            self.assertEqual(p.termination_log.read_text(), "")

    def serving(self, hostname, timeout):
        """Asks as the kubelet's gRPC probe does; whether it got SERVING within `timeout` seconds."""
        probe = self.pods[hostname].container["readinessProbe"]["grpc"]
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            with grpc.insecure_channel(f"{self.local[self.pods[hostname].name]}:{probe['port']}") as channel:
                check = channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes)
                try:
                    return check(b"", timeout=1) == b"\x08\x01"  # HealthCheckResponse{status: SERVING}
                except grpc.RpcError:
                    time.sleep(0.05)
        return False


class Pods(PodsTest):
    def test_trains(self):
        self.job_file(max_steps=250)
        self.completed(self.start_pods(), steps=250)

    def test_the_chief_is_ready_while_it_waits_for_the_others(self):
        self.job_file(max_steps=20)
        chief = self.start_pod("muster-chief-0")
        self.assertTrue(self.serving("muster-chief-0", timeout=30), chief.output())
        evaluator = self.start_pod("muster-evaluator-0")
        chief.wait_for("evaluator 0 on host")
        self.assertTrue(self.serving("muster-chief-0", timeout=5))
        others = [self.start_pod(name) for name in self.pods if self.pods[name].role == "worker"]
        self.completed({p.name: p for p in (chief, evaluator, *others)}, steps=20)

    def test_a_wrong_job_fails_for_good_and_says_why(self):
        self.job_file(global_batch_sice=7)
        processes = {name: self.start_pod(name) for name in self.pods}
        self.all_ended(processes, 2)
        for name, p in processes.items():
            self.assertEqual(self.pods[name].after(2), "FailJob")
            message = p.termination_log.read_text()
            self.assertIn("global_batch_sice", message)
            self.assertIn(message.splitlines()[0], p.output())

    def test_a_lost_pod_is_started_again_and_the_others_go_on(self):
        # Long enough that the signals find it training: worker 0, which stays, is slow to the end.
        self.job_file(max_steps=400)
        self.slow_workers(20)
        pods = self.start_pods()
        pods["muster-chief-0"].wait_for("steps an epoch")
        for name, survivor in ("muster-worker-1", "muster-chief-0"), ("muster-chief-0", "muster-worker-0"):
            pods[name].signal(signal.SIGKILL)
            self.assertEqual(self.ended({name: pods[name]}), {name: 137})
            self.assertEqual(self.pods[name].after(137), "Count")
            started = pods[survivor].output().count("Number of devices")
            pods[name] = self.start_pod(name)
            pods[name].wait_for("Number of devices")
            wait_until(f"{survivor} trains again", lambda: pods[survivor].output().count("Number of devices") > started)
        self.completed(pods, steps=400)

    def test_after_a_drain_all_pods_are_started_again_and_train_to_the_end(self):
        self.job_file(max_steps=400)
        self.slow_workers(20)
        processes = self.start_pods()
        processes["muster-chief-0"].wait_for("steps an epoch")
        processes["muster-worker-1"].signal(signal.SIGTERM)
        for name, code in self.ended(processes).items():
            self.assertEqual(code, 143, processes[name].output())
            self.assertEqual(self.pods[name].after(code), "Ignore")
            # A process that could still write has written its reason.
            self.assertNotEqual(processes[name].termination_log.read_text(), "")
        self.added = {}
        self.completed(self.start_pods(), steps=400)

    def test_the_rendered_job_file_trains(self):
        (self.dir / "config" / "job.json").write_text(self.manifests.data(self.config_map, "job.json"))
        job = self.here(self.pods["muster-chief-0"].command()[2])
        alone = self.start(None, None, job, ["model_dir=", "max_steps=1", "program_args.train_examples=256",
                                             "program_args.validation=128"])
        self.finish([alone])
        self.assertIn("test: loss", alone.output())


class ParameterServerPods(PodsTest):
    folder = PARAMETER_SERVER
    world_size = 2

    def test_trains(self):
        self.job_file(max_steps=250)
        self.completed(self.start_pods(), steps=250)

    def test_servers_are_ready_while_they_wait_for_the_others(self):
        self.job_file(max_steps=20)
        chief = self.start_pod("muster-chief-0")
        servers = {name: self.start_pod(name) for name in self.pods if self.pods[name].role == "ps"}
        for name, server in servers.items():
            self.assertTrue(self.serving(name, timeout=30), server.output())
        evaluator = self.start_pod("muster-evaluator-0")
        chief.wait_for("evaluator 0 on host")
        workers = {name: self.start_pod(name) for name in self.pods if self.pods[name].role == "worker"}
        self.completed({"muster-chief-0": chief, "muster-evaluator-0": evaluator, **servers, **workers}, steps=20)

    def test_each_server_is_lost_in_turn_and_no_update_with_it(self):
        self.job_file(max_steps=2000)
        self.slow_workers(10)
        pods = self.start_pods()
        chief = pods["muster-chief-0"]
        for index in 0, 1:
            name = f"muster-ps-{index}"
            # Both shards have a backup.
            again = f"ps {1 - index} is backup of shard . again"
            wait_until("backups", lambda: index == 0 or len(re.findall(again, chief.output())) == 2)
            chief.wait_for("steps an epoch")
            pods[name].signal(signal.SIGKILL)
            self.assertEqual(self.ended({name: pods[name]}), {name: 137})
            self.assertEqual(self.pods[name].after(137), "Count")
            pods[name] = self.start_pod(name)
        self.completed(pods, steps=2000)
        servers = result(self.model_dir)["parameter_server"]
        self.assertEqual((servers["updates"], servers["lost_updates"]), (2000, 0))


if __name__ == "__main__":
    unittest.main(verbosity=2)
