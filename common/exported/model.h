// The state and the forward pass of an exported program.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/exported/archive.h"
#include "common/exported/graph.h"
#include "common/exported/shapes.h"

namespace muster::exported {

class Model {
 public:
  // Makes a model with copies of the archive's tensors. Returns the errors of Graph::Compile. Also
  // returns an error that names a parameter, constant or input if the program writes it.
  static absl::StatusOr<std::unique_ptr<Model>> Make(const Archive& archive, c10::Device device);

  // Returns the module with the parameters and persistent buffers, named as in Python's
  // state_dict(). Constants are not in the module.
  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  const Shapes& shapes() const { return *shapes_; }
  const std::string& path() const { return path_; }
  // Returns the number of results of forward(), after flattening.
  size_t output_count() const { return user_outputs_.size(); }
  // Returns an error if the output cannot have a loss, because it is not a tensor or has no
  // dimension.
  absl::Status CheckOutput(size_t output) const;
  // Returns a ConfigurationError if the output depends on no parameter that requires a gradient.
  absl::Status CheckTrained(size_t output) const;

  // Computes one output. In kTrain, updates the buffers that the program writes, and is not
  // thread-safe. In kEvaluate, writes only to copies of buffers. Throws std::runtime_error that
  // names the operator and the line of the user's Python, or the input with a wrong shape or type.
  at::Tensor Forward(const std::vector<at::Tensor>& inputs, Phase phase, size_t output);
  // Computes one output in kEvaluate, without gradients. If the program does not accept the batch
  // size, splits the batch, and fills the last piece with copies of its own examples. The copies do
  // not change the results, because in kEvaluate an example's result does not depend on other
  // examples.
  at::Tensor Predict(const std::vector<at::Tensor>& inputs, size_t output);
  // Returns the operators of forward() for people, with parameters by their names in Python.
  std::vector<summary::GraphNode> ForwardGraph() const;
  // Returns a scalar zero that depends on the same parameters as the output. A replica with an
  // empty batch minimizes this zero.
  at::Tensor Zero(size_t output) const;

 private:
  struct Source {
    enum Kind { kUser, kState, kConstant } kind = kConstant;
    at::Tensor tensor;     // Set for kState.
    bool written = false;  // True if the program changes the input in place.
    bool trained = false;  // True for a parameter that requires a gradient.
    int user = 0;          // For kUser: the index of the user's input.
  };
  Model() = default;
  // These functions throw StatusError, Json::exception or c10::Error.
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
  std::vector<int> user_outputs_;  // The index of the graph's output for each output of the user.
  std::vector<int64_t> output_dims_;  // Indexed by the user's outputs. -1 means not a tensor.
  struct Mutation {
    int output;
    at::Tensor buffer;
  };
  std::vector<Mutation> mutations_;  // The graph's outputs that are new values of buffers.
};

}  // namespace muster::exported
