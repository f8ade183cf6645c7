// The state and the forward pass of an exported program, a file that torch.export.save wrote. The
// state is the program's parameters and buffers.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/exported/graph/archive.h"
#include "common/exported/graph/graph.h"
#include "common/exported/graph/shapes.h"

namespace muster::exported {

class Model {
 public:
  // Makes a model with copies of the archive's tensors. Returns the errors of Graph::Compile.
  // Returns a ConfigurationError if the program writes to a parameter, a constant or an input.
  static absl::StatusOr<std::unique_ptr<Model>> Make(const Archive& archive, c10::Device device);

  // Returns the module with the parameters and persistent buffers, named as in Python's
  // state_dict(). Constants are not in the module.
  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  const Shapes& shapes() const { return *shapes_; }
  const std::string& path() const { return path_; }
  // Returns the number of tensors that forward() returns, in flattened order. Other methods take
  // the index of such a tensor as `output`.
  size_t output_count() const { return user_outputs_.size(); }
  // Returns a ConfigurationError if a loss cannot be computed from the output, because the output
  // does not exist, is not a tensor, or has no dimension.
  absl::Status CheckOutput(size_t output) const;
  // Returns a ConfigurationError if the output depends on no parameter that requires a gradient.
  absl::Status CheckTrained(size_t output) const;

  // Runs forward() and returns one output. In kTrain, updates the buffers that the program writes.
  // In kEvaluate, leaves all buffers unchanged. If an operator fails, throws std::runtime_error,
  // which names the operator and the line of the user's Python. If an input has a wrong shape or
  // type, throws std::runtime_error, which names the input. Thread-safe only in kEvaluate.
  at::Tensor Forward(const std::vector<at::Tensor>& inputs, Phase phase, size_t output);
  // Runs forward() in kEvaluate, without gradients, and returns one output. Splits a batch that is
  // too large for the program. Fills a piece that is too small for the program with copies of the
  // piece's examples. The result has no rows for these copies.
  at::Tensor Predict(const std::vector<at::Tensor>& inputs, size_t output);
  // Returns the graph of forward() that TensorBoard shows. Parameters have their names in Python.
  std::vector<summary::GraphNode> ForwardGraph() const;
  // Returns a scalar zero. For autograd, the zero depends on the same parameters as the output. A
  // replica with an empty batch minimizes this zero, and gets zero gradients.
  at::Tensor Zero(size_t output) const;

 private:
  // The source of the value of one input of the graph.
  struct Source {
    enum Kind {
      kUser,     // An argument of forward().
      kState,    // A parameter, buffer or constant tensor.
      kConstant  // An argument that was a constant at export. Has no tensor.
    } kind = kConstant;
    at::Tensor tensor;     // Set for kState.
    bool written = false;  // True if the program changes the input in place.
    bool trained = false;  // True for a parameter that requires a gradient.
    int user = 0;          // For kUser: the index of the argument.
  };
  Model() = default;
  // The following functions may throw StatusError, Json::exception or c10::Error.
  absl::Status ReadInputs(const Archive& archive, c10::Device device);
  absl::Status ReadOutputs(const Archive& archive);
  absl::Status CheckWritten(const Archive& archive);
  void BuildModule(const Archive& archive, const std::vector<std::string>& order);
  at::Tensor StateOf(const Archive& archive, const std::string& name);

  std::string path_;
  std::shared_ptr<torch::nn::Module> module_;
  std::shared_ptr<const Graph> graph_;
  std::unique_ptr<Shapes> shapes_;
  std::map<std::string, at::Tensor> state_;  // The keys are the names in Python.
  std::vector<Source> sources_;              // Indexed by the graph's inputs.
  // The following vectors are indexed by the outputs of forward(). user_outputs_ has the index of
  // the graph's output. output_dims_ has the number of dimensions, or -1 if the output is not a
  // tensor.
  std::vector<int> user_outputs_;
  std::vector<int64_t> output_dims_;
  // An output of the graph that is the new value of a buffer.
  struct Mutation {
    int output;  // The index of the graph's output.
    at::Tensor buffer;
  };
  std::vector<Mutation> mutations_;
};

}  // namespace muster::exported
