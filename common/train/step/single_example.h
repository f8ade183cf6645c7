// Detects batch normalisation of a single example. Over [batch, features] one example has no
// variance, and LibTorch refuses to normalise it. Whether a replica's slice is that small depends
// on the number of replicas. The error might occur only at the end of an epoch. This code finds it
// in the first step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/data/pipeline.h"
#include "muster/status.h"

namespace muster {

// Observes the batch normalisations of this thread while it exists. May be nested.
class BatchNormWatch {
 public:
  BatchNormWatch();
  ~BatchNormWatch();
  BatchNormWatch(const BatchNormWatch&) = delete;
  BatchNormWatch& operator=(const BatchNormWatch&) = delete;
  // Returns whether a batch normalisation in training mode had as many values per channel as the
  // micro-batch has examples.
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

// Returns a description of the first batch that leaves a replica with one example in a micro-batch:
// "the last batch of an epoch, 5 examples for 4 replicas". Returns "" if none of the first
// `total_steps` does.
std::string BatchWithSingleExample(const data::Sampler& sampler, int64_t total_steps,
                                   int num_replicas, int64_t micro_batches);

// Returns the error for such a batch.
absl::Status SingleExampleError(const std::string& batch);

// Adds to `status` how many damaged examples were dropped from the step's batch. They may be the
// reason that a replica has a single example.
absl::Status NameLeftOut(const absl::Status& status, int64_t left_out);

// The fix, as the end of a message that names the problem.
inline constexpr char kSingleExampleMend[] =
    "set \"drop_remainder\": true or another global_batch_size, or normalise over all replicas "
    "(muster::SyncBatchNorm)";

}  // namespace muster
