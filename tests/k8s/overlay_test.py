"""The overlay that docs/kubernetes.md shows."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from manifests import BASE, SOURCE, check_schemas, render


def kubectl_minor():
    answer = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True, check=True)
    return int(re.match(r"v1\.(\d+)\.", json.loads(answer.stdout)["clientVersion"]["gitVersion"])[1])


class Overlay(unittest.TestCase):
    def test_the_documented_one(self):
        text = (SOURCE / "docs" / "kubernetes.md").read_text()
        (kustomization,) = re.findall(r"```yaml\n(.*?)```", text, re.S)
        (cluster,) = re.findall(r"```json\n(.*?)```", text, re.S)
        with tempfile.TemporaryDirectory(prefix="muster-test-") as folder:
            at = pathlib.Path(folder) / "k8s" / "overlays" / "four"
            at.mkdir(parents=True)
            shutil.copytree(BASE, at.parents[1] / "base")
            (at / "kustomization.yaml").write_text(kustomization)
            (at / "cluster.json").write_text(cluster)
            manifests = render(at)
        check_schemas(manifests.objects)
        for role, count in ("chief", 1), ("worker", 4):
            pods = [p for p in manifests.pods() if p.job["metadata"]["name"] == f"muster-{role}"]
            self.assertEqual([f"{p.name}:2222" for p in pods], json.loads(pods[0].environment()["CLUSTER"])[role])
            self.assertEqual(pods[0].job["spec"]["parallelism"], count)
        base = render(BASE)
        for pod in manifests.pods():
            self.assertEqual(pod.container["image"], "registry.example.com/team/muster:1")
            # The job file is still the base's, in a ConfigMap of another name.
            (name,) = manifests.kind("ConfigMap")
            (base_name,) = base.kind("ConfigMap")
            self.assertNotEqual(name, base_name)
            self.assertEqual(manifests.data(name, "job.json"), base.data(base_name, "job.json"))
        (claim,) = manifests.kind("PersistentVolumeClaim").values()
        self.assertEqual(claim["spec"]["storageClassName"], "fast")


if __name__ == "__main__":
    if kubectl_minor() < 21:
        print(f"skipped: kubectl 1.{kubectl_minor()} knows no 'patches' with a target; 1.21 does")
        sys.exit(77)
    unittest.main(verbosity=2)
