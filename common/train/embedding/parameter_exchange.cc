#include "common/train/embedding/parameter_exchange.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "common/optim/optimizer.h"
#include "common/optim/update_kernels.h"
#include "common/train/embedding/pushed_gradients.h"

namespace muster {
namespace {

at::Tensor BytesOf(const at::Tensor& tensor) {
  return tensor.detach().contiguous().reshape({-1}).view(at::kByte);
}

bool Clips(const ClipOptions& clip) {
  return clip.clipvalue > 0 || clip.clipnorm > 0 || clip.global_clipnorm > 0;
}

at::Tensor HostCopy(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           at::TensorOptions().dtype(at::kFloat).pinned_memory(true));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterExchange>> ParameterExchange::Make(
    const Replica& replica, const Job& job, ServedVariables served, push_pull::Layout layout) {
  std::unique_ptr<ParameterExchange> exchange(
      new ParameterExchange(std::move(layout), std::move(served)));
  for (const NamedOptimizer& optimizer : replica.optimizers()) {
    MUSTER_ASSIGN_OR_RETURN(const OptimizerSpec spec, ParseOptimizer(optimizer.spec));
    exchange->clips_.push_back(spec.clip);
  }
  exchange->whole_ = job.precision == Precision::kFloat16;
  exchange->BuildLayout(replica);
  return exchange;
}

bool ParameterExchange::clips(int optimizer) const { return Clips(clips_[optimizer]); }

void ParameterExchange::BuildLayout(const Replica& replica) {
  chunks_of_.resize(replica.optimizers().size());
  learning_rates_.assign(served_.optimizers.size(), 1.0);
  const std::vector<std::vector<int>> by_server = AddChunks();
  const VariablesByMemory by_memory = AddVariables();
  MarkBuffers(replica, by_memory);
  FindParameters(replica, by_memory);
  for (const push_pull::VariablePart& part : layout_.parts)
    if (part.elements() > 0) AddPart(part, by_server[part.server]);
}

std::vector<std::vector<int>> ParameterExchange::AddChunks() {
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

ParameterExchange::VariablesByMemory ParameterExchange::AddVariables() {
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

void ParameterExchange::MarkBuffers(const Replica& replica, const VariablesByMemory& by_memory) {
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

void ParameterExchange::FindParameters(const Replica& replica, const VariablesByMemory& by_memory) {
  for (const NamedOptimizer& optimizer : replica.optimizers()) {
    std::vector<int>& of = variable_of_.emplace_back();
    for (const at::Tensor& parameter : optimizer.rule->parameters()) {
      const auto found = by_memory.find(parameter.data_ptr());
      of.push_back(found == by_memory.end() ? -1 : found->second);
    }
    parameters_of_.push_back(optimizer.rule->parameters());
  }
}

void ParameterExchange::AddPart(const push_pull::VariablePart& part,
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

std::vector<std::vector<std::span<float>>> ParameterExchange::parameters() const {
  std::vector<at::Tensor> hosts;
  for (const Variable& variable : variables_) hosts.push_back(variable.host);
  return ShardSpans(layout_, served_.specs, hosts);
}

void ParameterExchange::UseClient(push_pull::PushPullClient* client) {
  rows_.UseClient(client);
  client_ = client;
  open_ = false;
  if (client == nullptr) return;
  std::vector<size_t> next(variables_.size());
  for (const push_pull::VariablePart& place : layout_.parts) {
    if (place.elements() == 0) continue;
    Variable& variable = variables_[place.variable];
    Part& part = variable.parts[next[place.variable]++];
    part.memory = client->gradients(place.server).subspan(place.offset, place.elements());
    std::fill(part.memory.begin(), part.memory.end(), 0.f);
    const at::Tensor like = variable.tensor.dim() == 0
                                ? variable.tensor
                                : variable.tensor.narrow(0, part.first_row, part.rows);
    part.view = at::from_blob(part.memory.data(), like.sizes(), like.strides(), at::kFloat);
  }
}

std::vector<std::unique_ptr<GradientSink>> ParameterExchange::MakeSinks() {
  std::vector<std::unique_ptr<GradientSink>> sinks;
  for (size_t o = 0; o < variable_of_.size(); ++o)
    sinks.push_back(std::make_unique<PushedGradients>(this, static_cast<int>(o)));
  return sinks;
}

absl::Status ParameterExchange::Pull() {
  MUSTER_RETURN_IF_ERROR(CheckSameBuffers());
  MUSTER_RETURN_IF_ERROR(Waiting([this] { return client_->Pull(); }));
  CopyToDevice(/*rest=*/true);
  for (Variable& variable : variables_)
    if (variable.same) {
      if (!variable.before.defined()) variable.before = at::empty_like(variable.tensor);
      variable.before.copy_(variable.tensor);
    }
  return absl::OkStatus();
}

absl::Status ParameterExchange::Pull(std::span<const RowRead> reads) {
  return Waiting([&]() -> absl::Status {
    if (open_)
      return ProgramError(
          "lookup was called after minimize() in a step: with parameter servers its gradients are "
          "on their way by then; look everything up first");
    return rows_.Pull(reads);
  });
}

absl::Status ParameterExchange::Push(int64_t, std::span<const RowGradients> tables) {
  const bool pushed = rows_.Push(tables, learning_rates_, [this] { Open(); });
  return pushed ? Wait() : absl::OkStatus();
}

absl::Status ChangedSameBuffer(const std::string& name) {
  return ProgramError(fmt::format(
      "buffer \"{}\" is declared kSame, and the program has changed it: parameter servers do not "
      "carry what a worker makes of it to the others; declare it kMean, or keep it in integers",
      name));
}

absl::Status ParameterExchange::CheckSameBuffers() const {
  for (size_t v = 0; v < variables_.size(); ++v) {
    const Variable& variable = variables_[v];
    if (!variable.same || !variable.before.defined()) continue;
    // Compares bits, so that a NaN equals itself.
    if (at::equal(BytesOf(variable.tensor), BytesOf(variable.before))) continue;
    return ChangedSameBuffer(served_.specs[v].name);
  }
  return absl::OkStatus();
}

void ParameterExchange::CopyToDevice(bool rest) {
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

void ParameterExchange::BeginStep(double weight, std::shared_ptr<PrefetchedRows> rows,
                                  int64_t lease) {
  const at::NoGradGuard no_grad;
  rows_.BeginStep(std::move(rows));
  weight_ = weight;
  outcome_ = {};
  not_finite_.clear();
  pushes_ = 0;
  rest_done_ = false;
  refused_ = CheckSameBuffers();
  lease_ = lease;
  learning_rates_[served_.rest()] = weight;
  for (ChunkPlace& place : chunks_) place.fresh = false;
  for (Variable& variable : variables_)
    if (variable.buffer) variable.before.copy_(variable.tensor);
}

absl::Status ParameterExchange::FinishStep() {
  rows_.FinishStep();
  if (rest_done_) return absl::OkStatus();
  LaunchRest();
  return Wait();
}

void ParameterExchange::Write(int variable, const at::Tensor& gradient, bool add) {
  for (const Part& part : variables_[variable].parts) {
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

void ParameterExchange::Clear(int variable) {
  for (const Part& part : variables_[variable].parts)
    std::fill(part.memory.begin(), part.memory.end(), 0.f);
}

void ParameterExchange::Open() {
  if (open_) return;
  open_ = true;
  if (pushes_ == 0) push_began_ = Clock::now();
  client_->Begin(++sequence_, lease_, learning_rates_);
}

void ParameterExchange::Launch(int chunk, What what) {
  Open();
  chunks_[chunk].launched = chunks_[chunk].fresh = true;
  client_->Launch(chunks_[chunk].chunk.server, chunks_[chunk].index, what);
}

bool ParameterExchange::WriteDifference(Variable& variable) {
  const at::Tensor after = variable.tensor.to(at::kCPU), before = variable.before.to(at::kCPU);
  const float* a = after.const_data_ptr<float>();
  const float* b = before.const_data_ptr<float>();
  const auto not_negative = [](float x) { return x >= 0; };
  const int64_t count = after.numel();
  variable.floor =
      std::all_of(a, a + count, not_negative) && std::all_of(b, b + count, not_negative);
  const bool none = std::memcmp(a, b, after.nbytes()) == 0 || weight_ == 0;
  // The difference of an unchanged value is 0, even for an infinity.
  const auto same = [](const float& x, const float& y) {
    return std::memcmp(&x, &y, sizeof x) == 0;
  };
  for (const Part& part : variable.parts)
    for (size_t i = 0; i < part.memory.size(); ++i) {
      const float& from = b[part.begin + i];
      const float& to = a[part.begin + i];
      part.memory[i] = none || same(from, to) ? 0.f : from - to;
    }
  return !none;
}

void ParameterExchange::LaunchRest() {
  rest_done_ = true;
  // Checks before the launches below overwrite the buffers with the servers' values.
  if (refused_.ok()) refused_ = CheckSameBuffers();
  for (const int c : rest_) chunks_[c].used = false;
  for (Variable& variable : variables_) {
    if (!variable.buffer || variable.parts.empty()) continue;
    if (!WriteDifference(variable)) continue;
    for (const int c : variable.chunks) chunks_[c].used = true;
  }
  for (const int c : rest_) {
    const ChunkPlace& place = chunks_[c];
    const bool floor = std::all_of(place.variables.begin(), place.variables.end(),
                                   [this](int v) { return variables_[v].floor; });
    if (place.used) {
      Launch(c, floor ? What::kDifference : What::kGradient);
    } else if (place.buffers) {
      Launch(c, What::kNothing);
    }
  }
  // Pulls the chunks that this step does not push, because other workers may have changed them.
  for (const std::vector<int>& of_optimizer : chunks_of_)
    for (const int c : of_optimizer)
      if (!chunks_[c].fresh) Launch(c, What::kNothing);
}

absl::Status ParameterExchange::Wait() {
  if (!open_) return refused_;
  open_ = false;
  auto outcome = Waiting([this] { return client_->Finish(); });
  MUSTER_RETURN_IF_ERROR(outcome.status());
  const double before = outcome_.staleness_mean * static_cast<double>(pushes_);
  ++pushes_;
  outcome_.staleness_max = std::max(outcome_.staleness_max, outcome->staleness_max);
  outcome_.staleness_mean = (before + outcome->staleness_mean) / static_cast<double>(pushes_);
  outcome_.bytes += outcome->bytes;
  outcome_.resumed += outcome->resumed;
  outcome_.views.resize(outcome->views.size());
  for (size_t shard = 0; shard < outcome->views.size(); ++shard) {
    const uint64_t view = outcome->views[shard];
    uint64_t& oldest = outcome_.views[shard];
    if (view != 0) oldest = oldest == 0 ? view : std::min(oldest, view);
  }
  NoteRefused(outcome->refused);
  // The last push of the step has the changes of buffers.
  CopyToDevice(rest_done_);
  return refused_;
}

// Called while the gradients are still in the memory from which they were pushed.
void ParameterExchange::NoteRefused(const std::set<std::pair<int, int>>& chunks) {
  for (const auto& [shard, index] : chunks) {
    const push_pull::Chunk& chunk = layout_.chunks[shard][index];
    if (chunk.rows()) not_finite_.insert(served_.specs[chunk.table].name);
  }
  for (const ChunkPlace& place : chunks_) {
    if (place.chunk.rows() || !chunks.contains({place.chunk.server, place.index})) continue;
    for (const int v : place.variables)
      for (const Part& part : variables_[v].parts)
        if (!AllFinite(part.memory)) not_finite_.insert(served_.specs[v].name);
  }
}

}  // namespace muster
