// The graph of an exported program, compiled once and run operator by operator through LibTorch's
// dispatcher, so that autograd and autocast see what they see of any other code.
//
// Compiling looks every operator up, turns names into slots (indices into one vector of values),
// prepares each call's arguments for both phases, and notes after which node a value is not needed
// any more. Immutable after that, and used by any number of threads.
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

// In evaluation, dropout does nothing and batch normalisation uses its running statistics, where
// the file has them in training mode; what is in evaluation mode in the file stays so.
enum class Phase { kTrain = 0, kEvaluate };

// A value: of a slot, or the constant itself.
struct Operand {
  int slot = -1;
  c10::IValue constant;
};

// An argument that depends on values of this run.
struct Fill {
  enum Kind { kValue, kInts, kFloats, kBools, kTensors, kOptionalTensors };
  Kind kind = kValue;
  int argument = 0;
  c10::TypePtr type;  // that the operator declares
  std::vector<Operand> operands;
};

struct NodeOutput {
  bool list = false;       // a list of tensors, one for each slot
  std::vector<int> slots;  // -1: nobody uses it
};

class Graph;

struct Node {
  enum Kind { kOperator, kSymbolic, kSetGradEnabled, kAutocast, kCondition };
  Kind kind = kOperator;
  std::string where;  // "aten::conv2d (model.py, line 12, in forward)"

  std::optional<c10::OperatorHandle> op;  // kOperator
  torch::jit::Stack arguments[2];         // by Phase; the second is empty where both are the same
  std::vector<Fill> fills;

  SymbolicFunction function = nullptr;  // kSymbolic
  std::vector<Operand> operands;        // of all other kinds

  std::vector<std::shared_ptr<const Graph>> graphs;  // of higher-order operators
  bool enabled = false;                              // kSetGradEnabled, kAutocast
  c10::DeviceType device_type = c10::kCPU;           // kAutocast
  std::optional<at::ScalarType> autocast_type;

  std::vector<NodeOutput> outputs;
  std::vector<int> release;  // slots that are not needed after this node
};

class Graph {
 public:
  // `graph` is the schema's Graph. Constants are made for `device`, which also takes the place of
  // any device in the file. Errors: a ConfigurationError that names what cannot run, with the line
  // of the user's Python and what to do; a DataError where the JSON is not what the schema says.
  static absl::StatusOr<std::shared_ptr<const Graph>> Compile(const Json& graph, c10::Device device,
                                                              const std::string& path);

  // REQUIRES: inputs.size() == input_names().size(). Throws std::runtime_error that names the
  // operator and the line of the user's Python.
  std::vector<c10::IValue> Run(std::vector<c10::IValue> inputs, Phase phase) const;

  // Placeholders in order; a constant input has a name of its own.
  const std::vector<std::string>& input_names() const { return input_names_; }
  size_t output_count() const { return outputs_.size(); }
  // The name of an output's value; "" for a constant.
  const std::string& output_name(size_t index) const { return output_names_.at(index); }
  // Inputs that running the graph writes to, in place (by index), each with the node that does.
  const std::map<int, std::string>& written() const { return written_; }
  // Inputs that an output depends on. Several: any of them.
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
  std::vector<std::set<int>> output_aliases_;  // inputs whose memory an output may be
  std::map<int, std::string> written_;
  std::vector<int> release_first_;  // inputs that nothing uses
  int num_slots_ = 0;
};

// `value` as an operator's parameter of this type takes it: a Python int where a float is wanted, a
// number where a tensor is. Used at compile time for constants, and in a run for the rest.
c10::IValue Fit(c10::IValue value, const c10::Type& type);
// The same for a list of values.
c10::IValue FitList(const std::vector<c10::IValue>& values, const c10::Type& element);

}  // namespace muster::exported
