"""Jobs whose program (faulty_worker.cc) fails in one step of one replica."""
from harness import ClusterTest

FAULTY_WORKER = "../tests/faulty_worker"
# No process replaces a lost one, and no loss is detected by silence.
ALONE = {"rejoin": 1, "heartbeat": 600}


class FaultyTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.model_dir = self.dir / "model"

    def faulty(self, how, replica=1, step=5, timeouts=ALONE):
        """Starts three workers, of which worker 0 is the chief. `how` names the failure."""
        job = self.job(program="faulty", global_batch_size=6, max_steps=1000, epochs=1000, model_dir=str(self.model_dir), timeouts=timeouts,
                       program_args={"replica": replica, "step": step, "how": how})
        cluster = self.cluster(3, chief=False)
        return [self.start(cluster, f"worker:{i}", job, binary=FAULTY_WORKER) for i in range(3)]
