"""Plugins that are not what they should be: one sentence, the right exit code, and no code of theirs has run."""
import json
import os
import pathlib
import shutil
import signal
import struct
import unittest

from outside import BIN, BUILD, OutsideTest

HERE = pathlib.Path(__file__).resolve().parent
PLUGINS = BUILD / "tests" / "plugins"


class Plugin(OutsideTest):
    @classmethod
    def setUpClass(cls):
        # Built once and kept: what it depends on is in its CMake.
        case = cls()
        case.dir = pathlib.Path(BUILD)
        case.build_project(HERE / "plugins", PLUGINS, BUILD)

    def setUp(self):
        super().setUp()
        self.plugin = self.dir / "small.so"
        shutil.copy(PLUGINS / "small.so", self.plugin)
        self.loaded = self.dir / "loaded"

    def plugin_job(self, **keys):
        return self.job(**{"program": "./small.so", "max_steps": 4, **keys})

    def ends(self, code, *words, binary="muster-worker", job=None, environment=None, cluster=None, task=None):
        """One task ends with `code` and says all of `words` in one line."""
        environment = {"MUSTER_TEST_LOADED": str(self.loaded), **(environment or {})}
        process = self.start(cluster, task, job or self.plugin_job(), environment=environment, binary=binary)
        self.finish([process], code=code)
        lines = [line for line in process.output().splitlines() if all(word in line for word in words)]
        self.assertEqual(len(lines), 1, process.output())
        self.assertNotIn("terminate called", process.output())
        return lines[0]

    def patch(self, old, new):
        content = self.plugin.read_bytes()
        self.assertIn(old, content)
        self.plugin.write_bytes(content.replace(old, new))

    def test_trains(self):
        self.finish([self.start(None, None, self.plugin_job(), environment={"MUSTER_TEST_LOADED": str(self.loaded)})])
        self.assertTrue(self.loaded.exists())

    def callback_job(self, **keys):
        self.model_dir = self.dir / f"model-{len(self.processes)}"
        return self.plugin_job(**{"max_steps": 40, "model_dir": str(self.model_dir), "checkpoint": {"every_steps": 2},
                                  "callbacks": [{"name": "stop_after", "steps": 11}], **keys})

    def check_stopped(self):
        outcome = json.loads((self.model_dir / "result.json").read_text())
        self.assertEqual((outcome["status"], outcome["steps"], outcome["finished"]), ("completed", 11, True))
        self.assertEqual(outcome["callbacks"]["stop_after"]["counted"], 11)

    def test_a_callback_of_its_own_stops_all_members_at_one_step(self):
        self.finish(self.start_all(self.cluster(2), self.callback_job()))
        self.check_stopped()

    def test_a_callback_of_its_own_goes_on_where_it_was(self):
        self.finish([self.start(None, None, self.callback_job(max_steps=5))])
        process = self.start(None, None, self.plugin_job(max_steps=40, model_dir=str(self.model_dir), callbacks=[{"name": "stop_after", "steps": 11}]))
        self.finish([process])
        self.assertIn("going on after step 5", process.output())
        self.check_stopped()

    def test_a_callback_and_a_schedule_of_its_own_survive_a_kill(self):
        weights = []
        for fault in None, "kill@worker:0:step=7", "kill@chief:0:step=8":
            with self.subTest(fault=fault):
                job = self.callback_job(learning_rate={"name": "sawtooth", "top": 0.1, "length": 4})
                self.model_dir = self.dir / f"killed-{len(weights)}"
                printed = self.run_command(BIN / "muster", "launch", "--workers", 1, "--restart", "on-failure", "--job", job,
                                           *(["--fault", fault] if fault else []), "--set", f"model_dir={self.model_dir}")
                self.assertEqual("was killed by SIGKILL" in printed, fault is not None)
                self.check_stopped()
                weights.append((self.model_dir / "checkpoints" / "step-00000011" / "model.safetensors").read_bytes())
                self.assertEqual(weights[-1], weights[0])
        # After a step at 0.1, 0.075, 0.05, 0.025 and again: w begins at 0, the loss is (w - 2)^2.
        want = 0.0
        for step in range(11):
            want -= 0.1 * (1 - step % 4 / 4) * 2 * (want - 2)
        (value,) = struct.unpack("<f", weights[0][-4:])
        self.assertAlmostEqual(value, want, places=5)

    def test_keys_of_a_callback_of_its_own(self):
        self.ends(2, 'unknown key "callbacks[0].stesp", did you mean "steps"?', job=self.callback_job(callbacks=[{"name": "stop_after", "stesp": 1}]))
        self.ends(2, 'callbacks[0].name is "stop_aftr", did you mean "stop_after"?', job=self.callback_job(callbacks=[{"name": "stop_aftr"}]))

    def test_another_stamp(self):
        self.patch(b"Muster 0.", b"Muster 9.")
        line = self.ends(2, "was built for \"Muster 9.", "this is \"Muster 0.", "build it again")
        self.assertIn(str(self.plugin), line)
        self.assertEqual(line.count("LibTorch 2."), 2)
        self.assertFalse(self.loaded.exists(), "code of the plugin ran")
        printed = self.run_command(BIN / "muster", "check", "--job", self.plugin_job(), code=2)
        self.assertIn("was built for \"Muster 9.", printed)

    def test_files_that_are_no_programs(self):
        whole = self.plugin.read_bytes()
        for name, content, words in [
                ("text", b"#!/bin/sh\nexit 0\n", ["is no shared library"]), ("empty", b"", ["is no shared library"]),
                ("cut off", whole[:len(whole) // 2], ["is damaged"]), ("cut off early", whole[:70], ["is damaged"]),
                ("another processor", whole[:18] + b"\xf3\x00" + whole[20:], ["another kind of processor"]),
                ("no stamp", whole.replace(b".muster.stamp", b".xuster.stamp"), ["holds no program", "MUSTER_PROGRAM(Class)"]),
                ("no function", whole.replace(b"muster_make_program", b"muster_make_progrbm"), ["lacks the function muster_make_program"]),
                ("two programs", whole.replace(b"Muster 0.1.0, program", b"Muster 0.1.0\0 program"), ["several programs"])]:
            with self.subTest(name=name):
                self.plugin.write_bytes(content)
                self.ends(2, "small.so", *words)
        self.plugin.unlink()
        self.ends(2, "small.so", "No such file")
        self.plugin.mkdir()
        self.ends(2, "small.so")

    def test_a_name_without_a_slash_is_built_in(self):
        self.ends(2, "program \"small\" is unknown", "./small.so", job=self.plugin_job(program="small"))
        # Nothing looks for it in the folder of the job.
        self.finish([self.start(None, None, self.plugin_job(program="small.so"))])

    def test_a_constructor_that_throws(self):
        self.ends(1, "build failed: no such planet", environment={"MUSTER_TEST_THROW": "no such planet"})
        printed = self.run_command(BIN / "muster", "check", "--job", self.plugin_job(), code=1,
                                   environment={"MUSTER_TEST_THROW": "no such planet"})
        self.assertIn("no such planet", printed)

    def test_other_content_is_refused_at_join(self):
        elsewhere = self.dir / "elsewhere"
        elsewhere.mkdir()
        shutil.copy(self.plugin, elsewhere / "renamed.so")
        cluster = self.cluster(1)
        cluster["evaluator"] = self.cluster(1)["worker"]
        with (elsewhere / "other.so").open("wb") as other:
            other.write(self.plugin.read_bytes() + b"\n")
        # The same bytes at another path are the same program.
        self.finish([self.start(cluster, "chief:0", self.plugin_job()),
                     self.start(cluster, "worker:0", self.plugin_job(program="elsewhere/renamed.so"))])
        cluster = self.cluster(1)
        chief = self.start(cluster, "chief:0", self.plugin_job())
        worker = self.start(cluster, "worker:0", self.plugin_job(program="elsewhere/other.so"))
        self.finish([chief, worker], code=2)
        for process in chief, worker:
            self.assertIn("worker 0 has another file for 'program' than the chief", process.output())

    def test_a_run_goes_on_with_a_plugin_that_was_moved_and_built_again(self):
        model_dir = f"model_dir={self.dir / 'run'}"
        self.finish([self.start(None, None, self.plugin_job(), sets=[model_dir])])
        (self.dir / "new").mkdir()
        moved = self.dir / "new" / "small.so"
        moved.write_bytes(self.plugin.read_bytes() + b"\n")
        again = self.start(None, None, self.plugin_job(program=str(moved), max_steps=6), sets=[model_dir])
        self.finish([again])
        self.assertIn("going on after step 4", again.output())
        job = json.loads((self.dir / "run" / "job.json").read_text())
        self.assertEqual(job["program"], str(moved))
        self.assertRegex(job["digests"]["program"], r"^\d+ bytes, [0-9a-f]{16}$")
        # Another program's checkpoint it is not.
        shutil.copy(moved, self.dir / "other.so")
        other = self.start(None, None, self.plugin_job(program="other.so", max_steps=8), sets=[model_dir])
        self.finish([other], code=2)
        self.assertIn("was trained with another program", other.output())

    def test_parameter_servers_and_an_evaluator(self):
        cluster = self.cluster(1, ps=1)
        self.finish(self.start_all(cluster, self.plugin_job(max_steps=8, model_dir=str(self.dir / "ps"))))
        job = self.plugin_job(model_dir=str(self.dir / "run"))
        # The evaluator is there before training begins: it is over in a moment.
        cluster = self.cluster(1)
        chief, evaluator = (self.start(cluster, task, job) for task in ("chief:0", "evaluator:0"))
        evaluator.wait_for("following the checkpoints")
        self.finish([chief, self.start(cluster, "worker:0", job), evaluator])
        result = json.loads((self.dir / "run" / "result.json").read_text())
        self.assertEqual(result["steps"], 4)
        # The evaluator measured the last checkpoint with the plugin's own eval_step: what the members' pass measured.
        self.assertRegex(evaluator.output(), r"step-00000004, the final one: loss \S+ \(40 examples in ")
        self.assertEqual(result["metrics"]["eval"].keys(), {"loss"})
        self.assertAlmostEqual(result["metrics"]["eval"]["loss"], result["metrics"]["validation"]["loss"], places=6)
        self.assertGreater(result["metrics"]["eval"]["loss"], 0)

    def test_an_evaluator_with_another_plugin_is_refused(self):
        other = self.dir / "other.so"
        other.write_bytes(self.plugin.read_bytes() + b"\n")
        cluster = {**self.cluster(1), "evaluator": self.cluster(1)["worker"]}
        job = self.plugin_job(epochs=10**6, max_steps=None, model_dir=str(self.dir / "run"))  # until it is stopped
        members = [self.start(cluster, task, job) for task in ("chief:0", "worker:0")]
        evaluator = self.start(cluster, "evaluator:0", self.plugin_job(program=str(other)))
        self.finish([evaluator], 60, 138)  # an evaluator's own failure never fails a job
        self.assertIn("evaluator 0 has another file for 'program' than the chief: give all tasks the same files", evaluator.output())
        members[0].signal(signal.SIGTERM)
        self.finish(members, 60, 143)


if __name__ == "__main__":
    unittest.main()
