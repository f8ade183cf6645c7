// Batch normalisation of a single example: over [batch, features] one example has no variance, and
// LibTorch refuses to normalise it. Whether a slice is that small depends on the number of replicas
// and comes at the end of an epoch, if at all; this finds it in the first step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/data/pipeline.h"
#include "muster/status.h"

namespace muster {

// Sees the batch normalisations of this thread while it lives. Another one may live within it.
class BatchNormWatch {
 public:
  BatchNormWatch();
  ~BatchNormWatch();
  BatchNormWatch(const BatchNormWatch&) = delete;
  BatchNormWatch& operator=(const BatchNormWatch&) = delete;
  // One in training mode had as many values per channel as the micro-batch has examples.
  bool needs_several_examples() const { return needs_several_examples_; }

  void Saw(bool one_value_each) {
    needs_several_examples_ |= one_value_each;
    if (outer_ != nullptr) outer_->Saw(one_value_each);
  }

 private:
  BatchNormWatch* const outer_;
  uint64_t handle_ = 0;
  bool needs_several_examples_ = false;
};

// "the last batch of an epoch, 5 examples for 4 replicas": a batch that leaves a replica with one
// example (in a micro-batch); "" where none of the first `total_steps` does.
std::string BatchWithSingleExample(const data::Sampler& sampler, int64_t total_steps,
                                   int num_replicas, int64_t micro_batches);

// Refuses such a batch.
absl::Status SingleExampleError(const std::string& batch);

// `status` of a step whose batch had so many damaged examples left out, which may be why a replica
// has a single one.
absl::Status NameLeftOut(const absl::Status& status, int64_t left_out);

// What to do about it, behind a sentence that says what is wrong.
inline constexpr char kSingleExampleMend[] =
    "set \"drop_remainder\": true or another global_batch_size, or normalise over all replicas "
    "(muster::SyncBatchNorm)";

}  // namespace muster
