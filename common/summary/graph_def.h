// The graph of a model for TensorBoard. Its nodes are inputs, parameters and operations.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace muster::summary {

// A node of a graph. TensorBoard draws one box for all nodes whose names have the same prefix
// before a "/".
struct GraphNode {
  std::string name;  // Unique in the graph, such as "classifier/linear/AddmmBackward0".
  std::string op;    // The type, such as "Addmm" or "parameter".
  std::vector<std::string> inputs;  // The names of the nodes whose values are the arguments.
  std::vector<int64_t> shape;       // The shape of the result. Shown if has_shape is true.
  bool has_shape = false;
};

// The value of GraphNode::op for parameters.
inline constexpr char kParameterOp[] = "parameter";

// Builds a graph in the order of computation, and names the operations. The name of an operation on
// a parameter begins with the parameter's module. For example, "model/linear/Addmm" has the input
// "model/linear/weight".
class GraphBuilder {
 public:
  // Adds an input or a parameter. Replaces each "." in `name` by "/". Returns the index of the
  // node.
  int AddLeaf(const std::string& name, const std::string& op, std::vector<int64_t> shape);
  // Adds an operation. `inputs` are indices of nodes. Returns the index of the node.
  int AddOperation(const std::string& op, const std::vector<int>& inputs);
  void SetShape(int node, std::vector<int64_t> shape);
  size_t size() const { return nodes_.size(); }
  std::vector<GraphNode> Take() { return std::move(nodes_); }

 private:
  struct Place {
    std::string scope;
    bool of_parameters = false;  // True if the node is a parameter or a view of a parameter.
  };
  std::string Unique(const std::string& name);

  std::vector<GraphNode> nodes_;
  std::vector<Place> places_;        // Indexed by node.
  std::map<std::string, int> used_;  // The number of calls of Unique for each name.
};

// GraphDefOf writes at most this many nodes, because TensorBoard becomes slow with more.
inline constexpr size_t kMaxGraphNodes = 10'000;

// Returns a serialized GraphDef for EventWriter::Graph. Replaces characters that TensorBoard does
// not accept in names by "_". Omits inputs that are not in `nodes`.
std::string GraphDefOf(const std::vector<GraphNode>& nodes);

}  // namespace muster::summary
