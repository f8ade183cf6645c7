#include "common/train/predictor.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <optional>

#include "common/train/embedding/embedding_step.h"
#include "common/train/evaluation.h"
#include "common/train/replica/devices/precision.h"
#include "common/train/state/checkpoint_replicas.h"

namespace muster {

class PredictionImpl {
 public:
  PredictionImpl(Replica* of, std::vector<std::string> names)
      : replica(*of), columns(std::move(names)), rows(of) {}
  const Replica& replica;
  const std::vector<std::string> columns;
  ReadOnlyRows rows;
};

at::Device Prediction::device() const { return impl_->replica.device(); }
const std::vector<std::string>& Prediction::columns() const { return impl_->columns; }
at::Tensor Prediction::lookup(EmbeddingHandle table, const at::Tensor& keys) {
  return impl_->rows.Lookup(table, keys);
}
at::Tensor Prediction::lookup(EmbeddingHandle table, const Bags& bags, Pooling pooling) {
  return impl_->rows.Lookup(std::vector<TableBags>{{table, bags, pooling}})[0];
}
std::vector<at::Tensor> Prediction::lookup(const std::vector<TableKeys>& keys) {
  return impl_->rows.Lookup(keys);
}
std::vector<at::Tensor> Prediction::lookup(const std::vector<TableBags>& bags) {
  return impl_->rows.Lookup(bags);
}

namespace {

// Runs `body`. If the program refuses the input, returns a ConfigurationError, because the input is
// wrong.
absl::Status CatchRefusal(const std::string& where, const std::function<void()>& body) {
  return CatchProgramErrors(where, [&] {
    try {
      body();
    } catch (const std::invalid_argument& refusal) {
      throw StatusError(ConfigurationError(refusal.what()));
    }
  });
}

std::string Shape(at::IntArrayRef sizes) { return fmt::format("[{}]", fmt::join(sizes, ", ")); }

absl::Status CheckOutputs(const at::Tensor& outputs, int64_t examples) {
  if (outputs.defined() && outputs.dim() > 0 && outputs.size(0) == examples)
    return absl::OkStatus();
  return ProgramError(fmt::format(
      "predict() must return one row for each of the {} examples of the batch, and returned {}",
      examples,
      outputs.defined() ? "a tensor of shape " + Shape(outputs.sizes()) : "an undefined tensor"));
}

// Returns the name of a column of input without column names.
std::string ColumnName(size_t column, size_t columns) {
  return columns == 1 ? "x" : fmt::format("{}", column);
}

// Like PredictForHook, but `columns` must have a name for each tensor of `batch`.
absl::StatusOr<at::Tensor> PredictBatch(Replica* replica, Precision precision, data::Batch batch,
                                        std::vector<std::string> columns) {
  const int64_t examples =
      batch.empty() || !batch[0].defined() || batch[0].dim() == 0 ? 0 : batch[0].size(0);
  if (examples == 0) return ConfigurationError("the batch has no examples");
  if (columns.size() != batch.size())
    return ConfigurationError(
        fmt::format("the batch has {} components, and names for {}", batch.size(), columns.size()));
  const at::NoGradGuard no_grad;
  PredictionImpl impl(replica, std::move(columns));
  Prediction prediction(&impl);
  at::Tensor outputs;
  MUSTER_RETURN_IF_ERROR(CatchRefusal("predict", [&] {
    for (at::Tensor& t : batch) t = t.to(replica->device());
    const EvaluationModes modes(replica);
    const AutocastScope autocast(precision, replica->device());
    outputs = replica->program().predict(prediction, batch);
    ThrowIfError(CheckOutputs(outputs, examples));
    outputs = outputs.detach().to(at::kCPU);
  }));
  return outputs;
}

}  // namespace

absl::StatusOr<at::Tensor> PredictForHook(Replica* replica, Precision precision,
                                          const data::Batch& batch,
                                          const std::vector<std::string>& columns) {
  std::vector<std::string> names = columns;
  if (names.empty())
    for (size_t c = 0; c < batch.size(); ++c) names.push_back(ColumnName(c, batch.size()));
  return PredictBatch(replica, precision, batch, std::move(names));
}

namespace {

class PredictorImpl : public Predictor {
 public:
  explicit PredictorImpl(PredictorOptions options) : options_(std::move(options)) {}

  absl::Status Build() {
    MUSTER_ASSIGN_OR_RETURN(
        replicas_, CheckpointReplicas::Make(options_.job, options_.factory, options_.devices));
    return absl::OkStatus();
  }
  absl::Status Restore(const checkpoint::Snapshot& snapshot) override {
    return replicas_->Restore(snapshot);
  }
  absl::StatusOr<at::Tensor> Predict(
      const data::OpenSplit& input, int64_t batch_size,
      const std::function<void(int64_t done, int64_t total)>& progress) override;
  absl::StatusOr<data::OpenSplit> Encode(const std::string& prompt) override;
  absl::StatusOr<std::string> Decode(const at::Tensor& outputs) override;

 private:
  absl::StatusOr<at::Tensor> PredictPart(Replica* replica, const data::OpenSplit& input,
                                         int64_t begin, int64_t end);
  absl::Status Explain(const absl::Status& failure, const data::OpenSplit& input) const;

  const PredictorOptions options_;
  std::optional<CheckpointReplicas> replicas_;
};

absl::StatusOr<at::Tensor> PredictorImpl::PredictPart(Replica* replica,
                                                      const data::OpenSplit& input, int64_t begin,
                                                      int64_t end) {
  std::vector<int64_t> indices(end - begin);
  std::iota(indices.begin(), indices.end(), begin);
  MUSTER_ASSIGN_OR_RETURN(data::Batch batch, input.dataset->GetBatch(indices, {}));
  std::vector<std::string> names;
  for (const data::Column& column : input.columns) names.push_back(column.name);
  return PredictBatch(replica, options_.job.precision, std::move(batch), std::move(names));
}

absl::StatusOr<at::Tensor> PredictorImpl::Predict(
    const data::OpenSplit& input, int64_t batch_size,
    const std::function<void(int64_t done, int64_t total)>& progress) {
  const int64_t size = input.dataset->size(), count = replicas_->size();
  if (size <= 0) return ConfigurationError("the input has no examples");
  const int64_t each = std::max<int64_t>(1, (batch_size + count - 1) / count);
  const int64_t batches = (size + each - 1) / each;
  std::vector<at::Tensor> outputs(batches);
  std::atomic<int64_t> done = 0;
  std::atomic<bool> stop = false;
  const auto work = [&](int r) -> absl::Status {
    for (int64_t b = r; b < batches && !stop; b += count) {
      MUSTER_ASSIGN_OR_RETURN(outputs[b], PredictPart(&(*replicas_)[r], input, b * each,
                                                      std::min(size, (b + 1) * each)));
      ++done;
      if (r == 0 && progress) progress(done, batches);
    }
    return absl::OkStatus();
  };
  const absl::Status predicted = replicas_->Run(work, [&](const absl::Status&) { stop = true; });
  if (!predicted.ok()) return Explain(predicted, input);
  for (const at::Tensor& part : outputs) {
    if (part.scalar_type() == outputs[0].scalar_type() &&
        part.sizes().slice(1) == outputs[0].sizes().slice(1))
      continue;
    return ProgramError(fmt::format(
        "predict() returned outputs of shape {} for one batch and {} for another: all examples "
        "need outputs of one shape and type",
        Shape(outputs[0].sizes()), Shape(part.sizes())));
  }
  at::Tensor all;
  MUSTER_RETURN_IF_ERROR(CatchProgramErrors("predict", [&] { all = at::cat(outputs); }));
  return all;
}

// Returns a ConfigurationError if the input has another shape than the program's own data, because
// a program may fail anywhere on such input. Otherwise returns `failure`.
absl::Status PredictorImpl::Explain(const absl::Status& failure,
                                    const data::OpenSplit& input) const {
  if (ExitCodeOf(failure) != ExitCode::kProgramFailed) return failure;
  const Replica& replica = (*replicas_)[0];
  for (const Split split : {Split::kTest, Split::kValidation, Split::kTrain}) {
    if (!replica.datasets().contains(split)) continue;
    const auto dataset = MakeDataset(replica, split, /*may_be_unsized=*/true);
    if (!dataset.ok() || (*dataset)->size() == 0) continue;
    const auto example = (*dataset)->Get(0, {});
    if (!example.ok()) continue;
    for (size_t c = 0; c < std::min(example->size(), input.columns.size()); ++c) {
      const data::Column& column = input.columns[c];
      if ((*example)[c].sizes() == at::IntArrayRef(column.shape)) continue;
      return ConfigurationError(
          fmt::format("an example of the input's {} has shape {}, and of the program's {} data "
                      "{} ({})",
                      column.name, Shape(column.shape), SplitName(split),
                      Shape((*example)[c].sizes()), Message(failure)));
    }
    break;
  }
  return failure;
}

absl::StatusOr<data::OpenSplit> PredictorImpl::Encode(const std::string& prompt) {
  data::Batch batch;
  MUSTER_RETURN_IF_ERROR(
      CatchRefusal("encode", [&] { batch = (*replicas_)[0].program().encode(prompt); }));
  data::OpenSplit input;
  for (const at::Tensor& tensor : batch) {
    if (!tensor.defined() || tensor.dim() == 0 || tensor.size(0) != 1) {
      return ProgramError(fmt::format(
          "encode() must return a batch of one example, and returned a component {}",
          tensor.defined() ? "of shape " + Shape(tensor.sizes()) : "that is undefined"));
    }
    input.columns.push_back({ColumnName(input.columns.size(), batch.size()), tensor.scalar_type(),
                             tensor.sizes().slice(1).vec()});
  }
  if (batch.empty()) return ProgramError("encode() returned a batch without components");
  MUSTER_ASSIGN_OR_RETURN(input.dataset, data::FromTensors(std::move(batch)));
  return input;
}

absl::StatusOr<std::string> PredictorImpl::Decode(const at::Tensor& outputs) {
  std::string text;
  MUSTER_RETURN_IF_ERROR(
      CatchRefusal("decode", [&] { text = (*replicas_)[0].program().decode(outputs); }));
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Predictor>> Predictor::Make(PredictorOptions options) {
  auto predictor = std::make_unique<PredictorImpl>(std::move(options));
  MUSTER_RETURN_IF_ERROR(predictor->Build());
  return predictor;
}

}  // namespace muster
