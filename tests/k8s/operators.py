"""A model of the operators: the schemas and checks of their webhooks, and the pods that they start.

The names and values below are those of two public sources, both under the Apache License 2.0, written down here by hand:
kubeflow/training-operator, branch release-1.9 (pkg/apis/kubeflow.org/v1, pkg/webhooks/tensorflow, pkg/controller.v1), and
kubernetes-sigs/jobset, v0.12 (api/jobset/v1alpha2, pkg/webhooks). The operators' own schemas prune unknown keys, and TFJob's has no
enumerations: a misspelt value passes there, and not here.
"""
import copy
import json
import re

import jsonschema

from manifests import Manifests, Pod, check_schemas, render

LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
TEXT, WHOLE, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
ANY = {"type": "object"}


def enum(*values):
    return {"enum": list(values)}


def array(items):
    return {"type": "array", "items": items}


def fields(required=(), **properties):
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


METADATA = fields(["name"], name=TEXT, labels={"type": "object", "additionalProperties": TEXT})

REPLICA = fields(replicas=WHOLE, restartPolicy=enum("Always", "OnFailure", "Never", "ExitCode"), template=ANY)
RUN_POLICY = fields(
    cleanPodPolicy=enum("All", "Running", "None"), ttlSecondsAfterFinished=WHOLE, activeDeadlineSeconds=WHOLE, backoffLimit=WHOLE,
    suspend=FLAG, managedBy=enum("kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"),
    schedulingPolicy=fields(minAvailable=WHOLE, queue=TEXT, minResources=ANY, priorityClass=TEXT, scheduleTimeoutSeconds=WHOLE))
TFJOB = fields(
    ["apiVersion", "kind", "metadata", "spec"], apiVersion=enum("kubeflow.org/v1"), kind=enum("TFJob"), metadata=METADATA,
    spec=fields(["tfReplicaSpecs"], enableDynamicWorker=FLAG, runPolicy=RUN_POLICY, successPolicy=enum("", "AllWorkers"),
                tfReplicaSpecs=fields(Chief=REPLICA, Master=REPLICA, Worker=REPLICA, PS=REPLICA, Evaluator=REPLICA)))

# prometheus-operator/prometheus-operator (Apache License 2.0): what of a PodMonitor is used here.
SECRET_KEY = fields(["name", "key"], name=TEXT, key=TEXT)
POD_MONITOR = fields(
    ["apiVersion", "kind", "metadata", "spec"], apiVersion=enum("monitoring.coreos.com/v1"), kind=enum("PodMonitor"), metadata=METADATA,
    spec=fields(["selector", "podMetricsEndpoints"], selector=fields(matchLabels=ANY), podMetricsEndpoints=array(
        fields(["port"], port=TEXT, path=TEXT, interval={"type": "string", "pattern": "^[0-9]+(s|m)$"},
               authorization=fields(type=TEXT, credentials=SECRET_KEY)))))

REASONS = "BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"
RULE = fields(["name", "action"], name={"type": "string", "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", "maxLength": 128},
              # RestartJob and RestartJobAndIgnoreMaxRestarts need a feature gate that is off.
              action=enum("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"),
              onJobFailureReasons=array(enum(*REASONS)), onJobFailureMessagePatterns=array(TEXT), targetReplicatedJobs=array(TEXT))
REPLICATED_JOB = fields(["name", "template"], name=TEXT, groupName=TEXT, replicas={"type": "integer", "minimum": 0},
                        template=fields(["spec"], metadata=ANY, spec=ANY),
                        dependsOn=array(fields(["name", "status"], name=TEXT, status=enum("Ready", "Complete"))))
JOBSET = fields(
    ["apiVersion", "kind", "metadata", "spec"], apiVersion=enum("jobset.x-k8s.io/v1alpha2"), kind=enum("JobSet"), metadata=METADATA,
    spec=fields(["replicatedJobs"], replicatedJobs=array(REPLICATED_JOB), suspend=FLAG, managedBy=TEXT, ttlSecondsAfterFinished=WHOLE,
                network=fields(enableDNSHostnames=FLAG, subdomain=TEXT, publishNotReadyAddresses=FLAG),
                successPolicy=fields(["operator"], operator=enum("All", "Any"), targetReplicatedJobs=array(TEXT)),
                failurePolicy=fields(maxRestarts=WHOLE, restartStrategy=enum("Recreate", "BlockingRecreate"), rules=array(RULE)),
                coordinator=fields(["replicatedJob"], replicatedJob=TEXT, jobIndex=WHOLE, podIndex=WHOLE)))


def require(condition, what):
    if not condition:
        raise jsonschema.ValidationError(what)


def check_name(name):
    require(LABEL.fullmatch(name) and len(name) <= 63, f"{name} is no DNS label")


def check_tfjob(o):
    jsonschema.validate(o, TFJOB)
    check_name(o["metadata"]["name"])
    replicas = o["spec"]["tfReplicaSpecs"]
    require(("Chief" in replicas) + ("Master" in replicas) <= 1, "both Chief and Master")
    for kind, replica in replicas.items():
        spec = copy.deepcopy(replica["template"]["spec"])
        require(all(c.get("image") for c in spec["containers"]), f"{kind}: a container without an image")
        require("tensorflow" in [c["name"] for c in spec["containers"]], f"{kind}: no container 'tensorflow'")
        require("restartPolicy" not in spec, f"{kind}: the replica's restartPolicy overwrites the template's")
        check_schemas([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", **replica["template"]["metadata"]}, "spec": spec}])


def check_jobset(o):
    jsonschema.validate(o, JOBSET)
    name, spec = o["metadata"]["name"], o["spec"]
    jobs = {job["name"]: job for job in spec["replicatedJobs"]}
    require(len(jobs) == len(spec["replicatedJobs"]), "two replicatedJobs of one name")
    check_name(spec.get("network", {}).get("subdomain", name))
    rules = spec.get("failurePolicy", {}).get("rules", [])
    require(len({rule["name"] for rule in rules}) == len(rules), "two rules of one name")
    for targets in [spec.get("successPolicy", {}), *rules]:
        require(set(targets.get("targetReplicatedJobs", [])) <= set(jobs), "a target that is no replicatedJob")
    for job in jobs.values():
        job_name = f"{name}-{job['name']}-{job['replicas'] - 1}"
        check_name(f"{job_name}-{job['template']['spec']['completions'] - 1}-abcde")
        check_schemas([{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job_name}, "spec": job["template"]["spec"]}])


def check(objects):
    """An error for what an API server with these operators would refuse or silently leave out."""
    own = {"TFJob": check_tfjob, "JobSet": check_jobset, "PodMonitor": lambda o: jsonschema.validate(o, POD_MONITOR)}
    check_schemas([o for o in objects if o["kind"] not in own])
    for o in objects:
        own.get(o["kind"], lambda _: None)(o)


class TfJobPod(Pod):
    """The pod of one index of a replica type. The operator adds TF_CONFIG at the end of the container's environment."""

    def __init__(self, manifests, tfjob, kind, index, namespace):
        self.manifests, self.tfjob, self.namespace = manifests, tfjob, namespace
        self.replica, self.index, self.role = tfjob["spec"]["tfReplicaSpecs"][kind], index, kind.lower()
        self.spec = self.replica["template"]["spec"]
        (self.container,) = self.spec["containers"]
        self.hostname = f"{tfjob['metadata']['name']}-{self.role}-{index}"
        self.name = f"{self.hostname}.{namespace}.svc"

    def port(self, kind):
        for port in self.tfjob["spec"]["tfReplicaSpecs"][kind]["template"]["spec"]["containers"][0].get("ports", []):
            if port["name"] == "tfjob-port":
                return port["containerPort"]
        return 2222

    def tf_config(self):
        cluster = {kind.lower(): [f"{self.tfjob['metadata']['name']}-{kind.lower()}-{i}.{self.namespace}.svc:{self.port(kind)}"
                                  for i in range(replica.get("replicas", 1))]
                   for kind, replica in sorted(self.tfjob["spec"]["tfReplicaSpecs"].items())}
        return json.dumps({"cluster": cluster, "task": {"type": self.role, "index": self.index}, "environment": "cloud"})

    def environment(self):
        variables = super().environment()
        if sum(r.get("replicas", 1) for r in self.tfjob["spec"]["tfReplicaSpecs"].values()) > 1:
            variables["TF_CONFIG"] = self.tf_config()
        return variables

    def after(self, exit_code):
        policy = self.replica["restartPolicy"]
        again = policy in ("Always", "OnFailure") or (policy == "ExitCode" and exit_code >= 128)
        return "Count" if again else "FailJob"


class OperatorManifests(Manifests):
    """Also with the pods of TFJobs and JobSets."""

    namespace = "team-a"

    @property
    def jobs(self):
        found = dict(self.kind("Job"))
        for name, jobset in self.kind("JobSet").items():
            for job in jobset["spec"]["replicatedJobs"]:
                for i in range(job["replicas"]):
                    spec = job["template"]["spec"]
                    metadata = {"name": f"{name}-{job['name']}-{i}", "labels": spec["template"]["metadata"]["labels"]}
                    found[metadata["name"]] = {"metadata": metadata, "spec": spec}
        return found

    def pods(self):
        return super().pods() + [TfJobPod(self, tfjob, kind, index, self.namespace) for tfjob in self.kind("TFJob").values()
                                 for kind, replica in tfjob["spec"]["tfReplicaSpecs"].items() for index in range(replica.get("replicas", 1))]


def render_all(folder):
    return OperatorManifests(render(folder).objects)
