"""`muster cluster --from LAUNCHER --exec`: processes with the environments of launchers train what `muster launch` trains."""
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from harness import BIN, CONFIGURATION, PREEMPTED, checkpoints, curve, free_ports, inherited, losses, result
from launch_case import FAULT, LaunchTest

LAUNCHERS = ("SLURM_", "OMPI_", "PMI_", "PMIX_", "PALS_", "MPI_LOCAL", "TORCHELASTIC_", "MASTER_", "MUSTER_RESTARTS", "TF_CONFIG")


def slurm(rank, size, ports):
    """One task of a step on one node, with the ports that Slurm has reserved for it."""
    return {"SLURM_JOB_ID": "48152", "SLURM_STEP_ID": "0", "SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NODEID": 0,
            "SLURMD_NODENAME": "localhost", "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_NUM_TASKS": size,
            "SLURM_STEP_TASKS_PER_NODE": size, "SLURM_STEP_RESV_PORTS": ",".join(map(str, ports))}


def openmpi(rank, size, ports):
    return {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": size, "OMPI_COMM_WORLD_LOCAL_RANK": rank,
            "OMPI_COMM_WORLD_LOCAL_SIZE": size, "PMIX_NAMESPACE": "prterun-head-20817@1", "PMIX_RANK": rank}


def pmi(rank, size, ports):
    return {"PMI_RANK": rank, "PMI_SIZE": size, "MPI_LOCALRANKID": rank, "MPI_LOCALNRANKS": size, "PMI_FD": 9}


def torchrun(rank, size, ports):
    return {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size, "GROUP_RANK": 0, "MASTER_ADDR": "localhost",
            "MASTER_PORT": 29500, "TORCHELASTIC_RESTART_COUNT": 0}


FROM = {"slurm": slurm, "openmpi": openmpi, "pmi": pmi, "torchrun": torchrun}
WRITE = ("write its arguments, --exec -- --job FILE, or a command of muster to run in its place, "
         "--exec -- muster preflight --job FILE\n")


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Ranks(LaunchTest):
    def environment(self, source, rank, size, ports):
        env = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
        env.setdefault("OMP_WAIT_POLICY", "passive")
        env.update({name: str(value) for name, value in FROM[source](rank, size, ports).items()})
        return env

    def start_rank(self, source, rank, size, ports, job, options=(), sets=(), more=()):
        # Only rank 0 listens on its port in synchronous training: the others' need not be free.
        port = () if source == "slurm" else ("--port", ports[0])
        command = [BIN / "muster", "cluster", "--from", source, *port, *options, "--exec", "--", "--job", job]
        for item in sets:
            command += ["--set", item]
        return self.start_process(f"rank {rank}", [*command, *more], self.environment(source, rank, size, ports))

    def start_ranks(self, source, size, job, options=(), sets=(), more=()):
        ports = free_ports(size)
        return ports, [self.start_rank(source, rank, size, ports, job, options, sets, more) for rank in range(size)]

    def test_each_launcher_trains_what_launch_trains(self):
        job, want = self.short_job(), self.launched()
        for source in FROM:
            with self.subTest(source=source):
                model_dir = self.dir / source
                _, ranks = self.start_ranks(source, 3, job, sets=[f"model_dir={model_dir}"])
                self.finish(ranks)
                self.assertEqual(losses(model_dir), want)
                self.assertEqual(result(model_dir)["world_size"], 3)

    def test_a_killed_worker_is_started_again_in_its_place(self):
        job, want = self.short_job(), self.launched()
        for source in FROM:
            with self.subTest(source=source):
                model_dir = self.dir / source
                _, ranks = self.start_ranks(source, 3, job, ["--restart", "on-failure"], [f"model_dir={model_dir}"],
                                            ["--fault", f"kill@worker:1:step={FAULT}"])
                self.finish(ranks)
                self.assertIn("muster: worker 1 was killed by SIGKILL; starting worker 1 again (1 of at most 10 times)", ranks[2].output())
                self.assertEqual([rank.output().count("again (") for rank in ranks], [0, 0, 1])
                self.assertEqual(result(model_dir)["generations"], 2)
                self.assertEqual(curve(model_dir), want)

    def test_a_killed_rank_may_be_started_again_with_the_same_environment(self):
        job, want = self.short_job(), self.launched()
        model_dir = self.dir / "model"
        ports, ranks = self.start_ranks("slurm", 3, job, sets=[f"model_dir={model_dir}"], more=["--fault", f"kill@worker:1:step={FAULT}"])
        self.assertEqual(ranks[2].wait(60), -signal.SIGKILL)  # exec: the rank is the task
        ranks[2] = self.start_rank("slurm", 2, 3, ports, job, sets=[f"model_dir={model_dir}"])
        self.finish(ranks)
        self.assertEqual(curve(model_dir), want)

    def test_parameter_servers_and_an_evaluator_are_the_last_ranks(self):
        model_dir = self.dir / "model"
        job = self.short_job(strategy="parameter_server")
        _, ranks = self.start_ranks("slurm", 5, job, ["--ps", 1, "--evaluator"], [f"model_dir={model_dir}"])
        self.finish(ranks)
        self.assertEqual(result(model_dir)["status"], "completed")
        for rank, task in enumerate(["chief 0", "worker 0", "worker 1", "ps 0", "evaluator 0"]):
            self.assertIn(task, ranks[rank].output())

    def test_a_stopped_job_saves_and_starts_nothing_again(self):
        model_dir = self.dir / "model"
        job = self.long_job()
        ports, ranks = self.start_ranks("slurm", 2, job, ["--restart", "on-failure"], [f"model_dir={model_dir}"])
        ranks[0].wait_for("saved step 200:")
        for rank in ranks:
            rank.signal(signal.SIGTERM)
        self.finish(ranks, code=PREEMPTED)
        saved = checkpoints(model_dir)[-1]
        self.assertEqual(result(model_dir)["status"], "preempted")
        # A requeued job has the same environment, and continues.
        ranks = [self.start_rank("slurm", rank, 2, ports, job, sets=[f"model_dir={model_dir}", f"max_steps={saved + 10}"])
                 for rank in range(2)]
        self.finish(ranks)
        self.assertEqual(result(model_dir)["steps"], saved + 10)

    def test_a_hangup_asks_the_task_to_save_unless_it_is_ignored(self):
        job = self.long_job()
        for ignored in False, True:
            with self.subTest(ignored=ignored):
                before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
                try:  # as by nohup
                    _, ranks = self.start_ranks("slurm", 2, job, ["--restart", "on-failure"], [f"model_dir={self.dir / str(ignored)}"])
                finally:
                    signal.signal(signal.SIGHUP, before)
                ranks[0].wait_for("saved step 200:")
                for rank in ranks:
                    rank.signal(signal.SIGHUP)
                if ignored:
                    saved, deadline = ranks[0].output().count("saved step"), time.monotonic() + 30
                    while ranks[0].output().count("saved step") < saved + 2:
                        self.assertLess(time.monotonic(), deadline, ranks[0].output())
                        time.sleep(0.05)
                    for rank in ranks:
                        rank.signal(signal.SIGTERM)
                self.finish(ranks, code=PREEMPTED)
                self.assertEqual(result(self.dir / str(ignored))["status"], "preempted")

    def test_a_supervisor_takes_its_task_with_it(self):
        job = self.long_job(model_dir=str(self.dir / "model"))
        _, ranks = self.start_ranks("slurm", 2, job, ["--restart", "on-failure"])
        ranks[0].wait_for("saved step 200:")
        tasks = [children(rank.popen.pid)[0] for rank in ranks]
        for rank in ranks:
            rank.signal(signal.SIGKILL)
            rank.wait(10)
        deadline = time.monotonic() + 10
        while any(self.alive(task) for task in tasks):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def alive(self, pid):
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return False
        return state not in "ZX"

    def test_a_mistake_is_one_sentence_and_nothing_is_started_again(self):
        job = self.job(max_steps="many")
        rank = self.start_rank("slurm", 0, 1, free_ports(1), job, ["--restart", "on-failure"])
        self.finish([rank], code=CONFIGURATION)
        self.assertNotIn("again", rank.output())
        without = self.dir / "without"
        without.mkdir()
        cases = [("slurm", ["--exec", "--", "--job", job], {"SLURM_STEP_NODELIST": "n[1-"}, 'SLURM_STEP_NODELIST is "n[1-"'),
                 ("slurm", ["--exec", "--", "--job", job], {"SLURM_STEP_NODELIST": "", "SLURM_JOB_NODELIST": "localhost",
                                                            "SLURM_TASKS_PER_NODE": "2"}, "put srun before muster cluster"),
                 ("slurm", ["--hosts", "a"], {}, "Slurm names the hosts"),
                 ("slurm", ["--json", "--tf-config"], {}, "choose one of them"),
                 ("slurm", ["--exec"], {}, WRITE),
                 ("slurm", ["--exec", "--", "muster-worker", "--job", job], {}, WRITE),
                 ("slurm", ["--bin-dir", without, "--exec", "--", "--job", job], {}, f"cannot start chief 0: {without}/muster-chief"),
                 ("slurm", ["--bin-dir", without, "--exec", "--restart", "always", "--", "--job", job], {}, "cannot start chief 0: "),
                 ("slurm", ["--", "--job", job], {}, "for the task that --exec runs"),
                 ("slurm", ["--restart", "always"], {}, "--restart is given without --exec"),
                 ("slurm", ["--port", "0"], {}, "--port is 0"),
                 ("slurm", ["--port", "65535"], {}, "give a port from 1 to 65534"),
                 ("torchrun", ["--hosts", "a:b"], {}, '--hosts is "a:b", which has "a:b"'),
                 ("torchrun", ["--hosts", self.dir / "none.txt"], {}, f'--hosts is "{self.dir}/none.txt", which is not a file'),
                 ("torchrun", ["--hosts", "none.txt"], {"LOCAL_WORLD_SIZE": "1"}, '--hosts is "none.txt", which is not a file, and cannot be the host of'),
                 ("slurm", ["--exit-codes", without], {}, "--exit-codes is given without --restart"),
                 ("torchrun", ["--ps", "1"], {}, "the tasks need 3"),
                 ("openmpi", [], {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "give --hosts a,b or --hosts FILE")]
        for source, arguments, more, sentence in cases:
            with self.subTest(source=source, arguments=arguments):
                env = {**self.environment(source, 0, 2, free_ports(2)), **more}
                done = subprocess.run([str(part) for part in [BIN / "muster", "cluster", "--from", source, *arguments]], env=env,
                                      stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn(sentence, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_what_is_printed_is_what_is_run(self):
        ports = free_ports(3)
        env = self.environment("slurm", 2, 3, ports)

        def printed(*arguments, **more):
            return subprocess.run([BIN / "muster", "cluster", *arguments], env={**env, **more}, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, check=True, timeout=30).stdout.decode()

        config = printed("--from", "slurm", "--tf-config").strip()
        self.assertEqual(json.loads(config), {
            "cluster": {"chief": [f"localhost:{ports[0]}"], "worker": [f"localhost:{ports[1]}", f"localhost:{ports[2]}"]},
            "task": {"type": "worker", "index": 1}})
        self.assertEqual(printed("--from", "slurm", "--json"), printed("--json", TF_CONFIG=config))
        self.assertEqual(printed("--from", "slurm"), printed(TF_CONFIG=config))
        self.assertIn("worker 1  localhost", printed("--from", "slurm"))

    def test_the_gpus_of_a_host_are_divided_among_its_tasks(self):
        stubs = self.dir / "stubs"
        stubs.mkdir()
        for role in "chief", "worker", "ps":
            (stubs / f"muster-{role}").write_text('#!/bin/sh\necho "${CUDA_VISIBLE_DEVICES-unset}"\n')
            (stubs / f"muster-{role}").chmod(0o755)

        def visible(rank, gpus, *options, **more):
            env = self.environment("slurm", rank, 3, free_ports(3))
            env.update(LD_LIBRARY_PATH=str(BIN.parent / "tests" / "fake_nvml"), FAKE_GPUS=gpus, **more)
            done = subprocess.run([str(part) for part in [BIN / "muster", "cluster", "--from", "slurm", "--bin-dir", stubs, "--exec", *options,
                                                          "--", "--job", "j"]],
                                  env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
            return done.stdout.strip() + done.stderr.strip()

        four = "GPU-0 GPU-1 GPU-2 GPU-3"
        self.assertEqual(visible(0, four), "unset")
        self.assertEqual([visible(rank, four, "--divide-gpus") for rank in range(3)], ["GPU-0,GPU-1", "GPU-2", "GPU-3"])
        self.assertEqual(visible(1, four, "--divide-gpus", CUDA_VISIBLE_DEVICES="3,2,1"), "2")
        # With parameter servers the workers alone compute.
        self.assertEqual(visible(1, four, "--divide-gpus", "--ps", "1"), "GPU-0")
        # Too few: a job on the CPU does not mind.
        self.assertEqual(visible(1, "GPU-0 GPU-1", "--divide-gpus"),
                         "unsetmuster: --divide-gpus: 2 GPUs for more members on this host, so each sees all")
        self.assertEqual(visible(1, "init:9", "--divide-gpus"), "unset")
        # Two hosts: each has its own GPUs.
        node = {"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2,1", "SLURM_LOCALID": "0", "SLURMD_NODENAME": "n2"}
        self.assertEqual(visible(2, four, "--divide-gpus", **node), "GPU-0,GPU-1,GPU-2,GPU-3")

    def test_exec_without_a_launcher_runs_the_task_of_tf_config(self):
        model_dir = self.dir / "model"
        job = self.job(model_dir=str(model_dir))
        cluster = self.cluster(1)
        started = []
        for kind in cluster:
            env = inherited(TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": kind, "index": 0}}))
            started.append(self.start_process(kind, [BIN / "muster", "cluster", "--exec", "--", "--job", job], env))
        self.finish(started)
        self.assertEqual(result(model_dir)["world_size"], 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
