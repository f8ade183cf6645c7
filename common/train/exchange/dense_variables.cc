#include "common/train/exchange/dense_variables.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "common/optim/optimizer.h"
#include "common/optim/update_kernels.h"

namespace muster {
namespace {

at::Tensor BytesOf(const at::Tensor& tensor) {
  return tensor.detach().contiguous().reshape({-1}).view(at::kByte);
}

at::Tensor HostCopy(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           at::TensorOptions().dtype(at::kFloat).pinned_memory(true));
}

}  // namespace

DenseVariables::DenseVariables(const Replica& replica, const ServedVariables& served,
                               const push_pull::Layout& layout)
    : served_(served), layout_(layout), chunks_of_(replica.optimizers().size()) {
  const std::vector<std::vector<int>> by_server = AddChunks();
  const VariablesByMemory by_memory = AddVariables();
  MarkBuffers(replica, by_memory);
  FindParameters(replica, by_memory);
  for (const push_pull::VariablePart& part : layout_.parts)
    if (part.elements() > 0) AddPart(part, by_server[part.server]);
}

std::vector<std::vector<int>> DenseVariables::AddChunks() {
  std::vector<std::vector<int>> by_server;
  for (const std::vector<push_pull::Chunk>& of_server : layout_.chunks) {
    std::vector<int>& numbers = by_server.emplace_back();
    for (size_t i = 0; i < of_server.size(); ++i) {
      numbers.push_back(static_cast<int>(chunks_.size()));
      if (const int owner = served_.owners[of_server[i].optimizer].optimizer; owner >= 0)
        chunks_of_[owner].push_back(numbers.back());
      else if (of_server[i].optimizer == served_.rest())
        rest_.push_back(numbers.back());
      chunks_.push_back({of_server[i], static_cast<int>(i), {}});
    }
  }
  return by_server;
}

DenseVariables::VariablesByMemory DenseVariables::AddVariables() {
  VariablesByMemory by_memory;
  for (size_t v = 0; v < served_.specs.size(); ++v) {
    Variable variable;
    variable.tensor = served_.tensors[v];
    variable.host = HostCopy(variable.tensor);
    if (variable.tensor.numel() > 0) by_memory[variable.tensor.data_ptr()] = static_cast<int>(v);
    variables_.push_back(std::move(variable));
  }
  return by_memory;
}

void DenseVariables::MarkBuffers(const Replica& replica, const VariablesByMemory& by_memory) {
  for (const at::Tensor& buffer : replica.float_buffers()) {
    const auto found = by_memory.find(buffer.data_ptr());
    if (found == by_memory.end()) continue;
    Variable& variable = variables_[found->second];
    if (served_.specs[found->second].optimizer != served_.rest()) continue;
    variable.buffer = true;
    variable.before = variable.tensor.clone();
  }
  for (const NamedBuffer& buffer : replica.buffers()) {
    if (buffer.mode != BufferMode::kSame || buffer.tensor.numel() == 0) continue;
    const auto found = by_memory.find(buffer.tensor.data_ptr());
    if (found != by_memory.end() && served_.specs[found->second].optimizer == served_.rest())
      variables_[found->second].same = !variables_[found->second].buffer;
  }
}

void DenseVariables::FindParameters(const Replica& replica, const VariablesByMemory& by_memory) {
  for (const NamedOptimizer& optimizer : replica.optimizers()) {
    std::vector<int>& of = variable_of_.emplace_back();
    for (const at::Tensor& parameter : optimizer.rule->parameters()) {
      const auto found = by_memory.find(parameter.data_ptr());
      of.push_back(found == by_memory.end() ? -1 : found->second);
    }
    parameters_of_.push_back(optimizer.rule->parameters());
  }
}

void DenseVariables::AddPart(const push_pull::VariablePart& part,
                             const std::vector<int>& of_server) {
  Variable& variable = variables_[part.variable];
  const int64_t rows = variable.tensor.dim() == 0 ? 1 : variable.tensor.size(0);
  const int64_t row = variable.tensor.numel() / rows;
  variable.parts.push_back({part.begin / row, part.elements() / row, part.begin, {}, {}});
  for (const int c : of_server) {
    ChunkPlace& place = chunks_[c];
    if (place.chunk.end <= part.offset || place.chunk.begin >= part.offset + part.elements())
      continue;
    place.buffers = place.buffers || variable.buffer;
    // A chunk may have several parts of a variable. Adds the variable once, because each entry
    // decrements `pending` once.
    if (!place.variables.empty() && place.variables.back() == part.variable) continue;
    place.variables.push_back(part.variable);
    variable.chunks.push_back(c);
  }
}

std::vector<std::vector<std::span<float>>> DenseVariables::HostMemory() const {
  std::vector<at::Tensor> hosts;
  for (const Variable& variable : variables_) hosts.push_back(variable.host);
  return ShardSpans(layout_, served_.specs, hosts);
}

void DenseVariables::UseClient(push_pull::PushPullClient* client) {
  client_ = client;
  if (client == nullptr) return;
  std::vector<size_t> next(variables_.size());
  for (const push_pull::VariablePart& place : layout_.parts) {
    if (place.elements() == 0) continue;
    Variable& variable = variables_[place.variable];
    PartMemory& part = variable.parts[next[place.variable]++];
    part.memory = client->gradients(place.server).subspan(place.offset, place.elements());
    std::fill(part.memory.begin(), part.memory.end(), 0.f);
    const at::Tensor like = variable.tensor.dim() == 0
                                ? variable.tensor
                                : variable.tensor.narrow(0, part.first_row, part.rows);
    part.view = at::from_blob(part.memory.data(), like.sizes(), like.strides(), at::kFloat);
  }
}

void DenseVariables::CopyToDevice(bool rest) {
  const at::NoGradGuard no_grad;
  for (size_t v = 0; v < variables_.size(); ++v) {
    const Variable& variable = variables_[v];
    if (!rest && served_.specs[v].optimizer == served_.rest()) continue;
    if (!variable.tensor.is_same(variable.host)) {
      variable.tensor.copy_(variable.host);
    } else {
      // LibTorch does not see this write. Without this, autograd would not notice if a graph saved
      // the old values.
      variable.tensor.unsafeGetTensorImpl()->bump_version();
    }
  }
}

absl::Status ChangedSameBuffer(const std::string& name) {
  return ProgramError(fmt::format(
      "buffer \"{}\" is declared kSame, and the program has changed it: parameter servers do not "
      "carry what a worker makes of it to the others; declare it kMean, or keep it in integers",
      name));
}

absl::Status DenseVariables::CheckSameBuffers() const {
  for (size_t v = 0; v < variables_.size(); ++v) {
    const Variable& variable = variables_[v];
    if (!variable.same || !variable.before.defined()) continue;
    // Compares bits, so that a NaN equals itself.
    if (at::equal(BytesOf(variable.tensor), BytesOf(variable.before))) continue;
    return ChangedSameBuffer(served_.specs[v].name);
  }
  return absl::OkStatus();
}

void DenseVariables::KeepSameBuffers() {
  for (Variable& variable : variables_)
    if (variable.same) {
      if (!variable.before.defined()) variable.before = at::empty_like(variable.tensor);
      variable.before.copy_(variable.tensor);
    }
}

void DenseVariables::BeginStep() {
  for (ChunkPlace& place : chunks_) place.fresh = false;
  for (Variable& variable : variables_)
    if (variable.buffer) variable.before.copy_(variable.tensor);
}

void DenseVariables::Launch(int chunk, What what) {
  chunks_[chunk].launched = chunks_[chunk].fresh = true;
  client_->Launch(chunks_[chunk].chunk.server, chunks_[chunk].index, what);
}

bool DenseVariables::WriteDifference(double weight, Variable* variable) {
  const at::Tensor after = variable->tensor.to(at::kCPU), before = variable->before.to(at::kCPU);
  const float* a = after.const_data_ptr<float>();
  const float* b = before.const_data_ptr<float>();
  const auto not_negative = [](float x) { return x >= 0; };
  const int64_t count = after.numel();
  variable->floor =
      std::all_of(a, a + count, not_negative) && std::all_of(b, b + count, not_negative);
  const bool none = std::memcmp(a, b, after.nbytes()) == 0 || weight == 0;
  // The difference of an unchanged value is 0, even for an infinity.
  const auto same = [](const float& x, const float& y) {
    return std::memcmp(&x, &y, sizeof x) == 0;
  };
  for (const PartMemory& part : variable->parts)
    for (size_t i = 0; i < part.memory.size(); ++i) {
      const float& from = b[part.begin + i];
      const float& to = a[part.begin + i];
      part.memory[i] = none || same(from, to) ? 0.f : from - to;
    }
  return !none;
}

std::vector<std::pair<int, DenseVariables::What>> DenseVariables::WriteDifferences(double weight) {
  for (const int c : rest_) chunks_[c].used = false;
  for (Variable& variable : variables_) {
    if (!variable.buffer || variable.parts.empty()) continue;
    if (!WriteDifference(weight, &variable)) continue;
    for (const int c : variable.chunks) chunks_[c].used = true;
  }
  std::vector<std::pair<int, What>> requests;
  for (const int c : rest_) {
    const ChunkPlace& place = chunks_[c];
    const bool floor = std::all_of(place.variables.begin(), place.variables.end(),
                                   [this](int v) { return variables_[v].floor; });
    if (place.used) {
      requests.emplace_back(c, floor ? What::kDifference : What::kGradient);
    } else if (place.buffers) {
      requests.emplace_back(c, What::kNothing);
    }
  }
  // Pulls the chunks that this step does not push, because other workers may have changed them.
  for (const std::vector<int>& of_optimizer : chunks_of_)
    for (const int c : of_optimizer)
      if (!chunks_[c].fresh) requests.emplace_back(c, What::kNothing);
  return requests;
}

void DenseVariables::AddNotFinite(const std::set<std::pair<int, int>>& chunks,
                                  std::set<std::string>* names) const {
  for (const auto& [shard, index] : chunks) {
    const push_pull::Chunk& chunk = layout_.chunks[shard][index];
    if (chunk.rows()) names->insert(served_.specs[chunk.table].name);
  }
  for (const ChunkPlace& place : chunks_) {
    if (place.chunk.rows() || !chunks.contains({place.chunk.server, place.index})) continue;
    for (const int v : place.variables)
      for (const PartMemory& part : variables_[v].parts)
        if (!AllFinite(part.memory)) names->insert(served_.specs[v].name);
  }
}

void DenseVariables::BeginReduction(int optimizer) {
  for (const int v : variable_of_[optimizer])
    if (v >= 0) variables_[v].used = false;
  for (const int c : chunks_of_[optimizer]) chunks_[c].launched = chunks_[c].used = false;
}

void DenseVariables::BeginBackward(int optimizer) {
  for (const int c : chunks_of_[optimizer])
    chunks_[c].pending = static_cast<int>(chunks_[c].variables.size());
}

void DenseVariables::Write(int variable, const at::Tensor& gradient, bool add) {
  for (const PartMemory& part : variables_[variable].parts) {
    const at::Tensor rows = gradient.dim() == 0 || part.rows == gradient.size(0)
                                ? gradient
                                : gradient.narrow(0, part.first_row, part.rows);
    if (add) {
      part.view.add_(rows.to(at::kCPU));
    } else if (rows.is_cpu() && rows.scalar_type() == at::kFloat &&
               rows.strides() == part.view.strides() && rows.is_non_overlapping_and_dense()) {
      // memcpy is faster than LibTorch's loop.
      std::memcpy(part.memory.data(), rows.const_data_ptr<float>(), part.memory.size_bytes());
    } else {
      part.view.copy_(rows);
    }
  }
}

std::vector<int> DenseVariables::Complete(int variable) {
  variables_[variable].used = true;
  std::vector<int> complete;
  for (const int c : variables_[variable].chunks) {
    chunks_[c].used = true;
    if (--chunks_[c].pending == 0) complete.push_back(c);
  }
  return complete;
}

std::vector<int> DenseVariables::CompleteAll(int optimizer) {
  // No launched chunk has a variable without a gradient, because chunks are launched with all their
  // gradients.
  for (const int v : variable_of_[optimizer]) {
    if (v < 0 || variables_[v].used) continue;
    for (const PartMemory& part : variables_[v].parts)
      std::fill(part.memory.begin(), part.memory.end(), 0.f);
  }
  std::vector<int> rest;
  for (const int c : chunks_of_[optimizer])
    if (chunks_[c].used && !chunks_[c].launched) rest.push_back(c);
  return rest;
}

bool DenseVariables::launched(int variable) const {
  const std::vector<int>& chunks = variables_[variable].chunks;
  return std::any_of(chunks.begin(), chunks.end(), [this](int c) { return chunks_[c].launched; });
}

std::vector<at::Tensor> DenseVariables::Written(int optimizer) const {
  std::vector<at::Tensor> written;
  for (const int v : variable_of_[optimizer]) {
    if (v < 0 || !variables_[v].used) continue;
    for (const PartMemory& part : variables_[v].parts) written.push_back(part.view);
  }
  return written;
}

}  // namespace muster
