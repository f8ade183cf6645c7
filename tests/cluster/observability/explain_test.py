"""The cause of a failure is reported: by the verdict's line, and afterwards by `muster explain` from the records of each process."""
import json
import re
import signal
import subprocess
import time
import unittest

from faulty import ALONE, FaultyTest
from harness import BIN, PROGRAM, RETRYABLE


class Explain(FaultyTest):
    def explain(self, *arguments, directory=None, code=0):
        done = subprocess.run([BIN / "muster", "explain", directory or self.model_dir, *arguments], capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def test_a_killed_worker(self):
        chief, first, lost = processes = self.start_all(self.cluster(2), self.job(
            model_dir=str(self.model_dir), max_steps=10_000_000, epochs=1_000_000, summary={"every_steps": 100000}, timeouts=ALONE))
        for process in processes:
            process.wait_for("Number of devices")
        time.sleep(0.3)  # into the steps; which one does not matter
        lost.signal(signal.SIGKILL)
        lost.wait(5)
        self.finish([chief, first], code=RETRYABLE)
        self.assertIn("`muster explain", chief.output())
        text = self.explain()
        self.assertRegex(text, r"Generation 1\.1 of run \w+: 3 members, chief 0, worker 0 and worker 1\.")
        self.assertRegex(text, rf"Records: chief 0 \(host \S+, pid {chief.popen.pid}\) and worker 0 \(host \S+, pid {first.popen.pid}\)\.")
        self.assertIn("No record of worker 1: killed", text)
        self.assertRegex(text, r"all of these completed collective \d+, all_reduce\(\w+ x \d+, \w+\) of step \d+\.")
        for task in "chief 0", "worker 0":  # a save, say, keeps one from coming before it hears of the end
            self.assertRegex(text, rf"{task} (entered collective \d+, all_reduce|had not entered (collective \d+|another one): it was in phase '\w+')")
        self.assertRegex(text, r"Why it ended: worker 1 on host \S+ \(step \d+, \w+\): lost: ")
        document = json.loads(self.explain("--json", "--generation", "1"))
        self.assertEqual((document["generation"], document["missing"], document["followed_by"]), ("1.1", ["worker:1"], None))
        self.assertEqual([record["task"] for record in document["records"]], ["chief:0", "worker:0"])
        self.assertIn("it has 1.1", self.explain("--generation", "7", code=2))
        self.damaged_and_foreign(chief)

    def damaged_and_foreign(self, chief):
        folder = self.model_dir / "flight" / "0001-000001"
        whole = (folder / "worker-0.json").read_text()
        (folder / "worker-0.json").write_text(whole[:len(whole) // 2])
        self.assertIn("worker-0.json is damaged: it is not a complete JSON object", self.explain(code=3))
        # Records that were gathered by hand, among other files.
        loose = self.dir / "loose"
        loose.mkdir()
        (loose / "any-name.json").write_text((folder / "chief-0.json").read_text())
        (loose / "job.json").write_text("{}")
        self.assertIn(f"Records: chief 0 (host {json.loads((folder / 'chief-0.json').read_text())['host']}, pid {chief.popen.pid})", self.explain(directory=loose))
        (loose / "any-name.json").unlink()
        self.assertIn("contains no flight records", self.explain(directory=loose, code=2))
        self.assertIn("is not there", self.explain(directory=self.dir / "none", code=2))

    def test_a_program_that_hangs_is_named_by_the_verdict_and_tells_itself(self):
        chief, culprit, other = processes = self.faulty("hang", timeouts={**ALONE, "phase": {"reduce": 6}})
        self.finish(processes, code=RETRYABLE)
        line = re.search(r"ROOT CAUSE: worker 1 .*", culprit.output()).group()
        self.assertRegex(line, r"in phase 'forward' for \d+\.\d s while worker [02] waits for it in 'reduce' for \d+\.\d s; timeouts.phase.reduce is 6 s; "
                               r"collective \d+, all_reduce\(float32 x \d+, sum\): in it worker 0 \(host \S+, pid \d+, for \d+\.\d s\), worker 2 \(.*\); "
                               rf"not in it worker 1 \(host \S+, pid {culprit.popen.pid}, step 5, forward for \d+\.\d s\)")
        text = self.explain()
        self.assertRegex(text, r"all members completed collective \d+")
        self.assertRegex(text, r"worker 1 had not entered collective \d+: it was in phase 'forward' of step 5 for \d+\.\d s\.")
        self.assertRegex(text, r"worker 2 entered collective \d+, all_reduce\(.*\) and was in it for \d+\.\d s\.")
        self.assertRegex(text, r"Why it ended: worker 1 ")

    def test_a_program_that_diverges_between_ranks_is_named_and_not_tried_again(self):
        processes = self.faulty("diverge")
        self.finish(processes, code=PROGRAM)
        for process in processes:
            self.assertRegex(process.output(), r"The ranks disagree on collective operation \d+: rank \d \(worker:\d\) issued all_reduce\(float32 x \d+, sum\), "
                                               r"rank \d \(worker:\d\) issued all_reduce\(float32 x \d+, sum\)")
            self.assertRegex(process.output(), r"disagree.*worker:1\)")
        self.assertIn("the program diverges between ranks", self.explain())

    def test_an_exception_on_a_thread_of_the_program_ends_the_job_with_1_and_its_message(self):
        chief, culprit, other = processes = self.faulty("thread")
        self.finish(processes, code=PROGRAM)
        for process in chief, culprit:
            self.assertIn("an exception was not caught on a thread of the program: no luck on this thread", process.output())
        self.assertIn("worker 1: failed: an exception was not caught", self.explain())

    def test_a_fatal_signal_is_named_by_the_process_that_it_kills(self):
        chief, culprit, other = self.faulty("segv")
        culprit.wait(30)
        self.assertEqual(culprit.popen.returncode, -signal.SIGSEGV)
        self.assertRegex(culprit.output(), r"worker 1 \(pid \d+\): killed by SIGSEGV")
        self.finish([chief, other], code=RETRYABLE)
        self.assertIn("No record of worker 1", self.explain())


if __name__ == "__main__":
    unittest.main(verbosity=2)
