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
#include "common/train/gradient_sink.h"

namespace muster {

struct BucketOptions {
  int64_t bytes = 25 << 20;
  int64_t first_bytes = 1 << 20;  // smaller, so that the first reduction starts early
  int64_t control_capacity = 0;   // floats of control data that fit behind the last bucket
};

class GradientBuckets final : public GradientSink {
 public:
  // `parameters` are leaves on one device. Those that require no gradient now have no place in a
  // bucket: for others, make another one. The communicator must outlive this object.
  GradientBuckets(std::vector<at::Tensor> parameters, Communicator* communicator,
                  const BucketOptions& options);
  ~GradientBuckets() override;

  // Buckets are launched as they become complete (at EndBackward without overlap), all but the last
  // one: nothing that is launched here is final.
  void Begin(const Reduction& reduction) override;
  void BeginBackward(bool last, bool overlap = true) override;
  void OnGradient(int index) override;
  void EndBackward() override;
  void Scale(double factor) override;
  void LaunchAll(const at::Tensor& control) override;
  absl::Status Finish(at::Tensor* control) override;
  const std::vector<at::Tensor>& gradients() const override { return gradients_; }
  bool used(int index) const override { return gradients_[index].defined(); }
  double norm() const override;
  void Cancel() override;
  int64_t control_capacity() const override { return control_capacity_; }
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
  bool last_ = false;        // no micro-batch follows
  bool launching_ = false;   // what is complete goes at once
  bool twice_ = false;       // this program's passes give a parameter several gradients: nothing is
                             // complete before their end
  bool all_launched_ = false;
  int64_t control_count_ = 0;  // elements of control data behind the last bucket
  int next_launch_ = 0;
};

// TensorBuffer that throws c10::Error, for code at a step's edge.
Buffer BufferOf(const at::Tensor& tensor);

}  // namespace muster
