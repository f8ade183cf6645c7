// Metrics that count decisions: precision, recall, F scores, areas under curves, confusion
// matrices.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/max.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

#include "common/metrics/confusion_image.h"
#include "common/metrics/metric_sums.h"

namespace muster {
namespace {

using metric_sums::ExpandWeights;
using metric_sums::Ratio;
using metric_sums::SumType;

// Scores, true labels, and weights (if any). All have the same shape.
struct Cases {
  at::Tensor scores, positive, weights;
};

// Returns the one-hot encoding of class numbers. An invalid class number gives only zeros.
at::Tensor OneHot(const at::Tensor& classes, const at::Tensor& scores) {
  const int64_t count = scores.size(-1);
  const at::Tensor index = classes.to(at::kLong);
  const at::Tensor valid = index.ge(0).logical_and_(index.lt(count));
  return at::zeros_like(scores, at::kBool)
      .scatter(-1, index.clamp(0, count - 1).unsqueeze(-1), valid.unsqueeze(-1));
}

Cases CasesOf(const at::Tensor& output, const at::Tensor& target, const at::Tensor& weights,
              const char* name) {
  TORCH_CHECK(target.defined(), "metric ", name, ": the target is missing");
  Cases cases{.scores = output.to(SumType(output))};
  if (output.sizes() == target.sizes()) {
    cases.positive = target.ne(0);
  } else if (output.dim() == target.dim() + 1 && output.size(-1) == 1 &&
             output.sizes().slice(0, target.dim()) == target.sizes()) {
    cases.positive = target.ne(0).unsqueeze(-1);
  } else if (output.dim() == target.dim() + 1 && output.size(-1) > 1 &&
             output.sizes().slice(0, target.dim()) == target.sizes() &&
             at::isIntegralType(target.scalar_type(), /*includeBool=*/false)) {
    cases.positive = OneHot(target, output);
  } else {
    TORCH_CHECK(false, "metric ", name, ": the target must have the shape of the output, ",
                output.sizes(),
                ", or be class numbers of its shape without the last dimension, is ",
                target.sizes(), " of type ", target.scalar_type());
  }
  if (weights.defined()) cases.weights = ExpandWeights(cases.scores, weights);
  return cases;
}

// Selects the cases of one class.
void Select(Cases* cases, int class_id, const char* name) {
  if (class_id < 0) return;
  TORCH_CHECK(cases->scores.dim() > 1 && cases->scores.size(-1) > class_id, "metric ", name,
              " counts class ", class_id, ", and the output has the shape ", cases->scores.sizes());
  for (at::Tensor* t : {&cases->scores, &cases->positive, &cases->weights})
    if (t->defined()) *t = t->narrow(-1, class_id, 1);
}

// Returns the weights of the marked cases (1 without weights), and 0 for all other cases.
at::Tensor Marked(const Cases& cases, const at::Tensor& marked) {
  const at::ScalarType type = SumType(cases.scores);
  return cases.weights.defined() ? at::where(marked, cases.weights, 0) : marked.to(type);
}

// Marks the k largest scores. Among equal scores, the first ones are marked.
at::Tensor AmongLargest(const at::Tensor& scores, int64_t k) {
  const at::Tensor order =
      std::get<1>(at::sort(scores, /*stable=*/true, /*dim=*/-1, /*descending=*/true));
  const at::Tensor first = order.narrow(-1, 0, std::min(k, scores.size(-1)));
  return at::zeros_like(scores, at::kBool).scatter(-1, first, true);
}

// The base class of metrics whose WeightedIncrement accepts undefined weights.
template <typename Base>
class Weighted : public Base {
 public:
  at::Tensor Increment(const at::Tensor& output, const at::Tensor& target) const override {
    return this->WeightedIncrement(output, target, {});
  }
};

// ---- Precision and recall

class Decided : public Weighted<Ratio> {
 public:
  Decided(DecisionOptions options, bool precision) : options_(options), precision_(precision) {
    TORCH_CHECK(options.top_k >= 0, name(), " needs a top_k of 1 or more, is ", options.top_k);
    TORCH_CHECK(!options.threshold || std::isfinite(*options.threshold), name(),
                " needs a finite threshold");
  }
  at::Tensor WeightedIncrement(const at::Tensor& output, const at::Tensor& target,
                               const at::Tensor& weights) const override {
    const at::NoGradGuard no_grad;
    Cases cases = CasesOf(output, target, weights, name());
    at::Tensor largest;
    if (options_.top_k > 0) largest = AmongLargest(cases.scores, options_.top_k);
    if (largest.defined() && options_.class_id >= 0 && options_.class_id < largest.size(-1))
      largest = largest.narrow(-1, options_.class_id, 1);
    Select(&cases, options_.class_id, name());
    at::Tensor taken = largest;
    if (options_.threshold || !taken.defined()) {
      const at::Tensor above = cases.scores.gt(options_.threshold.value_or(0.5));
      taken = taken.defined() ? taken.logical_and(above) : above;
    }
    return at::stack({Marked(cases, taken.logical_and(cases.positive)).sum(),
                      Marked(cases, precision_ ? taken : cases.positive).sum()});
  }

 private:
  const char* name() const { return precision_ ? "precision" : "recall"; }
  const DecisionOptions options_;
  const bool precision_;
};

// ---- F scores

class FScore : public Weighted<Metric> {
 public:
  explicit FScore(FScoreOptions options)
      : options_(options),
        columns_(options.average == ClassAverage::kMicro || options.class_id >= 0
                     ? 1
                     : options.classes) {
    TORCH_CHECK(options.beta > 0 && std::isfinite(options.beta),
                "an F score needs a beta above 0, is ", options.beta);
    TORCH_CHECK(options.classes >= 1, "an F score needs 1 class or more, has ", options.classes);
  }
  int width() const override { return 3 * columns_; }
  at::Tensor WeightedIncrement(const at::Tensor& output, const at::Tensor& target,
                               const at::Tensor& weights) const override {
    const at::NoGradGuard no_grad;
    Cases cases = CasesOf(output, target, weights, "F score");
    at::Tensor taken = Taken(cases.scores);
    if (options_.class_id >= 0 && options_.class_id < taken.size(-1))
      taken = taken.narrow(-1, options_.class_id, 1);
    Select(&cases, options_.class_id, "F score");
    std::vector<at::Tensor> sums;
    for (const at::Tensor& marked : {taken.logical_and(cases.positive), taken, cases.positive}) {
      const at::Tensor each = Marked(cases, marked);
      if (columns_ == 1) {
        sums.push_back(each.sum().reshape({1}));
        continue;
      }
      TORCH_CHECK(each.size(-1) == columns_, "metric F score: of ", columns_,
                  " classes, and the output has the shape ", output.sizes());
      sums.push_back(each.reshape({-1, columns_}).sum(0));
    }
    return at::stack(sums).flatten();
  }
  // For each class, the sums are true positives, predicted positives and actual positives.
  double Result(const std::vector<double>& sums) const override {
    const double square = options_.beta * options_.beta;
    double total = 0, positives = 0;
    for (int c = 0; c < columns_; ++c) {
      const double right = sums.at(c), taken = sums[columns_ + c], actual = sums[2 * columns_ + c];
      const double all = square * actual + taken;
      const double score = all == 0 ? 0 : (1 + square) * right / all;
      total += options_.average == ClassAverage::kWeighted ? score * actual : score;
      positives += actual;
    }
    if (options_.average != ClassAverage::kWeighted) return total / columns_;
    return positives == 0 ? 0 : total / positives;
  }

 private:
  at::Tensor Taken(const at::Tensor& scores) const {
    if (options_.threshold) return scores.gt(*options_.threshold);
    TORCH_CHECK(scores.dim() > 1 && scores.size(-1) > 1, "metric F score: scores of shape ",
                scores.sizes(), " have no largest class: give the metric a threshold");
    return scores.ge(std::get<0>(scores.max(-1, /*keepdim=*/true)))
        .logical_and_(scores.abs().gt(1e-9));
  }

  const FScoreOptions options_;
  const int columns_;
};

// ---- Areas under curves

class Auc : public Weighted<Metric> {
 public:
  explicit Auc(AucOptions options) : options_(options) {
    TORCH_CHECK(options.num_thresholds >= 2, "AUC needs 2 thresholds or more, has ",
                options.num_thresholds);
  }
  // The sums are the positives in each bucket, then the negatives in each bucket. Bucket i has the
  // scores from threshold i to the next one.
  int width() const override { return 2 * options_.num_thresholds; }
  at::Tensor WeightedIncrement(const at::Tensor& output, const at::Tensor& target,
                               const at::Tensor& weights) const override {
    const at::NoGradGuard no_grad;
    const Cases cases = CasesOf(output, target, weights, "AUC");
    const int64_t buckets = options_.num_thresholds;
    const at::Tensor scores = options_.from_logits ? cases.scores.sigmoid() : cases.scores;
    // NaN counts as 0, in the first bucket.
    const at::Tensor bucket = at::where(scores.isnan(), 0, scores)
                                  .clamp(0, 1)
                                  .mul(static_cast<double>(buckets - 1))
                                  .ceil()
                                  .sub(1)
                                  .clamp(0, buckets - 1)
                                  .to(at::kLong)
                                  .flatten();
    const at::TensorOptions options = cases.scores.options();
    std::vector<at::Tensor> sums;
    for (const at::Tensor& marked : {cases.positive, cases.positive.logical_not()})
      sums.push_back(
          at::zeros({buckets}, options).index_add_(0, bucket, Marked(cases, marked).flatten()));
    return at::stack(sums).flatten();
  }
  double Result(const std::vector<double>& sums) const override {
    const int count = options_.num_thresholds;
    // The numbers of positives and negatives above each threshold.
    std::vector<double> right(count), wrong(count);
    double positives = 0, negatives = 0;
    for (int i = count - 1; i >= 0; --i) {
      right[i] = positives += sums.at(i);
      wrong[i] = negatives += sums[count + i];
    }
    if (options_.curve == AucOptions::Curve::kPrecisionRecall &&
        options_.summation == AucOptions::Summation::kInterpolation)
      return InterpolatedPrecision(right, wrong);
    double area = 0;
    for (int i = 0; i + 1 < count; ++i) {
      const auto [x0, y0] = Point(right[i], wrong[i], positives, negatives);
      const auto [x1, y1] = Point(right[i + 1], wrong[i + 1], positives, negatives);
      area += (x0 - x1) * Height(y0, y1);
    }
    return area;
  }

 private:
  static double Divide(double a, double b) { return b == 0 ? 0 : a / b; }

  std::pair<double, double> Point(double right, double wrong, double positives,
                                  double negatives) const {
    const double recall = Divide(right, positives);
    if (options_.curve == AucOptions::Curve::kRoc) return {Divide(wrong, negatives), recall};
    return {recall, Divide(right, right + wrong)};
  }
  double Height(double a, double b) const {
    switch (options_.summation) {
      case AucOptions::Summation::kMinoring:
        return std::min(a, b);
      case AucOptions::Summation::kMajoring:
        return std::max(a, b);
      case AucOptions::Summation::kInterpolation:
        break;
    }
    return (a + b) / 2;
  }
  // Davis and Goadrich 2006, section 4: between two thresholds, true and false positives grow
  // linearly, but precision does not.
  static double InterpolatedPrecision(const std::vector<double>& right,
                                      const std::vector<double>& wrong) {
    double area = 0;
    for (size_t i = 0; i + 1 < right.size(); ++i) {
      const double from = right[i + 1] + wrong[i + 1], to = right[i] + wrong[i];
      const double gained = right[i] - right[i + 1];
      const double slope = Divide(gained, std::max(0.0, to - from));
      const double intercept = right[i + 1] - slope * from;
      const double ratio = from > 0 && to > 0 ? to / from : 1;
      area += Divide(slope * (gained + intercept * std::log(ratio)), right[0]);
    }
    return area;
  }

  const AucOptions options_;
};

// ---- Confusion matrices

class ConfusionMatrix : public Weighted<Metric> {
 public:
  explicit ConfusionMatrix(int classes) : classes_(classes) {
    TORCH_CHECK(classes >= 2 && classes <= kMostConfusionClasses, "a confusion matrix has 2 to ",
                kMostConfusionClasses, " classes, not ", classes);
  }
  int width() const override { return classes_ * classes_; }
  at::Tensor WeightedIncrement(const at::Tensor& output, const at::Tensor& target,
                               const at::Tensor& weights) const override {
    const at::NoGradGuard no_grad;
    TORCH_CHECK(output.dim() >= 2 && output.size(-1) == classes_,
                "metric confusion matrix: the "
                "output must be scores [batch, ",
                classes_, "], is ", output.sizes());
    TORCH_CHECK(
        target.defined() && target.sizes() == output.sizes().slice(0, output.dim() - 1) &&
            at::isIntegralType(target.scalar_type(), /*includeBool=*/false),
        "metric confusion matrix: the target must be class numbers ",
        output.sizes().slice(0, output.dim() - 1), ", is ",
        target.defined() ? c10::str(target.sizes(), " of type ", target.scalar_type()) : "missing");
    const at::Tensor index = target.to(at::kLong);
    const at::Tensor valid = index.ge(0).logical_and_(index.lt(classes_));
    const at::ScalarType type = SumType(output);
    at::Tensor each = valid.to(type);
    if (weights.defined()) each = at::where(valid, ExpandWeights(each, weights), 0);
    const at::Tensor cell = index.clamp(0, classes_ - 1).mul(classes_).add(output.argmax(-1));
    return at::zeros({width()}, each.options()).index_add_(0, cell.flatten(), each.flatten());
  }
  double Result(const std::vector<double>& sums) const override {
    double all = 0, diagonal = 0;
    for (int c = 0; c < classes_; ++c) diagonal += sums.at(c * classes_ + c);
    for (const double sum : sums) all += sum;
    return all == 0 ? 0 : diagonal / all;
  }
  std::optional<MetricImage> Image(const std::vector<double>& sums) const override {
    return DrawConfusionMatrix(sums, classes_);
  }

 private:
  const int classes_;
};

}  // namespace

std::shared_ptr<const Metric> MakePrecision(DecisionOptions options) {
  return std::make_shared<Decided>(options, /*precision=*/true);
}
std::shared_ptr<const Metric> MakeRecall(DecisionOptions options) {
  return std::make_shared<Decided>(options, /*precision=*/false);
}
std::shared_ptr<const Metric> MakeFScore(FScoreOptions options) {
  return std::make_shared<FScore>(options);
}
std::shared_ptr<const Metric> MakeAuc(AucOptions options) { return std::make_shared<Auc>(options); }
std::shared_ptr<const Metric> MakeConfusionMatrix(int classes) {
  return std::make_shared<ConfusionMatrix>(classes);
}

}  // namespace muster
