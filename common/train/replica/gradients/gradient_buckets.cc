#include "common/train/replica/gradients/gradient_buckets.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "common/collective/tensor.h"
#include "common/flight/spans.h"
#include "common/optim/optimizer.h"
#include "common/train/replica/devices/devices.h"

namespace muster {
namespace {

// Each parameter starts on a cache line, for vector instructions.
constexpr int64_t kAlignment = 16;
int64_t Padded(int64_t count) { return (count + kAlignment - 1) / kAlignment * kAlignment; }

at::Tensor ViewFor(const at::Tensor& parameter, const at::Tensor& storage, int64_t offset) {
  // The view has the parameter's strides (for example channels_last), so that the optimizer
  // processes both in memory order.
  if (parameter.is_non_overlapping_and_dense()) {
    return storage.as_strided(parameter.sizes(), parameter.strides(),
                              storage.storage_offset() + offset);
  }
  return storage.narrow(0, offset, parameter.numel()).view(parameter.sizes());
}

}  // namespace

collective::Buffer BufferOf(const at::Tensor& tensor) {
  const auto buffer = collective::TensorBuffer(tensor);
  TORCH_CHECK(buffer.ok(), std::string(Message(buffer.status())));
  return *buffer;
}

GradientBuckets::GradientBuckets(std::vector<at::Tensor> parameters,
                                 collective::Communicator* communicator,
                                 const BucketOptions& options)
    : parameters_(std::move(parameters)),
      communicator_(communicator),
      control_capacity_(options.control_capacity),
      copies_together_(options.copies_together),
      bucket_of_(parameters_.size()),
      views_(parameters_.size()),
      gradients_(parameters_.size()),
      fired_(parameters_.size()),
      used_(parameters_.size()) {
  BuildLayout(options);
}

GradientBuckets::~GradientBuckets() { Cancel(); }

void GradientBuckets::BuildLayout(const BucketOptions& options) {
  // A bucket has parameters of one type. float32 is last, because the tail of the last bucket is
  // float32.
  std::vector<at::ScalarType> types;
  for (const at::Tensor& p : parameters_) {
    if (std::find(types.begin(), types.end(), p.scalar_type()) == types.end())
      types.push_back(p.scalar_type());
  }
  std::stable_partition(types.begin(), types.end(),
                        [](at::ScalarType t) { return t != at::kFloat; });
  for (at::ScalarType type : types) {
    bool open = false;
    for (int i = static_cast<int>(parameters_.size()) - 1; i >= 0; --i) {
      const at::Tensor& p = parameters_[i];
      if (p.scalar_type() != type || !p.requires_grad()) continue;
      if (!open) buckets_.push_back({type, {}});
      Bucket& bucket = buckets_.back();
      bucket.parameters.push_back(i);
      bucket.count += Padded(p.numel());
      bucket_of_[i] = static_cast<int>(buckets_.size()) - 1;
      const int64_t limit = buckets_.size() == 1 ? options.first_bytes : options.bytes;
      open = bucket.count * p.element_size() < limit;
    }
  }
  if (buckets_.empty() || buckets_.back().type != at::kFloat) buckets_.push_back({at::kFloat, {}});
  for (Bucket& bucket : buckets_) {
    const bool last = &bucket == &buckets_.back();
    Allocate(&bucket, last ? static_cast<int64_t>(parameters_.size()) + control_capacity_ : 0);
  }
}

void GradientBuckets::Allocate(Bucket* bucket, int64_t tail) {
  const at::Device device = parameters_.empty() ? at::Device(at::kCPU) : parameters_[0].device();
  const auto options = at::TensorOptions().dtype(bucket->type).device(device);
  const int64_t count = bucket->count + tail;
  const int64_t bytes = count * static_cast<int64_t>(c10::elementSize(bucket->type));
  if (device.is_cpu()) bucket->shared = communicator_->AllocateReducible(bytes);
  bucket->storage = bucket->shared ? at::from_blob(bucket->shared.get(), {count}, options).zero_()
                                   : at::zeros({count}, options);
  int64_t offset = 0;
  for (int i : bucket->parameters) {
    views_[i] = ViewFor(parameters_[i], bucket->storage, offset);
    offset += Padded(parameters_[i].numel());
  }
}

void GradientBuckets::Begin(const Reduction&) {
  DropCopies();
  std::fill(used_.begin(), used_.end(), false);
  next_launch_ = 0;
  all_launched_ = false;
}

void GradientBuckets::BeginBackward(bool last, bool overlap) {
  std::fill(fired_.begin(), fired_.end(), false);
  for (Bucket& bucket : buckets_) bucket.pending = static_cast<int>(bucket.parameters.size());
  last_ = last;
  launching_ = last && overlap && !twice_;
}

void GradientBuckets::OnGradient(int index) {
  at::NoGradGuard no_grad;
  const at::Tensor gradient = TakeGradient(parameters_[index]);
  if (!gradient.defined()) return;
  if (fired_[index]) {
    twice_ = true;
    TORCH_CHECK(bucket_of_[index] >= next_launch_, "a parameter of shape ",
                parameters_[index].sizes(),
                " got a second gradient in one backward pass after the first was on its way: a "
                "custom autograd function runs a backward pass of its own in this step and did not "
                "in earlier ones; let activation_checkpoint run it");
    CopyGradients(&buckets_[bucket_of_[index]]);
    views_[index].add_(gradient);
    return;
  }
  Take(index, gradient);
  fired_[index] = used_[index] = true;
  Bucket& bucket = buckets_[bucket_of_[index]];
  if (--bucket.pending == 0) CopyGradients(&bucket);
  if (launching_) LaunchComplete(/*all_but_last=*/true);
}

// The first gradient of a parameter is copied. This is cheaper than clearing the bucket before the
// backward pass and adding.
void GradientBuckets::Take(int index, const at::Tensor& gradient) {
  const at::Tensor& view = views_[index];
  if (used_[index]) {
    view.add_(gradient);
  } else if (copies_together_ && SameLayout(gradient, view)) {
    Bucket& bucket = buckets_[bucket_of_[index]];
    bucket.sources.push_back(gradient);
    bucket.targets.push_back(view);
  } else {
    view.copy_(gradient);
  }
}

void GradientBuckets::CopyGradients(Bucket* bucket) {
  if (bucket->sources.empty()) return;
  at::_foreach_copy_(bucket->targets, bucket->sources);
  bucket->sources.clear();
  bucket->targets.clear();
}

// A step that was given up may have left some.
void GradientBuckets::DropCopies() {
  for (Bucket& bucket : buckets_) {
    bucket.sources.clear();
    bucket.targets.clear();
  }
}

void GradientBuckets::EndBackward() {
  at::NoGradGuard no_grad;
  for (Bucket& bucket : buckets_) CopyGradients(&bucket);
  if (!last_) return;
  for (size_t i = 0; i < views_.size(); ++i) {
    if (!used_[i] && views_[i].defined()) views_[i].zero_();
  }
  for (Bucket& bucket : buckets_) bucket.pending = 0;
  LaunchComplete(/*all_but_last=*/true);
}

void GradientBuckets::Scale(double factor) {
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < views_.size(); ++i) {
    if (used_[i]) views_[i].mul_(factor);
  }
}

void GradientBuckets::LaunchComplete(bool all_but_last) {
  const int end = num_buckets() - (all_but_last ? 1 : 0);
  while (next_launch_ < end && buckets_[next_launch_].pending == 0) {
    Bucket& bucket = buckets_[next_launch_++];
    // A parameter without a gradient in this micro-batch has no hook call, so its bucket is not
    // complete here. EndBackward completes it.
    const SpanLabel label("reduce bucket", next_launch_ - 1);
    bucket.work = communicator_->AllReduce(BufferOf(bucket.storage), ReduceOp::kSum);
  }
}

void GradientBuckets::LaunchAll(const at::Tensor& control) {
  at::NoGradGuard no_grad;
  const int64_t flags = static_cast<int64_t>(parameters_.size());
  control_count_ = control.defined() ? control.numel() : 0;
  TORCH_CHECK(control_count_ <= control_capacity_, "control data outgrew its place");
  Bucket& last = buckets_.back();
  at::Tensor flag_view = last.storage.narrow(0, last.count, flags);
  if (std::find(used_.begin(), used_.end(), false) == used_.end()) {
    flag_view.fill_(1);
  } else {
    at::Tensor used = at::empty({flags}, at::kFloat);
    for (int64_t i = 0; i < flags; ++i) used.data_ptr<float>()[i] = used_[i] ? 1.f : 0.f;
    flag_view.copy_(CopyToDevice(used, flag_view.device()));
  }
  if (control_count_ > 0) last.storage.narrow(0, last.count + flags, control_count_).copy_(control);
  const at::Tensor launched = last.storage.narrow(0, 0, last.count + flags + control_count_);
  next_launch_ = num_buckets();
  all_launched_ = true;
  const SpanLabel label("reduce bucket", num_buckets() - 1);
  last.work = communicator_->AllReduce(BufferOf(launched), ReduceOp::kSum);
}

absl::Status GradientBuckets::Finish(at::Tensor* control) {
  at::NoGradGuard no_grad;
  if (!all_launched_) LaunchAll(*control);
  MUSTER_RETURN_IF_ERROR(WaitAll());
  const Bucket& last = buckets_.back();
  const int64_t flags = static_cast<int64_t>(parameters_.size());
  // Without other replicas, this one's flags are all. Reading them would wait for the GPU.
  at::Tensor everybody;
  if (communicator_->size() > 1) everybody = last.storage.narrow(0, last.count, flags).to(at::kCPU);
  for (int64_t i = 0; i < flags; ++i) {
    const bool used = everybody.defined() ? everybody.data_ptr<float>()[i] > 0 : used_[i];
    gradients_[i] = used ? views_[i] : at::Tensor();
  }
  if (control_count_ > 0) *control = last.storage.narrow(0, last.count + flags, control_count_);
  return absl::OkStatus();
}

double GradientBuckets::norm() const { return GradientNorm(gradients_); }

absl::Status GradientBuckets::WaitAll() {
  absl::Status first;
  for (Bucket& bucket : buckets_) {
    if (bucket.work == nullptr) continue;
    const absl::Status status = bucket.work->Wait();
    if (first.ok()) first = status;
    bucket.work.reset();
  }
  return first;
}

void GradientBuckets::Cancel() {
  last_ = launching_ = false;
  DropCopies();
  (void)WaitAll();
}

}  // namespace muster
