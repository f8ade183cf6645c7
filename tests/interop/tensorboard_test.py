"""TensorBoard itself reads our event files: tags, steps, values, wall times, and what a restart voids."""

import glob
import math
import subprocess
import sys
import tempfile
import time

from tensorboard.backend.event_processing import data_provider
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.backend.event_processing import plugin_event_multiplexer
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.context import RequestContext
from tensorboard.plugins.scalar import metadata

TAGS = ["loss", "näme/with slash"]


def check(condition, message):
    if not condition:
        sys.exit(f"FAILED: {message}")


def check_values(series, number):
    """series: (step, value) of both tags; what the first file held beyond step 20 must be gone."""
    steps = [step for step, _ in series["loss"]]
    check(steps == list(range(1, 62)), f"{number}: steps are {steps}")
    for step, value in series["loss"][:60]:
        check(math.isclose(value, 1 / step, rel_tol=1e-6), f"{number}: loss at {step} is {value}")
    check(math.isnan(series["loss"][60][1]), f"{number}: NaN became {series['loss'][60][1]}")
    for step, value in series[TAGS[1]]:
        check(math.isclose(value, math.sqrt(step), rel_tol=1e-6), f"{number}: root at {step} is {value}")


with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.argv[1], folder], check=True)

    # What scripts use.
    accumulator = event_accumulator.EventAccumulator(folder + "/train", size_guidance={"scalars": 0})
    accumulator.Reload()
    check(sorted(accumulator.Tags()["scalars"]) == TAGS, f"tags are {accumulator.Tags()}")
    check_values({tag: [(e.step, e.value) for e in accumulator.Scalars(tag)] for tag in TAGS}, "accumulator")
    check(abs(accumulator.FirstEventTimestamp() - time.time()) < 120, "wall time is off")

    # What the scalars dashboard shows.
    multiplexer = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance={"scalars": 0})
    multiplexer.AddRunsFromDirectory(folder)
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, folder)
    scalars = provider.read_scalars(
        RequestContext(), experiment_id="", plugin_name=metadata.PLUGIN_NAME, downsample=1000)
    check(list(scalars) == ["train"], f"runs are {list(scalars)}")
    check_values({tag: [(d.step, d.value) for d in scalars["train"][tag]] for tag in TAGS}, "dashboard")

    # TensorFlow's own marker of the format.
    for path in glob.glob(folder + "/train/events.out.tfevents.*"):
        first = next(iter(RawEventFileLoader(path).Load()))
        check(b"brain.Event:2" in first, f"{path} does not begin with its version")
print("ok")
