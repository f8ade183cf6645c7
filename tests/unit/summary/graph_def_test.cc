#include "common/summary/graph_def.h"

#include <gmock/gmock.h>

#include "proto/tf_graph.pb.h"

namespace muster::summary {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> NamesOf(const std::vector<GraphNode>& nodes) {
  std::vector<std::string> names;
  for (const GraphNode& node : nodes) names.push_back(node.name);
  return names;
}

TEST(GraphBuilder, AnOperationIsInTheBoxOfItsParameter) {
  GraphBuilder builder;
  const int weight = builder.AddLeaf("net.fc1.weight", kParameterOp, {4, 3});
  const int bias = builder.AddLeaf("net.fc1.bias", kParameterOp, {4});
  const int input = builder.AddLeaf("input", "input", {8, 3});
  // A transposed weight is as good as the weight.
  const int addmm =
      builder.AddOperation("Addmm", {bias, input, builder.AddOperation("T", {weight})});
  const int relu = builder.AddOperation("Relu", {addmm});
  builder.AddOperation("Relu", {relu});
  const std::vector<GraphNode> nodes = builder.Take();
  EXPECT_THAT(NamesOf(nodes), ElementsAre("net/fc1/weight", "net/fc1/bias", "input", "net/fc1/T",
                                          "net/fc1/Addmm", "Relu", "Relu_1"));
  EXPECT_THAT(nodes[4].inputs, ElementsAre("net/fc1/bias", "input", "net/fc1/T"));
}

// Autograd does not record the batch, so that the first operation takes nothing but parameters.
TEST(GraphBuilder, WhatFollowsALayerIsNotOfItsParameters) {
  GraphBuilder builder;
  const int kernel = builder.AddLeaf("net.conv.weight", kParameterOp, {4, 1, 3, 3});
  const int weight = builder.AddLeaf("net.fc.weight", kParameterOp, {2, 4});
  const int convolution = builder.AddOperation("Convolution", {kernel});
  const int view = builder.AddOperation("View", {convolution});
  builder.AddOperation("Mm", {view, builder.AddOperation("T", {weight})});
  EXPECT_THAT(NamesOf(builder.Take()),
              ElementsAre("net/conv/weight", "net/fc/weight", "net/conv/Convolution", "View",
                          "net/fc/T", "net/fc/Mm"));
}

TEST(GraphBuilder, NamesAreUniqueWhateverTheyAre) {
  GraphBuilder builder;
  for (const char* name : {"a_1", "a", "a", "a"}) builder.AddLeaf(name, "input", {});
  EXPECT_THAT(NamesOf(builder.Take()), ElementsAre("a_1", "a", "a_1_1", "a_2"));
}

TEST(GraphDefOf, NamesAreTensorFlowsAndInputsAreThere) {
  GraphDef graph;
  ASSERT_TRUE(graph.ParseFromString(GraphDefOf(
      {{"/wei ght\xc3\xa4", "op", {}, {2, 0}, true}, {"b", "op", {"/wei ght\xc3\xa4", "gone"}}})));
  ASSERT_EQ(graph.node_size(), 2);
  EXPECT_EQ(graph.node(0).name(), "n/wei_ght__");
  EXPECT_EQ(graph.node(0).attr().at("_output_shapes").list().shape(0).dim(1).size(), 0);
  EXPECT_THAT(graph.node(1).input(), ElementsAre("n/wei_ght__"));
  EXPECT_TRUE(graph.node(1).attr().empty());
}

TEST(GraphDefOf, ALargeGraphIsCut) {
  std::vector<GraphNode> nodes(kMaxGraphNodes + 5);
  for (size_t i = 0; i < nodes.size(); ++i) nodes[i].name = std::to_string(i);
  GraphDef graph;
  ASSERT_TRUE(graph.ParseFromString(GraphDefOf(nodes)));
  EXPECT_EQ(static_cast<size_t>(graph.node_size()), kMaxGraphNodes);
}

}  // namespace
}  // namespace muster::summary
