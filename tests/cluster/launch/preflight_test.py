"""`muster preflight` in every task of a cluster of real processes."""
import json
import os
import re
import socket
import struct
import subprocess
import unittest

from harness import BIN, CONFIGURATION, RETRYABLE, ClusterTest, free_ports, inherited
from ranks_test import FROM, LAUNCHERS
from recording import wait_until

CLOCK = BIN.parent / "tests" / "test_clock.so"


class Preflight(ClusterTest):
    def preflight(self, cluster, task, *arguments, **environment):
        kind, index = task.split(":")
        config = json.dumps({"cluster": cluster, "task": {"type": kind, "index": int(index)}})
        return self.start_process(task, [BIN / "muster", "preflight", *arguments], inherited(TF_CONFIG=config, **environment))

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
            self.assertIn("not needed: the shared memory of parameter servers is in no file system", process.output())
            self.assertIn("parameter_server", process.output())

    def test_more_replicas_than_servers_are_a_configuration_error(self):
        cluster = self.cluster(1, ps=1)
        job = self.job(parameter_server={"copies": 2})
        processes = [self.preflight(cluster, task, "--job", job) for task in ("chief:0", "worker:0", "ps:0")]
        self.finish(processes, code=CONFIGURATION)
        for process in processes:
            self.assertRegex(process.output(), "FAILED +strategy +parameter_server.copies is 2, but the cluster has 1 ps task: set it to 1")
        # So every task says, before it waits for anybody.
        self.finish([self.start(cluster, task, job) for task in ("chief:0", "worker:0", "ps:0")], code=CONFIGURATION)

    def test_one_that_does_not_come_is_named_in_time(self):
        cluster = self.cluster(2)
        processes = [self.preflight(cluster, task, "--timeout", 1) for task in ("chief:0", "worker:0")]
        self.finish(processes, code=RETRYABLE)
        for process in processes:
            self.assertRegex(process.output(), r"FAILED +worker 1 +\S+ was not reached within 1 s: connection refused")
            self.assertRegex(process.output(), r"worker 1 +\? +\? +-")

    def test_another_cluster_is_a_configuration_error(self):
        cluster = self.cluster(1)
        other = {**cluster, "ps": ["127.0.0.1:9"]}
        processes = [self.preflight(cluster, "chief:0", "--timeout", 10), self.preflight(other, "worker:0", "--timeout", 8, "--json")]
        self.finish(processes, code=CONFIGURATION)
        self.assertIn("worker 0 was started with another cluster", processes[0].output())
        said = json.loads(processes[1].output())
        self.assertEqual(said["exit_code"], 2)
        self.assertIn("chief 0 was started with another cluster", [check["what"] for check in said["checks"] if not check["ok"]])
        self.assertEqual(said["reached"]["worker:0"], ["chief:0"])

    def new_key(self, name):
        path = self.dir / name
        subprocess.run([BIN / "muster", "key", "new", path], check=True, stdout=subprocess.DEVNULL)
        return {"MUSTER_RUN_KEY_FILE": str(path)}

    def certificates(self, cluster):
        """The arguments with which each task finds its own."""
        (self.dir / "cluster.json").write_text(json.dumps(cluster))
        self.folder = self.dir / "certificates"
        subprocess.run([BIN / "muster", "key", "certificates", self.dir / "cluster.json", "--output", self.folder], check=True,
                       stdout=subprocess.DEVNULL)
        keys = {"certificate": "{type}-{index}.pem", "key": "{type}-{index}.key", "authority": "authority.pem"}
        return ["--job", self.job(tls={key: f"{self.folder}/{name}" for key, name in keys.items()})]

    def expire(self, name):
        """Puts one in the place of a certificate that is the same, but ended yesterday."""
        def openssl(*arguments, **options):
            return subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, **options).stdout
        file, request = self.folder / f"{name}.pem", self.dir / "request"
        names = openssl("x509", "-in", file, "-noout", "-ext", "subjectAltName").decode().split("\n")[1].strip()
        (self.dir / "extensions").write_text("subjectAltName=" + names.replace("IP Address", "IP"))
        openssl("req", "-new", "-key", self.folder / f"{name}.key", "-subj", "/CN=task", "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.folder / "authority.pem", "-CAkey", self.folder / "authority.key",
                "-days", "-1", "-extfile", self.dir / "extensions", "-out", file)

    def test_one_run_key(self):
        cluster, key = self.cluster(1), self.new_key("key")
        processes = [self.preflight(cluster, task, **key) for task in ("chief:0", "worker:0")]
        self.finish(processes)
        for process in processes:
            self.assertRegex(process.output(), r"ok +identity +run key, Muster run authority [0-9a-f]{12}")

    def test_another_run_key_at_a_peer_is_a_configuration_error(self):
        cluster = self.cluster(1)
        processes = [self.preflight(cluster, task, "--timeout", 10, **self.new_key(task)) for task in ("chief:0", "worker:0")]
        self.finish(processes, code=CONFIGURATION)
        names = [re.search(r"ok +identity +run key, (Muster run authority \w+)", process.output())[1] for process in processes]
        self.assertNotEqual(*names)
        self.assertRegex(processes[0].output(),
                         rf"FAILED +identity +worker 0 has another key than this task \({names[1]}, not {names[0]}\): give all tasks one run key")
        self.assertIn(f"chief 0 has another key than this task ({names[0]}, not {names[1]})", processes[1].output())

    def test_a_peer_without_the_key_is_a_configuration_error(self):
        cluster = self.cluster(1)
        none = {"MUSTER_RUN_KEY_FILE": "", "HOME": str(self.dir), "XDG_CONFIG_HOME": ""}
        processes = [self.preflight(cluster, "chief:0", "--timeout", 10, **self.new_key("key")), self.preflight(cluster, "worker:0", "--timeout", 10, **none)]
        self.finish(processes, code=CONFIGURATION)
        self.assertRegex(processes[0].output(), r"FAILED +identity +worker 0 has no key: give all tasks one run key")
        self.assertRegex(processes[1].output(), r"FAILED +identity +chief 0 has a key \(Muster run authority \w+\), and this task has none")

    def test_a_peer_whose_key_is_refused_is_named(self):
        cluster = self.cluster(1)
        bad = self.new_key("bad")
        (self.dir / "bad").chmod(0o644)
        processes = [self.preflight(cluster, "chief:0", "--timeout", 10, **self.new_key("key")), self.preflight(cluster, "worker:0", "--timeout", 10, **bad)]
        self.finish(processes, code=CONFIGURATION)
        self.assertRegex(processes[0].output(), r"FAILED +identity +worker 0 has no key: ")
        self.assertIn("chmod 600", processes[1].output())
        self.assertNotIn("chief 0 has", processes[1].output())

    def test_two_keys_that_are_replaced_are_no_difference(self):
        cluster = self.cluster(2)
        keys = [(self.dir / name).read_text() for name in ("old", "new") if self.new_key(name)]
        for name, lines in ("below", keys), ("above", keys[::-1]):
            (self.dir / name).write_text("".join(lines))
            (self.dir / name).chmod(0o600)
        at = {name: {"MUSTER_RUN_KEY_FILE": str(self.dir / name)} for name in ("old", "below", "above", "new")}

        def check(code, *names):
            processes = [self.preflight(cluster, task, "--timeout", 10, **at[name]) for task, name in zip(("chief:0", "worker:0", "worker:1"), names)]
            self.finish(processes, code=code)
            return processes
        check(0, "old", "below", "below")
        processes = check(0, "below", "above", "above")
        self.assertRegex(processes[0].output(), r"ok +identity +run key, Muster run authority \w+, and accepts Muster run authority \w+")
        check(0, "above", "above", "new")
        # One shows the new key to one that holds the old one alone.
        processes = check(2, "above", "old", "above")
        self.assertIn("FAILED  identity", processes[1].output())

    def test_an_expired_certificate_is_a_configuration_error(self):
        cluster = self.cluster(1)
        arguments = self.certificates(cluster)
        processes = [self.preflight(cluster, task, *arguments) for task in ("chief:0", "worker:0")]
        self.finish(processes)
        self.assertRegex(processes[0].output(), "ok +identity +certificates, ")
        self.expire("worker-0")
        processes = [self.preflight(cluster, task, "--timeout", 10, *arguments) for task in ("chief:0", "worker:0")]
        self.finish(processes[1:], code=CONFIGURATION)
        self.assertRegex(processes[1].output(), r"FAILED +identity +the certificate \S+/worker-0.pem has expired: peers refuse it")
        self.finish(processes[:1], code=RETRYABLE)
        self.assertRegex(processes[0].output(), r"FAILED +worker 0 +cannot be compared: ")

    def test_a_taken_port_and_a_bad_job_are_configuration_errors(self):
        cluster = self.cluster(1)
        first = self.preflight(cluster, "chief:0", "--timeout", 10)
        host, port = cluster["chief"][0].split(":")

        def listens():
            with socket.socket() as probe:
                return probe.connect_ex((host, int(port))) == 0
        wait_until("the first one listens", listens)
        self.finish([self.preflight(cluster, "chief:0", "--timeout", 1)], code=CONFIGURATION)
        self.finish([first], code=RETRYABLE)
        self.finish([self.preflight(cluster, "chief:0", "--job", self.job(epoch=1))], code=CONFIGURATION)


    # ---- what all tasks compare ----

    def run_all(self, cluster, arguments, code, **environment):
        """`arguments`: of each task its own. What each has printed."""
        processes = [self.preflight(cluster, task, *more, **environment.get(task.replace(":", "_"), {})) for task, more in arguments.items()]
        self.finish(processes, code=code)
        return [process.output() for process in processes]

    def test_the_differing_key_of_a_job_file_is_named_in_every_task(self):
        job, cluster = self.job(), self.cluster(2)
        common = ["--job", job]
        for answer in self.run_all(cluster, {"chief:0": common, "worker:0": common, "worker:1": [*common, "--set", "checkpoint.keep=7"]}, code=2):
            self.assertRegex(answer, "FAILED +job +worker 1 has another checkpoint.keep than chief 0: 7, not 3: give all tasks the same job file")
            self.assertRegex(answer, "ok +worker 0 +same job and versions as chief 0; clock ")
        # Keys that belong to a host may differ.
        answers = self.run_all(cluster, {"chief:0": common, "worker:0": [*common, "--set", "devices=cpu:2"], "worker:1": []}, code=0)
        self.assertRegex(answers[1], "warn +job +worker 1 has no job file")

    def test_a_check_that_fails_in_one_task_is_seen_in_all(self):
        cluster, common = self.cluster(1), ["--job", self.job()]
        answers = self.run_all(cluster, {"chief:0": common, "worker:0": [*common, "--set", "devices=cuda:0,63"]}, code=2)
        self.assertRegex(answers[0], 'FAILED +worker 0, devices +devices is "cuda:0,63", 0 GPUs on this host')
        self.assertEqual(answers[1].count("devices is"), 1)

    @unittest.skipUnless(CLOCK.exists(), "the test clock is for x86-64")
    def test_a_clock_that_is_off_is_a_warning(self):
        (self.dir / "clock").write_bytes(struct.pack("q", 90 * 10**9))
        shifted = {"LD_PRELOAD": str(CLOCK), "MUSTER_TEST_CLOCK": str(self.dir / "clock")}
        for answer in self.run_all(self.cluster(1), {"chief:0": [], "worker:0": []}, code=0, worker_0=shifted):
            self.assertRegex(answer, r"warn +clock +the clock of worker 0 is \+90.0 s \(within [0-9.]+ .s\) ahead of that of chief 0: synchronize")

    def test_a_gpu_that_is_not_well_is_named(self):
        fake = {"LD_LIBRARY_PATH": str(BIN.parent / "tests" / "fake_gpu_health")}
        answers = self.run_all(self.cluster(1), {"chief:0": [], "worker:0": []}, code=2, chief_0={**fake, "FAKE_GPU_HEALTH": "ok ok"},
                               worker_0={**fake, "FAKE_GPU_HEALTH": "ok ecc=2,reasons=64"})
        self.assertRegex(answers[0], "ok +GPU health +2 GPUs .NVIDIA Fake., driver 580.65.06")
        self.assertRegex(answers[0], "FAILED +worker 0, GPU 1 +2 memory errors that ECC could not correct")
        self.assertRegex(answers[1], "warn +GPU 1 +its clock is throttled: it is hot")
        # Another job may use it.
        answers = self.run_all(self.cluster(1), {"chief:0": [], "worker:0": []}, code=0,
                               worker_0={**fake, "FAKE_GPU_HEALTH": "ok ecc=2 lost", "CUDA_VISIBLE_DEVICES": "0"})
        self.assertRegex(answers[1], "ok +GPU health +1 of 3 GPUs .NVIDIA Fake.")
        self.assertRegex(answers[0], "warn +worker 0, GPU 1 +not used by this job: 2 memory errors")
        self.assertRegex(answers[0], "warn +worker 0, GPU 2 +not used by this job: the driver cannot use it: GPU is lost")

    def test_it_ends_in_time_whatever_strangers_do(self):
        """Connections that say nothing, too much or nonsense, and one that wants a session, hold nobody up."""
        cluster = self.cluster(1)
        first = self.preflight(cluster, "chief:0", "--timeout", 100)
        host, port = cluster["chief"][0].split(":")
        strangers = []

        def connected():
            try:
                strangers.append(socket.create_connection((host, int(port)), timeout=5))
            except OSError:
                return False
            return True
        wait_until("the first one listens", connected)
        for text in b"", b"x" * 200_000, b'{"muster_preflight_session": 1, "task": "worker:9", "cluster_digest": "", "tls": true}\n', b"[" * 60_000 + b"\n":
            for _ in range(10):
                strangers.append(socket.create_connection((host, int(port)), timeout=5))
                try:
                    strangers[-1].sendall(text)
                except OSError:
                    pass  # It has heard enough.
        self.finish([self.preflight(cluster, "worker:0", "--timeout", 100), first], 60)  # well below --timeout
        for stranger in strangers:
            stranger.close()

    def test_launchers_with_ranks(self):
        job = self.job()
        for source, variables in FROM.items():
            with self.subTest(source=source):
                ports = free_ports(2)
                port = () if source == "slurm" else ("--port", ports[0])
                processes = []
                for rank in range(2):
                    env = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
                    env.update({name: str(value) for name, value in variables(rank, 2, ports).items()})
                    command = [BIN / "muster", "cluster", "--from", source, *port, "--exec", "--", "muster", "preflight", "--job", job]
                    processes.append(self.start_process(f"rank {rank}", command, env))
                self.finish(processes)
                self.assertRegex(processes[1].output(), "ok +worker 0 +same job and versions as chief 0")


if __name__ == "__main__":
    unittest.main(verbosity=2)
