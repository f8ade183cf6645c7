#include "common/train/central_storage.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/train/replica.h"

namespace muster {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor OnCpu(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().to(at::kCPU) : tensor;
}

// What the replicas of the process share.
class Variables {
 public:
  Variables(std::unique_ptr<Optimizer> rule, size_t replicas, Duration timeout)
      : rule_(std::move(rule)), others_(static_cast<int>(replicas) - 1), timeout_(timeout) {}

  Optimizer& rule() { return *rule_; }
  const Tensors& tensors() const { return rule_->parameters(); }

  // By the first replica: runs `update`, and waits until the others have taken what it gave, since
  // the program may change it from then on (on_commit).
  void Publish(int64_t number, const std::function<void()>& update) {
    const absl::Status status = CatchProgramErrors("the central update", update);
    absl::MutexLock lock(&mu_);
    published_ = number;
    taken_ = 0;
    status_ = status;
    changed_.SignalAll();
    ThrowIfError(status);
    WaitLocked([this] { return taken_ == others_; },
               fmt::format("a replica did not take update {} of the central variables", number));
  }
  // By the others: runs `take` once that update is there.
  void Take(int64_t number, const std::function<void()>& take) {
    {
      absl::MutexLock lock(&mu_);
      WaitLocked(
          [this, number] { return published_ >= number; },
          fmt::format("the first replica did not make update {} of the central variables", number));
      ThrowIfError(status_);
    }
    take();
    absl::MutexLock lock(&mu_);
    ++taken_;
    changed_.SignalAll();
  }

 private:
  template <typename Condition>
  void WaitLocked(const Condition& condition, const std::string& otherwise)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const absl::Time deadline = absl::Now() + absl::FromChrono(timeout_);
    while (!condition()) {
      if (changed_.WaitWithDeadline(&mu_, deadline) && !condition())
        throw StatusError(
            DeadlinePassed(fmt::format("{} within {:g} s", otherwise, Seconds(timeout_))));
    }
  }

  const std::unique_ptr<Optimizer> rule_;
  const int others_;
  const Duration timeout_;
  absl::Mutex mu_;
  absl::CondVar changed_;
  int64_t published_ = 0;  // guarded by mu_, as is taken_
  int taken_ = 0;
  absl::Status status_;  // of the published update
};

class CentralOptimizer : public Optimizer {
 public:
  CentralOptimizer(std::shared_ptr<Variables> variables, Tensors parameters, bool first)
      : variables_(std::move(variables)), parameters_(std::move(parameters)), first_(first) {}

  // The parameters may have been set from outside: a checkpoint, another replica's state, what a
  // program changed when a step committed (all replicas alike; the others have long taken the
  // update before).
  void Begin() override {
    if (first_) CopyInto(variables_->tensors(), parameters_);
  }
  void Update(const Tensors& gradients, double learning_rate) override {
    const at::NoGradGuard no_grad;
    ++updates_;
    const auto take = [this] { CopyInto(parameters_, variables_->tensors()); };
    if (!first_) return variables_->Take(updates_, take);
    variables_->Publish(updates_, [&] {
      Tensors on_cpu;
      on_cpu.reserve(gradients.size());
      for (const at::Tensor& gradient : gradients) on_cpu.push_back(OnCpu(gradient));
      variables_->rule().Update(on_cpu, learning_rate);
      take();
    });
  }

  bool central() const override { return true; }
  const Tensors& parameters() const override { return parameters_; }
  const std::vector<std::string>& slot_names() const override {
    static const std::vector<std::string> kNone;
    return first_ ? variables_->rule().slot_names() : kNone;
  }
  const Tensors& slot(int s) const override { return variables_->rule().slot(s); }
  std::string Describe() const override { return variables_->rule().Describe(); }

 private:
  static void CopyInto(const Tensors& to, const Tensors& from) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < to.size(); ++i)
      if (!to[i].is_same(from[i])) to[i].detach().copy_(from[i]);
  }

  const std::shared_ptr<Variables> variables_;
  const Tensors parameters_;
  const bool first_;
  int64_t updates_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Optimizer>>> MakeCentralOptimizers(
    const Json& spec, const std::vector<Tensors>& parameters, Duration timeout,
    std::vector<int> groups, bool separate) {
  Tensors central;
  for (const at::Tensor& parameter : parameters.front())
    central.push_back(!parameter.is_cpu() ? OnCpu(parameter)
                      : separate          ? parameter.detach().clone()
                                          : parameter);
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> rule,
                          MakeOptimizer(spec, std::move(central), std::move(groups)));
  const auto variables = std::make_shared<Variables>(std::move(rule), parameters.size(), timeout);
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  for (size_t r = 0; r < parameters.size(); ++r)
    optimizers.push_back(
        std::make_unique<CentralOptimizer>(variables, parameters[r], /*first=*/r == 0));
  return optimizers;
}

}  // namespace muster
