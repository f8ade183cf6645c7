#include "common/summary/graph_def.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <string_view>

#include "proto/tf_graph.pb.h"

namespace muster::summary {
namespace {

// TensorFlow's rule for names is [A-Za-z0-9.][A-Za-z0-9_.\\-/]*.
std::string ValidName(const std::string& name) {
  std::string valid;
  for (const char c : name)
    valid += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-' ||
                     c == '/'
                 ? c
                 : '_';
  const bool good = !valid.empty() && std::isalnum(static_cast<unsigned char>(valid.front())) != 0;
  return good ? valid : fmt::format("n{}", valid);
}

// Operations whose result is a parameter as another operation needs it: another view, order or
// type.
constexpr std::array<std::string_view, 12> kViews = {
    "T",      "Transpose", "Permute",   "View",   "UnsafeView", "Reshape",
    "Expand", "Squeeze",   "Unsqueeze", "ToCopy", "Flatten",    "_to_copy"};

bool IsView(const std::string& op) {
  std::string capital = op;
  if (!capital.empty())
    capital[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(op[0])));
  return std::find(kViews.begin(), kViews.end(), op) != kViews.end() ||
         std::find(kViews.begin(), kViews.end(), capital) != kViews.end();
}

}  // namespace

std::string GraphBuilder::Unique(const std::string& name) {
  const int times = used_[name]++;
  // Another node may have the number in its own name already.
  return times == 0 ? name : Unique(fmt::format("{}_{}", name, times));
}

int GraphBuilder::AddLeaf(const std::string& name, const std::string& op,
                          std::vector<int64_t> shape) {
  std::string path = name;
  std::replace(path.begin(), path.end(), '.', '/');
  const size_t end = path.rfind('/');
  places_.push_back({end == std::string::npos ? "" : path.substr(0, end), op == kParameterOp});
  nodes_.push_back({Unique(path), op, {}, std::move(shape), true});
  return static_cast<int>(nodes_.size()) - 1;
}

int GraphBuilder::AddOperation(const std::string& op, const std::vector<int>& inputs) {
  GraphNode node{.op = op};
  Place place{.of_parameters = inputs.size() == 1 && IsView(op)};
  for (const int input : inputs) {
    node.inputs.push_back(nodes_[input].name);
    const Place& from = places_[input];
    place.of_parameters = place.of_parameters && from.of_parameters;
    if (from.of_parameters && place.scope.empty()) place.scope = from.scope;
  }
  node.name = Unique(place.scope.empty() ? op : place.scope + "/" + op);
  nodes_.push_back(std::move(node));
  places_.push_back(std::move(place));
  return static_cast<int>(nodes_.size()) - 1;
}

void GraphBuilder::SetShape(int node, std::vector<int64_t> shape) {
  nodes_[node].shape = std::move(shape);
  nodes_[node].has_shape = true;
}

std::string GraphDefOf(const std::vector<GraphNode>& nodes) {
  const size_t count = std::min(nodes.size(), kMaxGraphNodes);
  std::set<std::string> names;
  for (size_t i = 0; i < count; ++i) names.insert(nodes[i].name);
  GraphDef graph;
  graph.mutable_versions()->set_producer(22);  // A version that TensorBoard's own graphs have.
  for (size_t i = 0; i < count; ++i) {
    NodeDef* node = graph.add_node();
    node->set_name(ValidName(nodes[i].name));
    node->set_op(nodes[i].op);
    for (const std::string& input : nodes[i].inputs)
      if (names.contains(input)) node->add_input(ValidName(input));
    if (!nodes[i].has_shape) continue;
    auto* shape = (*node->mutable_attr())["_output_shapes"].mutable_list()->add_shape();
    for (const int64_t size : nodes[i].shape) shape->add_dim()->set_size(size);
  }
  return graph.SerializeAsString();
}

}  // namespace muster::summary
