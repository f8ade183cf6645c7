#include "common/summary/graph_def.h"

#include <gmock/gmock.h>

#include "proto/tf_graph.pb.h"

namespace muster::summary {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

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
  EXPECT_THAT(graph.node(1).attr(), IsEmpty());
}

TEST(GraphDefOf, ALargeGraphIsCut) {
  std::vector<GraphNode> nodes(kMaxGraphNodes + 5);
  for (size_t i = 0; i < nodes.size(); ++i) nodes[i].name = "n" + std::to_string(i);
  GraphDef graph;
  ASSERT_TRUE(graph.ParseFromString(GraphDefOf(nodes)));
  EXPECT_THAT(graph.node(), SizeIs(kMaxGraphNodes));
}

}  // namespace
}  // namespace muster::summary
