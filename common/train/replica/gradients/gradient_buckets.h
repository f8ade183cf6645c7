// Receives the gradients of one optimizer from the backward pass, and all-reduces them over all
// replicas. A replica is one device's copy of the model, with its own thread. A bucket is a flat
// tensor with the gradients of several parameters. A bucket is all-reduced (SUM) as soon as it is
// complete, while the backward pass still runs.
//
// Parameters are in the buckets in reverse order of registration, which is roughly the order in
// which the backward pass computes their gradients. Every rank launches the buckets in the order of
// their indices. The last bucket is launched after the backward pass. A tail follows the last
// bucket, and is reduced with it. The tail has a flag for each parameter, which is 1 if this
// replica used the parameter. Each update of an optimizer has one reduction (gradient_sink.h). In
// the last reduction of a step, the tail also has the control data: numbers of the step, such as
// the loss.
//
// Used by the replica's thread, with one exception: autograd may call OnGradient from its own
// device thread during a backward pass. For CPU buckets, the communicator may allocate the memory.
// This saves a copy. Like its communicator, a GradientBuckets belongs to one generation (a period
// of training with fixed members).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/collective/communicator.h"
#include "common/train/replica/gradients/gradient_sink.h"

namespace muster {

struct BucketOptions {
  int64_t bytes = 25 << 20;  // The size at which a bucket is full.
  // The size of the first bucket. The first bucket is smaller, so that the first reduction starts
  // early.
  int64_t first_bytes = 1 << 20;
  int64_t control_capacity = 0;  // The maximum number of floats of control data.
  // If true, the gradients of a bucket are copied together when the bucket is complete. On a GPU,
  // this takes one kernel instead of one for each parameter. If false, each gradient is copied as
  // soon as it arrives. On the CPU, this is faster, because the gradient is still in the cache.
  bool copies_together = false;
};

class GradientBuckets final : public GradientSink {
 public:
  // `parameters` are autograd leaves on one device. Only parameters that require a gradient at
  // construction get a place in a bucket. If a program freezes or unfreezes parameters, a new
  // object is needed. The communicator must outlive this object.
  GradientBuckets(std::vector<at::Tensor> parameters, collective::Communicator* communicator,
                  const BucketOptions& options);
  ~GradientBuckets() override;

  // Begins a reduction (gradient_sink.h). During the backward pass of the last micro-batch, each
  // bucket except the last is launched when it is complete. EndBackward launches the rest of these
  // buckets, or all of them if `overlap` is false. LaunchAll launches the last bucket, with the
  // control data. Finish calls LaunchAll if LaunchAll was not called before.
  void Begin(const Reduction& reduction) override;
  void BeginBackward(bool last, bool overlap) override;
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
    at::ScalarType type;          // All gradients of a bucket have this type.
    std::vector<int> parameters;  // The indices of the parameters in this bucket.
    int64_t count = 0;            // Elements, with the padding of each parameter.
    int pending = 0;     // The number of parameters whose gradient is missing in this micro-batch.
    at::Tensor storage;  // [count + tail]
    // Gradients that are not copied yet, and the places in `storage` for these gradients.
    std::vector<at::Tensor> sources, targets;
    // Memory from the communicator. Null if `storage` has its own memory.
    std::shared_ptr<void> shared;
    collective::WorkPtr work;  // The all-reduce in progress, or null.
  };

  void BuildLayout(const BucketOptions& options);
  void Allocate(Bucket* bucket, int64_t tail);
  // Copies a gradient to its place in a bucket, or adds it to the values there.
  void Take(int index, const at::Tensor& gradient);
  static void CopyGradients(Bucket* bucket);
  void DropCopies();
  // Launches complete buckets in the order of their indices, until the first incomplete bucket.
  void LaunchComplete(bool all_but_last);
  absl::Status WaitAll();

  const std::vector<at::Tensor> parameters_;
  collective::Communicator* const communicator_;
  const int64_t control_capacity_;
  const bool copies_together_;
  std::vector<Bucket> buckets_;
  std::vector<int> bucket_of_;  // Indexed by parameter.
  // Indexed by parameter: a view of its place in a bucket, with the parameter's strides.
  std::vector<at::Tensor> views_;
  std::vector<at::Tensor> gradients_;  // The result of gradients().
  std::vector<bool> fired_;  // Indexed by parameter: true if it has a gradient in this micro-batch.
  std::vector<bool> used_;   // Indexed by parameter: true if it has a gradient since Begin.
  bool last_ = false;        // True in the last micro-batch.
  bool launching_ = false;   // True if a bucket is launched as soon as it is complete.
  // True if a parameter has ever received several gradients in one backward pass. From then on,
  // buckets are launched only after the backward pass.
  bool twice_ = false;
  bool all_launched_ = false;  // True if LaunchAll was called in this reduction.
  int64_t control_count_ = 0;  // Elements of control data after the last bucket.
  int next_launch_ = 0;        // The index of the next bucket to launch.
};

// Returns collective::TensorBuffer(tensor). Throws c10::Error if that fails.
collective::Buffer BufferOf(const at::Tensor& tensor);

}  // namespace muster
