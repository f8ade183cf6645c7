"""k8s/components/certificates: each pod has its own certificate in the place of the run key, and with those the pods train."""
import json
import pathlib
import shutil
import signal
import subprocess
import unittest

from manifests import BASE, PARAMETER_SERVER, certificate_files as files
from operators import check
from operators_test import BIN, SUFFIX, overlay
from pods_test import PodsTest
from recording import wait_until

FOLDER = "/etc/muster-tls"
FORMS = [(base, form) for base in (BASE, PARAMETER_SERVER) for form in ([], [f"jobset{SUFFIX[base]}"])]


class Certificates(unittest.TestCase):
    def test_each_container_has_its_own_alone(self):
        for base, form in FORMS:
            with self.subTest(base=base.name, form=form):
                manifests = overlay(base, "certificates", *form)
                check(manifests.objects)
                pods = manifests.pods()
                self.assertGreaterEqual(len(pods), 4)
                for pod in pods:
                    task = f"{pod.role}-{pod.index}"
                    self.assertEqual(files(pod), {f"{FOLDER}/authority.pem": "authority.pem", f"{FOLDER}/task.pem": f"{task}.pem",
                                                  f"{FOLDER}/task.key": f"{task}.key"})
                    self.assertNotIn("MUSTER_RUN_KEY_FILE", pod.environment())
                    (secret,) = (volume["secret"] for volume in pod.spec["volumes"] if "secret" in volume)
                    self.assertEqual(secret, {"secretName": "muster-certificates", "defaultMode": 0o440})
                    command = pod.command()
                    for value in "certificate=%s/task.pem", "key=%s/task.key", "authority=%s/authority.pem":
                        self.assertEqual(command[command.index("tls." + value % FOLDER) - 1], "--set")

    def test_it_combines_with_metrics(self):
        manifests = overlay(BASE, "certificates", "metrics")
        check(manifests.objects)
        for pod in manifests.pods():
            self.assertIn("status.metrics_port=9400", pod.command())
            self.assertIn(f"tls.key={FOLDER}/task.key", pod.command())


class CertificatePods(PodsTest):
    base = BASE

    @classmethod
    def rendered(cls):
        return overlay(cls.base, "certificates")

    def setUp(self):
        super().setUp()
        # Makes certificates as docs/kubernetes.md does, for the addresses that stand for the pods' names here.
        chief = self.pods["muster-chief-0"]
        cluster = json.loads(self.here(chief.environment()["CLUSTER"]))
        cluster["evaluator"] = [f"{self.local[self.pods['muster-evaluator-0'].name]}:2222"]
        (self.dir / "cluster.json").write_text(json.dumps(cluster))
        self.secret = self.dir / "certificates"
        subprocess.run([BIN / "muster", "key", "certificates", self.dir / "cluster.json", "--output", self.secret], check=True, capture_output=True)

    def place_secret(self, path, secret):
        """Each pod has other files at this path."""

    def start_pod(self, hostname):
        at = self.dir / f"tls-{hostname}-{len(self.processes)}"
        at.mkdir()
        for path, key in files(self.pods[hostname]).items():
            self.local[path] = str(shutil.copy(self.secret / key, at / pathlib.Path(path).name))
            (at / pathlib.Path(path).name).chmod(0o440)
        return super().start_pod(hostname)

    def test_trains_and_survives_a_lost_pod(self):
        self.job_file(max_steps=800)
        self.slow_workers(20)  # parameter servers wait for no worker: worker 0 has enough to do alone until worker 1 is back
        pods = self.start_pods()
        pods["muster-chief-0"].wait_for("steps an epoch")
        pods["muster-worker-1"].signal(signal.SIGKILL)
        self.assertEqual(self.ended({"muster-worker-1": pods["muster-worker-1"]}), {"muster-worker-1": 137})
        pods["muster-worker-1"] = self.start_pod("muster-worker-1")
        wait_until("worker 1 trains again", lambda: "Number of devices" in pods["muster-worker-1"].output() or "steps an epoch" in pods["muster-worker-1"].output())
        self.completed(pods, steps=800)

    def test_the_chief_is_ready_for_a_probe_in_plaintext(self):
        self.job_file(max_steps=20)
        chief = self.start_pod("muster-chief-0")
        self.assertTrue(self.serving("muster-chief-0", timeout=30), chief.output())
        others = [self.start_pod(name) for name in self.pods if name != "muster-chief-0"]
        self.completed({p.name: p for p in (chief, *others)}, steps=20)
        for p in chief, *others:
            self.assertIn("/task.pem", p.output(), "it says by what it is known")

    def test_the_certificate_of_another_task_is_refused(self):
        self.job_file(max_steps=20, timeouts={"join": 8})
        shutil.copy(self.secret / "worker-0.pem", self.secret / "worker-1.pem")
        shutil.copy(self.secret / "worker-0.key", self.secret / "worker-1.key")
        pods = {name: self.start_pod(name) for name in self.pods if self.pods[name].role != "evaluator"}
        codes = self.ended(pods)
        self.assertEqual(codes["muster-worker-1"], 2, pods["muster-worker-1"].output())
        self.assertNotIn(0, codes.values())


class ParameterServerCertificatePods(CertificatePods):
    base = PARAMETER_SERVER
    world_size = 2


del PodsTest  # an import is no test

if __name__ == "__main__":
    unittest.main(verbosity=2)
