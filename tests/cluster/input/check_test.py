"""`muster check`: what it says of a job, what it refuses as training would, and that it refuses nothing else."""
import re
import subprocess
import unittest

import numpy
import torch

import exported_models as models
from harness import BIN, CONFIGURATION, DAMAGED, PROGRAM, ClusterTest, checkpoints, inherited

TOOL, MUSTER = [BIN / ".." / "tests" / "check_tool"], [BIN / "muster"]
DONE = "no problem was found"


class Check(ClusterTest):
    def check(self, job, *arguments, code=0, command=TOOL):
        """Its output; an error is its last line, and the only one of its kind."""
        done = subprocess.run([*command, "check", "--job", job, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=120, env=inherited())
        self.assertEqual(done.returncode, code, done.stdout)
        last = done.stdout.splitlines()[-1]
        if code == 0:
            self.assertEqual(last, DONE)
        else:
            self.assertRegex(last, r"^muster check: ")
            self.assertNotIn(DONE, done.stdout)
        self.assertEqual(done.stdout.count("muster check: "), int(code != 0), done.stdout)
        return done.stdout

    def checked_job(self, arguments=None, **keys):
        return self.job(**{"program": "checked", "program_args": arguments or {}, "max_steps": None, "epochs": 2, **keys})

    def refused(self, arguments, code, *words, options=(), **keys):
        last = self.check(self.checked_job(arguments, **keys), *options, code=code).splitlines()[-1]
        for word in words:
            self.assertIn(word, last)

    # ---- what it says

    def test_tied_weights_count_once(self):
        model = models.export("two", self.dir / "two.pt2")
        columns = {}
        for name, values in models.data("two").items():
            numpy.save(self.dir / f"{name}.npy", values)
            columns[name] = f"{name}.npy"
        printed = self.check(self.job(program={"exported": "two.pt2", "loss": models.LOSSES["two"]},
                                      data={"train": {"format": "npy", "columns": columns}}), command=MUSTER)
        count = sum(parameter.numel() for parameter in model.parameters())  # Python counts them once
        self.assertEqual(count, 116)
        self.assertIn(f"\n  {count} parameters\n", printed)
        self.assertIn("  second.weight: Float [6, 8], tied to first.weight\n", printed)

    def test_callbacks_that_write(self):
        """They are built as in training, and write nothing."""
        writing = [{"name": "csv_logger", "filename": "log.csv"}, {"name": "model_checkpoint", "filepath": "{epoch}.safetensors"}]
        model_dir = self.dir / "unwritten"
        self.check(self.checked_job(callbacks=writing, model_dir=str(model_dir)))
        self.assertFalse(model_dir.exists())
        self.refused(None, CONFIGURATION, "csv_logger, which writes log.csv into model_dir", "set it, or leave the callback out", callbacks=writing)

    def test_a_good_job(self):
        folder = self.dir / "weights"
        folder.mkdir()
        from safetensors.torch import save_file
        save_file({"weight": torch.ones(3), "bias": torch.ones(1), "seen": torch.zeros(2), "norm.weight": torch.ones(3),
                   "norm.bias": torch.zeros(3), "norm.running_mean": torch.zeros(3), "norm.running_var": torch.ones(3),
                   "norm.num_batches_tracked": torch.tensor(0)}, folder / "net.safetensors")
        job = self.checked_job({"frozen": True, "batch_norm": True, "buffer": "per_replica", "named": True}, load={"net": "weights/net.safetensors"},
                               optimizer={"name": "sgd", "momentum": 0.5, "groups": [{"parameters": "norm.*", "learning_rate_scale": 0.1}]})
        printed = self.check(job).splitlines()
        for line in ["model net", "  weight: Float [3]", "  bias: Float [1], frozen", "  seen: Float [2], buffer, kPerReplica",
                     "  norm.running_mean: Float [3], buffer", "  9 parameters are trained, 1 frozen",
                     'optimizer sgd: {"momentum":0.5,"name":"sgd"}, learning rate 0.1',
                     'optimizer "sgd", group 1 (norm.*: learning_rate_scale=0.1): 2 parameters, 6 numbers',
                     'optimizer "sgd", in no group: 1 parameter, 3 numbers', "dataset more, not distributed",
                     f"weights of net: {folder}/net.safetensors", "train data: 20 examples, a batch: Float [5, 3], Float [5]",
                     "validation data, a batch: Float [5, 3], Float [5]",
                     "  buffers that the step changed, averaged over replicas (kMean): net.norm.running_mean, net.norm.running_var"]:
            self.assertEqual(printed.count(line), 1, f"{line}\n" + "\n".join(printed))
        for pattern in [r"  step 1: loss \d", r"  validation: loss \S+ over 5 examples$", r"  test: loss \S+ over 5 examples$", r"memory: models \d"]:
            self.assertEqual(len([line for line in printed if re.match(pattern, line)]), 1, f"{pattern}\n" + "\n".join(printed))
        # The weights were read: the loss is theirs.
        loss = float(re.search(r"step 1: loss (\S+);", "\n".join(printed))[1])
        other = float(re.search(r"step 1: loss (\S+);", self.check(self.checked_job({"batch_norm": True})))[1])
        self.assertGreater(abs(loss - other), 0.1)

    def test_one_step_is_made_whatever_the_job_says(self):
        for keys in {"max_steps": 1000, "epochs": None}, {"epochs": 3}, {"max_steps": 1}, {"learning_rate": {"name": "cosine", "initial": 0.1}}, \
                {"strategy": "central_storage"}:
            with self.subTest(keys=keys):
                self.assertEqual(re.findall(r"step (\d+):", self.check(self.checked_job(**keys))), ["1"])

    def test_an_own_loop_makes_its_passes_and_the_check_the_others(self):
        for loop, order in ("evaluates", ["validation", "step", "test"]), ("several_steps", ["step", "validation", "test"]), \
                ("returns", ["step", "validation", "test"]), ("no_step", ["validation", "test"]):
            with self.subTest(loop=loop):
                printed = self.check(self.checked_job({"loop": loop}))
                self.assertEqual(re.findall(r"^  (step|validation|test)\b.*:", printed, re.MULTILINE), order, printed)
        self.assertIn("run() makes no step", printed)

    # ---- what is refused

    def test_a_program_that_throws(self):
        for where, words in ("build", "build failed"), ("run", "run failed"), ("step", "failed"), ("pass", "eval_step failed"):
            with self.subTest(where=where):
                self.refused({"throws": where}, PROGRAM, words, "no such planet")

    def test_what_parameter_servers_refuse(self):
        servers = {"strategy": "parameter_server"}
        for arguments, code, words, keys in [
                ({"buffer": "per_replica"}, PROGRAM, ["\"net.seen\" is declared kPerReplica"], {}),
                ({"buffer": "same", "writes_buffer": True}, PROGRAM, ["\"net.seen\" is declared kSame, and the program has changed it"], {}),
                ({"named": True}, CONFIGURATION, ["dataset \"more\" besides its splits"], {}),
                ({"stream": True}, CONFIGURATION, ["'train' does not know its size"], {}),
                ({"type_double": True}, PROGRAM, ["net.bias is of type Double", "float32 only"], {}),
                ({"in_step": "all_reduce"}, PROGRAM, ["all_reduce was called", "do not meet"], {}),
                ({"in_step": "all_gather"}, PROGRAM, ["all_gather was called", "do not meet"], {}),
                ({"loop": "evaluates"}, PROGRAM, ["evaluate was called", "do not meet"], {}),
                ({"loop": "reduces"}, PROGRAM, ["reduce was called", "do not meet"], {}),
                ({"loop": "several_steps"}, PROGRAM, ["next was called for 2 steps", "do not meet"], {}),
                ({"loop": "finishes"}, PROGRAM, ["finish was called", "do not meet"], {}),
                ({"loop": "returns"}, PROGRAM, ["run() returned before next() was false"], {}),
                ({}, CONFIGURATION, ["parameter_server.max_staleness is 0", '"multi_worker_mirrored"'], {"parameter_server": {"max_staleness": 0}}),
                ({}, CONFIGURATION, ["deterministic is true", 'strategy is "parameter_server"'], {"deterministic": True}),
                ({}, CONFIGURATION, ["devices is \"cpu:2\""], {"devices": "cpu:2"})]:
            with self.subTest(arguments=arguments, keys=keys):
                self.refused(arguments, code, *words, **servers, **keys)
                if "finishes" not in arguments.values():
                    self.check(self.checked_job(arguments, **{key: value for key, value in keys.items() if key == "devices"}))
        # The output names what servers hold.
        printed = self.check(self.checked_job({"buffer": "mean", "loop": "own"}, **servers))
        self.assertIn("parameter servers hold 3 variables, 6 numbers", printed)
        self.assertRegex(printed, r"step 1: loss")

    def test_a_single_example_at_the_end_of_an_epoch(self):
        norm = {"batch_norm": True}
        self.refused({**norm, "examples": 21}, CONFIGURATION, "the last batch of an epoch, 1 example for 1 replica", "SyncBatchNorm")
        self.check(self.checked_job({**norm, "examples": 21}, drop_remainder=True))
        self.check(self.checked_job({**norm, "examples": 21}, max_steps=3))
        # Which numbers of replicas it will not do for: batches of 6, and the last of 4.
        printed = self.check(self.checked_job({**norm, "examples": 22}, global_batch_size=6))
        self.assertIn("3 to 16 replicas would be refused (of 1 to 16)", printed)
        self.refused({**norm, "examples": 22}, CONFIGURATION, "4 examples for 3 replicas", global_batch_size=6, options=["--replicas", 3])
        self.check(self.checked_job({**norm, "examples": 22}, global_batch_size=6), "--replicas", 2)
        self.check(self.checked_job({"examples": 22}, global_batch_size=6), "--replicas", 3)
        # Workers of servers are alone with their leases, of 2 and of 1.
        servers = {"strategy": "parameter_server", "global_batch_size": 6}
        self.check(self.checked_job({**norm, "examples": 22}, **servers), "--replicas", 3)
        self.refused({**norm, "examples": 22}, CONFIGURATION, "a batch, 1 example for 1 replica", options=["--replicas", 6], **servers)

    def test_a_schedule_that_wants_the_length_of_a_stream(self):
        cosine = {"learning_rate": {"name": "cosine", "initial": 0.1}}
        self.refused({"stream": True}, CONFIGURATION, "learning_rate.decay_steps is missing", **cosine)
        self.check(self.checked_job({"stream": True}, max_steps=9, **cosine))
        self.assertIn("train data: a stream", self.check(self.checked_job({"stream": True})))

    def test_more_examples_in_a_batch_than_there_are(self):
        self.refused({"examples": 7}, CONFIGURATION, "7 examples, fewer than the global batch of 10", per_replica_batch_size=5,
                     global_batch_size=None, drop_remainder=True, options=["--replicas", 2])
        self.check(self.checked_job({"examples": 7}, per_replica_batch_size=5, global_batch_size=None, drop_remainder=True))

    def exported_job(self, batch, fixed, **keys):
        model = models.make("recurrent").train()
        size = {} if fixed else {"dynamic_shapes": {"series": {0: torch.export.Dim("batch", min=2, max=4)}}}
        torch.export.save(torch.export.export(model, (torch.randn(4, 9, 3),), **size), self.dir / "recurrent.pt2")
        columns = {}
        for name, values in models.data("recurrent").items():
            numpy.save(self.dir / f"{name}.npy", values)
            columns[name] = f"{name}.npy"
        split = {"format": "npy", "columns": columns}
        return self.job(program={"exported": "recurrent.pt2", "loss": models.LOSSES["recurrent"]}, data={"train": split, "test": split},
                        global_batch_size=batch, max_steps=None, epochs=2, **keys)

    def test_an_exported_batch_is_a_replicas_part_of_the_jobs(self):
        job = self.exported_job(8, fixed=True)
        printed = self.check(job, command=MUSTER)
        self.assertIn("tried with 4 of the 8 examples of a batch, as 2 replicas have them", printed)
        self.assertIn("numbers of replicas that the file's batch fits: 2; others are refused", printed)
        self.assertRegex(printed, r"  step 1: loss \d")
        self.assertRegex(printed, r"  test: loss \S+ over 4 examples")
        self.check(job, "--replicas", 2, command=MUSTER)
        self.assertIn("exactly 4 examples", self.check(job, "--replicas", 1, code=CONFIGURATION, command=MUSTER))
        self.assertIn("exactly 4 examples", self.check(self.exported_job(6, fixed=True), code=CONFIGURATION, command=MUSTER))
        # 22 examples: 5 batches of 4, and one of 2.
        self.check(self.exported_job(4, fixed=False), command=MUSTER)
        printed = self.check(self.exported_job(3, fixed=False), code=CONFIGURATION, command=MUSTER)
        self.assertIn("the last batch of an epoch has 1 examples", printed)
        self.check(self.exported_job(3, fixed=False, drop_remainder=True), command=MUSTER)

    # ---- where a run continues

    def test_a_run_that_goes_on_needs_no_weights_to_begin_with(self):
        self.finish([self.start(None, None, self.job(max_steps=2, model_dir=str(self.dir / "first")))])
        weights = self.dir / "first" / "checkpoints" / "step-00000002"
        keys = {"load": {"model": str(weights)}, "model_dir": str(self.dir / "run")}
        names = re.findall(r"^model (\w+)$", self.check(self.job(), command=MUSTER), re.MULTILINE)
        keys["load"] = {names[0]: str(weights)}
        printed = self.check(self.job(max_steps=4, **keys), command=MUSTER)
        self.assertIn(f"weights of {names[0]}: {weights}\n", printed)
        self.assertFalse((self.dir / "run").exists())
        self.finish([self.start(None, None, self.job(max_steps=4, **keys))])
        weights.rename(self.dir / "elsewhere")
        before = sorted(str(path) for path in (self.dir / "run").rglob("*"))
        printed = self.check(self.job(max_steps=8, **keys), command=MUSTER)
        self.assertIn("going on after step 4", printed)
        self.assertIn(f"weights of {names[0]}: {weights}, not read: the checkpoint has its own", printed)
        # A step is made all the same, and nothing is touched.
        self.assertIn("  step 1: loss", printed)
        self.assertEqual(sorted(str(path) for path in (self.dir / "run").rglob("*")), before)
        self.assertEqual(checkpoints(self.dir / "run")[-1], 4)
        # The job of the existing run has finished.
        self.assertIn("was trained to its end before: step 4", self.check(self.job(max_steps=4, **keys), command=MUSTER))
        # Another run begins, and would read them; another job does not continue.
        printed = self.check(self.job(max_steps=8, restore="never", **keys), code=CONFIGURATION, command=MUSTER)
        self.assertIn(str(weights), printed.splitlines()[-1])
        printed = self.check(self.job(max_steps=8, optimizer="adam", **keys), code=CONFIGURATION, command=MUSTER)
        self.assertIn("was trained with another optimizer", printed)

    def test_exit_codes(self):
        self.assertIn("nowhere.json", self.check(self.dir / "nowhere.json", code=CONFIGURATION, command=MUSTER))
        self.check(self.job(), command=MUSTER)
        self.assertIn("did you mean \"max_steps\"", self.check(self.job(max_step=3), code=CONFIGURATION, command=MUSTER))
        self.assertIn("batch size", self.check(self.job(global_batch_size=None), code=CONFIGURATION, command=MUSTER))
        (self.dir / "x.npy").write_bytes(b"\x93NUMPY")
        data = {"train": {"format": "npy", "x": "x.npy", "y": "x.npy"}}
        self.assertIn("x.npy", self.check(self.job(data=data), code=DAMAGED, command=MUSTER))
        self.refused({"throws": "step"}, PROGRAM, "no such planet")
        for arguments in ["check"], ["check", "--job", "x", "--replicas", "0"], ["check", "--job", "x", "--replicas", "some"]:
            self.assertEqual(subprocess.run([*MUSTER, *arguments], capture_output=True).returncode, CONFIGURATION, arguments)


if __name__ == "__main__":
    unittest.main()
