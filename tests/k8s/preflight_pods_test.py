"""The pods of `muster manifest --preflight`, run as local processes like those of a job (pods_test.py)."""
import unittest

from manifest_command_test import manifest
from manifests import PARAMETER_SERVER
from pods_test import PodsTest


class PreflightPods(PodsTest):
    @classmethod
    def rendered(cls):
        return manifest("--workers", 2, "--ps", 2 if cls.folder is PARAMETER_SERVER else 0, "--job", cls.folder / "job.json", "--preflight")

    def test_they_meet_and_compare(self):
        self.job_file()
        processes = {name: self.start_pod(name) for name in self.pods}
        self.all_ended(processes, 0)
        for name, process in processes.items():
            if not name.startswith("muster-worker-0"):
                self.assertRegex(process.output(), "ok +worker 0 +same job and versions as chief 0; clock ")
        self.assertEqual(list((self.dir / "volume").iterdir()), [])


class ParameterServerPreflightPods(PreflightPods):
    folder = PARAMETER_SERVER


if __name__ == "__main__":
    unittest.main(verbosity=2)
