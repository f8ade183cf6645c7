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
  // Copies the archive's tensors. An error names what cannot run (see Graph::Compile), or a
  // parameter, constant or input that the program writes although it must not.
  static absl::StatusOr<std::unique_ptr<Model>> Make(const Archive& archive, c10::Device device);

  // Parameters and persistent buffers, named as in Python's state_dict(). The model keeps constants
  // itself.
  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  const Shapes& shapes() const { return *shapes_; }
  const std::string& path() const { return path_; }
  // Number of flattened results of forward().
  size_t output_count() const { return user_outputs_.size(); }
  // Returns an error where that output can have no loss, because it is no tensor or has no
  // dimension.
  absl::Status CheckOutput(size_t output) const;
  // Returns a ConfigurationError where that output depends on no trained parameter.
  absl::Status CheckTrained(size_t output) const;

  // Computes one output. In training it updates the buffers that the program writes. In evaluation
  // it writes to copies. Not thread-safe in training. Throws std::runtime_error that names the
  // operator and the line of the user's Python, or the input that does not fit.
  at::Tensor Forward(const std::vector<at::Tensor>& inputs, Phase phase, size_t output);
  // Evaluates without gradients. A batch size that the file does not admit is split into pieces.
  // The last piece is filled up with its own examples. In evaluation an example's result does not
  // depend on the others, so the filling does not change it.
  at::Tensor Predict(const std::vector<at::Tensor>& inputs, size_t output);
  // Returns a scalar zero that depends on the same parameters as the output. A replica without
  // examples minimizes it.
  at::Tensor Zero(size_t output) const;

 private:
  struct Source {
    enum Kind { kUser, kState, kConstant } kind = kConstant;
    at::Tensor tensor;     // For kState.
    bool written = false;  // In place.
    bool trained = false;  // True for a parameter that requires a gradient.
    int user = 0;          // For kUser: index of the user input.
  };
  Model() = default;
  // These throw StatusError (with a Status), Json::exception or c10::Error.
  absl::Status ReadInputs(const Archive& archive, c10::Device device);
  absl::Status ReadOutputs(const Archive& archive);
  absl::Status CheckWritten(const Archive& archive);
  void BuildModule(const Archive& archive, const std::vector<std::string>& order);
  at::Tensor StateOf(const Archive& archive, const std::string& name);

  std::string path_;
  std::shared_ptr<torch::nn::Module> module_;
  std::shared_ptr<const Graph> graph_;
  std::unique_ptr<Shapes> shapes_;
  std::map<std::string, at::Tensor> state_;  // By Python's name.
  std::vector<Source> sources_;              // By the graph's input.
  std::vector<int> user_outputs_;            // Indices of the graph's outputs.
  std::vector<int64_t> output_dims_;         // By user output. -1: no tensor.
  struct Mutation {
    int output;
    at::Tensor buffer;
  };
  std::vector<Mutation> mutations_;  // Outputs that are new values of buffers.
};

}  // namespace muster::exported
