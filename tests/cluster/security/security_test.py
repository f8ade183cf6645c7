"""Admission of processes: run keys, certificates, and the refusal of processes that have neither."""
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import time
import unittest

import grpc

from harness import BIN, CONFIGURATION, PREEMPTED, RETRYABLE, ClusterTest, free_ports, result


def gone(task):
    """A FailureReport: that the process of `task` is gone, and nobody starts it again."""
    name = task.encode()
    return bytes([0x08, 2, 0x12, len(name)]) + name + bytes([0x50, 1])


def call(channel, method, message=b""):
    """The status of a call, OK where it is answered."""
    try:
        channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)(message, timeout=10)
        return grpc.StatusCode.OK
    except grpc.RpcError as error:
        return error.code()


def stranger_calls(test, channel, expected):
    """Makes calls that ended a job, disclosed its weights, or rewrote them, before tasks had to authenticate."""
    for method, message in [("/muster.proto.Coordinator/ReportFailure", gone("worker:0")),
                            ("/muster.proto.Coordinator/Status", b""),
                            ("/muster.proto.Evaluation/Next", b""),
                            ("/muster.proto.ParameterServer/SetView", b""),
                            ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", b"")]:
        test.assertEqual(call(channel, method, message), expected, method)


class SecurityTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.key = {"MUSTER_RUN_KEY_FILE": str(self.run_key())}

    def new_key(self, name):
        path = self.dir / name
        subprocess.run([BIN / "muster", "key", "new", path], check=True, stdout=subprocess.DEVNULL)
        return path

    def certificates(self, cluster):
        """The --set arguments with which each task finds its own."""
        (self.dir / "cluster.json").write_text(json.dumps(cluster))
        folder = self.dir / "certificates"
        subprocess.run([BIN / "muster", "key", "certificates", self.dir / "cluster.json", "--output", folder], check=True,
                       stdout=subprocess.DEVNULL)
        return [f"tls.certificate={folder}/{{type}}-{{index}}.pem", f"tls.key={folder}/{{type}}-{{index}}.key",
                f"tls.authority={folder}/authority.pem"]

    def long_job(self, **keys):
        """Trains until it is asked to stop."""
        return self.job(max_steps=10**9, steps_per_epoch=10**7, summary={"every_steps": 10**7}, **keys)

    def stop(self, processes):
        for process in processes:
            self.assertIsNone(process.popen.poll(), process.output())
        processes[0].signal(signal.SIGTERM)
        self.finish(processes, code=PREEMPTED)

    def start_with(self, environment, cluster, job, sets=()):
        return [self.start(cluster, f"{kind}:{i}", job, sets, environment)
                for kind, addresses in cluster.items() for i in range(len(addresses))]

    def test_another_key_is_named_where_the_job_ends(self):
        job, cluster = self.job(model_dir=str(self.dir / "m"), timeouts={"join": 10}), self.cluster(1)
        worker = self.start(cluster, "worker:0", job, environment={"MUSTER_RUN_KEY_FILE": str(self.new_key("other.key"))})
        chief = self.start(cluster, "chief:0", job, environment=self.key)
        self.finish([chief, worker], code=RETRYABLE)
        why = r"its certificate is refused: another authority signed it \(is it of another run's key\?\)"
        self.assertRegex(chief.output(), r"ROOT CAUSE: not all members joined within 10 s .*; the last connection that failed to prove its identity came from "
                                         r"127\.0\.0\.1: it ended the connection when it had seen this process's certificate: its own log says why")
        self.assertRegex(worker.output(), rf"could not reach the chief chief:0 \(.*\) for 10 s \(timeouts\.join\): {why}")
        self.assertIn(f"with the run key {self.run_key()} (Muster run authority ", chief.output())

    def test_tasks_with_one_key_train_and_no_log_shows_it(self):
        job = self.job(model_dir=str(self.dir / "m"))
        processes = self.start_with(self.key, self.cluster(2), job)
        self.finish(processes)
        self.assertEqual(result(self.dir / "m")["steps"], 20)
        secret = self.run_key().read_text().strip()
        for path in self.dir.rglob("*"):
            if path.is_file() and path != self.run_key():
                self.assertNotIn(secret.encode(), path.read_bytes(), path)

    def test_a_key_in_certificates_place(self):
        cluster = self.cluster(1)
        processes = self.start_with({}, cluster, self.job(), self.certificates(cluster))
        self.finish(processes)

    def test_parameter_servers_with_a_key(self):
        job = self.job(max_steps=30, strategy="parameter_server")
        self.finish(self.start_with(self.key, self.cluster(2, ps=2), job))

    def test_a_task_with_another_key_is_kept_out_and_does_no_harm(self):
        cluster, job = self.cluster(2), self.job()
        first = [self.start(cluster, task, job, (), self.key) for task in ("chief:0", "worker:0")]
        stranger = self.start(cluster, "worker:1", job, (), {"MUSTER_RUN_KEY_FILE": str(self.new_key("other"))})
        first[0].wait_for("ended before the peer proved its identity: it ended the connection when it had seen this process's certificate")
        stranger.wait_for(f"cannot connect to chief:0 ({cluster['chief'][0]}): its certificate is refused: another authority signed it")
        self.assertIsNone(first[0].popen.poll())
        stranger.signal(signal.SIGKILL)
        stranger.popen.wait()
        self.finish(first + [self.start(cluster, "worker:1", job, (), self.key)])
        self.assertLess(len(re.findall("ended before the peer proved its identity", first[0].output())), 10)

    def test_calls_of_strangers_get_nothing(self):
        cluster = self.cluster(1)
        processes = self.start_with(self.key, cluster, self.long_job())
        processes[0].wait_for("Number of devices")
        with grpc.insecure_channel(cluster["chief"][0]) as channel:
            stranger_calls(self, channel, grpc.StatusCode.UNAUTHENTICATED)
            self.assertEqual(call(channel, "/grpc.health.v1.Health/Check"), grpc.StatusCode.OK)
        self.stop(processes)

    def test_a_worker_may_not_speak_for_others(self):
        cluster = self.cluster(1, ps=1)
        sets = self.certificates(cluster)
        processes = self.start_with({}, cluster, self.long_job(strategy="parameter_server"), sets)
        processes[0].wait_for("joined")
        folder = self.dir / "certificates"
        credentials = grpc.ssl_channel_credentials(*((folder / name).read_bytes() for name in
                                                     ("authority.pem", "worker-0.key", "worker-0.pem")))
        # A certificate names a task; Python's grpc looks for a host.
        options = [("grpc.ssl_target_name_override", "127.0.0.1")]
        with grpc.secure_channel(cluster["chief"][0], credentials, options) as channel:
            denied = grpc.StatusCode.PERMISSION_DENIED
            self.assertEqual(call(channel, "/muster.proto.Coordinator/Status"), grpc.StatusCode.OK)
            self.assertEqual(call(channel, "/muster.proto.Coordinator/ReportFailure", gone("worker:0")), denied)
            self.assertEqual(call(channel, "/muster.proto.Coordinator/ReportFailure", gone("ps:0")), denied)
            self.assertEqual(call(channel, "/muster.proto.Evaluation/Next"), denied)
        with grpc.secure_channel(cluster["ps"][0], credentials, options) as channel:
            for method in ("SetView", "Cut", "Read", "Create"):
                self.assertEqual(call(channel, f"/muster.proto.ParameterServer/{method}"), denied, method)
        self.stop(processes)

    def test_certificates_name_hosts_in_any_spelling(self):
        """The certificates of `muster key certificates` are valid for the cluster that it was given."""
        ports = free_ports(3)
        cluster = {"chief": [f"LocalHost:{ports[0]}"], "worker": [f"127.0.0.1:{ports[1]}"], "ps": [f"LOCALHOST:{ports[2]}"]}
        self.finish(self.start_with({}, cluster, self.job(max_steps=10, strategy="parameter_server"), self.certificates(cluster)))

    def test_certificates_name_addresses_in_any_spelling(self):
        cluster = {"chief": ["[FD00::1]:5000"], "worker": ["[fd00:0::2]:5000", "[fd00:0:0:0:0:0:0:3]:5000"]}
        job = self.job(tls=dict(item[4:].split("=") for item in self.certificates(cluster)))
        for kind, index in ("chief", 0), ("worker", 0), ("worker", 1):
            config = json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})
            said = subprocess.run([BIN / "muster", "preflight", "--timeout", "0", "--job", job], env={**os.environ, "TF_CONFIG": config},
                                  capture_output=True, text=True).stdout
            self.assertRegex(said, "ok +identity +certificates, ")

    def test_control_connections_prefer_tls_1_3_and_demand_a_certificate_of_1_2_too(self):
        cluster = self.cluster(1)
        sets = self.certificates(cluster)
        chief = self.start(cluster, "chief:0", self.job(), sets)
        chief.wait_for("data connections use")
        host, port = cluster["chief"][0].split(":")
        folder = self.dir / "certificates"

        def version(most, certificate):
            """The TLS version of a connection on which the chief answers, None if the chief ends it."""
            context = ssl.create_default_context(cafile=folder / "authority.pem")
            context.check_hostname = False  # the certificate names a task
            context.maximum_version = most
            context.set_alpn_protocols(["h2"])
            if certificate:
                context.load_cert_chain(folder / "worker-0.pem", folder / "worker-0.key")
            try:
                with socket.create_connection((host, int(port)), 10) as plain, context.wrap_socket(plain) as connection:
                    return connection.version() if connection.recv(1) else None
            except (ssl.SSLError, ConnectionError):
                return None
        for most, spoken in (ssl.TLSVersion.TLSv1_3, "TLSv1.3"), (ssl.TLSVersion.TLSv1_2, "TLSv1.2"):
            self.assertEqual(version(most, True), spoken)
            self.assertIsNone(version(most, False))

    def test_another_tasks_certificate_is_refused_at_once(self):
        cluster = self.cluster(1)
        sets = [item.replace("{type}-{index}", "worker-0") for item in self.certificates(cluster)]
        chief = self.start(cluster, "chief:0", self.job(), sets)
        self.finish([chief], code=CONFIGURATION)
        self.assertIn("is the certificate of worker:0, and this task is chief:0", chief.output())

    def test_a_cluster_of_several_hosts_needs_one_of_three(self):
        cluster = {"chief": ["10.1.2.3:5000"], "worker": ["10.1.2.4:5000"], "ps": ["10.1.2.5:5000"], "evaluator": ["10.1.2.6:5000"]}
        nothing = {"MUSTER_RUN_KEY_FILE": "", "HOME": str(self.dir), "XDG_CONFIG_HOME": ""}
        job = self.job(strategy="parameter_server")
        for kind in cluster:
            began = time.monotonic()
            process = self.start(cluster, f"{kind}:0", job, (), nothing)
            process.wait(10)
            self.assertEqual(process.popen.returncode, 2, process.output())
            for mend in ("muster key new", "tls.certificate", "security.insecure"):
                self.assertIn(mend, process.output())
            self.assertLess(time.monotonic() - began, 5, "at once")

    def test_a_key_that_all_may_read_is_refused(self):
        self.run_key().chmod(0o644)
        process = self.start(self.cluster(1), "chief:0", self.job(), (), self.key)
        self.finish([process], code=CONFIGURATION)
        self.assertIn("chmod 600", process.output())

    def launch(self, job, *arguments):
        return self.start_launch("--workers", 1, "--job", job, *arguments)

    def refused(self, process, sentence):
        self.finish([process], 10, code=CONFIGURATION)
        self.assertEqual(len(process.output().splitlines()), 1, process.output())
        self.assertIn(sentence, process.output())

    def test_launch_takes_no_certificates(self):
        sets = self.certificates(self.cluster(1))
        job = self.job(tls=dict(item[4:].split("=") for item in sets))
        self.refused(self.launch(job), "`muster launch` takes no certificates (tls.certificate)")
        self.finish([self.launch(job, "--set", "tls={}")])  # as it says

    def test_launch_goes_by_one_key(self):
        key = self.run_key()
        for own in {"key_file": str(key)}, {"insecure": True}:
            job = self.job(security=own)
            self.refused(self.launch(job, "--key-file", key), f"--key-file is given, but the tasks use the job's security.{[*own][0]}")
            self.finish([self.launch(job)])
        self.refused(self.launch(self.job(security={"key_file": "nowhere.key"})), "cannot read the run key")
        self.finish([self.launch(self.job(), "--key-file", key)])

    def test_launch_makes_a_key_that_nothing_shows(self):
        process = self.launch(self.long_job())
        process.wait_for("Number of devices")
        tasks = subprocess.run(["pgrep", "-P", str(process.popen.pid)], check=True, capture_output=True, text=True).stdout.split()
        self.assertEqual(len(tasks), 2)
        for pid in tasks:
            for what in ("environ", "cmdline"):
                with open(f"/proc/{pid}/{what}", "rb") as file:
                    self.assertIsNone(re.search(rb"[0-9a-f]{64}", file.read()))
        self.stop([process])


if __name__ == "__main__":
    unittest.main()
