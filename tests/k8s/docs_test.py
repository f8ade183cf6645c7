"""The blocks of docs/kubernetes.md, run as a new user would copy them.

kubectl in front of the real one checks what would reach an API server. muster, and the folder that the commands run in, are real.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

from manifests import SOURCE, certificate_files, client_version
from operators import OperatorManifests, check, render_all

BIN = pathlib.Path(os.environ.get("MUSTER_BIN_DIR", SOURCE / "build" / "bin"))
# The types of their conditions at the end of a good run; kubectl compares them without regard to case.
CONDITION = {"job": "complete", "tfjob": "succeeded", "jobset": "completed"}
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", (SOURCE / "docs" / "kubernetes.md").read_text(), re.S | re.M)

KUBECTL = """#!/bin/sh
case "$1 $2" in
"apply -k") exec {real} kustomize "$3" > "$OUT/applied.yaml";;
"apply -f") [ "$3" = - ] && exec cat > "$OUT/applied.yaml"; exit 1;;
"create secret") [ -e run.key ] && echo "$*" > "$OUT/secret";;
"wait "*|"get "*|"logs "*|"delete "*|"port-forward "*) echo "$*" >> "$OUT/later";;
*) echo "unknown: kubectl $*" >&2; exit 1;;
esac
"""


class Blocks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster-test-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        for name in "k8s", "examples":
            shutil.copytree(SOURCE / name, self.dir / name)
        (self.dir / "bin").mkdir()
        (self.dir / "bin" / "kubectl").write_text(KUBECTL.format(real=shutil.which("kubectl")))
        (self.dir / "bin" / "kubectl").chmod(0o755)

    def run_block(self, text):
        """(objects that it applies, whether it creates the Secret, what it asks for later)"""
        out = pathlib.Path(tempfile.mkdtemp(dir=self.dir))
        done = subprocess.run(["sh", "-euc", text], cwd=self.dir, capture_output=True, text=True,
                              env={"PATH": f"{self.dir / 'bin'}:{BIN}:{os.environ['PATH']}", "OUT": str(out), "HOME": str(self.dir)})
        self.assertEqual(done.returncode, 0, f"{text}\n{done.stderr}")
        later = (out / "later").read_text().split("\n") if (out / "later").exists() else []
        applied = yaml.safe_load_all((out / "applied.yaml").read_text()) if (out / "applied.yaml").exists() else []
        return [o for o in applied if o], (out / "secret").exists(), later

    def test_each_form_is_one_block(self):
        applied = {}
        for _, text in BLOCKS:
            # Commands by themselves belong to a run that is there already; and they need its key.
            if "kubectl apply" not in text:
                continue
            subprocess.run([BIN / "muster", "key", "new", self.dir / "run.key"], capture_output=True)
            if "muster key new" in text:
                (self.dir / "run.key").unlink()
            with self.subTest(text):
                objects, secret, later = self.run_block(text)
                check(objects)
                manifests = OperatorManifests(objects)
                self.assertIn("muster-model-dir", manifests.kind("PersistentVolumeClaim"))
                pods = manifests.pods()
                self.assertIn("chief", {p.role for p in pods})
                if "muster key new" in text:
                    self.assertTrue(secret or "muster-run-key" in manifests.kind("Secret"), "nobody makes the Secret")
                for line in later:
                    for condition, kind in re.findall(r"--for=condition=(\w+) .*\b(job|tfjob|jobset)/", line):
                        self.assertEqual(condition.lower(), CONDITION[kind])
                    for kind, name in re.findall(r"\b(job|tfjob|jobset|deployment)/([\w-]+)", line):
                        self.assertIn(name, manifests.kind({"job": "Job", "tfjob": "TFJob", "jobset": "JobSet", "deployment": "Deployment"}[kind]))
                form = next((k for k in ("TFJob", "JobSet") if manifests.kind(k)), "Job")
                limits = [p.container["resources"]["limits"] for p in pods]
                applied.setdefault(form, []).append(sum("nvidia.com/gpu" in limit for limit in limits))
        self.assertEqual(sorted(applied), ["Job", "JobSet", "TFJob"])
        self.assertTrue(all(any(counts) for form, counts in applied.items() if form != "TFJob"), applied)

    def test_the_combined_overlay(self):
        (text,) = [text for _, text in BLOCKS if text.startswith("# k8s/team/kustomization.yaml")]
        (self.dir / "k8s" / "team").mkdir()
        (self.dir / "k8s" / "team" / "kustomization.yaml").write_text(text)
        objects, _, _ = self.run_block("kubectl apply -k k8s/team")
        check(objects)
        manifests = OperatorManifests(objects)
        (jobset,) = manifests.kind("JobSet").values()
        self.assertEqual(jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "muster")
        self.assertEqual({p.container["image"] for p in manifests.pods()}, {"registry.example.com/team/muster:1"})
        (deployment,) = manifests.kind("Deployment").values()
        self.assertEqual(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "registry.example.com/team/tensorboard:1")

    def test_the_certificates_are_those_that_the_pods_mount(self):
        (text,) = [text for _, text in BLOCKS if "muster key certificates" in text]
        (self.dir / "run.key").touch()  # for the kubectl of this test
        objects, secret, _ = self.run_block(text)
        self.assertTrue(secret)
        made = {path.name for path in (self.dir / "certificates").iterdir()}
        self.assertNotIn("authority.key", made)
        mounted = {key for pod in OperatorManifests(objects).pods() for key in certificate_files(pod).values()}
        self.assertEqual(made, mounted)

    def test_every_form_can_be_stopped(self):
        stop = (SOURCE / "docs" / "kubernetes.md").read_text().split("## Stopping and resuming")[1].split("\n## ")[0]
        commands = re.findall(r"^kubectl delete (.*?)\s*(?:#.*)?$", stop, re.M)
        for folder in "base", "parameter_server", "tfjob", "jobset", "jobset_parameter_server":
            manifests = render_all(SOURCE / "k8s" / folder)
            whole = next((k for k in ("TFJob", "JobSet") if manifests.kind(k)), None)
            # Deletes the owner of the pods: deleted alone, a Job of a JobSet or a pod of a TFJob comes back.
            wanted = f"{whole.lower()} muster" if whole else "job -l app.kubernetes.io/name=muster"
            self.assertIn(wanted, commands)
            if not whole:
                for job in manifests.kind("Job").values():
                    self.assertEqual(job["metadata"]["labels"]["app.kubernetes.io/name"], "muster")

    def test_every_folder_is_named(self):
        page = (SOURCE / "docs" / "kubernetes.md").read_text()
        for kustomization in (SOURCE / "k8s").glob("*/kustomization.yaml"):
            self.assertIn(f"`k8s/{kustomization.parent.name}`", page)

    def test_every_option_is_named(self):
        printed = subprocess.run([BIN / "muster", "manifest", "--help"], capture_output=True, text=True, check=True).stdout
        table = (SOURCE / "docs" / "kubernetes.md").read_text().split("| option | what it sets |")[1].split("\n\n")[0]
        options = set(re.findall(r"^  (--[\w-]+)", printed, re.M))
        self.assertGreater(len(options), 10)
        self.assertEqual(options, set(re.findall(r"`(--[\w-]+)[^`]*`", re.sub(r"\([^)]*\)", "", table))))


if __name__ == "__main__":
    if client_version() < (1, 22):
        print("skipped: kubectl is older than 1.22, whose kustomize knows no replacements")
        sys.exit(77)
    unittest.main(verbosity=2)
