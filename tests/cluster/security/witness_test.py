"""A job as seen by other programs: OpenSSL's own client at its ports, and every frame between two hosts."""
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import numpy
from harness import BIN, PREEMPTED, ClusterTest, Process, main, tensors
from hosts import Network

WINDOW = 16


def openssl(*arguments):
    return subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, text=True, timeout=20).stdout


class Handshake:
    """`openssl s_client`, which ends by itself where it is refused."""
    def __init__(self, address, *arguments):
        self.output = tempfile.TemporaryFile()
        self.process = subprocess.Popen(["openssl", "s_client", "-connect", address, "-msg", *map(str, arguments)], stdin=subprocess.PIPE,
                                        stdout=self.output, stderr=subprocess.STDOUT)

    def text(self):
        """Without the bytes."""
        self.output.seek(0)
        return "".join(line for line in self.output.read().decode(errors="replace").splitlines(True) if not line.startswith("    "))

    def ended(self):
        """Its output until it ended."""
        self.process.wait(15)
        self.process.stdin.close()
        text = self.text()
        self.output.close()
        return text

    def accepted(self):
        """Its output until the server sent a session ticket, which it does when it knows the client."""
        deadline = time.monotonic() + 15
        while "NewSessionTicket" not in self.text():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(self.text())
            time.sleep(0.02)
        self.process.kill()
        return self.ended()


def listening(pid):
    """The ports of 127.0.0.1 on which a process listens."""
    sockets = set()
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        try:
            sockets.add(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
        except OSError:  # closed meanwhile
            continue
    lines = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(line[1].split(":")[1], 16) for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets}


class OpenSsl(ClusterTest):
    def certificates(self, name, cluster):
        """A folder with a certificate for each task."""
        (self.dir / "cluster.json").write_text(json.dumps(cluster))
        folder = self.dir / name
        subprocess.run([BIN / "muster", "key", "certificates", self.dir / "cluster.json", "--output", folder], check=True, stdout=subprocess.DEVNULL)
        return folder

    def of_worker(self, folder):
        return "-cert", folder / "worker-0.pem", "-key", folder / "worker-0.key", "-CAfile", folder / "authority.pem", "-verify_return_error"

    def expired(self):
        """A certificate of the cluster's authority for worker 0 that was good until yesterday."""
        at = self.dir / "expired"
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=worker 0", "-keyout", f"{at}.key",
                "-out", f"{at}.csr")
        names = openssl("x509", "-in", self.folder / "worker-0.pem", "-noout", "-ext", "subjectAltName").splitlines()[1]
        (self.dir / "extensions").write_text("subjectAltName=" + names.strip().replace("IP Address", "IP")
                                             + "\nkeyUsage=digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n")
        openssl("x509", "-req", "-in", f"{at}.csr", "-CA", self.folder / "authority.pem", "-CAkey", self.folder / "authority.key", "-days", "-1",
                "-extfile", self.dir / "extensions", "-out", f"{at}.pem")
        return at

    def setUp(self):
        super().setUp()
        self.at = self.cluster(1)
        self.folder = self.certificates("certificates", self.at)
        sets = [f"tls.certificate={self.folder}/{{type}}-{{index}}.pem", f"tls.key={self.folder}/{{type}}-{{index}}.key",
                f"tls.authority={self.folder}/authority.pem"]
        job = self.job(max_steps=10**9, steps_per_epoch=10**7, summary={"every_steps": 10**7})
        self.members = [self.start(self.at, task, job, sets) for task in ("chief:0", "worker:0")]
        self.members[0].wait_for("Number of devices")
        control = int(self.at["chief"][0].split(":")[1])
        (data,) = listening(self.members[0].popen.pid) - {control}
        self.ports = [f"127.0.0.1:{port}" for port in (control, data)]

    def stop(self):
        self.members[0].signal(signal.SIGTERM)
        self.finish(self.members, code=PREEMPTED)

    def test_a_task_of_the_cluster_is_accepted(self):
        for port, alpn in zip(self.ports, (["-alpn", "h2"], [])):
            text = Handshake(port, *alpn, *self.of_worker(self.folder)).accepted()
            self.assertRegex(text, r"New, TLSv1\.3, Cipher is TLS_(AES|CHACHA20)_")
            self.assertIn("Verify return code: 0 (ok)", text)
        self.stop()

    def test_others_are_refused(self):
        others = self.certificates("others", self.at)
        own = self.dir / "self-signed"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=worker 0", "-keyout", f"{own}.key",
                "-out", f"{own}.pem")
        expired = self.expired()
        strangers = {"nothing": [], "an expired one": ["-cert", f"{expired}.pem", "-key", f"{expired}.key"],
                     "another authority's": ["-cert", others / "worker-0.pem", "-key", others / "worker-0.key"],
                     "its own": ["-cert", f"{own}.pem", "-key", f"{own}.key"]}
        # gRPC closes the connection without an alert.
        refusals = r"unexpected eof while reading", r"alert (certificate required|unknown ca|bad certificate|certificate expired)"
        for port, alpn, refusal in zip(self.ports, (["-alpn", "h2"], []), refusals):
            for name, arguments in strangers.items():
                text = Handshake(port, *alpn, *arguments).ended()
                self.assertRegex(text, refusal, f"{name} at {port}")
                self.assertNotIn("NewSessionTicket", text)
        # Data connections have no older protocol; control ones prefer the newest.
        text = Handshake(self.ports[1], "-tls1_2", *self.of_worker(self.folder)).ended()
        self.assertIn("alert protocol version", text)
        self.stop()


class RecordingNetwork(Network):
    """Keeps each frame that passes between the hosts."""
    def __init__(self, count):
        self.frames = []
        super().__init__(count)

    def passes(self, frame):
        self.frames.append(frame)
        return frame


class Frames(ClusterTest):
    """Learning rate 0: the parameters that travel are those of the checkpoint."""
    JOB = dict(program="fashion_mnist", program_args={"hidden": 16, "validation": 1000}, global_batch_size=16, learning_rate=0.0, optimizer="sgd",
               max_steps=6)

    def setUp(self):
        self.network = RecordingNetwork(2)
        self.addCleanup(self.network.close)
        super().setUp()

    def process_class(self, name, command, environment, log):
        return Process(name, self.network.command(self.hosts[name], command), environment, log)

    def parameters_seen(self, tasks, **keys):
        """How many of some windows of the parameters were in a frame, and of how many."""
        self.hosts = dict(tasks)
        cluster = {}
        for name, host in tasks:
            addresses = cluster.setdefault(name.split(":")[0], [])
            addresses.append(f"{self.network.addresses[host]}:{5000 + len(self.hosts) * len(cluster) + len(addresses)}")
        del self.network.frames[:]
        model_dir = self.dir / f"model-{len(self.processes)}"
        self.finish(self.start_all(cluster, self.job(**self.JOB, **keys), [f"model_dir={model_dir}"]))
        windows = []
        for values in tensors(model_dir, 6).values():
            if len(numpy.unique(values[:4])) == 4:  # not a bias, which begins with zeros
                raw = values.tobytes()
                windows += [raw[at:at + WINDOW] for at in range(0, min(len(raw), 4096) - WINDOW, 256)]
        self.assertGreater(len(windows), 10)
        everything = b"\0".join(self.network.frames)
        self.assertGreater(len(everything), 500_000)
        key = bytes.fromhex(pathlib.Path(self.network.key).read_text().strip())
        self.assertNotIn(key, everything)
        self.assertNotIn(key.hex().encode(), everything)
        return sum(window in everything for window in windows), len(windows)

    def check(self, tasks, **keys):
        seen, count = self.parameters_seen(tasks, security={"insecure": True}, **keys)
        self.assertGreater(seen, count / 2)  # they are where this looks
        seen, _ = self.parameters_seen(tasks, **keys)
        self.assertEqual(seen, 0)

    def test_a_synchronous_job(self):
        self.check([("chief:0", 0), ("worker:0", 1)])

    def test_parameter_servers(self):
        self.check([("chief:0", 0), ("worker:0", 0), ("ps:0", 1)], strategy="parameter_server")


if __name__ == "__main__":
    main()
