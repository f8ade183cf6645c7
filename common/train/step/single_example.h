// Detects batch normalisation of a single example, in the first step. If a replica's slice of a
// batch has one example, batch normalisation over [batch, features] has no variance, and LibTorch
// throws. The slice may be that small only in the last batch of an epoch, so without this check a
// run would fail late.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/data/pipeline.h"
#include "muster/status.h"

namespace muster {

// While an object exists, it observes the batch normalisations of the thread that made it. Objects
// may be nested.
class BatchNormWatch {
 public:
  BatchNormWatch();
  ~BatchNormWatch();
  BatchNormWatch(const BatchNormWatch&) = delete;
  BatchNormWatch& operator=(const BatchNormWatch&) = delete;
  // Returns true if a batch normalisation in training mode had one value per channel for each
  // example of the micro-batch. Such a normalisation fails for a single example.
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

// Returns a description of a batch in which a replica has a micro-batch of one example: "the last
// batch of an epoch, 5 examples for 4 replicas". Returns "" if the first `total_steps` steps have
// no such batch.
std::string BatchWithSingleExample(const data::Sampler& sampler, int64_t total_steps,
                                   int num_replicas, int64_t micro_batches);

// Returns the error for a batch that BatchWithSingleExample describes.
absl::Status SingleExampleError(const std::string& batch);

// If `status` is the error about a single example, adds how many damaged examples were dropped from
// the step's batch. They may be the reason. Returns any other status unchanged.
absl::Status NameLeftOut(const absl::Status& status, int64_t left_out);

// The end of an error message about a single example. It says how to avoid the problem.
inline constexpr char kSingleExampleFix[] =
    "set \"drop_remainder\": true or another global_batch_size, or normalise over all replicas "
    "(muster::SyncBatchNorm)";

}  // namespace muster
