"""Rendered manifests, and what the kubelet makes of a pod: what the tests of this folder share."""
import json
import pathlib
import re
import subprocess
import unittest

import kubernetes_validate
import yaml

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BASE = SOURCE / "k8s" / "base"
PARAMETER_SERVER = SOURCE / "k8s" / "parameter_server"
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"

# Versions of Kubernetes: 1.31, where podFailurePolicy became stable, and later ones up to the newest whose schemas are there.
VERSIONS = "1.31", "1.34", "1.37"


def client_version():
    done = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True, check=True)
    version = json.loads(done.stdout)["clientVersion"]
    return int(version["major"]), int(re.match(r"\d+", version["minor"])[0])


def render(folder):
    """The objects that `kubectl apply -k` would send."""
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True)
    if done.returncode != 0 and client_version() < (1, 22):
        raise unittest.SkipTest("kubectl is older than 1.22 (Debian 12's is 1.20): its kustomize knows no folder as a resource, or no replacements")
    if done.returncode != 0:
        raise AssertionError(f"kubectl kustomize {folder} failed:\n{done.stderr}")
    return Manifests(list(yaml.safe_load_all(done.stdout)))


def check_schemas(objects):
    """A kubernetes_validate.ValidationError for what an API server would refuse, unknown keys included."""
    for o in objects:
        for version in VERSIONS:
            kubernetes_validate.validate(o, version, strict=True)


def json_with_comments(text):
    return json.loads(re.sub(r"(?m)(^|\s)//.*$", "", text))


def expand(text, variables):
    """$(NAME) by its value where it is set before; $$ stands for one $, as in the kubelet."""
    return re.sub(r"\$(\$|\(([^)]+)\))", lambda m: "$" if m[1] == "$" else variables.get(m[2], m[0]), text)


def certificate_files(pod):
    """{path in the container: key of the Secret muster-certificates}"""
    return {mount["mountPath"]: mount.get("subPath") or expand(mount["subPathExpr"], pod.environment())
            for mount in pod.container["volumeMounts"] if mount["name"] == "certificates"}


class Manifests:
    def __init__(self, objects):
        self.objects = objects

    def kind(self, kind):
        return {o["metadata"]["name"]: o for o in self.objects if o["kind"] == kind}

    @property
    def jobs(self):
        return self.kind("Job")

    def data(self, config_map, key):
        return self.kind("ConfigMap")[config_map]["data"][key]

    def pods(self):
        return [Pod(self, job, index) for job in self.jobs.values() for index in range(job["spec"]["completions"])]


class Pod:
    """The pod of one completion index of an Indexed Job."""

    def __init__(self, manifests, job, index):
        self.manifests, self.job, self.index = manifests, job, index
        self.spec = job["spec"]["template"]["spec"]
        (self.container,) = self.spec["containers"]
        self.role = job["metadata"]["labels"]["app.kubernetes.io/component"]
        self.hostname = f"{job['metadata']['name']}-{index}"  # the Job controller's
        self.name = f"{self.hostname}.{self.spec['subdomain']}"

    def environment(self):
        """In the manifest's order: a value sees the variables before it."""
        variables = {}
        for entry in self.container["env"]:
            source = entry.get("valueFrom", {})
            if "value" in entry:
                value = expand(entry["value"], variables)
            elif "configMapKeyRef" in source:
                value = self.manifests.data(source["configMapKeyRef"]["name"], source["configMapKeyRef"]["key"])
            elif source == {"fieldRef": {"fieldPath": INDEX}} or source == {"fieldRef": {"apiVersion": "v1", "fieldPath": INDEX}}:
                value = str(self.index)
            else:
                raise AssertionError(f"{self.name}: {entry} is more than this test's kubelet knows")
            variables[entry["name"]] = value
        return variables

    def command(self):
        return [expand(word, self.environment()) for word in self.container["command"] + self.container.get("args", [])]

    def mounts(self):
        """{mount path: volume}"""
        volumes = {volume["name"]: volume for volume in self.spec["volumes"]}
        return {mount["mountPath"]: volumes[mount["name"]] for mount in self.container["volumeMounts"]}

    def after(self, exit_code):
        """The Job controller's reaction to a failure of this pod: the action of the first rule that matches, else Count."""
        for rule in self.job["spec"]["podFailurePolicy"]["rules"]:
            codes = rule.get("onExitCodes")
            if codes and (exit_code in codes["values"]) == (codes["operator"] == "In"):
                return rule["action"]
        return "Count"
