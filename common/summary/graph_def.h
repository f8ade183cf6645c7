// The graph that TensorBoard shows of a run: operations and the values between them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace muster::summary {

// A node of a graph. TensorBoard draws nodes whose names have a common prefix before a "/" as one
// box.
struct GraphNode {
  std::string name;  // Unique in the graph, such as "classifier/linear/AddmmBackward0".
  std::string op;    // The type, such as "Addmm" or "parameter".
  std::vector<std::string> inputs;  // The names of the nodes whose values it takes.
  std::vector<int64_t> shape;       // Of its value. Shown if has_shape.
  bool has_shape = false;
};

// The type of the nodes of parameters.
inline constexpr char kParameterOp[] = "parameter";

// Builds a graph from its inputs to its results, and names its operations. An operation on a
// parameter is named after the parameter's module: "model/linear/Addmm" takes
// "model/linear/weight".
class GraphBuilder {
 public:
  // Both return the number of the node. "." in the name of a parameter becomes "/".
  int AddLeaf(const std::string& name, const std::string& op, std::vector<int64_t> shape);
  // `inputs` are numbers of nodes.
  int AddOperation(const std::string& op, const std::vector<int>& inputs);
  void SetShape(int node, std::vector<int64_t> shape);
  size_t size() const { return nodes_.size(); }
  std::vector<GraphNode> Take() { return std::move(nodes_); }

 private:
  struct Place {
    std::string scope;
    bool of_parameters = false;  // A parameter, or a view of one.
  };
  std::string Unique(const std::string& name);

  std::vector<GraphNode> nodes_;
  std::vector<Place> places_;        // Indexed by node.
  std::map<std::string, int> used_;  // How often a name was asked for.
};

// At most this many nodes of a graph are kept. TensorBoard becomes slow with more.
inline constexpr size_t kMaxGraphNodes = 10'000;

// Returns a serialized GraphDef, as Event::graph_def holds it. Characters that TensorBoard does not
// accept in names become "_". Inputs that are not in `nodes` are left out.
std::string GraphDefOf(const std::vector<GraphNode>& nodes);

}  // namespace muster::summary
