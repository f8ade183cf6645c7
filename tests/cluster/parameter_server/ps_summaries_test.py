"""TensorBoard shows for a job with parameter servers all that it shows for the same job without them, and staleness."""
import collections
import os
import unittest

import counting
from harness import BIN, events, result

EVERY, BATCH, EXAMPLES, EPOCHS = 4, 4, 64, 2
STEPS = EPOCHS * EXAMPLES // BATCH
OWN = {"job", "model"}  # text: the job's own folder and strategy are in it
TIMED = {"examples_per_second", "input_wait_share"}


def shown(model_dir):
    """{(run, tag): {step: what is there}} of all kinds."""
    from tensorboard.util import tensor_util
    found = collections.defaultdict(dict)
    for folder in model_dir.iterdir():
        if folder.name == "system" or not any(folder.glob("events.out.tfevents.*")):
            continue
        for event in events(folder):
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "hparams":
                    continue  # of the job, and has no value
                points = found[folder.name, value.tag]
                assert event.step not in points, f"{folder.name}: {value.tag} of step {event.step} is there twice"
                if value.HasField("tensor") and value.tensor.dtype != 7:  # DT_STRING
                    points[event.step] = float(tensor_util.make_ndarray(value.tensor))
                elif value.HasField("tensor"):
                    points[event.step] = list(value.tensor.string_val)
                elif value.HasField("histo"):
                    points[event.step] = value.histo.SerializeToString()
                else:
                    points[event.step] = value.simple_value
    return dict(found)


class Summaries(counting.ParameterServerTest):
    maxDiff = None

    def run_counting(self, name, workers=1, ps=1, code=0, **keys):
        bin_dir = self.dir / "bin"
        if not bin_dir.exists():
            bin_dir.mkdir()
            for role in "muster-chief", "muster-worker":
                os.symlink((BIN / "../tests/counting_role").resolve(), bin_dir / role)
            os.symlink((BIN / "muster-ps").resolve(), bin_dir / "muster-ps")
        self.model_dir = self.dir / name
        job = {"program": "counting", "program_args": {"examples": EXAMPLES}, "global_batch_size": BATCH * workers, "epochs": EPOCHS,
               "max_steps": None, "summary": {"every_steps": EVERY, "histograms_every_epochs": 1}, **keys}
        job = self.ps_job(**job) if ps else self.job(**{**job, "model_dir": str(self.model_dir)})
        self.finish([self.launch(job, workers, ps, options=[] if ps else ["--no-chief"], bin_dir=bin_dir)], code=code)
        return shown(self.model_dir)

    def test_all_that_synchronous_training_shows_and_staleness(self):
        want = self.run_counting("synchronous", ps=0)
        self.assertEqual({tag for run, tag in want if run == "train"} - OWN,
                         {"loss", "learning_rate", "learning_rate/sgd", "gradient_norm/sgd", "examples_per_second", "input_wait_share", "updates", "epoch_updates", "epoch_loss",
                          "epoch_number", "examples", "large",
                          "parameters/large", "parameters/small", "parameters/scalar"} |
                         {"final/train/loss", "final/train/number", "final/train/updates", "final/validation/loss", "final/validation/number"} |
                         {f"embeddings/seen/{count}" for count in ("rows", "bytes", "lookups", "hits", "evictions", "refused")})
        self.assertEqual(sorted(want["train", "examples"]), list(range(EVERY, STEPS + 1, EVERY)))
        self.assertEqual(sorted(want["validation", "examples"]), [STEPS // 2, STEPS])
        for name, section in ("asynchronous", {}), ("bounded", {"max_staleness": 1}):
            with self.subTest(name):
                got = self.run_counting(name, parameter_server=section)
                self.assertEqual(set(got) - set(want),
                                 {("train", f"staleness/worker_0{of}") for of in ("", "/max", "/mean")})
                for (run, tag), points in want.items():
                    # Counts of servers are reported once a second: for such a short run, they are those of its beginning.
                    if tag in TIMED or tag.startswith("embeddings/"):
                        self.assertEqual(sorted(got[run, tag]), sorted(points), (run, tag))
                    elif tag not in OWN:
                        self.assertEqual(got[run, tag], points, f"{tag} of {run}")

    def test_of_several_workers_one_batch_in_each_few_is_shown(self):
        # At the step that it became. Without a bound a batch may be overtaken by any number of others.
        got = self.run_counting("two", workers=2, ps=2, parameter_server={"max_staleness": 1})
        for tag in "examples", "large":
            self.assertEqual(len(got["train", tag]), STEPS // EVERY)
            for want, step in zip(range(EVERY, STEPS + 1, EVERY), sorted(got["train", tag])):
                self.assertLessEqual(abs(step - want), 4)
            self.assertEqual(sorted(got["validation", tag]), [STEPS // 2, STEPS])
        self.assertEqual(sorted(got["train", "loss"]), list(range(EVERY, STEPS + 1, EVERY)))
        self.assertEqual(sorted(got["train", "epoch_number"]), [STEPS // 2, STEPS])
        for points in got["train", "epoch_number"], got["validation", "epoch_number"]:
            for value in points.values():
                self.assertAlmostEqual(value, (EXAMPLES - 1) / 2)

    def test_a_hook_shows_what_it_predicts_with_the_weights_of_the_moment(self):
        for name, ps, section in ("synchronous", 0, {}), ("asynchronous", 2, {}), ("bounded", 1, {"max_staleness": 1}):
            with self.subTest(name):
                got = self.run_counting(name, workers=2, ps=ps, program_args={"examples": EXAMPLES, "predicts": "epoch_end"},
                                        **({"parameter_server": section} if ps else {}))
                outcome = result(self.model_dir)
                ends = [outcome["steps"] // 2, outcome["steps"]]
                self.assertEqual(sorted(got["train", "seen"]), ends)
                self.assertEqual(got["train", "prediction"], {step: [f"{step} updates".encode()] for step in ends})
                # Every push up to there, and none after it; each example once an epoch.
                self.assertEqual(outcome["callbacks"]["predicts"], {**{f"updates_{step}": step for step in ends}, "seen": [EPOCHS] * EXAMPLES})

    def test_in_a_step_a_hook_predicts_but_on_parameter_servers(self):
        arguments = {"examples": EXAMPLES, "predicts": "step_end"}
        self.run_counting("synchronous", workers=2, ps=0, program_args=arguments)
        outcome = result(self.model_dir)
        self.assertEqual({key: value for key, value in outcome["callbacks"]["predicts"].items() if key != "seen"},
                         {f"updates_{step}": step for step in range(1, outcome["steps"] + 1)})
        self.run_counting("servers", ps=1, code=1, program_args=arguments)
        self.assertIn('callback "predicts" in predict: with parameter servers the chief has their weights at the ends of epochs alone',
                      result(self.model_dir)["cause"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
