// The gradients of one optimizer on one replica: views in a few flat buckets, all-reduced with SUM
// while backward still runs.
//
// Buckets hold the parameters in reverse order of registration, which is about the order in which
// backward finishes them, and are launched in index order on every rank. The last bucket is
// followed by a tail: one flag for each parameter (was it used by this replica?) and, at the end of
// a step, the step's control data, so that they cost no collective of their own.
//
// Used by its replica's thread, but for OnGradient, which autograd may call from its own device
// thread during a backward pass. Memory of the buckets comes from the communicator where that saves
// a copy; both belong to one generation.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/collective/communicator.h"

namespace muster {

struct BucketOptions {
  int64_t bytes = 25 << 20;
  int64_t first_bytes = 1 << 20;  // smaller, so that the first reduction starts early
  int64_t control_capacity = 0;   // floats of control data that fit behind the last bucket
};

class GradientBuckets {
 public:
  // `parameters` are leaves on one device. The communicator must outlive this object.
  GradientBuckets(std::vector<at::Tensor> parameters, Communicator* communicator,
                  const BucketOptions& options);
  ~GradientBuckets();

  // One step's (or, with several minimize calls, one call's) reduction:
  //   Begin, then for each micro-batch BeginBackward, OnGradient..., EndBackward, then Finish.
  void Begin();
  // `last`: no micro-batch follows, buckets may be launched as they become complete (all but the
  // last one).
  void BeginBackward(bool last);
  // The gradient of parameter `index` has been accumulated in its .grad: moves it into the bucket.
  void OnGradient(int index);
  void EndBackward();
  // Launches the last bucket, with `control` (1-D float32, may be empty) behind it, and waits for
  // all. On OK, `control` holds the sums over all replicas, and gradients() the global gradients.
  absl::Status Finish(at::Tensor* control);

  // By parameter; undefined for those that no replica used in this reduction.
  const std::vector<at::Tensor>& gradients() const { return gradients_; }
  // Launches nothing more, waits for what is under way and forgets it. For a step that is run again
  // or given up.
  void Cancel();

  int64_t control_capacity() const { return control_capacity_; }
  int num_buckets() const { return static_cast<int>(buckets_.size()); }

 private:
  struct Bucket {
    at::ScalarType type;
    std::vector<int> parameters;
    int64_t count = 0;   // elements, the padding of each parameter included
    int pending = 0;     // gradients of this micro-batch still to come
    at::Tensor storage;  // [count + tail]
    std::shared_ptr<void> shared;
    WorkPtr work;
  };

  void Lay(const BucketOptions& options);
  void Allocate(Bucket* bucket, int64_t tail);
  void LaunchComplete(bool all_but_last);
  absl::Status WaitAll();

  const std::vector<at::Tensor> parameters_;
  Communicator* const communicator_;
  const int64_t control_capacity_;
  std::vector<Bucket> buckets_;
  std::vector<int> bucket_of_;     // by parameter
  std::vector<at::Tensor> views_;  // by parameter, with the parameter's own strides
  std::vector<at::Tensor> gradients_;
  std::vector<bool> fired_;  // in this micro-batch
  std::vector<bool> used_;   // in any micro-batch since Begin
  bool launching_ = false;
  int next_launch_ = 0;
};

// TensorBuffer that throws c10::Error, for code at a step's edge.
Buffer BufferOf(const at::Tensor& tensor);

}  // namespace muster
