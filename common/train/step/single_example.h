// Detects in the first step whether batch normalisation will fail later for a single example. Batch
// normalisation over [batch, features] has no variance if the batch has one example, and LibTorch
// then throws. Often, a replica has such a small slice only in the last batch of an epoch. Without
// this check, such a run would fail late. A replica is one device's copy of the model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/data/pipeline.h"
#include "muster/status.h"

namespace muster {

// During its lifetime, a BatchNormWatch observes the batch normalisations of the thread that made
// it. Objects may be nested.
class BatchNormWatch {
 public:
  BatchNormWatch();
  ~BatchNormWatch();
  BatchNormWatch(const BatchNormWatch&) = delete;
  BatchNormWatch& operator=(const BatchNormWatch&) = delete;
  // Returns true if a batch normalisation in training mode had exactly one value per channel for
  // each example of the micro-batch. Such a normalisation fails for a single example.
  bool needs_several_examples() const { return needs_several_examples_; }

  // Called for each batch normalisation. `one_value_each` is the condition of
  // needs_several_examples.
  void Saw(bool one_value_each) {
    needs_several_examples_ |= one_value_each;
    if (outer_ != nullptr) outer_->Saw(one_value_each);
  }

 private:
  BatchNormWatch* const outer_;
  uint64_t handle_ = 0;
  bool needs_several_examples_ = false;
};

// Looks for a batch of the first `total_steps` steps in which a replica has a micro-batch of one
// example. Returns a description of the batch, such as "the last batch of an epoch, 5 examples for
// 4 replicas". Returns "" if there is none.
std::string BatchWithSingleExample(const data::Sampler& sampler, int64_t total_steps,
                                   int num_replicas, int64_t micro_batches);

// Returns the error for a batch that BatchWithSingleExample describes.
absl::Status SingleExampleError(const std::string& batch);

// If `status` is an error about a single example, adds to its message how many damaged examples
// were left out of the batch. They may be the reason why the batch is small. Returns any other
// status unchanged.
absl::Status NameLeftOut(const absl::Status& status, int64_t left_out);

// The end of each error message about a single example. It says how to avoid the problem.
inline constexpr char kSingleExampleFix[] =
    "set \"drop_remainder\": true or another global_batch_size, or normalise over all replicas "
    "(muster::SyncBatchNorm)";

}  // namespace muster
