#include "common/train/exchange/central_storage.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "absl/synchronization/mutex.h"
#include "common/base/wait.h"
#include "common/train/replica/replica.h"

namespace muster {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor OnCpu(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().to(at::kCPU) : tensor;
}

// A set of variables with its optimizer. The replicas of the process share it.
class Variables {
 public:
  Variables(std::unique_ptr<Optimizer> rule, size_t replicas, Duration timeout)
      : rule_(std::move(rule)), others_(static_cast<int>(replicas) - 1), timeout_(timeout) {}

  Optimizer& rule() { return *rule_; }
  const Tensors& tensors() const { return rule_->parameters(); }

  // Called by the first replica. Runs `update`, then blocks until the other replicas have copied
  // the result. The program may change the result afterwards (on_commit).
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
  // Called by the other replicas. Blocks until update `number` is published, then runs `take`.
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
    const MonotonicTime deadline = Clock::now() + timeout_;
    while (!condition()) {
      if (changed_.WaitUntil(&mu_, deadline) && !condition())
        throw StatusError(
            DeadlinePassed(fmt::format("{} within {:g} s", otherwise, Seconds(timeout_))));
    }
  }

  const std::unique_ptr<Optimizer> rule_;
  const int others_;
  const Duration timeout_;
  absl::Mutex mu_;
  CondVar changed_;
  int64_t published_ = 0;  // Guarded by mu_, as taken_ is.
  int taken_ = 0;
  absl::Status status_;  // Status of the published update.
};

// The variables of one optimizer, for every set of trained candidates that a replica uses. The
// replicas of the process share it.
class Central {
 public:
  Central(Tensors first, size_t replicas, Duration timeout, bool separate)
      : first_(std::move(first)),
        replicas_(replicas),
        timeout_(timeout),
        separate_(separate),
        tensors_(first_.size()) {}

  // Returns the variables of these candidates. The first caller makes them, from their tensors with
  // `make`. All callers with the same candidates get the same object.
  using Make = std::function<absl::StatusOr<std::unique_ptr<Optimizer>>(Tensors)>;
  absl::StatusOr<std::shared_ptr<Variables>> Get(const std::vector<size_t>& candidates,
                                                 const Make& make) {
    absl::MutexLock lock(&mu_);
    std::weak_ptr<Variables>& place = variables_[candidates];
    if (auto there = place.lock()) return there;
    Tensors tensors;
    for (const size_t c : candidates) tensors.push_back(TensorLocked(c));
    MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> rule, make(std::move(tensors)));
    auto made = std::make_shared<Variables>(std::move(rule), replicas_, timeout_);
    place = made;
    return made;
  }

 private:
  // Returns the variable of candidate `c`. Makes it when the candidate is trained for the first
  // time.
  const at::Tensor& TensorLocked(size_t c) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const at::Tensor& first = first_[c];
    at::Tensor& tensor = tensors_[c];
    if (!tensor.defined())
      tensor = !first.is_cpu() ? OnCpu(first) : separate_ ? first.detach().clone() : first;
    return tensor;
  }

  const Tensors first_;  // Candidates of the first replica.
  const size_t replicas_;
  const Duration timeout_;
  const bool separate_;
  absl::Mutex mu_;
  Tensors tensors_ ABSL_GUARDED_BY(mu_);
  // The sets that a replica uses now.
  std::map<std::vector<size_t>, std::weak_ptr<Variables>> variables_ ABSL_GUARDED_BY(mu_);
};

class CentralOptimizer : public Optimizer {
 public:
  static absl::StatusOr<std::unique_ptr<Optimizer>> Make(std::shared_ptr<Central> central,
                                                         std::shared_ptr<const Tensors> candidates,
                                                         bool first, Tensors parameters,
                                                         const Central::Make& make) {
    std::vector<size_t> chosen;
    for (const at::Tensor& parameter : parameters) {
      const auto found = std::find_if(candidates->begin(), candidates->end(),
                                      [&](const auto& c) { return c.is_same(parameter); });
      TORCH_CHECK(found != candidates->end(), "a parameter that is no candidate");
      chosen.push_back(static_cast<size_t>(found - candidates->begin()));
    }
    MUSTER_ASSIGN_OR_RETURN(std::shared_ptr<Variables> variables, central->Get(chosen, make));
    return std::unique_ptr<Optimizer>(
        new CentralOptimizer(std::move(central), std::move(candidates), std::move(variables),
                             std::move(parameters), first));
  }

  // Copies the first replica's parameters to the variables. A checkpoint, the transfer of another
  // replica's state, or the program at a commit may have set the parameters. In the last case all
  // replicas have made the same change, after they copied the previous update.
  void Begin() override {
    if (!first_) return;
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters_.size(); ++i) Copy(variables_->tensors()[i], parameters_[i]);
  }
  void Update(const Tensors& gradients, double learning_rate) override {
    const at::NoGradGuard no_grad;
    ++updates_;
    // Copies only parameters with a gradient, because the update changes no others.
    const auto take = [&] {
      for (size_t i = 0; i < parameters_.size(); ++i)
        if (gradients[i].defined()) Copy(parameters_[i], variables_->tensors()[i]);
    };
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
  absl::StatusOr<std::unique_ptr<Optimizer>> WithParameters(
      Tensors parameters, std::vector<int> groups) const override {
    return Make(central_, candidates_, first_, std::move(parameters), [&](Tensors tensors) {
      return variables_->rule().WithParameters(std::move(tensors), groups);
    });
  }
  std::string Describe() const override { return variables_->rule().Describe(); }

 private:
  CentralOptimizer(std::shared_ptr<Central> central, std::shared_ptr<const Tensors> candidates,
                   std::shared_ptr<Variables> variables, Tensors parameters, bool first)
      : central_(std::move(central)),
        candidates_(std::move(candidates)),
        variables_(std::move(variables)),
        parameters_(std::move(parameters)),
        first_(first) {}

  static void Copy(const at::Tensor& to, const at::Tensor& from) {
    if (!to.is_same(from)) to.detach().copy_(from);
  }

  const std::shared_ptr<Central> central_;
  const std::shared_ptr<const Tensors> candidates_;  // Candidates of this replica.
  const std::shared_ptr<Variables> variables_;
  const Tensors parameters_;
  const bool first_;
  int64_t updates_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Optimizer>>> MakeCentralOptimizers(
    const Json& spec, const std::vector<Tensors>& candidates, Duration timeout,
    std::vector<int> groups, const std::vector<bool>& trained, bool separate) {
  const auto central =
      std::make_shared<Central>(candidates.front(), candidates.size(), timeout, separate);
  std::vector<int> of_trained;
  for (size_t c = 0; c < groups.size(); ++c)
    if (trained.empty() || trained[c]) of_trained.push_back(groups[c]);
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  for (size_t r = 0; r < candidates.size(); ++r) {
    Tensors parameters;
    for (size_t c = 0; c < candidates[r].size(); ++c)
      if (trained.empty() || trained[c]) parameters.push_back(candidates[r][c]);
    MUSTER_ASSIGN_OR_RETURN(
        auto optimizer,
        CentralOptimizer::Make(central, std::make_shared<const Tensors>(candidates[r]),
                               /*first=*/r == 0, std::move(parameters), [&](Tensors tensors) {
                                 return MakeOptimizer(spec, std::move(tensors), of_trained);
                               }));
    optimizers.push_back(std::move(optimizer));
  }
  return optimizers;
}

}  // namespace muster
