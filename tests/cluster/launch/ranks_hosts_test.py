"""Two hosts with two processes each, started by launchers with ranks: names, ports and the run key as on a real cluster.

The hosts are network namespaces (hosts.py) whose /etc/hosts knows the nodes by their names.
"""
import os

from harness import BIN, CONFIGURATION, ClusterTest, curve, losses, main, result
from hosts import Network
from ranks_test import LAUNCHERS

NODES = ["node01", "node02"]
STEPS = 200


def slurm(rank):
    node, local = divmod(rank, 2)
    return {"SLURM_JOB_ID": 48152, "SLURM_STEP_ID": 0, "SLURM_PROCID": rank, "SLURM_LOCALID": local, "SLURM_NODEID": node,
            "SLURMD_NODENAME": NODES[node], "SLURM_STEP_NODELIST": "node[01-02]", "SLURM_STEP_NUM_TASKS": 4, "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}


def openmpi(rank):
    return {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": 4, "OMPI_COMM_WORLD_LOCAL_RANK": rank % 2,
            "OMPI_COMM_WORLD_LOCAL_SIZE": 2, "PMIX_NAMESPACE": "prterun-head-20817@1"}


def torchrun(rank):
    return {"RANK": rank, "WORLD_SIZE": 4, "LOCAL_RANK": rank % 2, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": rank // 2,
            "MASTER_ADDR": NODES[0], "MASTER_PORT": 29500}


class RanksOnHosts(ClusterTest):
    def setUp(self):
        self.network = Network(2)
        self.addCleanup(self.network.close)
        super().setUp()
        for host in range(2):
            self.network.set_hosts(host, dict(zip(NODES, self.network.addresses)))
        (self.dir / "hosts.txt").write_text("node01 slots=2\nnode02 slots=2\n")

    def start_ranks(self, source, environment, job, options=(), more=(), key=True):
        started = []
        for rank in range(4):
            command = [BIN / "muster", "cluster", "--from", source, *options, "--exec", "--restart", "on-failure", "--", "--job", job, *more]
            env = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
            env.update({name: str(value) for name, value in environment(rank).items()}, OMP_WAIT_POLICY="passive")
            if not key:
                command = ["env", "-u", "MUSTER_RUN_KEY_FILE", f"HOME={self.dir}", "XDG_CONFIG_HOME=", *command]
            started.append(self.start_process(f"rank {rank}", self.network.command(rank // 2, command), env))
        return started

    def test_trains_what_launch_trains_and_survives_a_killed_worker(self):
        job = self.job(max_steps=STEPS)
        launched = self.dir / "launched"
        self.run_launch("--workers", 3, "--job", job, "--set", f"model_dir={launched}")
        want = losses(launched)
        for source, environment, options in (("slurm", slurm, ()), ("openmpi", openmpi, ("--hosts", self.dir / "hosts.txt")),
                                             ("torchrun", torchrun, ("--hosts", "node01,node02"))):
            with self.subTest(source=source):
                model_dir = self.dir / source
                ranks = self.start_ranks(source, environment, job, options, ["--set", f"model_dir={model_dir}", "--fault",
                                                                             "kill@worker:2:step=50"])
                self.finish(ranks, timeout=120)
                got = curve(model_dir)
                self.assertEqual(sorted(got), sorted(want))
                # Across hosts the sums are taken in another order.
                self.assertLess(max(abs(got[step] - want[step]) for step in want), 1e-6)
                self.assertEqual(result(model_dir)["generations"], 2)
                self.assertIn("starting worker 2 again", ranks[3].output())

    def test_several_hosts_need_a_key(self):
        ranks = self.start_ranks("slurm", slurm, self.job(), key=False)
        self.finish(ranks, code=CONFIGURATION)
        self.assertIn("the cluster has an address that is not loopback (node01)", ranks[0].output())


if __name__ == "__main__":
    main()
