// The gradient sink of all-reduce training. It holds the gradients of one optimizer of a replica in
// a few flat buckets. Buckets are all-reduced with SUM while the backward pass still runs.
//
// Buckets have the parameters in reverse order of registration, which is roughly the order in which
// the backward pass computes their gradients. Every rank launches the buckets in index order. The
// last bucket is followed by a tail, which is reduced with it. The tail has one flag for each
// parameter: 1 if this replica used the parameter. At the end of a step, it also has the step's
// control data.
//
// Used by the replica's thread, except OnGradient, which autograd may call from its own device
// thread during a backward pass. The communicator allocates the memory of CPU buckets if that saves
// a copy. Buckets and communicator belong to one generation.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/collective/communicator.h"
#include "common/train/replica/gradient_sink.h"

namespace muster {

struct BucketOptions {
  int64_t bytes = 25 << 20;
  // Size of the first bucket. It is smaller, so that the first reduction starts early.
  int64_t first_bytes = 1 << 20;
  int64_t control_capacity = 0;  // Maximum number of floats of control data.
  // Copies the gradients of a bucket together when it is complete: on a GPU, with one kernel
  // instead of one for each parameter. On the CPU, a gradient is better copied at once, while it is
  // cached.
  bool copies_together = false;
};

class GradientBuckets final : public GradientSink {
 public:
  // `parameters` are leaves on one device. Only those that require a gradient at this time get a
  // place in a bucket. If that changes, a new object is needed. The communicator must outlive this
  // object.
  GradientBuckets(std::vector<at::Tensor> parameters, collective::Communicator* communicator,
                  const BucketOptions& options);
  ~GradientBuckets() override;

  // Begins a reduction. Each bucket except the last is launched when it is complete, or in
  // EndBackward if there is no overlap. LaunchAll or Finish launches the last bucket with the
  // control data.
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
    int64_t count = 0;   // Elements, with the padding of each parameter.
    int pending = 0;     // Missing gradients of this micro-batch.
    at::Tensor storage;  // [count + tail]
    // Gradients that are not copied yet, and the views for them.
    std::vector<at::Tensor> sources, targets;
    std::shared_ptr<void> shared;
    collective::WorkPtr work;
  };

  void BuildLayout(const BucketOptions& options);
  void Allocate(Bucket* bucket, int64_t tail);
  void Take(int index, const at::Tensor& gradient);
  static void CopyGradients(Bucket* bucket);
  void DropCopies();
  void LaunchComplete(bool all_but_last);
  absl::Status WaitAll();

  const std::vector<at::Tensor> parameters_;
  collective::Communicator* const communicator_;
  const int64_t control_capacity_;
  const bool copies_together_;
  std::vector<Bucket> buckets_;
  std::vector<int> bucket_of_;     // Indexed by parameter.
  std::vector<at::Tensor> views_;  // Indexed by parameter. Each view has the parameter's strides.
  std::vector<at::Tensor> gradients_;
  std::vector<bool> fired_;  // Indexed by parameter: true if it has a gradient in this micro-batch.
  std::vector<bool> used_;   // Indexed by parameter: true if it has a gradient since Begin.
  bool last_ = false;        // True in the last micro-batch.
  bool launching_ = false;   // True if complete buckets are launched at once.
  // True if a parameter has received several gradients in one backward pass. Buckets are then
  // launched only at the end of a pass.
  bool twice_ = false;
  bool all_launched_ = false;
  int64_t control_count_ = 0;  // Elements of control data after the last bucket.
  int next_launch_ = 0;
};

// Returns TensorBuffer(tensor). Throws c10::Error if that fails.
collective::Buffer BufferOf(const at::Tensor& tensor);

}  // namespace muster
