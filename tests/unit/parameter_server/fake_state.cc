#include "tests/unit/parameter_server/fake_state.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace muster::chief::testing {
namespace {

constexpr int64_t kElements = 4;  // The elements of a variable.

checkpoint::TensorSet SetOf(const std::vector<double>& values) {
  checkpoint::TensorSet set;
  const auto memory = std::make_shared<std::vector<double>>(values);
  set.memory = memory;
  for (const double& value : *memory) {
    checkpoint::Tensor& tensor = set.tensors.emplace_back();
    tensor.name = fmt::format("v{}", set.tensors.size() - 1);
    tensor.dtype = checkpoint::DType::kFloat64;
    tensor.data = reinterpret_cast<const char*>(&value);
  }
  return set;
}

std::vector<double> ValuesIn(const checkpoint::TensorSet& set) {
  std::vector<double> values;
  for (const checkpoint::Tensor& tensor : set.tensors) {
    double& value = values.emplace_back();
    const absl::Status read =
        checkpoint::ReadTensor(set, tensor, 0, sizeof value, reinterpret_cast<char*>(&value));
    EXPECT_TRUE(read.ok()) << Message(read);
  }
  return values;
}

class FakeState final : public ShardState {
 public:
  FakeState(const Job& job, int variables, std::shared_ptr<FakeCallbacks> callbacks)
      : job_(job), callbacks_(std::move(callbacks)) {
    for (int v = 0; v < variables; ++v)
      specs_.push_back({fmt::format("net.v{}", v), {kElements}, 0, {}});
    values_.resize(variables);
  }
  const std::vector<push_pull::VariableSpec>& variables() const override { return specs_; }
  std::vector<std::string> optimizers() const override { return {R"({"name":"sgd"})"}; }
  size_t metric_sums() const override { return 1; }
  int64_t EpochExamples(int64_t train_examples, int64_t) const override { return train_examples; }
  int64_t TotalSteps(int64_t steps_per_epoch) const override {
    return job_.max_steps.value_or(job_.epochs.value_or(1) * steps_per_epoch);
  }
  absl::StatusOr<checkpoint::TrainingState> Restore(const checkpoint::Snapshot& snapshot) override {
    values_ = ValuesOf(snapshot);
    count_ = CountOf(snapshot);
    if (snapshot.state.extras.callbacks)
      for (const auto& [name, step] : snapshot.state.extras.callbacks->kept)
        kept_[name] = {step, ValuesIn(snapshot.kept.at(name))};
    return snapshot.state;
  }
  StateFiles TakeFiles() override { return {SetOf(values_), {}, {}}; }
  absl::StatusOr<proto::ChunkContent> Encode(const push_pull::Layout&, int shard, int chunk,
                                             int64_t steps,
                                             const StateFiles* files) const override {
    proto::ChunkContent content;
    content.set_shard(shard);
    content.set_chunk(chunk);
    content.set_updates(steps);
    double value = (kept_weights_ ? *kept_weights_ : values_)[shard];
    if (files != nullptr)
      MUSTER_RETURN_IF_ERROR(checkpoint::ReadTensor(files->model, files->model.tensors.at(shard), 0,
                                                    sizeof value, reinterpret_cast<char*>(&value)));
    content.set_parameters(ValueBytes(value));
    return content;
  }
  void RetainWeights() override {
    if (!kept_weights_) kept_weights_ = values_;
  }
  void ReleaseWeights() override { kept_weights_.reset(); }
  absl::Status Decode(const push_pull::Layout&, const proto::ChunkContent& content,
                      SlotsFile*) override {
    values_[content.shard()] = ValueOf(content.parameters());
    return absl::OkStatus();
  }
  absl::StatusOr<checkpoint::Snapshot> Take(const checkpoint::TrainingState& state) override {
    checkpoint::Snapshot snapshot;
    snapshot.state = {state};
    snapshot.model = SetOf(values_);
    for (const auto& [name, kept] : kept_) snapshot.kept[name] = SetOf(kept.second);
    const auto count = std::make_shared<std::string>(count_);
    snapshot.optimizer.memory = count;
    checkpoint::Tensor& tensor = snapshot.optimizer.tensors.emplace_back();
    tensor.name = "count";
    tensor.dtype = checkpoint::DType::kUInt8;
    tensor.shape = {8};
    tensor.data = count->data();
    return snapshot;
  }
  push_pull::IntegerBuffers Integers() const override { return {{"net.count", count_}}; }
  absl::Status SetIntegers(const push_pull::IntegerBuffers& values) override {
    for (const auto& [name, value] : values) count_ = value;
    return absl::OkStatus();
  }
  std::map<std::string, double> Metrics(const std::vector<double>& sums) const override {
    return {{"count", sums.at(0)}};
  }
  void Describe(StartReport* report) const override { report->program = "fake"; }
  std::vector<HistogramReport> Parameters() const override { return {}; }

  bool has_callbacks() const override { return callbacks_ != nullptr; }
  absl::Status BeginCallbacks(const CallbackParts& parts, bool,
                              checkpoint::CallbackRecord* record) override {
    if (callbacks_->on_begin) callbacks_->on_begin();
    for (const auto& [name, step] : record->kept)
      if (step == parts.weights_step) kept_[name] = {step, values_};
    std::erase_if(record->kept, [&](const auto& item) {
      const auto known = kept_.find(item.first);
      return known == kept_.end() || known->second.first != item.second;
    });
    decision_ = {*record, {}, false};
    for (const auto& [name, note] : record->notes)
      for (Observer* observer : parts.observers) observer->OnCallback(name, note);
    return absl::OkStatus();
  }
  absl::Status Fire(Hook hook, CallbackMoment moment) override {
    if (callbacks_->on_hook) callbacks_->on_hook(hook, moment, &decision_);
    absl::MutexLock lock(&callbacks_->mu);
    callbacks_->fired.emplace_back(hook, std::move(moment));
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<CallbackDecision>> Decide() override {
    for (const auto& [what, callback] : decision_.weights)
      if (what == "keep") kept_[callback] = {decision_.record.kept.at(callback), values_};
    return std::optional(std::exchange(decision_, {decision_.record, {}, false}));
  }
  void Adopt(const checkpoint::CallbackRecord& record) override { decision_.record = record; }
  void PutBackWeights(const std::string& callback) override {
    if (kept_.contains(callback)) values_ = kept_.at(callback).second;
  }

 private:
  const Job job_;
  const std::shared_ptr<FakeCallbacks> callbacks_;
  CallbackDecision decision_;
  // The kept weights of each callback, with their step.
  std::map<std::string, std::pair<int64_t, std::vector<double>>> kept_;
  std::vector<push_pull::VariableSpec> specs_;
  std::vector<double> values_;
  std::optional<std::vector<double>> kept_weights_;
  std::string count_ = "00000000";  // The integer buffer "net.count".
};

}  // namespace

std::string ValueBytes(double value) {
  std::string bytes(kElements * sizeof(float), '\0');
  for (int64_t i = 0; i < kElements; ++i) {
    const auto element = static_cast<float>(value);
    std::memcpy(bytes.data() + i * sizeof(float), &element, sizeof element);
  }
  return bytes;
}

double ValueOf(const std::string& bytes) {
  float element = 0;
  std::memcpy(&element, bytes.data(), sizeof element);
  return element;
}

ShardStateFactory FakeStates(int variables, std::shared_ptr<FakeCallbacks> callbacks) {
  return [variables, callbacks](const Job& job, const DirectorStart&) {
    return absl::StatusOr<std::unique_ptr<ShardState>>(
        std::make_unique<FakeState>(job, variables, callbacks));
  };
}

std::string CountOf(const checkpoint::Snapshot& snapshot) {
  return {snapshot.optimizer.tensors.at(0).data, 8};
}

std::vector<double> ValuesOf(const checkpoint::Snapshot& snapshot) {
  return ValuesIn(snapshot.model);
}

int64_t FakeCallbacks::Count(Hook hook) const {
  absl::MutexLock lock(&mu);
  return std::count_if(fired.begin(), fired.end(),
                       [&](const auto& item) { return item.first == hook; });
}

}  // namespace muster::chief::testing
