"""TensorBoard's data of a run besides curves: the graph of its program, and its hyperparameters with the outcome."""
import unittest

from tensorboard.compat.proto import graph_pb2
from tensorboard.plugins.hparams import plugin_data_pb2

from exported_test import ExportedTest
from harness import PROGRAM, events

FASHION = {"program": "fashion_mnist", "program_args": {"train_examples": 256, "validation": 100}, "global_batch_size": 64, "epochs": 1, "max_steps": None}


class Graph(ExportedTest):
    def read(self, model_dir):
        """The graphs, what the plugin hparams gets by tag, and the final metrics."""
        graphs, sessions, final = [], [], {}
        for event in events(model_dir / "train"):
            if event.graph_def:
                graphs.append((event.step, graph_pb2.GraphDef.FromString(event.graph_def)))
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "hparams":
                    sessions.append((value.tag, plugin_data_pb2.HParamsPluginData.FromString(value.metadata.plugin_data.content)))
                if value.tag.startswith("final/"):
                    final[value.tag] = value.simple_value
        return graphs, sessions, final

    def nodes(self, graphs):
        """{name: node} of the only graph, whose inputs are all there."""
        ((step, graph),) = graphs
        self.assertEqual(step, 1)
        nodes = {node.name: node for node in graph.node}
        self.assertEqual(len(nodes), len(graph.node), "names are unique")
        for node in graph.node:
            for name in node.input:
                self.assertIn(name, nodes)
        return nodes

    def shape(self, node):
        return [dim.size for dim in node.attr["_output_shapes"].list.shape[0].dim]

    def test_the_graph_of_a_program_is_that_of_its_first_loss(self):
        self.train(2, self.job(**FASHION))
        model_dir = next(self.dir.glob("model-*"))
        graphs, sessions, final = self.read(model_dir)
        nodes = self.nodes(graphs)
        self.assertEqual({name for name, node in nodes.items() if node.op == "parameter"},
                         {f"{layer}/{kind}" for layer in ("conv", "dense", "output") for kind in ("weight", "bias")})
        self.assertEqual(self.shape(nodes["dense/weight"])[0], 64)
        self.assertEqual(set(nodes["conv/Convolution"].input), {"conv/weight", "conv/bias"})
        self.assertEqual(self.shape(nodes["output/Addmm"]), [32, 10])  # Of rank 0's half of the batch.
        # Everything leads to the loss.
        reached, todo = set(), [name for name, node in nodes.items() if node.op.startswith("loss_")]
        self.assertEqual(len(todo), 1)
        while todo:
            name = todo.pop()
            if name not in reached:
                reached.add(name)
                todo += nodes[name].input
        self.assertEqual(reached, set(nodes))

        self.assertEqual([tag for tag, _ in sessions], ["_hparams_/session_start_info", "_hparams_/session_end_info"])
        values = sessions[0][1].session_start_info.hparams
        self.assertEqual((values["program"].string_value, values["global_batch_size"].number_value, values["program_args.train_examples"].number_value),
                         ("fashion_mnist", 64, 256))
        self.assertEqual(sessions[1][1].session_end_info.status, 1)
        self.assertEqual({tag for tag in final if "accuracy" in tag}, {f"final/{split}/accuracy" for split in ("train", "validation", "test")})

    def test_a_run_that_goes_on_has_one_graph_and_one_end(self):
        model_dir = self.dir / "model"
        for epochs in 1, 2:
            self.finish(self.start_all(self.cluster(1), self.job(**{**FASHION, "epochs": epochs, "model_dir": str(model_dir)})))
        graphs, sessions, final = self.read(model_dir)
        self.nodes(graphs)
        self.assertEqual([tag.rpartition("/")[2] for tag, _ in sessions], 2 * ["session_start_info", "session_end_info"])

    def test_a_failed_run_says_so(self):
        model_dir = self.dir / "model"
        # The rate makes the loss infinite.
        job = self.job(learning_rate=1e38, callbacks=[{"name": "terminate_on_nan"}], model_dir=str(model_dir))
        self.finish([self.start(None, None, job)], code=PROGRAM)
        _, sessions, _ = self.read(model_dir)
        self.assertEqual([(tag.rpartition("/")[2], data.session_end_info.status) for tag, data in sessions],
                         [("session_start_info", 0), ("session_end_info", 2)])

    def test_an_exported_program_has_its_own_graph(self):
        self.train(2, self.write_job("convnet"))
        graphs, _, _ = self.read(self.model_dir())
        nodes = self.nodes(graphs)
        kinds = {name: node.op for name, node in nodes.items()}
        for name, kind in (("conv/weight", "parameter"), ("head/bias", "parameter"), ("norm/running_mean", "buffer"), ("image", "input")):
            self.assertEqual(kinds.get(name), kind, f"{name} of {kinds}")
        (conv,) = [node for node in nodes.values() if node.op == "conv2d"]
        self.assertEqual(conv.name, "conv/conv2d")
        self.assertIn("image", conv.input)
        (linear,) = [node for node in nodes.values() if node.op == "linear"]
        self.assertEqual(linear.name, "head/linear")


if __name__ == "__main__":
    unittest.main(verbosity=2)
