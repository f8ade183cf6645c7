#include "common/train/step/single_example.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <cstring>

#include "common/train/step/step_impl.h"

namespace muster {
namespace {

thread_local BatchNormWatch* watching = nullptr;

std::unique_ptr<at::ObserverContext> OnOperator(const at::RecordFunction& function) {
  constexpr size_t kInput = 0, kTraining = 5;  // Indices of arguments of aten::batch_norm.
  if (watching == nullptr || std::strcmp(function.name(), "aten::batch_norm") != 0) return nullptr;
  const auto inputs = function.inputs();
  if (inputs.size() <= kTraining || !inputs[kInput].isTensor() || !inputs[kTraining].isBool())
    return nullptr;
  const at::Tensor& input = inputs[kInput].toTensor();
  if (!inputs[kTraining].toBool() || input.dim() < 2 || input.size(1) == 0) return nullptr;
  // Only as many values as examples means one value per example. [2 x batch, features] and [batch x
  // tokens, features] have several, and other numbers are unrelated to examples.
  int64_t values = input.size(0);
  for (int64_t d = 2; d < input.dim(); ++d) values *= input.size(d);
  const StepImpl* step = StepImpl::Current();
  watching->Saw(step != nullptr && values > 0 && values == step->examples());
  return nullptr;
}

bool LeavesOne(int64_t examples, int num_replicas, int64_t micro_batches) {
  // The slices of replicas have at most two sizes: those of the first and the last replica. The
  // same holds for micro-batches.
  for (const int replica : {0, num_replicas - 1}) {
    const int64_t slice = data::ReplicaSlice(0, examples, replica, num_replicas).size();
    for (const int64_t micro : {int64_t{0}, micro_batches - 1}) {
      if (data::ReplicaSlice(0, slice, static_cast<int>(micro), static_cast<int>(micro_batches))
              .size() == 1)
        return true;
    }
  }
  return false;
}

}  // namespace

BatchNormWatch::BatchNormWatch() : outer_(watching) {
  watching = this;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&OnOperator)
                                           .needsInputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

BatchNormWatch::~BatchNormWatch() {
  at::removeCallback(handle_);
  watching = outer_;
}

std::string BatchWithSingleExample(const data::Sampler& sampler, int64_t total_steps,
                                   int num_replicas, int64_t micro_batches) {
  const int64_t batches = sampler.batches_per_epoch();
  data::Position position;
  const int64_t full = sampler.BatchEnd(position);
  const auto name = [&](const char* which, int64_t examples) {
    return fmt::format(
        "{}, {} example{} for {} replica{}{}", which, examples, examples == 1 ? "" : "s",
        num_replicas, num_replicas == 1 ? "" : "s",
        micro_batches == 1 ? "" : fmt::format(" in {} micro-batches", micro_batches));
  };
  if (LeavesOne(full, num_replicas, micro_batches)) return name("a batch", full);
  for (int r = 0; r < static_cast<int>(sampler.shares().size()); ++r) {
    const int64_t part = data::ReplicaSlice(0, full, r, num_replicas).size();
    const int64_t last = part > 0 ? sampler.shares()[r] % part : 0;
    if (LeavesOne(last, 1, micro_batches))
      return fmt::format(
          "the last batch of replica {}'s share, {} example{}{}", r, last, last == 1 ? "" : "s",
          micro_batches == 1 ? "" : fmt::format(" in {} micro-batches", micro_batches));
  }
  if (total_steps < batches) return "";
  const int64_t last = sampler.examples_per_epoch() - (batches - 1) * full;
  return LeavesOne(last, num_replicas, micro_batches) ? name("the last batch of an epoch", last)
                                                      : "";
}

absl::Status NameLeftOut(const absl::Status& status, int64_t left_out) {
  if (left_out == 0 || Message(status).find(kSingleExampleFix) == std::string_view::npos)
    return status;
  return absl::Status(status.code(),
                      fmt::format("{}; data.on_error \"skip\" left {} damaged example{} of this "
                                  "batch out: with a larger batch it leaves more",
                                  Message(status), left_out, left_out == 1 ? "" : "s"));
}

absl::Status SingleExampleError(const std::string& batch) {
  return ConfigurationError(
      fmt::format("{}, leaves a replica a single example, of which the program's batch "
                  "normalisation over [batch, features] has no statistics: {}",
                  batch, kSingleExampleFix));
}

}  // namespace muster
