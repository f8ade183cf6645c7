"""The rendered pods as containers are: nothing in their commands, arguments, environment and paths is replaced.

Each pod has a network namespace with an address of its own, a host name, the names of the others in /etc/hosts (for DNS), a root file system
that is read-only (an overlay of this host's, for the image), the volumes at their mount paths, the user and groups of its security context,
and no capabilities. There is no API server, and the test restarts pods itself.
"""
import json
import os
import pathlib
import random
import re
import shlex
import signal
import subprocess
import unittest

from pods_test import BASE, BIN, LINEAR, PARAMETER_SERVER, ClusterTest, Process, json_with_comments, result
from hosts import Network  # pods_test has found its folder
from manifests import SOURCE
from operators import render_all

K8S = SOURCE / "k8s"
UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}


def size(text):
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi)", text).groups()
    return int(number) * UNITS[unit]


# The parts of a container besides its volumes: $at is a folder of this host for it.
ROOT = """set -e
at={at}
mount -t tmpfs none $at
mkdir $at/upper $at/work $at/root
mount -t overlay overlay -o lowerdir=/,upperdir=$at/upper,workdir=$at/work $at/root
cd $at/root
# The programs and what they link to, where others than root have no way to them.
for path in {open}; do while [ "$path" != / ]; do chmod a+rx ".$path"; path=$(dirname "$path"); done; done
mount -t proc proc proc
mount -t tmpfs none dev
for device in null zero random urandom; do touch dev/$device; mount --bind /dev/$device dev/$device; done
mkdir dev/shm
touch dev/termination-log
mount --bind {termination_log} dev/termination-log
rm -f etc/hosts
cp {hosts} etc/hosts
hostname {hostname}
"""


def require():
    """Skips where the parts of a container cannot be had."""
    script = ROOT.split("cd $at")[0].format(at="/mnt") + "touch $at/root/tried && ! test -e /tried"
    tried = subprocess.run(["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-c", script], capture_output=True, text=True)
    if tried.returncode != 0:
        raise unittest.SkipTest(f"no overlay of the root file system can be mounted here: {tried.stderr.strip()}")


class ContainersTest(ClusterTest):
    folder = BASE
    world_size, steps = 3, 500

    def setUp(self):
        require()
        super().setUp()
        self.manifests = render_all(self.folder)
        self.pods = {f"muster-{p.role}-{p.index}": p for p in self.manifests.pods()}
        self.network = Network(len(self.pods))
        self.addCleanup(self.network.close)
        names = zip(self.network.addresses, self.pods.values())
        (self.dir / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{address} {pod.name}\n" for address, pod in names))
        (self.config_map,) = self.manifests.kind("ConfigMap")
        self.make_volumes()

    def make_volumes(self):
        """Contents, owners and modes as the kubelet's."""
        group = self.pods["muster-chief-0"].spec["securityContext"]["fsGroup"]
        self.volumes = {kind: self.dir / kind for kind in ("configMap", "secret", "persistentVolumeClaim")}
        for folder in self.volumes.values():
            folder.mkdir()
        for key, text in self.manifests.kind("ConfigMap")[self.config_map]["data"].items():
            (self.volumes["configMap"] / key).write_text(text)
        key = self.volumes["secret"] / "run.key"
        self.run_key().rename(key)
        key.chmod(0o440)
        os.chown(key, 0, group)
        os.chown(self.volumes["persistentVolumeClaim"], 0, group)
        self.volumes["persistentVolumeClaim"].chmod(0o2775)
        self.dir.chmod(0o755)

    def job_file(self, **keys):
        job = json_with_comments(self.manifests.data(self.config_map, "job.json"))
        claim = pathlib.PurePath("/var/lib/muster")
        self.model_dir = self.volumes["persistentVolumeClaim"] / pathlib.PurePath(job["model_dir"]).relative_to(claim)
        for key in "program_args", "optimizer", "learning_rate":
            job.pop(key, None)
        (self.volumes["configMap"] / "job.json").write_text(json.dumps({**job, **LINEAR, **keys}))

    def mounts(self, pod):
        """The commands that mount its volumes."""
        lines = []
        for mount in pod.container["volumeMounts"]:
            volume, there = pod.mounts()[mount["mountPath"]], mount["mountPath"].lstrip("/")
            lines.append(f"mkdir -p {there}")
            if "emptyDir" in volume:
                memory = volume["emptyDir"].get("medium") == "Memory"
                lines.append(f"mount -t tmpfs -o mode=1777,size={size(volume['emptyDir']['sizeLimit']) if memory else 1 << 30} none {there}")
            else:
                (kind,) = set(volume) - {"name"}
                lines.append(f"mount --bind {self.volumes[kind]} {there}")
            if mount.get("readOnly"):
                lines.append(f"mount -o remount,bind,ro {there}")
        return lines

    def start_pod(self, name):
        pod = self.pods[name]
        at = self.dir / f"{name}-{len(self.processes)}"
        (at / "container").mkdir(parents=True)
        (at / "termination-log").touch()
        (at / "termination-log").chmod(0o666)
        security = {**pod.spec["securityContext"], **pod.container["securityContext"]}
        self.assertTrue(security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"])
        script = ROOT.format(at=at / "container", hostname=pod.hostname, hosts=self.dir / "hosts", termination_log=at / "termination-log",
                             open=" ".join(shlex.quote(str(p)) for p in (BIN, pathlib.Path(os.environ["MUSTER_VENV"]).resolve())))
        script += "\n".join(self.mounts(pod) + [
            "mount -o remount,bind,ro .", "mount -o remount,ro dev", "if touch tried 2>/dev/null; then exit 99; fi",
            "exec setpriv --no-new-privs chroot "  # which needs capabilities, and leaves none to another user
            f'--userspec={security["runAsUser"]}:{security["runAsGroup"]} --groups={security["fsGroup"]} . "$@"'])
        environment = {"PATH": f"{BIN}:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/", **pod.environment()}
        index = list(self.pods).index(name)
        command = ["ip", "netns", "exec", self.network.names[index], "unshare", "--mount", "--uts", "--propagation", "private",
                   "sh", "-c", script, "sh", *pod.command()]
        process = Process(name, command, environment, at / "log")
        process.termination_log = at / "termination-log"
        self.processes.append(process)
        return process

    def start_pods(self):
        order = list(self.pods)
        random.shuffle(order)
        last = next(name for name in reversed(order) if self.pods[name].role == "worker")  # after the evaluator has come
        order.remove(last)
        processes = {name: self.start_pod(name) for name in order}
        processes["muster-chief-0"].wait_for("evaluator 0 on host", timeout=60)
        return {**processes, last: self.start_pod(last)}

    def ended(self, processes, code, timeout=240):
        self.finish(list(processes.values()), timeout, code)


class Form:
    def test_trains_and_a_killed_worker_comes_back(self):
        self.job_file(max_steps=self.steps)
        pods = self.start_pods()
        pods["muster-chief-0"].wait_for("steps an epoch", timeout=60)
        pods["muster-worker-1"].signal(signal.SIGKILL)
        pods["muster-worker-1"].wait(10)
        pods["muster-worker-1"] = self.start_pod("muster-worker-1")
        self.ended(pods, 0)
        outcome = result(self.model_dir)
        self.assertEqual((outcome["status"], outcome["steps"], outcome["world_size"]), ("completed", self.steps, self.world_size))
        # On hosts of their own, by the user of the pods.
        self.assertRegex(pods["muster-chief-0"].output(), f"worker 1 .*on host {self.pods['muster-worker-1'].hostname}")
        user = self.pods["muster-chief-0"].spec["securityContext"]["runAsUser"]
        self.assertEqual({path.stat().st_uid for path in self.model_dir.rglob("*")}, {user})


class Jobs(Form, ContainersTest):
    def test_a_failure_leaves_its_message(self):
        self.job_file(global_batch_sice=7)
        processes = {name: self.start_pod(name) for name in self.pods}
        self.ended(processes, 2)
        for process in processes.values():
            self.assertIn("global_batch_sice", process.termination_log.read_text())


class JobsWithServers(Form, ContainersTest):
    folder = PARAMETER_SERVER
    # The other worker continues alone, and the job must last until the container is there again.
    world_size, steps = 2, 5000


class TfJob(Form, ContainersTest):
    folder = K8S / "tfjob"


class TfJobWithServers(JobsWithServers):
    folder = K8S / "tfjob_parameter_server"


class JobSet(Form, ContainersTest):
    folder = K8S / "jobset"


class JobSetWithServers(JobsWithServers):
    folder = K8S / "jobset_parameter_server"


if __name__ == "__main__":
    unittest.main(verbosity=2)
