"""TensorBoard itself reads our event files: scalars, text, images and histograms by tag and step, wall times, and what
a restart voids. Through all of its readers: the accumulator that scripts use, the one behind the dashboards, and the
data server that `tensorboard` starts where it can."""

import glob
import io
import math
import subprocess
import sys
import tempfile
import time

import numpy
from PIL import Image
from tensorboard import context
from tensorboard.backend.event_processing import data_provider
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.backend.event_processing import plugin_event_multiplexer
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.data import server_ingester
from tensorboard.plugins.histogram import metadata as histograms
from tensorboard.plugins.image import metadata as images
from tensorboard.plugins.scalar import metadata as scalars
from tensorboard.plugins.text import metadata as texts
from tensorboard.util import grpc_util
from tensorboard.util import tensor_util

TAGS = ["loss", "näme/with slash"]
OTHER_STEPS = [20, 30]  # made again: what the first file says of 30 is void
TEXT = "| a | b |\n|---|--:|\n| ä | 1 |\n"


def check(condition, message):
    if not condition:
        sys.exit(f"FAILED: {message}")


def check_scalars(series, reader):
    """series: (step, value) by tag; what the first file held beyond step 20 must be gone."""
    steps = [step for step, _ in series["loss"]]
    check(steps == list(range(1, 63)), f"{reader}: steps are {steps}")
    for step, value in series["loss"][:60]:
        check(math.isclose(value, 1 / step, rel_tol=1e-6), f"{reader}: loss at {step} is {value}")
    check(math.isnan(series["loss"][60][1]), f"{reader}: NaN became {series['loss'][60][1]}")
    check(series["loss"][61][1] == -math.inf, f"{reader}: -inf became {series['loss'][61][1]}")
    for step, value in series[TAGS[1]]:
        check(math.isclose(value, math.sqrt(step), rel_tol=1e-6), f"{reader}: root at {step} is {value}")
    others = [value for _, value in series["weights/not_finite"]]
    check(others == [2, 2], f"{reader}: not finite are {others}")


def check_picture(data, step, index, channels, reader):
    picture = numpy.asarray(Image.open(io.BytesIO(data)))
    shape = (2, 5, 7, channels)
    expected = (numpy.arange(math.prod(shape)) * 37 + step) % 256
    expected = expected.reshape(shape)[index]
    check(numpy.array_equal(picture.reshape(shape[1:]), expected), f"{reader}: picture {picture}")


def check_histogram(buckets, step, reader):
    """buckets: rows of left, right, count."""
    values = ((numpy.arange(1000) - 500 + step) / 64).astype(numpy.float32)
    check(buckets[0, 0] == values.min(), f"{reader}: the first bucket is {buckets[0]}")
    check(buckets[-1, 1] == values.max(), f"{reader}: the last bucket is {buckets[-1]}")
    check((buckets[1:, 0] == buckets[:-1, 1]).all(), f"{reader}: buckets do not meet")
    for left, right, count in buckets:
        last = right == buckets[-1, 1]
        inside = (values >= left) & ((values <= right) if last else (values < right))
        check(inside.sum() == count, f"{reader}: {count} from {left} to {right}, not {inside.sum()}")
    check(buckets[:, 2].sum() == 1000, f"{reader}: {buckets[:, 2].sum()} values")


def check_provider(provider, reader):
    """Makes the requests of the dashboards."""
    everything = dict(experiment_id="", downsample=1000)
    ctx = context.RequestContext()
    runs = provider.read_scalars(ctx, plugin_name=scalars.PLUGIN_NAME, **everything)
    check(list(runs) == ["train"], f"{reader}: runs are {list(runs)}")
    tags = sorted(runs["train"])
    check(tags == sorted(TAGS + ["weights/not_finite"]), f"{reader}: tags are {tags}")
    check_scalars({tag: [(d.step, d.value) for d in data] for tag, data in runs["train"].items()}, reader)

    series = provider.read_tensors(ctx, plugin_name=texts.PLUGIN_NAME, **everything)["train"]["job"]
    check([d.step for d in series] == OTHER_STEPS, f"{reader}: text at {[d.step for d in series]}")
    for datum in series:
        check(datum.numpy.shape == () and datum.numpy.item().decode() == TEXT, f"{reader}: text is {datum.numpy}")

    tags = provider.read_blob_sequences(ctx, plugin_name=images.PLUGIN_NAME, **everything)["train"]
    check(sorted(tags) == ["gray", "rgb", "rgba"], f"{reader}: images are {list(tags)}")
    for tag, series in tags.items():
        check([d.step for d in series] == OTHER_STEPS, f"{reader}: images at {[d.step for d in series]}")
        for datum in series:
            blobs = [provider.read_blob(ctx, blob_key=value.blob_key) for value in datum.values]
            check(blobs[:2] == [b"7", b"5"], f"{reader}: {tag} is {blobs[:2]}")
            check(len(blobs) == 4, f"{reader}: {tag} has {len(blobs)} blobs")
            channels = len(tag) if tag != "gray" else 1
            for index, blob in enumerate(blobs[2:]):
                check_picture(blob, datum.step, index, channels, reader)

    tags = provider.read_tensors(ctx, plugin_name=histograms.PLUGIN_NAME, **everything)["train"]
    check([d.step for d in tags["weights"]] == OTHER_STEPS, f"{reader}: histograms at {tags['weights']}")
    for datum in tags["weights"]:
        check_histogram(datum.numpy, datum.step, reader)
    check(tags["zeros"][0].numpy.tolist() == [[0, 0, 3]], f"{reader}: zeros are {tags['zeros'][0].numpy}")
    check(not tags["nothing"][0].numpy.any(), f"{reader}: nothing is {tags['nothing'][0].numpy}")


with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.argv[1], folder], check=True)

    # The reader that scripts use.
    everything = dict.fromkeys(("scalars", "tensors", "histograms"), 0)
    accumulator = event_accumulator.EventAccumulator(folder + "/train", size_guidance=everything)
    accumulator.Reload()
    tags = accumulator.Tags()
    series = {tag: [(e.step, e.value) for e in accumulator.Scalars(tag)] for tag in tags["scalars"]}
    check_scalars(series, "accumulator")
    check(abs(accumulator.FirstEventTimestamp() - time.time()) < 120, "wall time is off")
    check(tags["histograms"] == ["weights", "zeros", "nothing"], f"histograms are {tags['histograms']}")
    weights = accumulator.Histograms("weights")
    check([(e.step, e.histogram_value.num) for e in weights] == [(20, 1000), (30, 1000)], f"weights are {weights}")
    check(sum(weights[0].histogram_value.bucket) == 1000, "values are missing from buckets")
    job = accumulator.Tensors("job")
    check(tensor_util.make_ndarray(job[0].tensor_proto).item().decode() == TEXT, f"job is {job}")
    check(sorted(accumulator.PluginTagToContent("images")) == ["gray", "rgb", "rgba"], "images are not the plugin's")

    # The data of the dashboards, with either of their readers.
    multiplexer = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance=dict.fromkeys(
        (scalars.PLUGIN_NAME, texts.PLUGIN_NAME, images.PLUGIN_NAME, histograms.PLUGIN_NAME), 0))
    multiplexer.AddRunsFromDirectory(folder)
    multiplexer.Reload()
    check_provider(data_provider.MultiplexerDataProvider(multiplexer, folder), "multiplexer")

    server = server_ingester.SubprocessServerDataIngester(
        server_binary=server_ingester.get_server_binary(), logdir=folder, reload_interval=3600,
        channel_creds_type=grpc_util.ChannelCredsType.LOCAL,
        samples_per_plugin={name: 1000 for name in (scalars.PLUGIN_NAME, images.PLUGIN_NAME)})
    server.start()
    check_provider(server.data_provider, "data server")

    # TensorFlow's own marker of the format.
    for path in glob.glob(folder + "/train/events.out.tfevents.*"):
        first = next(iter(RawEventFileLoader(path).Load()))
        check(b"brain.Event:2" in first, f"{path} does not begin with its version")
print("ok")
