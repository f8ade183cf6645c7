// The graph of an exported program. It is compiled once and runs operator by operator through
// LibTorch's dispatcher, so that autograd and autocast work as for any other code.
//
// Compiling looks up every operator and turns names into slots (indices into one vector of values).
// It prepares each call's arguments for both phases, and notes after which node a value is no
// longer needed. Afterwards the graph is immutable and thread-safe.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/exported/symbolic.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::exported {

// In kEvaluate, dropout does nothing and batch normalisation uses its running statistics, where the
// file has them in training mode. Operators in evaluation mode in the file stay so in both phases.
enum class Phase { kTrain = 0, kEvaluate };

// A value: the one in a slot, or a constant.
struct Operand {
  int slot = -1;
  c10::IValue constant;
};

// An argument that depends on values of the current run.
struct Fill {
  enum Kind { kValue, kInts, kFloats, kBools, kTensors, kOptionalTensors };
  Kind kind = kValue;
  int argument = 0;
  c10::TypePtr type;  // As the operator declares it.
  std::vector<Operand> operands;
};

struct NodeOutput {
  bool list = false;       // A list of tensors, one for each slot.
  std::vector<int> slots;  // The slot is -1 where the output is unused.
};

class Graph;

struct Node {
  enum Kind { kOperator, kSymbolic, kSetGradEnabled, kAutocast, kCondition };
  Kind kind = kOperator;
  std::string where;  // Such as "aten::conv2d (model.py, line 12, in forward)".

  std::optional<c10::OperatorHandle> op;  // For kOperator.
  torch::jit::Stack arguments[2];         // By Phase. The second is empty where both are equal.
  std::vector<Fill> fills;

  SymbolicFunction function = nullptr;  // For kSymbolic.
  std::vector<Operand> operands;        // For all other kinds.

  std::vector<std::shared_ptr<const Graph>> graphs;  // Of higher-order operators.
  bool enabled = false;                              // For kSetGradEnabled and kAutocast.
  c10::DeviceType device_type = c10::kCPU;           // For kAutocast.
  std::optional<at::ScalarType> autocast_type;

  std::vector<NodeOutput> outputs;
  std::vector<int> release;  // Slots that are not needed after this node.
};

class Graph {
 public:
  // Compiles the schema's Graph. Constants are made for `device`, which replaces every device in
  // the file. A ConfigurationError names what cannot run, the line of the user's Python, and what
  // to do. Returns a DataError where the JSON does not follow the schema.
  static absl::StatusOr<std::shared_ptr<const Graph>> Compile(const Json& graph, c10::Device device,
                                                              const std::string& path);

  // REQUIRES: inputs.size() == input_names().size(). Throws std::runtime_error that names the
  // operator and the line of the user's Python.
  std::vector<c10::IValue> Run(std::vector<c10::IValue> inputs, Phase phase) const;

  // Placeholders in order. A constant input has a generated name.
  const std::vector<std::string>& input_names() const { return input_names_; }
  size_t output_count() const { return outputs_.size(); }
  // Returns the name of an output's value, or "" for a constant.
  const std::string& output_name(size_t index) const { return output_names_.at(index); }
  // By index: the inputs that a run writes in place, each with the node that writes.
  const std::map<int, std::string>& written() const { return written_; }
  // Returns the inputs that any of `outputs` depends on.
  std::set<int> Reaching(const std::vector<size_t>& outputs) const;
  size_t node_count() const { return nodes_.size(); }

 private:
  friend class GraphCompiler;
  void RunNode(const Node& node, Phase phase, std::vector<c10::IValue>* values,
               torch::jit::Stack* stack) const;

  std::vector<Node> nodes_;
  std::vector<std::string> input_names_, output_names_;
  std::vector<int> input_slots_;
  std::vector<Operand> outputs_;
  std::vector<std::set<int>> output_aliases_;  // By output: inputs that it may share memory with.
  std::map<int, std::string> written_;
  std::vector<int> release_first_;  // Inputs that are unused.
  int num_slots_ = 0;
};

// Converts `value` to an operator's parameter type: a Python int to a float, a number to a tensor.
// Applied to constants at compile time and to other values during a run.
c10::IValue Fit(c10::IValue value, const c10::Type& type);
// Converts a list of values.
c10::IValue FitList(const std::vector<c10::IValue>& values, const c10::Type& element);

}  // namespace muster::exported
