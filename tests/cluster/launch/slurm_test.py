"""deploy/slurm/muster.sbatch, run by bash with an `srun` and a `scontrol` of this test.

There is no Slurm here. What the stand-ins do is what srun(1) and sbatch(1) say: the variables of each task, which exit code srun
returns, that sbatch's arguments and environment reach the script, and that a signal of --signal goes to the tasks and not to the script.
"""
import json
import os
import re
import signal
import stat
import sys
import time
import unittest

from harness import BIN, CONFIGURATION, PREEMPTED, SOURCE, curve, free_ports, losses, result
from launch_case import LaunchTest

SCRIPT = SOURCE / "deploy" / "slurm" / "muster.sbatch"
SRUN = '''#!{python}
"""Starts the tasks of a step on this host. Writes down how it was called."""
import json, os, pathlib, signal, subprocess, sys
folder = pathlib.Path("{folder}")
options = [a for a in sys.argv[1:] if a.startswith("--")][:sys.argv[1:].index(next(a for a in sys.argv[1:] if not a.startswith("--")))]
command = sys.argv[1 + len(options):]
size = int(os.environ["SLURM_NTASKS"])
key = os.environ.get("MUSTER_RUN_KEY_FILE")
called = {{"options": options, "command": command, "key": key, "text": open(key).read() if key else None, "environment": dict(os.environ)}}
(folder / f"srun-{{len(list(folder.glob('srun-*.json')))}}.json").write_text(json.dumps(called))
tasks = []
for rank in range(size):
    step = {{"SLURM_STEP_ID": 0, "SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NODEID": 0, "SLURMD_NODENAME": "localhost",
            "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": size, "SLURM_STEP_NUM_TASKS": size,
            "SLURM_STEP_RESV_PORTS": "{ports}"}}
    out = open(folder / f"rank-{{rank}}.log", "a")
    tasks.append(subprocess.Popen(command, env={{**os.environ, **{{k: str(v) for k, v in step.items()}}}}, stdout=out, stderr=out))
(folder / "pids").write_text(json.dumps([task.pid for task in tasks]))
codes = [task.wait() for task in tasks]
sys.exit(max(code if code >= 0 else 128 - code for code in codes))
'''
SCONTROL = '''#!/bin/sh
[ "$1 $2" = "show job" ] && echo "   JobState={state} Reason=None Dependency=(null)" && exit 0
echo "$@" >> {folder}/scontrol
exit {code}
'''


class Sbatch(LaunchTest):
    def setUp(self):
        super().setUp()
        self.tools = self.dir / "tools"
        self.tools.mkdir()
        self.home = self.dir / "home"
        self.home.mkdir()
        self.write("srun", SRUN.format(python=sys.executable, folder=self.dir, ports=",".join(map(str, free_ports(5)))))
        self.write("scontrol", SCONTROL.format(folder=self.dir, code=0, state="RUNNING"))

    def write(self, name, text):
        path = self.tools / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def sbatch(self, *arguments, tasks=3, **environment):
        env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "MUSTER_RUN", "TF_CONFIG"))}
        env.update(PATH=f"{self.tools}:{BIN}:{env['PATH']}", HOME=str(self.home), OMP_WAIT_POLICY="passive", SLURM_JOB_ID="48152",
                   SLURM_CLUSTER_NAME="tux",                   SLURM_NTASKS=str(tasks), SLURM_JOB_NODELIST="localhost", SLURM_TASKS_PER_NODE=str(tasks), SLURM_PROCID="0", **environment)
        return self.start_process("sbatch", ["/bin/bash", SCRIPT, *arguments], env)

    def calls(self):
        return [json.loads(path.read_text()) for path in sorted(self.dir.glob("srun-*.json"))]

    def requeues(self):
        path = self.dir / "scontrol"
        return path.read_text().splitlines() if path.exists() else []

    def pids(self):
        path = self.dir / "pids"
        deadline = time.monotonic() + 30
        while not path.exists() or not path.read_text():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        return json.loads(path.read_text())

    def wait_for(self, rank, text):
        path = self.dir / f"rank-{rank}.log"
        deadline = time.monotonic() + 60
        while not path.exists() or text not in path.read_text():
            self.assertLess(time.monotonic(), deadline, path.read_text() if path.exists() else "")
            time.sleep(0.02)

    def test_trains_what_launch_trains_and_survives_a_killed_worker(self):
        job = self.job(max_steps=300)
        launched = self.dir / "launched"
        self.run_launch("--workers", 2, "--job", job, "--set", f"model_dir={launched}")
        model_dir = self.dir / "model"
        self.finish([self.sbatch("--job", job, "--set", f"model_dir={model_dir}", "--fault", "kill@worker:1:step=100")])
        self.assertEqual(curve(model_dir), losses(launched))
        self.assertEqual(result(model_dir)["generations"], 2)
        self.assertEqual(self.requeues(), [])

    def test_the_key_is_in_a_private_file_alone_and_goes_with_the_job(self):
        model_dir = self.dir / "model"
        self.finish([self.sbatch("--job", self.job(), "--set", f"model_dir={model_dir}")])
        (call,) = self.calls()
        self.assertEqual(call["key"], str(self.home / ".config/muster/slurm-tux-48152.key"))
        self.assertNotIn(call["text"].strip(), json.dumps([call["command"], call["options"], call["environment"]]))
        self.assertEqual(list((self.home / ".config/muster").iterdir()), [])  # it is gone
        self.assertIn("--export=ALL", call["options"])
        self.assertIn("--distribution=block", call["options"])
        # A user's own key is used, and kept.
        key = self.run_key()
        self.finish([self.sbatch("--job", self.job(), MUSTER_RUN_KEY_FILE=str(key))])
        self.assertEqual(self.calls()[-1]["key"], str(key))
        self.assertTrue(key.exists())

    def test_a_job_whose_time_is_over_saves_and_goes_on_after_its_requeue(self):
        model_dir = self.dir / "model"
        job = self.long_job()
        script = self.sbatch("--job", job, "--set", f"model_dir={model_dir}")
        self.wait_for(0, "saved step 200:")
        for pid in self.pids():
            os.kill(pid, signal.SIGTERM)
        self.finish([script], code=PREEMPTED)
        self.assertEqual(self.requeues(), ["requeue 48152"])
        self.assertIn("exit code 143, requeued (1 of at most 20 times)", script.output())
        steps = result(model_dir)["steps"]
        self.finish([self.sbatch("--job", job, "--set", f"model_dir={model_dir}", "--set", f"max_steps={steps + 10}", SLURM_RESTART_COUNT="1")])
        self.assertEqual(result(model_dir)["steps"], steps + 10)
        first, second = self.calls()
        self.assertEqual(first["text"], second["text"])  # the key of the first start
        self.assertEqual(len(self.requeues()), 1)

    def test_a_signal_to_the_script_itself_does_not_end_it_before_its_tasks(self):
        model_dir = self.dir / "model"
        script = self.sbatch("--job", self.long_job(), "--set",
                             f"model_dir={model_dir}")
        self.wait_for(0, "saved step 200:")
        script.signal(signal.SIGTERM)
        time.sleep(0.5)
        self.assertIsNone(script.popen.poll())
        for pid in self.pids():
            os.kill(pid, signal.SIGTERM)
        self.finish([script], code=PREEMPTED)
        self.assertEqual(self.requeues(), ["requeue 48152"])

    def test_a_job_that_another_start_cannot_help_is_not_requeued(self):
        self.finish([self.sbatch("--job", self.job(max_steps="many"))], code=CONFIGURATION)
        self.finish([self.sbatch("--job", self.dir / "none.json")], code=CONFIGURATION)
        self.assertEqual(self.requeues(), [])
        self.assertEqual(list((self.home / ".config/muster").iterdir()), [])

    def test_requeues_are_counted_and_may_be_refused(self):
        # A lost peer: the worker does not come.
        self.write("muster", f'#!/bin/sh\n[ "$1" = key ] && exec {BIN}/muster "$@"\nexit 138\n')
        for more, want in ({"SLURM_RESTART_COUNT": "19"}, 1), ({"SLURM_RESTART_COUNT": "20"}, 1), ({"MUSTER_MAX_REQUEUES": "0"}, 1):
            with self.subTest(**more):
                self.finish([self.sbatch("--job", "job.json", **more)], code=138)
                self.assertEqual(len(self.requeues()), want)
        # scancel.
        self.write("scontrol", SCONTROL.format(folder=self.dir, code=0, state="COMPLETING"))
        self.finish([self.sbatch("--job", "job.json")], code=138)
        self.assertEqual(len(self.requeues()), 1)
        self.write("scontrol", SCONTROL.format(folder=self.dir, code=1, state="RUNNING"))
        self.finish([self.sbatch("--job", "job.json")], code=138)
        self.assertEqual(list((self.home / ".config/muster").iterdir()), [])

    def test_the_chief_decides_and_a_task_that_fails_for_good_ends_the_job(self):
        fakes = self.dir / "fakes"
        fakes.mkdir()
        for role in "chief", "worker", "evaluator":
            (fakes / f"muster-{role}").write_text(f"#!/bin/sh\nexit ${role}\n")
            (fakes / f"muster-{role}").chmod(0o755)
        requeued = 0
        for chief, worker, evaluator, code, requeue in ((0, 0, 138, 0, 0), (1, 138, 138, 1, 0), (0, 2, 0, 0, 0), (143, 143, 0, 143, 1),
                                                        (138, 2, 0, 2, 0), (138, 0, 3, 138, 1), (138, 0, 0, 138, 1), (3, 143, 143, 3, 0)):
            with self.subTest(chief=chief, worker=worker, evaluator=evaluator):
                self.finish([self.sbatch("--job", "job.json", MUSTER_TASKS=f"--bin-dir {fakes} --evaluator", chief=str(chief),
                                         worker=str(worker), evaluator=str(evaluator))], code=code)
                requeued += requeue
                self.assertEqual(len(self.requeues()), requeued)
        keys = self.home / ".config/muster"
        self.assertEqual([path.name for path in keys.iterdir()], [])

    def test_a_job_of_an_array_is_requeued_alone(self):
        self.write("muster", f'#!/bin/sh\n[ "$1" = key ] && exec {BIN}/muster "$@"\nexit 138\n')
        self.finish([self.sbatch("--job", "job.json", SLURM_ARRAY_JOB_ID="48152", SLURM_ARRAY_TASK_ID="7")], code=138)
        self.assertEqual(self.requeues(), ["requeue 48152_7"])
        self.assertEqual([path.name for path in (self.home / ".config/muster").iterdir()], ["slurm-tux-48152_7.key"])

    def test_mistakes_are_found_before_anything_is_started(self):
        for value in "many", "-1", "1e3", "08", "1000000", "a[$(touch x)]":
            with self.subTest(value=value):
                script = self.sbatch("--job", "job.json", MUSTER_MAX_REQUEUES=value)
                self.finish([script], code=CONFIGURATION)
                self.assertIn(f'MUSTER_MAX_REQUEUES is "{value}", which is no number', script.output())
        keys = self.home / ".config/muster"
        keys.mkdir(parents=True)
        (keys / "slurm-tux-48152.key").symlink_to(self.run_key())  # somebody else's
        script = self.sbatch("--job", "job.json")
        self.finish([script], code=CONFIGURATION)
        self.assertIn("only a key of your own is used", script.output())
        self.assertEqual(self.calls(), [])

    def test_variables_choose_the_tasks_and_the_program(self):
        model_dir = self.dir / "model"
        job = self.job(strategy="parameter_server", max_steps=50)
        self.finish([self.sbatch("--job", job, "--set", f"model_dir={model_dir}", tasks=5, MUSTER=str(BIN / "muster"),
                                 MUSTER_TASKS="--ps 2 --evaluator", MUSTER_KEY_DIR=str(self.dir / "keys"), SLURM_CPUS_PER_TASK="2",
                                 SLURM_GPUS_PER_TASK="1")])
        (call,) = self.calls()
        self.assertEqual(call["command"][0], str(BIN / "muster"))
        self.assertEqual(call["key"], str(self.dir / "keys" / "slurm-tux-48152.key"))
        self.assertEqual(call["environment"]["SRUN_CPUS_PER_TASK"], "2")
        self.assertNotIn("--divide-gpus", call["command"])
        self.assertEqual(result(model_dir)["status"], "completed")

    def test_what_sbatch_reads(self):
        directives = dict(line.split("=", 1) if "=" in line else (line, "") for line in re.findall(r"^#SBATCH --(\S+)$", SCRIPT.read_text(), re.M))
        self.assertEqual(directives["signal"], "TERM@120")
        self.assertIn("requeue", directives)
        self.assertEqual(directives["open-mode"], "append")  # the output of the first start stays


if __name__ == "__main__":
    unittest.main(verbosity=2)
