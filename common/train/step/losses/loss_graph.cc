#include "common/train/step/losses/loss_graph.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <unordered_map>

#include "common/flight/spans.h"

namespace muster {
namespace {

using torch::autograd::Node;

thread_local LossGraph* current = nullptr;
thread_local MonotonicTime forward_began;

// Returns "Addmm" for "AddmmBackward0".
std::string OperationOf(const Node& node) {
  std::string name = node.name();
  if (const size_t at = name.rfind("::"); at != std::string::npos) name = name.substr(at + 2);
  const size_t end = name.rfind("Backward");
  return end == std::string::npos || end == 0 ? name : name.substr(0, end);
}

}  // namespace

class LossGraph::Walk {
 public:
  explicit Walk(const std::vector<std::pair<std::string, at::Tensor>>& parameters) {
    for (const auto& [name, tensor] : parameters) names_[tensor.unsafeGetTensorImpl()] = name;
  }

  void Add(const NamedLoss& loss) {
    numbers_.clear();  // Nodes of an earlier loss may be gone, and others in their place.
    const int result = Visit(loss.second.grad_fn().get());
    if (result < 0) return;
    const int root = builder_.AddOperation("loss_" + loss.first, {result});
    builder_.SetShape(root, loss.second.sizes().vec());
  }
  std::vector<summary::GraphNode> Take() { return builder_.Take(); }

 private:
  // Adds the node and everything that it depends on. Without recursion, because graphs are deep.
  // Returns the node's number, -1 if there are too many nodes.
  int Visit(Node* root) {
    if (root == nullptr) return -1;
    std::vector<std::pair<Node*, size_t>> open = {{root, 0}};
    while (!open.empty()) {
      auto& [node, next] = open.back();
      if (numbers_.contains(node)) {
        open.pop_back();
        continue;
      }
      if (builder_.size() + open.size() >= summary::kMaxGraphNodes) return -1;
      if (next == node->num_outputs()) {
        numbers_[node] = Finish(node);
        open.pop_back();
        continue;
      }
      Node* const input = node->next_edge(next++).function.get();
      if (input != nullptr && !numbers_.contains(input)) open.emplace_back(input, 0);
    }
    return numbers_.at(root);
  }

  // Adds a node whose inputs have been added.
  int Finish(Node* node) {
    if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node))
      return Leaf(leaf->variable);
    std::vector<int> inputs;
    for (const auto& edge : node->next_edges())
      if (const auto found = numbers_.find(edge.function.get()); found != numbers_.end())
        inputs.push_back(found->second);
    const int number = builder_.AddOperation(OperationOf(*node), inputs);
    if (node->num_inputs() > 0 && !node->input_metadata(0).is_nested_tensor())
      builder_.SetShape(
          number,
          c10::asIntArrayRefSlow(node->input_metadata(0).shape_as_dim_vector(), __FILE__, __LINE__)
              .vec());
    return number;
  }

  // Several losses of a step may depend on one parameter, which is one node.
  int Leaf(const at::Tensor& tensor) {
    const auto [leaf, is_new] = leaves_.emplace(tensor.unsafeGetTensorImpl(), 0);
    if (!is_new) return leaf->second;
    const auto known = names_.find(leaf->first);
    leaf->second = known == names_.end() ? builder_.AddLeaf("input", "input", tensor.sizes().vec())
                                         : builder_.AddLeaf(known->second, summary::kParameterOp,
                                                            tensor.sizes().vec());
    return leaf->second;
  }

  summary::GraphBuilder builder_;
  std::unordered_map<const at::TensorImpl*, std::string> names_;
  std::unordered_map<const Node*, int> numbers_;  // Of the loss that is being added.
  std::unordered_map<const at::TensorImpl*, int> leaves_;
};

LossGraph::LossGraph(const std::vector<std::pair<std::string, at::Tensor>>& parameters)
    : parameters_(parameters),
      walk_(std::make_unique<Walk>(parameters)),
      outer_(std::exchange(current, this)) {}
LossGraph::~LossGraph() { current = outer_; }

LossGraph* LossGraph::Current() { return current; }
void LossGraph::Add(const NamedLoss& loss) { walk_->Add(loss); }
void LossGraph::Clear() { walk_ = std::make_unique<Walk>(parameters_); }
std::vector<summary::GraphNode> LossGraph::Take() { return walk_->Take(); }

void ForwardBegins() { forward_began = Clock::now(); }
void ForwardEnds() { AddSpan("forward", forward_began); }

}  // namespace muster
