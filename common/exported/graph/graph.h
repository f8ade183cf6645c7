// The graph of an exported program, a file that torch.export.save wrote. A graph is compiled once
// and can run many times. A run calls LibTorch's dispatcher for each operator, so autograd and
// autocast work as usual.
//
// A run keeps its values in one vector. A slot is an index into this vector. Compilation looks up
// every operator and replaces the names of values by slots. It prepares the arguments of each call
// for training and for evaluation. It records the node after which each value is no longer needed.
// A compiled graph is immutable and thread-safe.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/exported/graph/symbolic.h"
#include "common/summary/graph_def.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::exported {

// The mode of a run. In kEvaluate, dropout does nothing, and batch normalization uses its running
// statistics. Operators that were in evaluation mode when Python exported the model stay in
// evaluation mode in both phases.
enum class Phase { kTrain = 0, kEvaluate };

// A value: the content of the slot `slot`, or `constant` if `slot` is -1.
struct Operand {
  int slot = -1;
  c10::IValue constant;
};

// An argument that depends on values of the current run. A run computes this argument before it
// calls the operator. All other arguments are constants.
struct Fill {
  enum Kind { kValue, kInts, kFloats, kBools, kTensors, kOptionalTensors };
  Kind kind = kValue;
  int argument = 0;   // The index among the operator's arguments.
  c10::TypePtr type;  // The operator's declared type. For a list: the type of the elements.
  std::vector<Operand> operands;
};

struct NodeOutput {
  bool list = false;       // True if the output is a list of tensors, one for each slot.
  std::vector<int> slots;  // -1: nothing uses the output.
};

class Graph;

// A call of an operator or function, or of a nested graph.
struct Node {
  enum Kind {
    kOperator,        // An operator of LibTorch.
    kSymbolic,        // Arithmetic on sizes (symbolic.h).
    kSetGradEnabled,  // torch.no_grad() or torch.enable_grad() around the nested graph.
    kAutocast,        // torch.autocast around the nested graph.
    kCondition        // torch.cond. Runs one of two nested graphs.
  };
  Kind kind = kOperator;
  // Describes the node in messages: "aten.conv2d.default (model.py, line 12, in forward)".
  std::string where;

  std::optional<c10::OperatorHandle> op;  // Set for kOperator.
  // All arguments of the operator, indexed by Phase. If both lists are equal, the second list is
  // empty.
  torch::jit::Stack arguments[2];
  std::vector<Fill> fills;

  SymbolicFunction function = nullptr;  // Set for kSymbolic.
  std::vector<Operand> operands;        // Set for all kinds except kOperator.

  // The nested graphs. kCondition has two: for true and for false.
  std::vector<std::shared_ptr<const Graph>> graphs;
  bool enabled = false;                     // Set for kSetGradEnabled and kAutocast.
  c10::DeviceType device_type = c10::kCPU;  // Set for kAutocast.
  std::optional<at::ScalarType> autocast_type;

  std::vector<NodeOutput> outputs;
  std::vector<int> release;  // No later node uses these slots. A run clears them after the node.
};

class Graph {
 public:
  // Compiles `graph`, a Graph of torch/_export/serde/schema.py. `device` replaces every device in
  // the file except "meta". `path` is the file's path for messages. Returns a ConfigurationError if
  // a node cannot run. The error names the operator, the line of the user's Python, and what to do.
  // Returns a DataError if the JSON does not follow the schema.
  static absl::StatusOr<std::shared_ptr<const Graph>> Compile(const Json& graph, c10::Device device,
                                                              const std::string& path);

  // Runs the graph and returns its outputs. If an operator fails, throws std::runtime_error, which
  // names the operator and the line of the user's Python. REQUIRES: inputs.size() ==
  // input_names().size().
  std::vector<c10::IValue> Run(std::vector<c10::IValue> inputs, Phase phase) const;

  // Returns the names of the graph's inputs, in order. The name of a constant input is "".
  const std::vector<std::string>& input_names() const { return input_names_; }
  size_t output_count() const { return outputs_.size(); }
  // Returns the name of an output's value, or "" for a constant.
  const std::string& output_name(size_t index) const { return output_names_.at(index); }
  // Returns one entry for each input that a run changes in place. The key is the index of the
  // input. The value is Node::where of the first node that changes the input.
  const std::map<int, std::string>& written() const { return written_; }
  // Returns the indices of the inputs that at least one of `outputs` depends on.
  std::set<int> Reaching(const std::vector<size_t>& outputs) const;
  // Adds the operators to the graph that TensorBoard shows. `inputs` has the numbers that `builder`
  // gave to the nodes of this graph's inputs.
  void AddTo(summary::GraphBuilder* builder, const std::vector<int>& inputs) const;

 private:
  friend class GraphCompiler;
  void RunNode(const Node& node, Phase phase, std::vector<c10::IValue>* values,
               torch::jit::Stack* stack) const;

  std::vector<Node> nodes_;
  std::vector<std::string> input_names_, output_names_;
  std::vector<int> input_slots_;
  std::vector<Operand> outputs_;
  // Indexed by output. An entry has the indices of the inputs that may share memory with the
  // output.
  std::vector<std::set<int>> output_aliases_;
  std::map<int, std::string> written_;
  std::vector<int> release_first_;  // The slots of unused inputs, which a run clears at its start.
  int num_slots_ = 0;
};

// Converts `value` to `type`, the declared type of an operator's argument, as Python does. For
// example, converts an int to a float, or a number to a tensor. Called for constants during
// compilation, and for other values during a run.
c10::IValue Fit(c10::IValue value, const c10::Type& type);
// Converts `values` to a list with elements of type `element`.
c10::IValue FitList(const std::vector<c10::IValue>& values, const c10::Type& element);

}  // namespace muster::exported
