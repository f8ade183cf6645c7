"""`muster manifest`: for the sizes of k8s/ it prints what kustomize makes there; for other sizes its objects hold together; and what it
refuses."""
import copy
import json
import os
import pathlib
import stat
import subprocess
import tempfile
import unittest

import yaml

from manifests import BASE, PARAMETER_SERVER, SOURCE, json_with_comments
from operators import OperatorManifests, check, render_all
from operators_test import SUFFIX, overlay, cluster_of

BIN = pathlib.Path(os.environ.get("MUSTER_BIN_DIR", SOURCE / "build" / "bin"))
OPERATORS = "none", "tfjob", "jobset"


def run(*arguments):
    return subprocess.run([BIN / "muster", "manifest", *map(str, arguments)], capture_output=True, text=True)


def manifest(*arguments):
    done = run(*([] if "--image" in arguments else ["--image", "muster"]), *arguments)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return OperatorManifests([o for o in yaml.safe_load_all(done.stdout) if o])


def comparable(manifests):
    """{kind and name: object}, without what may be written in several ways: the hash in a name, the order of named lists, the spaces of
    cluster.json."""
    (config_map,) = manifests.kind("ConfigMap")

    def tidy(value):
        if isinstance(value, dict):
            return {k: tidy(v) for k, v in value.items()}
        if isinstance(value, list):
            value = [tidy(v) for v in value]
            named = all(isinstance(v, dict) and "name" in v for v in value)
            return sorted(value, key=lambda v: v["name"]) if named else value
        return "muster-job" if value == config_map else value

    found = {}
    for o in copy.deepcopy(manifests.objects):
        if o["kind"] == "ConfigMap":
            o["metadata"].pop("labels", None)
            o["data"] = {k: json.loads(v) if k == "cluster.json" else v for k, v in o["data"].items()}
        found[o["kind"], tidy(o["metadata"]["name"])] = tidy(o)
    return found


class Manifest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster-test-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def job(self, **keys):
        (self.dir / "job.json").write_text(json.dumps({"program": "linear", "global_batch_size": 5, "max_steps": 20, **keys}))
        return self.dir / "job.json"

    def test_it_agrees_with_the_overlays(self):
        compared = 0
        for base, suffix in SUFFIX.items():
            for operator in OPERATORS:
                for gpus in 0, 1:
                    with self.subTest(base=base.name, operator=operator, gpus=gpus):
                        components = ["gpu"] * gpus + [operator + suffix] * (operator != "none")
                        ps = 2 if base is PARAMETER_SERVER else 0
                        own = manifest("--workers", 2, "--ps", ps, "--gpus", gpus, "--operator", operator, "--job", base / "job.json")
                        self.assertEqual(comparable(own), comparable(overlay(base, *components)))
                        compared += 1
        self.assertEqual(compared, 12)

    def test_the_folders_are_these_overlays(self):
        for base, suffix in SUFFIX.items():
            for name in "gpu", "tfjob", "jobset":
                component = name if name == "gpu" else name + suffix
                self.assertEqual(comparable(render_all(SOURCE / "k8s" / f"{name}{suffix}")), comparable(overlay(base, component)))

    def test_other_sizes(self):
        for operator in OPERATORS:
            for workers, ps, gpus in (1, 0, 0), (8, 2, 1), (12, 0, 8):
                with self.subTest(operator=operator, workers=workers, ps=ps, gpus=gpus):
                    own = manifest("--workers", workers, "--ps", ps, "--gpus", gpus, "--operator", operator, "--job", self.job())
                    check(own.objects)
                    pods = own.pods()
                    self.assertEqual(sorted(p.role for p in pods), sorted(["chief", "evaluator"] + ["worker"] * workers + ["ps"] * ps))
                    for pod in pods:
                        said = cluster_of(pod)
                        self.assertEqual((said["task"], said["world_size"], said["warnings"]), (f"{pod.role}:{pod.index}", 1 + workers, []))
                        for role, addresses in said["cluster"].items():
                            self.assertEqual(addresses, [f"{p.name}:2222" for p in pods if p.role == role])
                        computes = pod.role == "worker" or (pod.role == "chief" and ps == 0)
                        self.assertEqual(pod.container["resources"]["limits"].get("nvidia.com/gpu"), str(gpus) if computes and gpus else None)
                        if pod.role != "ps":
                            self.assertEqual(pod.mounts()["/dev/shm"]["emptyDir"]["sizeLimit"], f"{512 + 1024 * (gpus if computes else 0)}Mi")
                    (budget,) = own.kind("PodDisruptionBudget").values()
                    self.assertEqual(budget["spec"]["minAvailable"], workers + ps)

    def test_tensorboard(self):
        for base, ps in (BASE, 0), (PARAMETER_SERVER, 2):
            own = manifest("--workers", 2, "--ps", ps, "--tensorboard", "tensorboard", "--storage-class", "shared", "--job", base / "job.json")
            check(own.objects)
            claim = own.kind("PersistentVolumeClaim")["muster-model-dir"]["spec"]
            self.assertEqual((claim.pop("storageClassName"), claim["accessModes"]), ("shared", ["ReadWriteMany"]))
            self.assertEqual(comparable(own), comparable(overlay(base, "tensorboard")))

    def test_without_an_evaluator(self):
        own = manifest("--workers", 2, "--no-evaluator", "--job", self.job())
        self.assertEqual(sorted(own.jobs), ["muster-chief", "muster-worker"])
        check(own.objects)

    def test_preflight_runs_in_the_place_of_the_tasks(self):
        for ps in 0, 2:
            job, preflight = (manifest("--workers", 2, "--ps", ps, "--gpus", 1, "--job", self.job(), more) for more in ("--no-evaluator", "--preflight"))
            check(preflight.objects)
            self.assertEqual([(p.name, p.environment()) for p in preflight.pods()], [(p.name, p.environment()) for p in job.pods()])
            for own, other in zip(preflight.pods(), job.pods()):
                self.assertEqual(own.command()[:2], ["muster", "preflight"])
                self.assertEqual(own.command()[2:], other.command()[1:] + ["--timeout", "600"])
                self.assertEqual(own.container["resources"], other.container["resources"])
                self.assertNotIn("readinessProbe", own.container)
            for spec in (o["spec"] for o in preflight.jobs.values()):
                self.assertEqual((spec["backoffLimitPerIndex"], "podFailurePolicy" in spec), (0, False))
        done = run("--image", "muster", "--workers", 2, "--job", self.job(), "--operator", "jobset", "--preflight")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--preflight prints Jobs of Kubernetes' own", done.stderr)

    def test_the_job_file_is_kept_as_it_is(self):
        for text in '// A comment.\n{"program": "linear", "global_batch_size": 5}\n', '{"program": "linear",\n\n\t"global_batch_size": 5}', \
                    ' {"program":\n"linear", "global_batch_size": 5}\n\n', \
                    '\ufeff{"program": "linear",\n"global_batch_size": 5}\n', \
                    *('{"program": "linear",  // a%sb\n"global_batch_size": 5}\n' % c for c in "\u2028\u2029\u0085\ufeff\x7f\x80\x9f\ufffe\uffff"), \
                    '{"program": "linear", "global_batch_size": 5}  // \u00e9 "x" \U0001f600\r\n':
            with self.subTest(text):
                (self.dir / "job.json").write_bytes(text.encode())
                own = manifest("--workers", 1, "--job", self.dir / "job.json")
                (config_map,) = own.kind("ConfigMap").values()
                self.assertEqual(config_map["data"]["job.json"], text)

    def test_a_changed_job_has_another_name(self):
        first = manifest("--workers", 1, "--job", self.job(seed=1))
        self.assertEqual(list(first.kind("ConfigMap")), list(manifest("--workers", 1, "--job", self.job(seed=1)).kind("ConfigMap")))
        self.assertNotEqual(list(first.kind("ConfigMap")), list(manifest("--workers", 1, "--job", self.job(seed=2)).kind("ConfigMap")))
        self.assertNotEqual(list(first.kind("ConfigMap")), list(manifest("--workers", 2, "--job", self.job(seed=1)).kind("ConfigMap")))

    def test_model_dir_is_on_the_volume(self):
        for given, there in ("runs/one", "/var/lib/muster/one"), ("/data/runs/two/", "/var/lib/muster/two"), (None, "/var/lib/muster/job"), \
                            ("/var/lib/muster/a/b", None), ("/var/lib/muster/a/", "/var/lib/muster/a"), \
                            ("/var/lib/muster/a/../b", "/var/lib/muster/b"), ("/var/lib/muster/../c", "/var/lib/muster/c"), \
                            ("/var/lib/muster/", "/var/lib/muster/muster"), ("/var/lib/muster/a/..", "/var/lib/muster/muster"), \
                            ("runs/..", "/var/lib/muster/job"), ("/", "/var/lib/muster/job"), ("/var/lib/muster", "/var/lib/muster/muster"):
            with self.subTest(given):
                own = manifest("--workers", 1, "--job", self.job(**({"model_dir": given} if given else {})), "--set", "epochs=3")
                for pod in own.pods():
                    rest = pod.command()[3:]
                    self.assertEqual(rest[:2], ["--set", "epochs=3"])
                    self.assertEqual(rest[2:4] if there else [], ["--set", f'model_dir="{there}"'] if there else [])

    def test_arguments_reach_the_task_as_they_are(self):
        given = 'program_args={"text": "$(PATH) $$ $x \\" \u00e9 # \u2028\u2029\u0085\ufeff\x7f\x9f",\n"more": 1}'
        own = manifest("--workers", 1, "--job", self.job(model_dir='runs/a"b'), "--set", given)
        for pod in own.pods():
            self.assertEqual(pod.command()[3:7], ["--set", given, "--set", 'model_dir="/var/lib/muster/a\\"b"'])

    def test_run_key(self):
        done = run("--image", "muster", "--workers", 1, "--job", self.job())
        self.assertIn("kubectl create secret generic muster-run-key --from-file=run.key", done.stderr)
        self.assertNotIn("kind: Secret", done.stdout)
        key = self.dir / "run.key"
        subprocess.run([BIN / "muster", "key", "new", key], check=True, capture_output=True)
        done = run("--image", "muster", "--workers", 1, "--job", self.job(), "--key-file", key)
        self.assertEqual(done.stderr, "")
        objects = list(yaml.safe_load_all(done.stdout))
        check([o for o in objects if o])
        (secret,) = [o for o in objects if o and o["kind"] == "Secret"]
        self.assertEqual((secret["metadata"]["name"], secret["stringData"]), ("muster-run-key", {"run.key": key.read_text()}))
        key.chmod(stat.S_IRUSR | stat.S_IROTH)
        self.assertEqual(run("--image", "muster", "--workers", 1, "--job", self.job(), "--key-file", key).returncode, 2)

    def test_queue_and_storage(self):
        for operator, kind in ("tfjob", "TFJob"), ("jobset", "JobSet"):
            own = manifest("--workers", 1, "--operator", operator, "--queue", "team", "--storage", "20Gi", "--storage-class", "fast",
                           "--job", self.job())
            check(own.objects)
            self.assertEqual(own.kind(kind)["muster"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "team")
            claim = own.kind("PersistentVolumeClaim")["muster-model-dir"]["spec"]
            self.assertEqual((claim["storageClassName"], claim["resources"]["requests"]["storage"]), ("fast", "20Gi"))

    def test_sizes_and_names_that_kubernetes_takes(self):
        for storage in "1Pi", "5.5Gi", "5368709120", "0.5T", "2Ei":
            claim = manifest("--workers", 1, "--storage", storage, "--job", self.job()).kind("PersistentVolumeClaim")["muster-model-dir"]
            self.assertEqual(claim["spec"]["resources"]["requests"]["storage"], storage)
        image = "registry.example.com:5000/team/muster@sha256:" + "0a" * 32
        self.assertEqual({p.container["image"] for p in manifest("--workers", 1, "--job", self.job(), "--image", image).pods()}, {image})
        check(manifest("--workers", 1, "--operator", "jobset", "--queue", "team-a.x-1", "--storage-class", "fast.ssd-1", "--job", self.job()).objects)

    def test_jobs_that_pods_can_run(self):
        for set_ in "folder=null", "security.key_file=/etc/muster-key/run.key", "security.insecure=false", "restore=never", \
                    "restore=/var/lib/muster/old/checkpoints", 'load={"net": "/opt/w.safetensors"}', \
                    'data={"train": {"format": "npy", "x": "/x.npy", "y": "/y.npy", "cache": {"disk": "%s"}}}' % pathlib.PurePath("/tmp", "cache"):
            with self.subTest(set_):
                check(manifest("--workers", 1, "--job", self.job(), "--set", set_).objects)
        check(manifest("--workers", 1, "--gpus", 2, "--job", self.job(), "--set", "devices=cuda:1,0").objects)
        check(manifest("--workers", 2, "--ps", 1, "--gpus", 2, "--job", self.job(), "--set", "devices=cuda:1").objects)
        self.job(load={"net": "w.safetensors"})
        check(manifest("--workers", 1, "--job", self.dir / "job.json", "--set", "folder=/opt/weights").objects)

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([BIN / "muster", "manifest", "--image", "muster", "--workers", "1", "--job", self.job()], stdout=full,
                                  stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (2, "muster manifest: cannot write the output: No space left on device\n"))

    def test_what_it_refuses(self):
        good = {"--workers": 2, "--image": "muster", "--job": self.job()}
        servers = {"--ps": 1, "--workers": 2}
        plugin = json.dumps({"program": "./own.so", "global_batch_size": 5})
        (self.dir / "plugin.json").write_text(plugin)
        (self.dir / "data.json").write_text(json.dumps({"program": "linear", "global_batch_size": 5, "data": {
            "train": {"format": "npy", "x": "x.npy", "y": "y.npy"}}}))
        (self.dir / "latin1.json").write_bytes(b'{"program": "linear", "global_batch_size": 5}  // \xe9\n')
        (self.dir / "large.json").write_text('{"program": "linear", "global_batch_size": 5}\n' + "// \n" * 262144)
        relative = {"data": '{"train": {"format": "npy", "x": "/x.npy", "y": "/y.npy", "cache": {"disk": "cached"}}}', "load": '{"net": "w.safetensors"}'}
        cases = [
            ({"--workers": 2147483647}, "--workers is 2147483647"), ({"--workers": 1, "--ps": 2147483647}, "--ps is 2147483647"),
            ({"--workers": 600, "--ps": 600}, "1201 tasks"), ({"--gpus": 2000000000}, "--gpus is 2000000000"), ({"--gpus": 65}, "--gpus is 65"),
            ({"--set": "security.key_file=own.key"}, "security.key_file"), ({"--set": "security.insecure=true"}, "security.insecure"),
            ({"--set": "restore=old/checkpoints"}, "restore"), ({"--set": f"load={relative['load']}"}, "load.net"),
            ({"--set": f"data={relative['data']}"}, "data.train.cache"),
            ({"--set": "devices=cuda"}, "--gpus"), ({"--set": "devices=cuda:0"}, "--gpus"), ({"--gpus": 2, "--set": "devices=cuda:0,2"}, "no GPU 2"),
            ({**servers, "--gpus": 2}, "one replica"), ({**servers, "--set": "devices=cpu:2"}, "one replica"),
            ({"--image": ""}, "--image"), ({"--image": "a b"}, "--image"), ({"--image": "muster:"}, "--image"),
            ({"--operator": "jobset", "--queue": "A b!"}, "--queue"), ({"--operator": "jobset", "--queue": "q" * 64}, "--queue"),
            ({"--storage-class": "Bad Class"}, "--storage-class"), ({"--storage-class": "a..b"}, "--storage-class"),
            ({"--storage-class": "-a"}, "--storage-class"), ({"--storage": "0"}, "--storage"), ({"--storage": "0.0Gi"}, "--storage"),
            ({"--storage": "5.5.5Gi"}, "--storage"), ({"--storage": ""}, "--storage"), ({"--storage": "Gi"}, "--storage"),
            ({"--tensorboard": "tensorboard"}, "ReadWriteMany"), ({"--tensorboard": "a b", "--storage-class": "shared"}, "--tensorboard"),
            ({"--job": self.dir / "latin1.json"}, "UTF-8"), ({"--job": self.dir / "large.json"}, "ConfigMap"),
            ({"--workers": -1}, "--workers is -1"), ({"--gpus": -1}, "--gpus is -1"), ({"--storage": "5GB"}, "5GB"), ({"--workers": "two"}, "--workers"), ({"--workers": None}, "--workers"),
            ({"--image": None}, "--image"), ({"--job": None}, "--job"), ({"--job": self.dir / "none.json"}, "none.json"),
            ({"--operator": "tfjobs"}, "tfjobs"), ({"--workers": 0, "--ps": 1}, "train nothing"), ({"--workers": 1000}, "TF_CONFIG"),
            ({"--queue": "team"}, "--operator"), ({"--set": "devices=cpu", "--gpus": 1}, "devices"), ({"--set": "epoch=3"}, "epochs"),
            ({**servers, "--set": "strategy=multi_worker_mirrored"}, "parameter_server"),
            ({"--set": "strategy=parameter_server"}, "ps"), ({"--set": "strategy=mirrored"}, "mirrored"),
            ({**servers, "--set": "parameter_server.copies=2"}, "copies"), ({"--job": self.dir / "plugin.json"}, "own.so"),
            ({"--job": self.dir / "data.json"}, "x.npy"), ({"--set": 'tls.certificate="a.pem"'}, "tls"),
            ({"--key-file": self.dir / "none.key"}, "none.key"),
        ]
        for changes, word in cases:
            arguments = [str(x) for k, v in {**good, **changes}.items() if v is not None for x in (k, v)]
            with self.subTest(changes):
                done = run(*arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn(word, done.stderr)
                self.assertNotIn("terminate called", done.stderr)
        for job, mend in ("plugin.json", "program=/opt/own.so"), ("data.json", "folder=/opt/data"):
            check(manifest("--workers", 2, "--job", self.dir / job, "--set", mend).objects)


if __name__ == "__main__":
    unittest.main(verbosity=2)
