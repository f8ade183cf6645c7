"""Pods of every launch form, run as in pods_test.py: Jobs, TFJobs, JobSets, and what `muster manifest` prints. Each form trains `linear` to
the losses of a process alone, and loses a task on the way."""
import re
import signal
import subprocess
import unittest

from manifest_command_test import manifest
from manifests import BASE, PARAMETER_SERVER, SOURCE
from operators import render_all
from pods_test import PodsTest, result, wait_until

K8S = SOURCE / "k8s"
LOSSES = {"max_steps": 2000, "callbacks": [{"name": "csv_logger", "filename": "losses.csv"}]}


def epoch_losses(model_dir):
    """{epoch: loss} of the CSV file; each epoch is there once."""
    head, *rows = [line.split(",") for line in (model_dir / "losses.csv").read_text().splitlines()]
    found = {int(row[head.index("epoch")]): float(row[head.index("loss")]) for row in rows}
    assert len(found) == len(rows) > 5, rows
    return found


class FormTest(PodsTest):
    @classmethod
    def rendered(cls):
        return render_all(cls.folder)

    def alone(self):
        """The losses of the same job in one process."""
        model_dir = self.dir / "alone"
        process = self.start(None, None, self.dir / "config" / "job.json", [f"model_dir={model_dir}", "security={}"])
        self.finish([process])
        return epoch_losses(model_dir)

    def lose(self, pods, name, back):
        """Kills a pod's process and starts its successor, as the controller of the pod does after this exit code, until it prints `back`."""
        pods[name].signal(signal.SIGKILL)
        self.assertEqual(self.ended({name: pods[name]}), {name: 137})
        self.assertEqual(self.pods[name].after(137), "Count")
        pods[name] = self.start_pod(name)
        pods[name].wait_for(back)

    def check_same_losses(self):
        got, want = epoch_losses(self.model_dir), self.alone()
        self.assertEqual(sorted(got), sorted(want))
        self.assertLessEqual(max(abs(got[epoch] - want[epoch]) for epoch in want), 1e-6)


class Synchronous:
    def test_a_killed_worker_changes_no_loss(self):
        self.job_file(**LOSSES)
        pods = self.start_pods()
        pods["muster-chief-0"].wait_for("steps an epoch")
        self.lose(pods, "muster-worker-1", back="Number of devices")
        self.completed(pods, steps=LOSSES["max_steps"])
        self.check_same_losses()

    def test_a_wrong_job_fails_for_good(self):
        self.job_file(global_batch_sice=7)
        processes = {name: self.start_pod(name) for name in self.pods}
        self.all_ended(processes, 2)
        for name in processes:
            # A JobSet's evaluator never fails; the others do.
            retried = name == "muster-evaluator-0" and self.manifests.kind("JobSet")
            self.assertEqual(self.pods[name].after(2), "Count" if retried else "FailJob")


class Servers:
    world_size = 2

    def test_a_killed_server_and_a_killed_worker(self):
        self.job_file(max_steps=1500)
        self.slow_workers(10)
        pods = self.start_pods()
        pods["muster-chief-0"].wait_for("steps an epoch")
        self.lose(pods, "muster-ps-1", back="in run")
        wait_until("backups", lambda: len(re.findall("ps 1 is backup of shard . again", pods["muster-chief-0"].output())) == 2)
        self.lose(pods, "muster-worker-0", back="worker on cpu")
        self.completed(pods, steps=1500)
        servers = result(self.model_dir)["parameter_server"]
        self.assertEqual(servers["lost_updates"], 0)


class TfJob(Synchronous, FormTest):
    folder = K8S / "tfjob"


class TfJobWithServers(Servers, FormTest):
    folder = K8S / "tfjob_parameter_server"


class JobSet(Synchronous, FormTest):
    folder = K8S / "jobset"


class JobSetWithServers(Servers, FormTest):
    folder = K8S / "jobset_parameter_server"


class Printed(Synchronous, FormTest):
    """`muster manifest` for a job file whose model_dir is elsewhere."""

    world_size = 4

    @classmethod
    def rendered(cls):
        return manifest("--workers", 3, "--job", SOURCE / "examples" / "linear.json", "--set", "seed=7")

    def job_file(self, **keys):
        super().job_file(**keys)
        self.model_dir = self.dir / "volume" / "linear"

    def alone(self):
        with_seed = self.dir / "config" / "job.json"
        with_seed.write_text(with_seed.read_text().replace("{", '{"seed": 7, ', 1))
        return super().alone()


def read_only_root():
    """Skips where this process may not have a file system of its own."""
    tried = subprocess.run(["unshare", "--mount", "--propagation", "private", "mount", "-o", "remount,bind,ro", "/"],
                           capture_output=True, text=True)
    if tried.returncode != 0:
        raise unittest.SkipTest(f"the root file system cannot be remounted here: {tried.stderr.strip()}")


class ReadOnlyRootCommand:
    """With readOnlyRootFilesystem a container writes to its volumes and to nothing else; and it sees no volume of another pod."""

    def setUp(self):
        read_only_root()
        super().setUp()

    def command_line(self, pod, at, command, environment):
        self.assertIs(pod.container["securityContext"]["readOnlyRootFilesystem"], True)
        writable = [at / "termination-log"]
        for mount in pod.container["volumeMounts"]:
            if mount["mountPath"] == "/tmp":
                (at / "tmp").mkdir()
                environment["TMPDIR"] = str(at / "tmp")  # /tmp has the folders of this test
                writable.append(at / "tmp")
            elif mount["mountPath"] in self.local and not mount.get("readOnly"):
                writable.append(self.local[mount["mountPath"]])
        here = [self.local.get(mount["mountPath"]) for mount in pod.container["volumeMounts"]]
        hidden = [self.dir / "volume"] if str(self.dir / "volume") not in here else []
        script = ["set -e", "mount -o remount,bind,ro /", f"if touch {at}/log 2>/dev/null; then exit 99; fi", 'exec "$@"']
        script[1:1] = [f"mount --bind {path} {path}" for path in writable] + [f"mount -t tmpfs -o ro none {path}" for path in hidden]
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join(script), "sh", *command]


class ReadOnlyRoot(ReadOnlyRootCommand, FormTest):
    folder = BASE

    def test_trains_and_evaluates(self):
        self.job_file(program="fashion_mnist", program_args={"hidden": 8, "train_examples": 1280, "validation": 128}, global_batch_size=128,
                      max_steps=20)
        pods = self.start_pods()
        self.completed(pods, steps=20)
        self.assertTrue(list((self.model_dir / "checkpoints").iterdir()))
        self.assertIn("step-00000020, the final one", pods["muster-evaluator-0"].output())


class ReadOnlyRootWithServers(ReadOnlyRoot):
    folder = PARAMETER_SERVER
    world_size = 2


if __name__ == "__main__":
    unittest.main(verbosity=2)
