#include "common/train/embedding/embedding_store.h"

#include <cstring>
#include <random>

namespace muster {
namespace {

uint64_t Random64() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace

LocalEmbeddings::LocalEmbeddings(std::vector<push_pull::EmbeddingTable::Options> options)
    : options_(std::move(options)), identity_(Random64()), tables_(options_.size()) {
  for (int i = 0; i < size(); ++i) Reset(i);
}

absl::Status LocalEmbeddings::Pull(std::span<const RowRead> reads) {
  for (const RowRead& read : reads)
    MUSTER_RETURN_IF_ERROR(tables_[read.table]->Peek(read.keys, read.rows));
  return absl::OkStatus();
}

absl::Status LocalEmbeddings::Push(int64_t step, std::span<const RowGradients> tables) {
  absl::MutexLock lock(&mutex_);
  if (step <= step_) return absl::OkStatus();
  for (size_t i = 0; i < tables.size(); ++i) {
    if (tables[i].keys.empty()) continue;
    MUSTER_RETURN_IF_ERROR(
        tables_[i]->Push(tables[i].keys, tables[i].gradients, tables[i].learning_rate));
  }
  step_ = step;
  return absl::OkStatus();
}

void LocalEmbeddings::Reset(int index) {
  tables_[index] = push_pull::EmbeddingTable::Make(options_[index]);
}

void LocalEmbeddings::set_step(int64_t step) {
  absl::MutexLock lock(&mutex_);
  step_ = step;
}

uint64_t LocalEmbeddings::Digest() const {
  uint64_t digest = 0;
  for (const auto& table : tables_) {
    uint64_t sum = static_cast<uint64_t>(table->updates());
    for (const uint64_t number : table->Counted()) sum = (sum ^ number) * 1099511628211ull;
    table->Export([&sum](uint64_t key, std::span<const float> row) {
      uint64_t hash = key * 0x9e3779b97f4a7c15 + 1;
      for (const float value : row) {
        uint32_t bits;
        std::memcpy(&bits, &value, sizeof(bits));
        hash = (hash ^ bits) * 1099511628211ull;
        hash ^= hash >> 29;
      }
      sum += hash;
    });
    digest = digest * 31 + sum;
  }
  return digest;
}

}  // namespace muster
