// An exported program as a model: its state as a module with Python's names, and its forward pass.
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
  // Tensors of the archive are copied. Errors name what cannot run (see Graph::Compile), and what
  // the program writes to that it may not: parameters, constants, inputs.
  static absl::StatusOr<std::unique_ptr<Model>> Make(const Archive& archive, c10::Device device);

  // Parameters and persistent buffers, named as in Python's state_dict(). Constants are the model's
  // own.
  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  const Shapes& shapes() const { return *shapes_; }
  const std::string& path() const { return path_; }
  // Of what forward() returns, flattened.
  size_t output_count() const { return user_outputs_.size(); }
  // An error says why that output can take no loss: it is no tensor, or has no dimension.
  absl::Status CheckOutput(size_t output) const;
  // A ConfigurationError where that output depends on no parameter that is trained.
  absl::Status CheckTrained(size_t output) const;

  // One output. In training, buffers that the program writes are written; in evaluation it writes
  // to copies. Not to be called by several threads at once in training. Throws std::runtime_error
  // that names the operator and the line of the user's Python, or the input that does not fit.
  at::Tensor Forward(const std::vector<at::Tensor>& inputs, Phase phase, size_t output);
  // In evaluation and without gradients, batches that the file does not admit in pieces, the last
  // one of which is filled up with its own examples: what one example gives does not depend on the
  // others then.
  at::Tensor Predict(const std::vector<at::Tensor>& inputs, size_t output);
  // A scalar zero that depends on the parameters that the output depends on: what a replica without
  // examples minimizes.
  at::Tensor Zero(size_t output) const;

 private:
  struct Source {
    enum Kind { kUser, kState, kConstant } kind = kConstant;
    at::Tensor tensor;     // kState
    bool written = false;  // in place
    bool trained = false;  // a parameter that requires a gradient
    int user = 0;          // kUser: which
  };
  Model() = default;
  // These throw StatusError's Status by value, Json::exception or c10::Error.
  absl::Status ReadInputs(const Archive& archive, c10::Device device);
  absl::Status ReadOutputs(const Archive& archive);
  absl::Status CheckWritten(const Archive& archive);
  void BuildModule(const Archive& archive, const std::vector<std::string>& order);
  at::Tensor StateOf(const Archive& archive, const std::string& name);

  std::string path_;
  std::shared_ptr<torch::nn::Module> module_;
  std::shared_ptr<const Graph> graph_;
  std::unique_ptr<Shapes> shapes_;
  std::map<std::string, at::Tensor> state_;  // by Python's name
  std::vector<Source> sources_;              // by the graph's input
  std::vector<int> user_outputs_;            // indices of the graph's outputs
  std::vector<int64_t> output_dims_;         // by user output; -1: no tensor
  struct Mutation {
    int output;
    at::Tensor buffer;
  };
  std::vector<Mutation> mutations_;  // outputs that are buffers' new values
};

}  // namespace muster::exported
