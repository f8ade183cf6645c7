"""TensorBoard's pod of k8s/components/tensorboard, run as a process on what a job left on the volume, with a read-only root file system."""
import json
import os
import pathlib
import random
import socket
import time
import unittest
import urllib.error
import urllib.request

from manifests import BASE
from operator_pods_test import FormTest, ReadOnlyRootCommand
from operators import check, render_all
from operators_test import SUFFIX, overlay
from pods_test import Process

# Where `tensorboard` is: the image of this test.
IMAGE = pathlib.Path(os.environ["MUSTER_VENV"]) / "bin"


def free_address(port):
    while True:
        address = f"127.{random.randrange(1, 255)}.{random.randrange(1, 255)}.1"
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
                return address
            except OSError:
                continue


class TensorBoard(ReadOnlyRootCommand, FormTest):
    @classmethod
    def rendered(cls):
        return overlay(BASE, "tensorboard")

    def setUp(self):
        super().setUp()
        self.deployment = self.manifests.kind("Deployment")["muster-tensorboard"]["spec"]
        self.pod = self.deployment["template"]["spec"]
        (self.container,) = self.pod["containers"]

    def get(self, address, path, timeout):
        """Probes like the kubelet, until there is an answer."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                with urllib.request.urlopen(f"http://{address}:{self.container['ports'][0]['containerPort']}{path}", timeout=5) as answer:
                    return answer.status, answer.read()
            except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
                if time.monotonic() > deadline or self.processes[-1].popen.poll() is not None:
                    raise AssertionError(f"no answer: {error}\n{self.processes[-1].output()}") from None
                time.sleep(0.1)

    def start_tensorboard(self, address):
        at = self.dir / "tensorboard"
        at.mkdir()
        (at / "termination-log").touch()
        environment = {"PATH": os.environ["PATH"], **{e["name"]: e["value"] for e in self.container["env"]}}
        command = [self.here(word).replace("0.0.0.0", address) for word in self.container["command"] + self.container["args"]]

        class OfDeployment:
            container = self.container

        line = self.command_line(OfDeployment, at, [str(IMAGE / command[0]), *command[1:]], environment)
        self.processes.append(Process("tensorboard", line, environment, at / "log"))

    def test_it_shows_the_run(self):
        self.job_file(max_steps=200, summary={"every_steps": 10})
        self.completed(self.start_pods(), steps=200)
        address = free_address(self.container["ports"][0]["containerPort"])
        self.start_tensorboard(address)
        for probe in "readinessProbe", "livenessProbe":
            status, page = self.get(address, self.container[probe]["httpGet"]["path"], timeout=60)
            self.assertEqual(status, 200)
            self.assertIn(b"TensorBoard", page)
        deadline = time.monotonic() + 30
        while "fashion_mnist/train" not in (runs := json.loads(self.get(address, "/data/runs", timeout=30)[1])):
            self.assertLess(time.monotonic(), deadline, runs)
            time.sleep(0.2)
        _, points = self.get(address, "/data/plugin/scalars/scalars?run=fashion_mnist/train&tag=loss", timeout=30)
        self.assertEqual([step for _, step, _ in json.loads(points)], list(range(10, 201, 10)))

    def test_who_reaches_it(self):
        check(self.manifests.objects)
        labels = self.deployment["template"]["metadata"]["labels"]
        self.assertEqual(self.deployment["selector"]["matchLabels"], labels)
        own = self.manifests.kind("NetworkPolicy")["muster-tensorboard"]["spec"]
        self.assertEqual(own, {"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress", "Egress"]})  # nobody, and it nobody
        # No host name of the run leads to it, and it is no pod of the run to the run's own policy.
        for selector in self.manifests.kind("Service")["muster"]["spec"]["selector"], \
                self.manifests.kind("NetworkPolicy")["muster"]["spec"]["podSelector"]["matchLabels"]:
            self.assertFalse(selector.items() <= labels.items())
        chief = self.manifests.jobs["muster-chief"]["spec"]["template"]
        self.assertEqual(self.pod["securityContext"], chief["spec"]["securityContext"])

    def test_it_never_keeps_the_volume_from_the_chief(self):
        """Wherever the two pods are placed, and placed again: many nodes may mount the volume, and it waits for no pod."""
        for base, suffix in SUFFIX.items():
            for operator in None, "tfjob", "jobset":
                with self.subTest(base=base.name, operator=operator):
                    manifests = overlay(base, *([operator + suffix] if operator else []), "tensorboard")
                    check(manifests.objects)
                    pods = [next(p for p in manifests.pods() if p.role == "chief").spec,
                            manifests.kind("Deployment")["muster-tensorboard"]["spec"]["template"]["spec"]]
                    (chief,), (own,) = ([v["persistentVolumeClaim"] for v in spec["volumes"] if "persistentVolumeClaim" in v] for spec in pods)
                    self.assertEqual(own, chief)
                    claim = manifests.kind("PersistentVolumeClaim")[own["claimName"]]
                    self.assertEqual(claim["spec"]["accessModes"], ["ReadWriteMany"])
                    self.assertNotIn("affinity", pods[1])
                    (mount,) = [m for m in pods[1]["containers"][0]["volumeMounts"] if m["name"] == "model-dir"]
                    self.assertIs(mount["readOnly"], True)
        # Without TensorBoard the chief alone mounts it, and one node is enough.
        self.assertEqual(render_all(BASE).kind("PersistentVolumeClaim")["muster-model-dir"]["spec"]["accessModes"], ["ReadWriteOnce"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
