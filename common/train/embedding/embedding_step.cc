#include "common/train/embedding/embedding_step.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>

#include "common/base/prefetch.h"
#include "common/optim/update_kernels.h"
#include "common/push_pull/rows/row_spread.h"
#include "common/train/embedding/embedding_bags.h"

namespace muster {
namespace {

// Returns the size of one table's part in a replica's message: its keys, then its gradients. The
// message has the parts of all tables, one after another.
int64_t BytesOf(int64_t keys, int64_t width) {
  return keys * static_cast<int64_t>(sizeof(uint64_t) + width * sizeof(float));
}

// Returns the tensors `mine` of all ranks, [ranks][count].
at::Tensor GatherFromAll(const at::Tensor& mine, c10::Device device,
                         collective::Communicator* communicator) {
  const at::Tensor send = mine.to(device);
  const at::Tensor all = at::empty({communicator->size(), mine.numel()}, send.options());
  ThrowIfError(communicator->AllGather(BufferOf(send), BufferOf(all))->Wait());
  return all.to(at::kCPU);
}

}  // namespace

at::Tensor HostKeys(const Replica& replica, EmbeddingHandle table, const at::Tensor& keys,
                    const char* call) {
  const auto tables = static_cast<int>(replica.embeddings().size());
  if (table.index < 0 || table.index >= tables) {
    throw StatusError(ProgramError(
        fmt::format("{} was called with an embedding that build() did not declare", call)));
  }
  if (!keys.defined() || !at::isIntegralType(keys.scalar_type(), /*includeBool=*/false)) {
    throw StatusError(ProgramError(fmt::format(
        "{}(\"{}\") needs integer keys, and got {}", call, replica.embeddings()[table.index].name,
        keys.defined() ? c10::toString(keys.scalar_type()) : "an undefined tensor")));
  }
  return keys.detach().to(at::kCPU, at::kLong).contiguous();
}

// ---- LookedUpRows

LookedUpRows::LookedUpRows(Replica* replica)
    : replica_(replica), tables_(replica->embeddings().size()) {}

void LookedUpRows::Clear() {
  for (Table& table : tables_) table.index.Clear();
}

void LookedUpRows::Read(const std::vector<size_t>& known) {
  std::vector<RowRead> reads;
  for (size_t t = 0; t < tables_.size(); ++t) {
    const auto width = static_cast<size_t>(replica_->embeddings()[t].options.width);
    const std::span fresh = std::span(tables_[t].index.keys()).subspan(known[t]);
    if (fresh.empty()) continue;
    tables_[t].rows.resize((known[t] + fresh.size()) * width);
    reads.push_back(
        {static_cast<int>(t), fresh, std::span(tables_[t].rows).subspan(known[t] * width)});
  }
  if (!reads.empty()) ThrowIfError(replica_->embedding_store().Pull(reads));
}

std::vector<at::Tensor> LookedUpRows::Lookup(const std::vector<TableKeys>& wanted,
                                             std::vector<std::vector<uint32_t>>* numbers) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> hosts;
  for (const TableKeys& of : wanted)
    hosts.push_back(HostKeys(*replica_, of.table, of.keys, "lookup"));
  std::vector<size_t> known;
  for (const Table& table : tables_) known.push_back(table.index.keys().size());
  numbers->resize(wanted.size());
  for (size_t w = 0; w < wanted.size(); ++w)
    tables_[wanted[w].table.index].index.Add(KeysIn(hosts[w]), &(*numbers)[w]);
  Read(known);
  std::vector<at::Tensor> all;
  for (size_t w = 0; w < wanted.size(); ++w) {
    const int64_t width = replica_->embeddings()[wanted[w].table.index].options.width;
    const std::vector<float>& from = tables_[wanted[w].table.index].rows;
    const std::vector<uint32_t>& number = (*numbers)[w];
    std::vector<int64_t> shape = hosts[w].sizes().vec();
    shape.push_back(width);
    const at::Tensor rows = at::empty(shape, at::kFloat);
    float* to = rows.data_ptr<float>();
    for (size_t i = 0; i < number.size(); ++i, to += width) {
      if (i + kPrefetchDistance < number.size())
        __builtin_prefetch(from.data() + number[i + kPrefetchDistance] * width);
      push_pull::CopyRow(from.data() + number[i] * width, width, to);
    }
    all.push_back(rows.to(replica_->device()));
  }
  return all;
}

std::vector<at::Tensor> ReadOnlyRows::Lookup(const std::vector<TableBags>& bags) {
  return LookupBags(*replica_, bags,
                    [this](const std::vector<TableKeys>& keys) { return Lookup(keys); });
}

// ---- EmbeddingStep

EmbeddingStep::EmbeddingStep(Replica* replica, collective::Communicator* communicator)
    : replica_(replica),
      communicator_(communicator),
      rows_(replica),
      gradients_(replica->embeddings().size()) {
  for (const NamedEmbedding& table : replica->embeddings())
    summed_.emplace_back(table.options.width);
}

void EmbeddingStep::Begin() {
  rows_.Clear();
  leaves_.clear();
  for (Gradients& gradients : gradients_) {
    gradients.sums.clear();
    gradients.touched.clear();
  }
  for (push_pull::KeySums& sums : summed_) sums.Clear();
}

std::vector<at::Tensor> EmbeddingStep::Lookup(const std::vector<TableKeys>& wanted) {
  std::vector<std::vector<uint32_t>> numbers;
  std::vector<at::Tensor> all = rows_.Lookup(wanted, &numbers);
  for (size_t w = 0; w < wanted.size(); ++w) {
    all[w].set_requires_grad(true);
    leaves_.push_back({wanted[w].table.index, all[w], std::move(numbers[w])});
  }
  return all;
}

std::vector<at::Tensor> EmbeddingStep::Lookup(const std::vector<TableBags>& bags) {
  return LookupBags(*replica_, bags,
                    [this](const std::vector<TableKeys>& keys) { return Lookup(keys); });
}

void EmbeddingStep::AddLeaves(std::vector<at::Tensor>* inputs) const {
  for (const Leaf& leaf : leaves_) inputs->push_back(leaf.rows);
}

void EmbeddingStep::Collect() {
  const at::NoGradGuard no_grad;
  for (Leaf& leaf : leaves_) {
    const at::Tensor gradient = leaf.rows.grad();
    if (!gradient.defined()) continue;  // The loss does not depend on these rows.
    leaf.rows.mutable_grad().reset();
    const at::Tensor host = gradient.to(at::kCPU, at::kFloat).contiguous();
    const float* from = host.const_data_ptr<float>();
    const auto width = static_cast<size_t>(replica_->embeddings()[leaf.table].options.width);
    Gradients& into = gradients_[leaf.table];
    into.sums.resize(rows_.keys(leaf.table).size() * width);
    into.touched.resize(rows_.keys(leaf.table).size());
    for (size_t i = 0; i < leaf.numbers.size(); ++i) {
      float* __restrict sum = into.sums.data() + leaf.numbers[i] * width;
      const float* __restrict one = from + i * width;
      for (size_t j = 0; j < width; ++j) sum[j] += one[j];
      into.touched[leaf.numbers[i]] = true;
    }
  }
}

void EmbeddingStep::Scale(double factor) {
  for (Gradients& gradients : gradients_)
    for (float& value : gradients.sums) value = static_cast<float>(value * factor);
}

// Returns the keys with a gradient, and their gradients.
void EmbeddingStep::Compact(int table, std::vector<uint64_t>* keys,
                            std::vector<float>* sums) const {
  const auto width = static_cast<size_t>(replica_->embeddings()[table].options.width);
  const Gradients& gradients = gradients_[table];
  for (size_t i = 0; i < gradients.touched.size(); ++i) {
    if (!gradients.touched[i]) continue;
    keys->push_back(rows_.keys(table)[i]);
    sums->insert(sums->end(), gradients.sums.begin() + static_cast<int64_t>(i * width),
                 gradients.sums.begin() + static_cast<int64_t>((i + 1) * width));
  }
}

absl::Status EmbeddingStep::Exchange() {
  const auto tables = static_cast<int>(summed_.size());
  if (tables == 0) return absl::OkStatus();
  std::vector<std::vector<uint64_t>> keys(tables);
  std::vector<std::vector<float>> sums(tables);
  for (int t = 0; t < tables; ++t) Compact(t, &keys[t], &sums[t]);
  if (communicator_->size() == 1) {
    for (int t = 0; t < tables; ++t) summed_[t].Add(keys[t], sums[t].data());
    return absl::OkStatus();
  }
  return CatchProgramErrors("exchanging the gradients of rows", [&] {
    const at::NoGradGuard no_grad;
    at::Tensor counts = at::empty({tables}, at::kLong);
    for (int t = 0; t < tables; ++t)
      counts.data_ptr<int64_t>()[t] = static_cast<int64_t>(keys[t].size());
    const at::Tensor all_counts = GatherFromAll(counts, replica_->device(), communicator_);
    const int64_t* count = all_counts.const_data_ptr<int64_t>();  // [ranks][tables]
    int64_t most = 0;
    for (int r = 0; r < communicator_->size(); ++r) {
      int64_t bytes = 0;
      for (int t = 0; t < tables; ++t) bytes += BytesOf(count[r * tables + t], summed_[t].width());
      most = std::max(most, bytes);
    }
    if (most == 0) return;
    const int64_t padded = (most + 7) / 8;  // In units of 8 bytes, which aligns keys.
    at::Tensor mine = at::zeros({padded}, at::kLong);
    char* to = static_cast<char*>(mine.mutable_data_ptr());
    for (int t = 0; t < tables; ++t) {
      to = std::copy_n(reinterpret_cast<const char*>(keys[t].data()), keys[t].size() * 8, to);
      to = std::copy_n(reinterpret_cast<const char*>(sums[t].data()), sums[t].size() * 4, to);
    }
    const at::Tensor all = GatherFromAll(mine, replica_->device(), communicator_);
    for (int r = 0; r < communicator_->size(); ++r) {
      const char* from = static_cast<const char*>(all.const_data_ptr()) + r * padded * 8;
      for (int t = 0; t < tables; ++t) {
        const auto n = static_cast<size_t>(count[r * tables + t]);
        keys[t].resize(n);
        sums[t].resize(n * static_cast<size_t>(summed_[t].width()));
        std::copy_n(from, n * 8, reinterpret_cast<char*>(keys[t].data()));
        from += n * 8;
        std::copy_n(from, sums[t].size() * 4, reinterpret_cast<char*>(sums[t].data()));
        from += sums[t].size() * 4;
        summed_[t].Add(keys[t], sums[t].data());
      }
    }
  });
}

bool EmbeddingStep::IsFinite() const {
  return std::all_of(gradients_.begin(), gradients_.end(),
                     [](const Gradients& of_table) { return AllFinite(of_table.sums); });
}

bool EmbeddingStep::Unscale(const LossScaler& scaler) {
  std::vector<at::Tensor> all;
  for (push_pull::KeySums& sums : summed_) {
    if (!sums.sums().empty())
      all.push_back(at::from_blob(sums.sums().data(), {static_cast<int64_t>(sums.sums().size())}));
  }
  return scaler.Unscale(all);
}

absl::Status EmbeddingStep::Push(int64_t steps_done) {
  if (summed_.empty()) return absl::OkStatus();
  std::vector<RowGradients> all;
  for (size_t t = 0; t < summed_.size(); ++t) {
    all.push_back(
        {summed_[t].keys(), summed_[t].sums(), replica_->embeddings()[t].schedule->At(steps_done)});
  }
  return replica_->embedding_store().Push(steps_done + 1, all);
}

}  // namespace muster
