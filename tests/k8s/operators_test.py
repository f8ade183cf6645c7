"""The overlays for GPUs and operators: what they change in the base, and what each operator's API would say of its object."""
import copy
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import jsonschema
import kubernetes_validate
import yaml

from manifests import BASE, INDEX, PARAMETER_SERVER, SOURCE, render
from operators import check, render_all

BIN = pathlib.Path(os.environ.get("MUSTER_BIN_DIR", SOURCE / "build" / "bin"))
K8S = SOURCE / "k8s"
SUFFIX = {BASE: "", PARAMETER_SERVER: "_parameter_server"}


def overlay(base, *components):
    """Rendered, with the components in this order, as a user's own overlay has them."""
    with tempfile.TemporaryDirectory(prefix="muster-test-") as folder:
        at = pathlib.Path(folder) / "k8s"
        shutil.copytree(K8S, at)
        (at / "own").mkdir()
        (at / "own" / "kustomization.yaml").write_text(yaml.safe_dump({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [f"../{base.name}"],
            "components": [f"../components/{c}" for c in components]}))
        return render_all(at / "own")


def cluster_of(pod):
    """The output of `muster cluster --json` for the pod's TF_CONFIG."""
    done = subprocess.run([BIN / "muster", "cluster", "--json"], capture_output=True, text=True,
                          env={"TF_CONFIG": pod.environment()["TF_CONFIG"]})
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def leaves(template):
    """{role: what is to be the same in every form}: all of the pod but what belongs to one operator."""
    template = copy.deepcopy(template)
    for key in "subdomain", "restartPolicy":
        template["spec"].pop(key, None)
    (container,) = template["spec"]["containers"]
    container.pop("ports", None)
    container["name"] = "any"
    container["env"] = [e for e in container["env"] if e["name"] not in ("JOB_COMPLETION_INDEX", "CLUSTER", "TF_CONFIG")]
    for volume in template["spec"]["volumes"]:
        if "configMap" in volume:
            volume["configMap"]["name"] = "any"
    return template


class Operator(unittest.TestCase):
    maxDiff = None

    def each(self, name):
        for base, suffix in SUFFIX.items():
            yield base, render_all(K8S / f"{name}{suffix}")

    def check_tasks(self, manifests):
        """Every pod knows its place in one cluster, whose addresses are the pods' own."""
        pods = {f"{p.role}:{p.index}": p for p in manifests.pods()}
        servers = [task for task in pods if task.startswith("ps:")]
        self.assertEqual(sorted(pods), sorted(["chief:0", "evaluator:0", "worker:0", "worker:1", *servers]))
        self.assertIn(sorted(servers), ([], ["ps:0", "ps:1"]))
        self.assertEqual(bool(servers), any(p.command()[0] == "muster-ps" for p in pods.values()))
        for pod in pods.values():
            names = [e["name"] for e in pod.container["env"]]
            self.assertEqual(sorted(names), sorted(set(names)), "a variable is there twice")
            self.assertEqual(pod.command()[0], f"muster-{pod.role}")
        for task, pod in pods.items():
            said = cluster_of(pod)
            rank = {"chief": 0, "worker": 1 + pod.index}.get(pod.role)
            self.assertEqual((said["task"], said["rank"], said["world_size"], said["chief"], said["warnings"]),
                             (task, rank, 3, "chief:0", []))
            for role, addresses in said["cluster"].items():
                self.assertEqual(addresses, [f"{p.name}:2222" for p in pods.values() if p.role == role])

    def check_pods_of_the_base(self, base, manifests):
        own = {(p.role, p.index): leaves(self.template(p)) for p in manifests.pods()}
        self.assertEqual(own, {(p.role, p.index): leaves(self.template(p)) for p in render_all(base).pods()})

    @staticmethod
    def template(pod):
        return pod.replica["template"] if hasattr(pod, "replica") else pod.job["spec"]["template"]

    def check_references(self, manifests):
        (config_map,) = manifests.kind("ConfigMap")
        for pod in manifests.pods():
            named = [v["configMap"]["name"] for v in pod.spec["volumes"] if "configMap" in v]
            named += [e["valueFrom"]["configMapKeyRef"]["name"] for e in pod.container["env"]
                      if "configMapKeyRef" in e.get("valueFrom", {})]
            self.assertEqual(set(named), {config_map})
            self.assertIn("job.json", manifests.kind("ConfigMap")[config_map]["data"])


class TfJob(Operator):
    def test_what_the_operator_gets(self):
        for base, manifests in self.each("tfjob"):
            check(manifests.objects)
            self.assertEqual(manifests.kind("Job"), {})
            self.assertEqual(manifests.kind("Service"), {})  # it makes one for each pod
            (tfjob,) = manifests.kind("TFJob").values()
            self.assertEqual(tfjob["spec"]["runPolicy"], {"cleanPodPolicy": "Running"})
            roles = {kind: r["replicas"] for kind, r in tfjob["spec"]["tfReplicaSpecs"].items()}
            self.assertEqual(roles, {"Chief": 1, "Worker": 2, "Evaluator": 1, **({"PS": 2} if base is PARAMETER_SERVER else {})})
            for pod in manifests.pods():
                self.assertEqual(pod.container["ports"], [{"name": "tfjob-port", "containerPort": 2222}])
                self.assertEqual([e["name"] for e in pod.container["env"]], ["MUSTER_RUN_KEY_FILE"])

    def test_tasks(self):
        for base, manifests in self.each("tfjob"):
            self.check_tasks(manifests)
            self.check_pods_of_the_base(base, manifests)
            self.check_references(manifests)
            for pod in manifests.pods():
                self.assertEqual(cluster_of(pod)["environment"], "cloud")
                self.assertEqual(("evaluator" in json.loads(pod.environment()["TF_CONFIG"])["cluster"]), True)

    def test_exit_codes(self):
        for _, manifests in self.each("tfjob"):
            for pod in manifests.pods():
                self.assertEqual([pod.after(code) for code in (1, 2, 3, 127)], ["FailJob"] * 4)
                self.assertEqual([pod.after(code) for code in (137, 138, 143)], ["Count"] * 3)

    def test_what_the_schema_lets_pass(self):
        (tfjob,) = render_all(K8S / "tfjob").kind("TFJob").values()
        replicas = "spec", "tfReplicaSpecs"
        wrong = [(replicas + ("Worker", "restartPolicy"), "ExitCodes"), (replicas + ("Wroker",), {}), (("spec", "runPolicy", "cleanPod"), "All"),
                 (replicas + ("Chief", "template", "spec", "containers", 0, "name"), "muster"), (("metadata", "name"), "Muster"),
                 (replicas + ("Chief", "template", "spec", "subdomian"), "muster"), (("spec", "successPolicy"), "Chief")]
        for path, value in wrong:
            broken = copy.deepcopy(tfjob)
            at = broken
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = value
            with self.subTest(path), self.assertRaises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
                check([broken])


class JobSet(Operator):
    def test_what_the_operator_gets(self):
        for base, manifests in self.each("jobset"):
            check(manifests.objects)
            self.assertEqual(manifests.kind("Job"), {})
            self.assertEqual(manifests.kind("Service"), {})  # it makes that of its subdomain
            (jobset,) = manifests.kind("JobSet").values()
            spec = jobset["spec"]
            self.assertEqual(spec["network"], {"subdomain": "muster", "enableDNSHostnames": True, "publishNotReadyAddresses": True})
            self.assertEqual(spec["successPolicy"], {"operator": "All", "targetReplicatedJobs": ["chief"]})
            self.assertEqual([(r["action"], r["onJobFailureReasons"]) for r in spec["failurePolicy"]["rules"]],
                             [("FailJobSet", ["PodFailurePolicy"])])
            self.assertGreater(spec["failurePolicy"]["maxRestarts"], 0)
            (rule,) = spec["failurePolicy"]["rules"]
            self.assertEqual(sorted(rule["targetReplicatedJobs"]), sorted({j["name"] for j in spec["replicatedJobs"]} - {"evaluator"}))
            for pod in manifests.pods():
                self.assertEqual(pod.spec["subdomain"], "muster")
                self.assertEqual(pod.container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"], INDEX)

    def test_tasks(self):
        for base, manifests in self.each("jobset"):
            self.check_tasks(manifests)
            self.check_pods_of_the_base(base, manifests)
            self.check_references(manifests)

    def test_jobs_are_the_base_s(self):
        for base, manifests in self.each("jobset"):
            own = {job["metadata"]["labels"]["app.kubernetes.io/component"]: job["spec"] for job in manifests.jobs.values()}
            theirs = {job["metadata"]["labels"]["app.kubernetes.io/component"]: job["spec"] for job in render(base).jobs.values()}
            self.assertEqual(sorted(own), sorted(theirs))
            for role, spec in own.items():
                if role != "evaluator":
                    self.assertEqual({**spec, "template": None}, {**theirs[role], "template": None})

    def test_an_evaluator_never_ends_the_others(self):
        """A JobSet restarts all Jobs when one fails that no rule names, so the evaluator's Job does not fail."""
        for base, manifests in self.each("jobset"):
            spec, theirs = manifests.jobs["muster-evaluator-0"]["spec"], render(base).jobs["muster-evaluator"]["spec"]
            self.assertGreaterEqual(spec["backoffLimit"], 1000)
            (evaluator,) = [p for p in manifests.pods() if p.role == "evaluator"]
            self.assertEqual([evaluator.after(code) for code in (1, 2, 3, 126, 127, 128, 137, 138)], ["Count"] * 8)
            self.assertEqual(evaluator.after(143), "Ignore")
            # All else is the base's.
            spec["podFailurePolicy"]["rules"].append(theirs["podFailurePolicy"]["rules"][2])
            self.assertEqual({**spec, "template": None, "backoffLimit": 6}, {**theirs, "template": None})

    def test_what_the_schema_or_the_webhook_refuses(self):
        (jobset,) = render_all(K8S / "jobset").kind("JobSet").values()
        wrong = [(("successPolicy", "targetReplicatedJobs"), ["chef"]), (("failurePolicy", "restartStrategy"), "Restart"),
                 (("failurePolicy", "rules", 0, "onJobFailureReasons"), ["ExitCode"]), (("failurePolicy", "rules", 0, "action"), "Fail"),
                 (("failurePolicy", "rules", 0, "name"), "permanent exit code"), (("network", "subdomian"), "muster"),
                 (("replicatedJobs", 1, "name"), "chief"), (("replicatedJobs", 0, "template", "spec", "paralelism"), 1)]
        for path, value in wrong:
            broken = copy.deepcopy(jobset)
            at = broken["spec"]
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = value
            with self.subTest(path), self.assertRaises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
                check([broken])


class Gpu(Operator):
    def check_pods(self, manifests, on_gpus):
        for pod in manifests.pods():
            limits = pod.container["resources"]["limits"]
            names = [e["name"] for e in pod.container["env"]]
            if pod.role in on_gpus:
                self.assertEqual(limits["nvidia.com/gpu"], "1")
                self.assertIn("NCCL_DEBUG_FILE", names)
                self.assertEqual(pod.mounts()["/dev/shm"]["emptyDir"], {"medium": "Memory", "sizeLimit": f"{512 + 1024 * 1}Mi"})
                self.assertIn({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, pod.spec["tolerations"])
                (spread,) = pod.spec["topologySpreadConstraints"]
                self.assertLessEqual(spread["labelSelector"]["matchLabels"].items(), self.template(pod)["metadata"]["labels"].items())
            else:
                self.assertNotIn("nvidia.com/gpu", limits)
                self.assertNotIn("NCCL_DEBUG", names)
                # A container that asks for no GPU may see all of its node's; a ps uses none.
                self.assertTrue(pod.role == "ps" or pod.command()[-2:] == ["--set", "devices=cpu"], pod.command())

    def test_who_has_a_gpu(self):
        for base, manifests in self.each("gpu"):
            check(manifests.objects)
            self.check_tasks(manifests)
            self.check_pods(manifests, ["worker"] if base is PARAMETER_SERVER else ["chief", "worker"])

    def test_with_an_operator(self):
        for base, suffix in SUFFIX.items():
            for operator in "tfjob", "jobset":
                with self.subTest(operator=operator, base=base.name):
                    manifests = overlay(base, "gpu", operator + suffix, "kueue")
                    check(manifests.objects)
                    self.check_tasks(manifests)
                    self.check_pods(manifests, ["worker"] if base is PARAMETER_SERVER else ["chief", "worker"])
                    (own,) = [o for o in manifests.objects if o["kind"] in ("TFJob", "JobSet")]
                    self.assertEqual(own["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "muster")


class DisruptionBudget(unittest.TestCase):
    def test_all_members_but_one(self):
        for name in [base.name for base in SUFFIX] + [f"{o}{s}" for o in ("gpu", "tfjob", "jobset") for s in SUFFIX.values()]:
            manifests = render_all(K8S / name)
            (budget,) = manifests.kind("PodDisruptionBudget").values()
            chosen = [p for p in manifests.pods() if all(
                Operator.template(p)["metadata"]["labels"].get(e["key"]) in e["values"] for e in budget["spec"]["selector"]["matchExpressions"])]
            self.assertEqual({p.role for p in chosen} | {"evaluator"}, {p.role for p in manifests.pods()})
            # Pods whose controller has no "scale" may have a number only, and no maxUnavailable.
            self.assertEqual(budget["spec"]["minAvailable"], len(chosen) - 1, name)
            self.assertNotIn("maxUnavailable", budget["spec"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
