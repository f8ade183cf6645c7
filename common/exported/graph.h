// The graph of an exported program. A graph is compiled once. It runs operator by operator through
// LibTorch's dispatcher, so that autograd and autocast work as usual.
//
// Compilation looks up every operator, and replaces the names of values by slots (indices into one
// vector of values). It prepares the arguments of each call for both phases, and records the node
// after which a value is no longer needed. A compiled graph is immutable and thread-safe.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/exported/symbolic.h"
#include "common/summary/graph_def.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::exported {

// The mode of a run. In kEvaluate, dropout does nothing, and batch normalization uses its running
// statistics. Operators that the file has in evaluation mode behave like this in both phases.
enum class Phase { kTrain = 0, kEvaluate };

// A value: the content of a slot, or a constant if `slot` is -1.
struct Operand {
  int slot = -1;
  c10::IValue constant;
};

// An argument of a call that depends on values of the current run.
struct Fill {
  enum Kind { kValue, kInts, kFloats, kBools, kTensors, kOptionalTensors };
  Kind kind = kValue;
  int argument = 0;
  c10::TypePtr type;  // The type that the operator declares.
  std::vector<Operand> operands;
};

struct NodeOutput {
  bool list = false;       // True if the output is a list of tensors, one for each slot.
  std::vector<int> slots;  // -1 means that the output is unused.
};

class Graph;

struct Node {
  enum Kind { kOperator, kSymbolic, kSetGradEnabled, kAutocast, kCondition };
  Kind kind = kOperator;
  std::string where;  // For messages: "aten::conv2d (model.py, line 12, in forward)".

  std::optional<c10::OperatorHandle> op;  // For kOperator.
  torch::jit::Stack arguments[2];  // Indexed by Phase. The second is empty if both are equal.
  std::vector<Fill> fills;

  SymbolicFunction function = nullptr;  // For kSymbolic.
  std::vector<Operand> operands;        // For all kinds except kOperator.

  std::vector<std::shared_ptr<const Graph>> graphs;  // The graphs of a higher-order operator.
  bool enabled = false;                              // For kSetGradEnabled and kAutocast.
  c10::DeviceType device_type = c10::kCPU;           // For kAutocast.
  std::optional<at::ScalarType> autocast_type;

  std::vector<NodeOutput> outputs;
  std::vector<int> release;  // The slots that are no longer needed after this node.
};

class Graph {
 public:
  // Compiles a Graph of torch's schema. `device` replaces every device in the file. Returns a
  // ConfigurationError if something cannot run. The error names the operator, the line of the
  // user's Python, and what to do. Returns a DataError if the JSON does not follow the schema.
  static absl::StatusOr<std::shared_ptr<const Graph>> Compile(const Json& graph, c10::Device device,
                                                              const std::string& path);

  // Runs the graph and returns its outputs. REQUIRES: inputs.size() == input_names().size(). If an
  // operator fails, throws std::runtime_error with the operator and the line of the user's Python.
  std::vector<c10::IValue> Run(std::vector<c10::IValue> inputs, Phase phase) const;

  // Returns the names of the placeholders, in order. A constant input has a generated name.
  const std::vector<std::string>& input_names() const { return input_names_; }
  size_t output_count() const { return outputs_.size(); }
  // Returns the name of an output's value, or "" for a constant.
  const std::string& output_name(size_t index) const { return output_names_.at(index); }
  // Maps the index of each input that a run changes in place to the node that changes it.
  const std::map<int, std::string>& written() const { return written_; }
  // Returns the indices of the inputs that at least one of `outputs` depends on.
  std::set<int> Reaching(const std::vector<size_t>& outputs) const;
  size_t node_count() const { return nodes_.size(); }
  // Adds the operators to a graph for people. `inputs` are the builder's numbers of the inputs.
  void AddTo(summary::GraphBuilder* builder, const std::vector<int>& inputs) const;

 private:
  friend class GraphCompiler;
  void RunNode(const Node& node, Phase phase, std::vector<c10::IValue>* values,
               torch::jit::Stack* stack) const;

  std::vector<Node> nodes_;
  std::vector<std::string> input_names_, output_names_;
  std::vector<int> input_slots_;
  std::vector<Operand> outputs_;
  // For each output, the inputs that may share its memory.
  std::vector<std::set<int>> output_aliases_;
  std::map<int, std::string> written_;
  std::vector<int> release_first_;  // The slots of unused inputs, which are released first.
  int num_slots_ = 0;
};

// Converts `value` to the parameter type of an operator, such as a Python int to a float, or a
// number to a tensor. Called for constants during compilation, and for other values during a run.
c10::IValue Fit(c10::IValue value, const c10::Type& type);
// Converts `values` to a list with elements of type `element`.
c10::IValue FitList(const std::vector<c10::IValue>& values, const c10::Type& element);

}  // namespace muster::exported
