"""The base, and the one with parameter servers, as Kubernetes' API server and kubelets will see it: schemas, and what schemas do not say."""
import copy
import json
import os
import pathlib
import re
import subprocess
import unittest

import kubernetes_validate
import yaml

from manifests import BASE, INDEX, PARAMETER_SERVER, SOURCE, check_schemas, json_with_comments, render

BIN = pathlib.Path(os.environ.get("MUSTER_BIN_DIR", SOURCE / "build" / "bin"))
LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def size(text):
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi)", text).groups()
    return int(number) * {"Mi": 1, "Gi": 1024}[unit]


class Base(unittest.TestCase):
    maxDiff = None
    folder = BASE
    members = "chief", "worker"  # of the cluster, as TF_CONFIG names them
    computing = "chief", "worker"  # steps
    listening = "chief",
    on_cpu = "evaluator",  # by an argument: they compute no steps
    own_keys = {"security": {"file_mode": "group"}}  # of job.json, beside the example's

    @classmethod
    def setUpClass(cls):
        cls.manifests = render(cls.folder)
        cls.jobs = cls.manifests.jobs
        cls.pods = cls.manifests.pods()
        (cls.service,) = cls.manifests.kind("Service").values()

    def role(self, role):
        (job,) = [j for j in self.jobs.values() if j["metadata"]["labels"]["app.kubernetes.io/component"] == role]
        return job

    def test_schemas(self):
        self.assertEqual(sorted(o["kind"] for o in self.manifests.objects),
                         ["ConfigMap", *["Job"] * (len(self.members) + 1), "NetworkPolicy", "PersistentVolumeClaim",
                          "PodDisruptionBudget", "Service"])
        check_schemas(self.manifests.objects)
        for path, value in [("restartPolicyy", "Never"), ("terminationGracePeriodSeconds", "soon"), ("volumes", {})]:
            broken = copy.deepcopy(self.manifests.objects)
            next(o for o in broken if o["kind"] == "Job")["spec"]["template"]["spec"][path] = value
            with self.subTest(path), self.assertRaises(kubernetes_validate.ValidationError):
                check_schemas(broken)

    def test_names(self):
        for o in self.manifests.objects:
            self.assertRegex(o["metadata"]["name"], LABEL)
        for pod in self.pods:
            self.assertLessEqual(len(pod.hostname) + len("-xxxxx"), 63)
            self.assertRegex(pod.hostname, LABEL)
        # A prefix would rename objects, but neither the hosts in TF_CONFIG nor the subdomain.
        kustomization = yaml.safe_load((self.folder / "kustomization.yaml").read_text())
        self.assertNotIn("namePrefix", kustomization)
        self.assertNotIn("nameSuffix", kustomization)

    def test_all_pods_start_at_once(self):
        for name, job in self.jobs.items():
            with self.subTest(name):
                self.assertEqual(job["spec"]["parallelism"], job["spec"]["completions"])
                self.assertEqual(job["spec"]["completionMode"], "Indexed")
                self.assertNotIn("initContainers", job["spec"]["template"]["spec"])

    def test_pods_find_each_other_before_they_are_ready(self):
        spec = self.service["spec"]
        self.assertEqual(spec["clusterIP"], "None")
        self.assertIs(spec["publishNotReadyAddresses"], True)
        for name, job in self.jobs.items():
            template = job["spec"]["template"]
            self.assertEqual(template["spec"]["subdomain"], self.service["metadata"]["name"])
            self.assertLessEqual(spec["selector"].items(), template["metadata"]["labels"].items())
            self.assertIs(template["spec"]["enableServiceLinks"], False)  # it would set MUSTER_PORT and the like

    def test_the_cluster_is_the_pods(self):
        cluster = json.loads(self.pods[0].environment()["CLUSTER"])
        for role in self.members:
            pods = [p.name for p in self.pods if p.role == role]
            self.assertEqual([a.rsplit(":", 1)[0] for a in cluster[role]], pods)
        # Kubeflow does not list the evaluator either: it is no member, and connects to the chief.
        self.assertEqual(sorted(cluster), sorted(self.members))

    def test_every_task_reads_its_place_from_TF_CONFIG(self):
        for pod in self.pods:
            environment = pod.environment()
            names = [entry["name"] for entry in pod.container["env"]]
            with self.subTest(pod.name):
                self.assertEqual(len(names), len(set(names)))
                # Declared here, the controller does not append its own after TF_CONFIG.
                self.assertEqual(pod.container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"], INDEX)
                self.assertEqual(names, ["JOB_COMPLETION_INDEX", "CLUSTER", "TF_CONFIG", "MUSTER_RUN_KEY_FILE"])
                self.assertNotIn("$(", environment["TF_CONFIG"])
                outcome = subprocess.run([BIN / "muster", "cluster", "--json"], capture_output=True, text=True,
                                         env={"TF_CONFIG": environment["TF_CONFIG"]})
                self.assertEqual(outcome.returncode, 0, outcome.stderr)
                outcome = json.loads(outcome.stdout)
                rank = {"chief": 0, "worker": 1 + pod.index, "evaluator": None, "ps": None}[pod.role]
                self.assertEqual((outcome["task"], outcome["role"], outcome["rank"], outcome["world_size"], outcome["warnings"]),
                                 (f"{pod.role}:{pod.index}", pod.role, rank, 3, []))

    def test_references(self):
        claims, maps = self.manifests.kind("PersistentVolumeClaim"), self.manifests.kind("ConfigMap")
        for pod in self.pods:
            for path, volume in pod.mounts().items():
                if "persistentVolumeClaim" in volume:
                    self.assertIn(volume["persistentVolumeClaim"]["claimName"], claims)
                elif "configMap" in volume:
                    self.assertIn(volume["configMap"]["name"], maps)
            self.assertEqual(len(pod.mounts()), len(pod.spec["volumes"]))

    def test_commands(self):
        for pod in self.pods:
            command = pod.command()
            self.assertEqual(command[0], f"muster-{pod.role}")
            self.assertTrue(os.access(BIN / command[0], os.X_OK), f"there is no {BIN / command[0]}")
            self.assertEqual(command[1], "--job")
            folder, file = command[2].rsplit("/", 1)
            self.assertIn(file, self.manifests.kind("ConfigMap")[pod.mounts()[folder]["configMap"]["name"]]["data"])
            # A container that asks for no GPU may see all of its node's.
            self.assertEqual(command[3:], ["--set", "devices=cpu"] if pod.role in self.on_cpu else [])

    def test_the_job_is_the_example_on_the_volume(self):
        job = json_with_comments(self.manifests.data(*self.job_file()))
        example = json_with_comments((SOURCE / "examples" / "fashion_mnist.json").read_text())
        model_dir = pathlib.PurePath(job.pop("model_dir"))
        example.pop("model_dir")
        self.assertEqual(job, {**example, **self.own_keys})
        mounts = next(p for p in self.pods if p.role == "chief").mounts()
        claims = [pathlib.PurePath(path) for path, volume in mounts.items() if "persistentVolumeClaim" in volume]
        self.assertEqual(len(claims), 1)
        self.assertIn(claims[0], model_dir.parents)
        # ReadWriteOnce: pods of other nodes could not start.
        for pod in self.pods:
            if pod.role != "chief":
                self.assertFalse([v for v in pod.spec["volumes"] if "persistentVolumeClaim" in v])

    def job_file(self):
        (name,) = self.manifests.kind("ConfigMap")
        return name, "job.json"

    def test_failures(self):
        text = (SOURCE / "include" / "muster" / "status.h").read_text()
        own = [int(code) for code in re.findall(r"  k\w+ = (\d+),", text)]
        self.assertEqual(own, [0, 1, 2, 3, 138, 143])
        for pod in self.pods:
            rules = pod.job["spec"]["podFailurePolicy"]["rules"]
            self.assertEqual(pod.spec["restartPolicy"], "Never")  # the policy asks for it
            self.assertEqual(rules[0], {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]})
            for rule in rules[1:]:
                codes = rule["onExitCodes"]
                self.assertEqual(codes["containerName"], pod.container["name"])
                self.assertEqual(codes["values"], sorted(set(codes["values"])))
                self.assertTrue(all(0 < code <= 255 for code in codes["values"]))
            for code in [c for c in own if 0 < c < 128] + [126, 127, 128]:  # the runtime's: it could not start the program
                self.assertEqual(pod.after(code), "FailJob", code)
            for code in 138, 128 + 9, 128 + 11:
                self.assertEqual(pod.after(code), "Count", code)
            self.assertEqual(pod.after(143), "Ignore")
        for member in set(self.members) - {"chief"}:
            spec = self.role(member)["spec"]
            self.assertGreater(spec["backoffLimitPerIndex"], 0)
            self.assertEqual(spec["maxFailedIndexes"], 0)  # without it the others would wait in vain

    def test_probes_only_where_something_listens(self):
        cluster = json.loads(self.pods[0].environment()["CLUSTER"])
        port = int(cluster["chief"][0].rsplit(":", 1)[1])
        for pod in self.pods:
            for probe in "livenessProbe", "startupProbe":
                self.assertNotIn(probe, pod.container)
            if pod.role in self.listening:
                self.assertEqual(pod.container["readinessProbe"]["grpc"], {"port": port})
                self.assertIsInstance(port, int)
                self.assertEqual([p["containerPort"] for p in pod.container["ports"]], [port])
            else:
                self.assertNotIn("readinessProbe", pod.container)
                self.assertNotIn("ports", pod.container)

    def test_pod_security_restricted(self):
        for pod in self.pods:
            security, container = pod.spec["securityContext"], pod.container["securityContext"]
            self.assertIs(security["runAsNonRoot"], True)
            self.assertGreater(security["runAsUser"], 0)  # a name in the image could not be checked
            self.assertEqual(security["seccompProfile"], {"type": "RuntimeDefault"})
            self.assertIs(container["allowPrivilegeEscalation"], False)
            self.assertIs(container["readOnlyRootFilesystem"], True)
            if pod.role != "ps":  # of the evaluator: the checkpoint that it evaluates
                self.assertIn("emptyDir", pod.mounts()["/tmp"])
            self.assertEqual(container["capabilities"], {"drop": ["ALL"]})
            self.assertFalse({"hostNetwork", "hostPID", "hostIPC"} & set(pod.spec))
            for volume in pod.spec["volumes"]:
                self.assertTrue({"configMap", "emptyDir", "persistentVolumeClaim", "secret"} & set(volume), volume)
        self.assertEqual(next(p for p in self.pods if p.role == "chief").spec["securityContext"]["fsGroup"],
                         self.pods[0].spec["securityContext"]["runAsUser"])

    def test_ends_and_memory(self):
        for pod in self.pods:
            self.assertGreaterEqual(pod.spec["terminationGracePeriodSeconds"], 120)
            self.assertEqual(pod.container["terminationMessagePolicy"], "FallbackToLogsOnError")
            self.assertNotIn("terminationMessagePath", pod.container)  # the default is the binary's too
            if pod.role == "ps":  # what it shares with workers of its host is in no file system
                self.assertNotIn("/dev/shm", pod.mounts())
                continue
            shm = pod.mounts()["/dev/shm"]["emptyDir"]
            self.assertEqual(shm["medium"], "Memory")
            self.assertLess(size(shm["sizeLimit"]), size(pod.container["resources"]["limits"]["memory"]))

    def test_the_jobs_differ_only_where_they_must(self):
        def shared(job):
            job = copy.deepcopy(job)
            role = job["metadata"]["labels"]["app.kubernetes.io/component"]
            for key in "completions", "parallelism", "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes":
                job["spec"].pop(key, None)
            for labels in job["metadata"]["labels"], job["spec"]["template"]["metadata"]["labels"]:
                self.assertEqual(labels.pop("computes-steps", None), "true" if role in self.computing else None)
            pod = job["spec"]["template"]["spec"]
            pod.pop("topologySpreadConstraints", None)
            (container,) = pod["containers"]
            for key in "args", "readinessProbe", "ports":
                container.pop(key, None)
            for key in "fsGroup", "fsGroupChangePolicy":
                pod["securityContext"].pop(key, None)
            for volumes in container["volumeMounts"], pod["volumes"]:
                volumes[:] = [v for v in volumes if v["name"] not in ("model-dir", "shm", "tmp")]
            return json.loads(re.sub(rf"\b{role}\b", "ROLE", json.dumps(job)))
        for role in *self.members, "evaluator":
            self.assertEqual(shared(self.role(role)), shared(self.role("chief")))


class ParameterServer(Base):
    folder = PARAMETER_SERVER
    members = "chief", "worker", "ps"
    computing = "worker",
    listening = "chief", "ps"
    on_cpu = "chief", "evaluator"
    own_keys = {**Base.own_keys, "strategy": "parameter_server", "parameter_server": {"copies": 2}}

    def test_all_but_the_servers_is_the_base(self):
        base = render(BASE)
        (own_map,), (base_map,) = (m.kind("ConfigMap") for m in (self.manifests, base))
        self.assertNotEqual(own_map, base_map)
        chief = base.jobs["muster-chief"]  # as the evaluator: its pod may see GPUs, and uses none
        chief["spec"]["template"]["spec"]["containers"][0]["args"] += ["--set", "devices=cpu"]
        for labels in chief["metadata"]["labels"], chief["spec"]["template"]["metadata"]["labels"]:
            del labels["computes-steps"]
        base.kind("PodDisruptionBudget")["muster"]["spec"]["minAvailable"] += self.role("ps")["spec"]["completions"]
        text = json.dumps([o for o in self.manifests.objects if o["kind"] != "ConfigMap" and o["metadata"]["name"] != "muster-ps"])
        self.assertEqual(json.loads(text.replace(own_map, base_map)), [o for o in base.objects if o["kind"] != "ConfigMap"])
        replicas = json_with_comments(self.manifests.data(*self.job_file()))["parameter_server"]["copies"]
        self.assertLessEqual(replicas, self.role("ps")["spec"]["completions"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
