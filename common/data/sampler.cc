#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "common/data/pipeline.h"

namespace muster::data {

Sampler::Sampler(int64_t size, int64_t global_batch_size, bool drop_remainder,
                 int64_t steps_per_epoch)
    : size_(size), batch_(global_batch_size) {
  if (size < 0 || global_batch_size <= 0 || steps_per_epoch < 0) {
    throw std::invalid_argument(
        fmt::format("a sampler needs a known size, a positive global batch size and no negative "
                    "number of steps, not {}, {} and {}",
                    size, global_batch_size, steps_per_epoch));
  }
  batches_ = size_ / batch_;
  examples_ = batches_ * batch_;
  if (!drop_remainder && examples_ < size_) {
    ++batches_;
    examples_ = size_;
  }
  if (steps_per_epoch > 0 && steps_per_epoch < batches_) {
    batches_ = steps_per_epoch;
    examples_ = batches_ * batch_;
  }
}

Sampler Sampler::FromShares(std::vector<int64_t> shares, int64_t global_batch_size,
                            bool drop_remainder, int64_t steps_per_epoch) {
  Sampler sampler(0, global_batch_size, drop_remainder, steps_per_epoch);
  const auto replicas = static_cast<int>(shares.size());
  int64_t longest = 0, shortest = std::numeric_limits<int64_t>::max();
  for (int r = 0; r < replicas; ++r) {
    const int64_t part = ReplicaSlice(0, global_batch_size, r, replicas).size();
    if (part == 0) continue;
    longest = std::max(longest, (shares[r] + part - 1) / part);
    shortest = std::min(shortest, shares[r] / part);
  }
  sampler.batches_ = drop_remainder ? shortest : longest;
  if (steps_per_epoch > 0) sampler.batches_ = std::min(sampler.batches_, steps_per_epoch);
  sampler.examples_ = sampler.size_ = sampler.batches_ * global_batch_size;
  sampler.shares_ = std::move(shares);
  return sampler;
}

Slice Sampler::Local(const Position& position, int replica, int num_replicas) const {
  if (shares_.empty())
    return ReplicaSlice(position.offset, BatchEnd(position), replica, num_replicas);
  const int64_t part = ReplicaSlice(0, batch_, replica, num_replicas).size();
  const int64_t begin = position.offset / batch_ * part, share = shares_[replica];
  return {std::min(begin, share), std::min(begin + part, share)};
}

int64_t Sampler::Examples(const Position& position) const {
  if (shares_.empty()) return BatchEnd(position) - position.offset;
  const auto replicas = static_cast<int>(shares_.size());
  int64_t examples = 0;
  for (int r = 0; r < replicas; ++r) examples += Local(position, r, replicas).size();
  return examples;
}

int64_t Sampler::batches_per_epoch() const { return batches_; }
int64_t Sampler::examples_per_epoch() const { return examples_; }

int64_t Sampler::BatchEnd(const Position& position) const {
  // Batches end at multiples of the batch size. A run with another batch size can leave a position
  // inside a batch. The rest of this batch is then a short batch.
  const int64_t begin = position.offset / batch_ * batch_;
  return examples_ - begin > batch_ ? begin + batch_ : examples_;
}

Position Sampler::Next(const Position& position) const {
  const int64_t end = BatchEnd(position);
  return end >= examples_ ? Position{position.epoch + 1, 0} : Position{position.epoch, end};
}

Slice ReplicaSlice(int64_t begin, int64_t end, int replica, int num_replicas) {
  const int64_t share = (end - begin) / num_replicas, extra = (end - begin) % num_replicas;
  const int64_t first = begin + replica * share + std::min<int64_t>(replica, extra);
  return {first, first + share + (replica < extra ? 1 : 0)};
}

}  // namespace muster::data
