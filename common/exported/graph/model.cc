#include "common/exported/graph/model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "common/exported/graph/arguments.h"

namespace muster::exported {
namespace {

absl::Status Refuse(const std::string& path, const std::string& what) {
  return ConfigurationError(fmt::format("{} cannot run here: {}", path, what));
}

// Returns the module of a name in Python, and creates it if it is missing. "layers.0.weight" is in
// module layers.0.
torch::nn::Module* FolderOf(torch::nn::Module* root, const std::string& name, std::string* leaf) {
  // The limit keeps the recursive destructors of modules from overflowing the stack.
  constexpr int kMaxLevels = 100;
  TORCH_CHECK(std::count(name.begin(), name.end(), '.') < kMaxLevels, "a name has more than ",
              kMaxLevels, " levels");
  torch::nn::Module* folder = root;
  size_t begin = 0;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', begin)) {
    const std::string part = name.substr(begin, dot - begin);
    const auto children = folder->named_children();
    const auto* child = children.find(part);
    folder = child != nullptr
                 ? child->get()
                 : folder->register_module(part, std::make_shared<torch::nn::Module>()).get();
    begin = dot + 1;
  }
  *leaf = name.substr(begin);
  return folder;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Make(const Archive& archive, c10::Device device) {
  std::unique_ptr<Model> model(new Model);
  model->path_ = archive.path;
  try {
    auto graph =
        Graph::Compile(archive.program.at("graph_module").at("graph"), device, archive.path);
    if (!graph.ok()) return graph.status();
    model->graph_ = *std::move(graph);
    MUSTER_RETURN_IF_ERROR(model->ReadInputs(archive, device));
    MUSTER_RETURN_IF_ERROR(model->CheckWritten(archive));
    MUSTER_RETURN_IF_ERROR(model->ReadOutputs(archive));
    if (absl::Status batched = model->shapes_->CheckBatched(); !batched.ok()) {
      return Refuse(archive.path, std::string(Message(batched)));
    }
  } catch (const Json::exception& error) {
    return DataError(fmt::format("{} is damaged: {}", archive.path, error.what()));
  } catch (const c10::Error& error) {
    return DataError(
        fmt::format("{} is damaged: {}", archive.path, error.what_without_backtrace()));
  }
  return model;
}

at::Tensor Model::StateOf(const Archive& archive, const std::string& name) {
  const auto known = state_.find(name);
  if (known != state_.end()) return known->second;
  const at::Tensor& stored = archive.weights.at(name);
  // Two names of the same tensor share one state.
  for (const auto& [other, tensor] : state_) {
    if (archive.weights.at(other).is_same(stored)) return state_[name] = tensor;
  }
  const Payload& payload = archive.weight_payloads.at(name);
  at::Tensor tensor = stored.clone();
  tensor.requires_grad_(payload.is_parameter && payload.requires_grad);
  return state_[name] = tensor;
}

absl::Status Model::ReadInputs(const Archive& archive, c10::Device device) {
  const Json& specs = archive.program.at("graph_module").at("signature").at("input_specs");
  TORCH_CHECK(specs.size() == graph_->input_names().size(), "the signature has ", specs.size(),
              " inputs and the graph ", graph_->input_names().size());
  std::vector<std::string> user_names, order;
  for (const Json& spec : specs) {
    const auto [kind, value] = MemberOf(spec, "an input");
    Source source;
    if (kind == "user_input") {
      const Json& argument = value.at("arg");
      if (!argument.contains("as_tensor")) {
        return Refuse(archive.path,
                      fmt::format("its input number {} is no tensor: give the model a tensor, or "
                                  "export it with the number as a constant",
                                  user_names.size() + 1));
      }
      source.kind = Source::kUser;
      source.user = static_cast<int>(user_names.size());
      user_names.push_back(argument.at("as_tensor").at("name").get<std::string>());
    } else if (kind == "parameter" || kind == "buffer" || kind == "tensor_constant") {
      const std::string name = value.at(kind + "_name").get<std::string>();
      source.kind = Source::kState;
      if (archive.weights.contains(name)) {
        source.tensor = StateOf(archive, name);
        source.trained = source.tensor.requires_grad();
        order.push_back(name);
      } else if (archive.constants.contains(name)) {
        source.tensor = archive.constants.at(name).to(device);
      } else {
        return DataError(
            fmt::format("{} is damaged: it has no bytes for \"{}\"", archive.path, name));
      }
    } else if (kind != "constant_input") {
      return Refuse(archive.path,
                    fmt::format("it has an input of the kind {} (a Python object): write the model "
                                "with tensors alone",
                                kind));
    }
    sources_.push_back(std::move(source));
  }
  if (user_names.empty()) return Refuse(archive.path, "its forward() takes no tensor");
  shapes_ = std::make_unique<Shapes>(archive.program, user_names);
  BuildModule(archive, order);
  return absl::OkStatus();
}

void Model::BuildModule(const Archive& archive, const std::vector<std::string>& order) {
  module_ = std::make_shared<torch::nn::Module>("exported");
  std::vector<std::string> names = order;
  // Unused weights are part of the module too.
  for (const auto& [name, tensor] : archive.weights) names.push_back(name);
  std::set<std::string> done;
  for (const std::string& name : names) {
    if (!done.insert(name).second) continue;
    const at::Tensor tensor = StateOf(archive, name);
    std::string leaf;
    torch::nn::Module* folder = FolderOf(module_.get(), name, &leaf);
    if (archive.weight_payloads.at(name).is_parameter) {
      folder->register_parameter(leaf, tensor, tensor.requires_grad());
    } else {
      folder->register_buffer(leaf, tensor);
    }
  }
}

absl::Status Model::CheckWritten(const Archive& archive) {
  const Json& specs = archive.program.at("graph_module").at("signature").at("input_specs");
  for (const auto& [index, where] : graph_->written()) {
    const auto [kind, value] = MemberOf(specs.at(index), "an input");
    if (kind == "user_input") {
      const std::string& name = shapes_->inputs().at(sources_[index].user).name;
      return Refuse(archive.path,
                    fmt::format("{}: it changes the input {} in place: work on a copy, "
                                "{}.clone()",
                                where, name, name));
    }
    const std::string name = value.at(kind + "_name").get<std::string>();
    if (kind == "parameter") {
      return Refuse(archive.path, fmt::format("{}: it writes to the parameter {}, which the "
                                              "optimizer trains: make it a buffer",
                                              where, name));
    }
    if (!archive.weights.contains(name)) {
      return Refuse(
          archive.path,
          fmt::format("{}: it writes to {}, which is not part of the state_dict and would "
                      "be lost: register it as a persistent buffer",
                      where, name));
    }
    sources_[index].written = true;
  }
  return absl::OkStatus();
}

absl::Status Model::ReadOutputs(const Archive& archive) {
  const Json& graph = archive.program.at("graph_module").at("graph");
  const Json& specs = archive.program.at("graph_module").at("signature").at("output_specs");
  TORCH_CHECK(specs.size() == graph_->output_count(), "the signature has ", specs.size(),
              " outputs and the graph ", graph_->output_count());
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto [kind, value] = MemberOf(specs.at(i), "an output");
    if (kind == "user_output" || kind == "loss_output") {
      user_outputs_.push_back(static_cast<int>(i));
      const Json& values = graph.at("tensor_values");
      const std::string& name = graph_->output_name(i);
      output_dims_.push_back(
          values.contains(name) ? static_cast<int64_t>(values.at(name).at("sizes").size()) : -1);
    } else if (kind == "buffer_mutation") {
      const std::string name = value.at("buffer_name").get<std::string>();
      if (!state_.contains(name)) {
        return Refuse(
            archive.path,
            fmt::format("it writes to {}, which is not part of the state_dict and would be "
                        "lost: register it as a persistent buffer",
                        name));
      }
      mutations_.push_back({static_cast<int>(i), state_.at(name)});
    } else if (kind == "user_input_mutation") {
      const std::string name = value.at("user_input_name").get<std::string>();
      return Refuse(archive.path, fmt::format("it changes the input {} in place: work on a copy, "
                                              "{}.clone()",
                                              name, name));
    } else if (kind == "parameter_mutation") {
      return Refuse(
          archive.path,
          fmt::format("it writes to the parameter {}, which the optimizer trains: make it a "
                      "buffer",
                      value.at("parameter_name").get<std::string>()));
    } else {
      return Refuse(archive.path, fmt::format("it has an output of the kind {}: export the forward "
                                              "pass of the model alone",
                                              kind));
    }
  }
  return absl::OkStatus();
}

absl::Status Model::CheckOutput(size_t output) const {
  if (output >= user_outputs_.size()) {
    return ConfigurationError(fmt::format("program.output is {}, and {} gives {} output{}, from 0",
                                          output, path_, user_outputs_.size(),
                                          user_outputs_.size() == 1 ? "" : "s"));
  }
  if (output_dims_[output] < 0) {
    return Refuse(path_, fmt::format("its output {} is no tensor: choose another one with "
                                     "program.output",
                                     output));
  }
  if (output_dims_[output] == 0) {
    return Refuse(path_, fmt::format("its output {} is a scalar, and the loss is computed from one "
                                     "value or more of each example: return the outputs, such as "
                                     "logits, and name the loss in the job",
                                     output));
  }
  return absl::OkStatus();
}

at::Tensor Model::Forward(const std::vector<at::Tensor>& inputs, Phase phase, size_t output) {
  const absl::Status fits = shapes_->CheckBatch(inputs);
  if (!fits.ok()) throw std::runtime_error(fmt::format("{}: {}", path_, Message(fits)));
  std::vector<c10::IValue> values;
  values.reserve(sources_.size());
  for (const Source& source : sources_) {
    if (source.kind == Source::kUser) {
      const at::Tensor& given = inputs[source.user];
      values.emplace_back(given.to(shapes_->inputs()[source.user].dtype));
    } else if (source.kind == Source::kState && source.written && phase == Phase::kEvaluate) {
      values.emplace_back(source.tensor.clone());
    } else {
      values.emplace_back(source.tensor);
    }
  }
  const std::vector<c10::IValue> outputs = graph_->Run(std::move(values), phase);
  if (phase == Phase::kTrain) {
    const at::NoGradGuard no_grad;
    for (const Mutation& mutation : mutations_) {
      mutation.buffer.copy_(outputs[mutation.output].toTensor());
    }
  }
  return outputs[user_outputs_.at(output)].toTensor();
}

at::Tensor Model::Predict(const std::vector<at::Tensor>& inputs, size_t output) {
  const at::NoGradGuard no_grad;
  const Range range = shapes_->batch();
  const int64_t examples = inputs.at(0).size(0);
  if (range.Holds(examples)) return Forward(inputs, Phase::kEvaluate, output);
  TORCH_CHECK(examples > 0, "there are no examples");
  std::vector<at::Tensor> pieces;
  for (int64_t begin = 0; begin < examples; begin += range.most) {
    const int64_t count = std::min(range.most, examples - begin);
    std::vector<at::Tensor> piece;
    for (const at::Tensor& input : inputs) {
      at::Tensor part = input.narrow(0, begin, count);
      while (part.size(0) < range.least) {
        const int64_t more = std::min(part.size(0), range.least - part.size(0));
        part = at::cat({part, part.narrow(0, 0, more)});
      }
      piece.push_back(std::move(part));
    }
    pieces.push_back(Forward(piece, Phase::kEvaluate, output).narrow(0, 0, count));
    if (range.most > examples) break;
  }
  return at::cat(pieces);
}

absl::Status Model::CheckTrained(size_t output) const {
  for (const int input : graph_->Reaching({static_cast<size_t>(user_outputs_.at(output))}))
    if (sources_[input].trained) return absl::OkStatus();
  return Refuse(path_, fmt::format("its output {} depends on no parameter that requires a gradient "
                                   "(weights can be constants in the file: of a Keras model, "
                                   "export it with strict=True)",
                                   output));
}

at::Tensor Model::Zero(size_t output) const {
  at::Tensor zero;
  for (const int input : graph_->Reaching({static_cast<size_t>(user_outputs_.at(output))})) {
    const Source& source = sources_[input];
    if (!source.trained) continue;
    const at::Tensor none = source.tensor.flatten().narrow(0, 0, 0).sum();
    zero = zero.defined() ? zero + none : none;
  }
  TORCH_CHECK(zero.defined(), "the output depends on no parameter that is trained");
  return zero;
}

std::vector<summary::GraphNode> Model::ForwardGraph() const {
  summary::GraphBuilder builder;
  std::vector<int> inputs;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = sources_[i];
    std::string name = graph_->input_names()[i];
    for (const auto& [of_state, tensor] : state_)
      if (source.tensor.defined() && tensor.is_same(source.tensor)) name = of_state;
    const char* const kind = source.kind == Source::kUser    ? "input"
                             : source.kind != Source::kState ? "constant"
                             : source.tensor.requires_grad() ? summary::kParameterOp
                                                             : "buffer";
    inputs.push_back(builder.AddLeaf(
        name, kind,
        source.tensor.defined() ? source.tensor.sizes().vec() : std::vector<int64_t>()));
  }
  graph_->AddTo(&builder, inputs);
  return builder.Take();
}

}  // namespace muster::exported
