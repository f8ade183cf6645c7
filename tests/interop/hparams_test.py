"""TensorBoard's own dashboards show the hyperparameters of two runs in one table, with their final metrics, and the graph of each."""

import math
import subprocess
import sys
import tempfile

from tensorboard import context
from tensorboard.backend.event_processing import data_provider
from tensorboard.backend.event_processing import plugin_event_multiplexer
from tensorboard.compat.proto import graph_pb2
from tensorboard.data import server_ingester
from tensorboard.plugins import base_plugin
from tensorboard.plugins.graph import graphs_plugin
from tensorboard.plugins.graph import metadata as graphs
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams import backend_context
from tensorboard.plugins.hparams import list_session_groups
from tensorboard.plugins.hparams import metadata as hparams
from tensorboard.plugins.scalar import metadata as scalars
from tensorboard.util import grpc_util

LEFT_OUT = {"max_steps", "model_dir", "timeouts.join"}


def check(condition, message):
    if not condition:
        sys.exit(f"FAILED: {message}")


def plain(value):
    return getattr(value, value.WhichOneof("kind"))


def check_table(groups, reader):
    check([group.name for group in groups] == ["a/train", "b/train"], f"{reader}: rows are {[group.name for group in groups]}")
    values = {group.name: {name: plain(value) for name, value in group.hparams.items()} for group in groups}
    expected = {"program": "linear", "optimizer.name": "sgd", "optimizer.momentum": 0.9, "learning_rate": 0.1, "global_batch_size": 32,
                "drop_remainder": True, "program_args.hidden": "[8,4]", "program_args.näme": "ä\ufffd"}
    check(values["a/train"] == expected, f"{reader}: values of a are {values['a/train']}")
    check(values["b/train"] == {**expected, "learning_rate": 0.2, "optimizer.nesterov": True}, f"{reader}: values of b are {values['b/train']}")
    for group, loss, status in zip(groups, (0.25, 0.5), (api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE)):
        metrics = {(m.name.group, m.name.tag): m.value for m in group.metric_values}
        check(math.isclose(metrics["", "final/validation/loss"], loss), f"{reader}: metrics of {group.name} are {metrics}")
        (session,) = group.sessions
        check(session.status == status, f"{reader}: {group.name} ended with {session.status}")
        check((session.start_time_secs, session.end_time_secs) == (1000, 1030), f"{reader}: times of {group.name} are {session}")


def check_graph(text, reader):
    graph = graph_pb2.GraphDef.FromString(text)
    nodes = {node.name: node for node in graph.node}
    check(list(nodes) == ["net/layer/weight", "input", "net/layer/T", "net/layer/Mm", "Relu", "Relu_1"], f"{reader}: nodes are {list(nodes)}")
    check(list(nodes["net/layer/Mm"].input) == ["input", "net/layer/T"], f"{reader}: inputs are {nodes['net/layer/Mm'].input}")
    shape = nodes["net/layer/Mm"].attr["_output_shapes"].list.shape[0]
    check([d.size for d in shape.dim] == [8, 3], f"{reader}: the shape is {shape}")
    check(nodes["net/layer/weight"].op == "parameter", f"{reader}: the type is {nodes['net/layer/weight'].op}")


def check_provider(provider, reader):
    ctx = context.RequestContext()
    board = base_plugin.TBContext(data_provider=provider)
    both = backend_context.Context(board)
    experiment = both.experiment_from_metadata(ctx, "", True, both.hparams_metadata(ctx, ""), [])
    names = {info.name for info in experiment.hparam_infos}
    check({"learning_rate", "optimizer.nesterov"} <= names and not names & LEFT_OUT, f"{reader}: columns are {names}")
    metrics = {(info.name.group, info.name.tag) for info in experiment.metric_infos}
    check(metrics == {("", "loss"), ("", "final/validation/loss")}, f"{reader}: metrics are {metrics}")
    request = api_pb2.ListSessionGroupsRequest(
        start_index=0, slice_size=10, allowed_statuses=[api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE, api_pb2.STATUS_RUNNING],
        aggregation_type=api_pb2.AGGREGATION_AVG,
        col_params=[api_pb2.ColParams(hparam="learning_rate", order=api_pb2.ORDER_ASC, include_in_result=True)]
        + [api_pb2.ColParams(hparam=name, include_in_result=True) for name in sorted(names - {"learning_rate"})])
    check_table(list_session_groups.Handler(ctx, both, "", request).run().session_groups, reader)

    plugin = graphs_plugin.GraphsPlugin(board)
    info = plugin.info_impl(ctx, "")
    check(all(info[run]["run_graph"] for run in ("a/train", "b/train")), f"{reader}: graphs of {info}")
    # Reads the graph like the dashboard, with the inputs of all nodes present.
    body, kind = plugin.graph_impl(ctx, "a/train", None, False, experiment="")
    check(kind == "text/x-protobuf" and 'name: "net/layer/Mm"' in body, f"{reader}: the dashboard shows {kind}, {body}")
    (series,) = provider.read_blob_sequences(ctx, experiment_id="", plugin_name=graphs.PLUGIN_NAME, downsample=1)["a/train"].values()
    check_graph(provider.read_blob(ctx, blob_key=series[0].values[0].blob_key), reader)


with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.argv[1], folder], check=True)
    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    multiplexer.AddRunsFromDirectory(folder)
    multiplexer.Reload()
    check_provider(data_provider.MultiplexerDataProvider(multiplexer, folder), "multiplexer")

    server = server_ingester.SubprocessServerDataIngester(
        server_binary=server_ingester.get_server_binary(), logdir=folder, reload_interval=3600,
        channel_creds_type=grpc_util.ChannelCredsType.LOCAL, samples_per_plugin={name: 1000 for name in (scalars.PLUGIN_NAME, hparams.PLUGIN_NAME)})
    server.start()
    check_provider(server.data_provider, "data server")
print("ok")
