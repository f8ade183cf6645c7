#include "muster/metrics.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/all.h>
#include <ATen/ops/any.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/le.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/min.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/square.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>

#include "common/metrics/metric_sums.h"

namespace muster {
namespace metric_sums {

at::ScalarType SumType(const at::Tensor& values) {
  return values.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor ExpandWeights(const at::Tensor& values, const at::Tensor& weights) {
  bool fits = weights.dim() <= values.dim();
  for (int64_t d = 0; fits && d < weights.dim(); ++d) fits = weights.size(d) == values.size(d);
  TORCH_CHECK(fits && weights.dim() > 0, "the weights of a metric must have the shape ",
              values.sizes(), " of its values, or the first dimensions of it, have ",
              weights.sizes());
  std::vector<int64_t> shape = weights.sizes().vec();
  shape.resize(values.dim(), 1);
  return weights.to(SumType(values)).reshape(shape).expand_as(values);
}

}  // namespace metric_sums

namespace {

using metric_sums::ExpandWeights;
using metric_sums::Ratio;
using metric_sums::SumType;

// Returns {sum of values, count}. The host knows the count, so the device need not synchronize.
at::Tensor SumAndCount(const at::Tensor& values) {
  const at::Tensor sum = values.sum(SumType(values));
  return at::stack({sum, at::full({}, values.numel(), sum.options())});
}

// Returns {weighted sum of values, sum of weights}. `weights` has the shape of the values, or of
// their leading dimensions.
at::Tensor WeightedSums(const at::Tensor& values, const at::Tensor& weights) {
  const at::Tensor each = ExpandWeights(values, weights);
  const at::Tensor counted = at::where(each.ne(0), values.to(SumType(values)).mul(each), 0);
  return at::stack({counted.sum(), each.sum()});
}

// The base class of metrics that average values, such as one value for each example or element.
class Average : public Ratio {
 public:
  virtual at::Tensor Values(const at::Tensor& output, const at::Tensor& target) const = 0;
  at::Tensor Increment(const at::Tensor& output, const at::Tensor& target) const override {
    const at::NoGradGuard no_grad;
    return SumAndCount(Values(output, target));
  }
  at::Tensor WeightedIncrement(const at::Tensor& output, const at::Tensor& target,
                               const at::Tensor& weights) const override {
    const at::NoGradGuard no_grad;
    return WeightedSums(Values(output, target), weights);
  }
};

void CheckNoTarget(const at::Tensor& target, const char* name) {
  TORCH_CHECK(!target.defined(), "metric ", name,
              " takes one tensor and no target: give it the values to be aggregated");
}

class Mean : public Average {
 public:
  at::Tensor Values(const at::Tensor& output, const at::Tensor& target) const override {
    CheckNoTarget(target, "mean");
    return output;
  }
};

class Sum : public Metric {
 public:
  int width() const override { return 1; }
  at::Tensor Increment(const at::Tensor& output, const at::Tensor& target) const override {
    const at::NoGradGuard no_grad;
    CheckNoTarget(target, "sum");
    return output.sum(SumType(output)).reshape({1});
  }
  at::Tensor WeightedIncrement(const at::Tensor& output, const at::Tensor& target,
                               const at::Tensor& weights) const override {
    const at::NoGradGuard no_grad;
    CheckNoTarget(target, "sum");
    return WeightedSums(output, weights).narrow(0, 0, 1);
  }
  double Result(const std::vector<double>& sums) const override { return sums.at(0); }
};

// Throws if floating-point targets are not probabilities. The largest of other numbers would not
// mean a class.
void CheckProbabilities(const at::Tensor& target, const char* name) {
  const double rounding = target.scalar_type() == at::kBFloat16 ? 1e-2 : 1e-3;
  const at::Tensor values = target.to(SumType(target)), sums = values.sum(1);
  const at::Tensor wrong =
      values.ge(0).all(1).logical_and_(sums.sub(1).abs_().le(rounding)).logical_not_();
  if (!wrong.any().item<bool>()) return;
  const int64_t row = wrong.nonzero()[0].item<int64_t>();
  TORCH_CHECK(false, "metric ", name,
              ": a target of floating-point is probabilities, none below 0 and of sum 1 for each "
              "example, and those of example ",
              row, " of the batch have the smallest ", values[row].min().item<double>(),
              " and the sum ", sums[row].item<double>(), "; class numbers must be integers");
}

// Returns the class numbers [batch] of a target. The target has class numbers, or probabilities
// [batch, classes] from one-hot encoding or MixUp. For probabilities, returns the class with the
// highest probability.
at::Tensor ClassesOf(const at::Tensor& output, const at::Tensor& target, const char* name) {
  TORCH_CHECK(output.dim() == 2 && output.size(1) > 0, "metric ", name,
              ": the output must be scores [batch, classes], is ", output.sizes());
  TORCH_CHECK(target.defined(), "metric ", name, ": the target is missing");
  // If there is only one score, a floating-point target would always mean class 0.
  if (target.is_floating_point() && output.size(1) > 1) {
    TORCH_CHECK(target.sizes() == output.sizes(), "metric ", name,
                ": a target of floating-point is probabilities and must have the output's shape ",
                output.sizes(), ", has ", target.sizes(), "; class numbers must be integers");
    CheckProbabilities(target, name);
    return target.argmax(1);
  }
  TORCH_CHECK(target.dim() == 1 && target.size(0) == output.size(0), "metric ", name,
              ": the target must be class numbers [batch] like the output's ", output.sizes(),
              ", is ", target.sizes());
  TORCH_CHECK(at::isIntegralType(target.scalar_type(), /*includeBool=*/false), "metric ", name,
              ": the target must be integer class numbers, is ", target.scalar_type());
  return target;
}

// Predicts the class with the highest score. Among equal scores, the first one wins.
class Accuracy : public Average {
 public:
  at::Tensor Values(const at::Tensor& output, const at::Tensor& target) const override {
    const at::Tensor classes = ClassesOf(output, target, "accuracy");
    return output.argmax(1).eq(classes);
  }
};

// An example counts as correct if fewer than k classes have a higher score than the target. Equal
// scores at the limit therefore all count as among the top k, as in TensorFlow. Examples with NaN
// scores or invalid targets count as wrong.
class TopKAccuracy : public Average {
 public:
  explicit TopKAccuracy(int k) : k_(k) {
    TORCH_CHECK(k >= 1, "top-k accuracy needs a k of 1 or more, is ", k);
  }
  at::Tensor Values(const at::Tensor& output, const at::Tensor& target) const override {
    const at::Tensor classes = ClassesOf(output, target, "top-k accuracy");
    const at::Tensor index = classes.to(at::kLong).clamp(0, output.size(1) - 1);
    const at::Tensor higher = output.gt(output.gather(1, index.unsqueeze(1))).sum(1);
    const at::Tensor valid = output.isnan().any(1).logical_not_().logical_and_(index.eq(classes));
    return higher.lt(k_).logical_and_(valid);
  }

 private:
  const int k_;
};

class BinaryAccuracy : public Average {
 public:
  explicit BinaryAccuracy(double threshold) : threshold_(threshold) {}
  at::Tensor Values(const at::Tensor& output, const at::Tensor& target) const override {
    return Column(output, "output").gt(threshold_).eq(ColumnLike(output, target).gt(0.5));
  }

 private:
  static at::Tensor Column(const at::Tensor& tensor, const char* what) {
    TORCH_CHECK(tensor.defined(), "metric binary accuracy: the ", what, " is missing");
    TORCH_CHECK(tensor.dim() == 1 || (tensor.dim() == 2 && tensor.size(1) == 1),
                "metric binary accuracy: the ", what, " must be [batch] or [batch, 1], is ",
                tensor.sizes());
    return tensor.reshape({tensor.size(0)});
  }
  static at::Tensor ColumnLike(const at::Tensor& output, const at::Tensor& target) {
    const at::Tensor column = Column(target, "target");
    TORCH_CHECK(column.size(0) == output.size(0), "metric binary accuracy: ", output.size(0),
                " outputs and ", column.size(0), " targets");
    return column.to(at::kFloat);
  }

  const double threshold_;
};

void CheckSameShape(const at::Tensor& output, const at::Tensor& target, const char* name) {
  TORCH_CHECK(target.defined() && output.sizes() == target.sizes(), "metric ", name,
              ": output and target must have one shape, are ", output.sizes(), " and ",
              target.defined() ? c10::str(target.sizes()) : "missing");
}

// Computes in at least float32, because a difference would overflow in int8 and lose precision in
// bfloat16.
at::Tensor Difference(const at::Tensor& output, const at::Tensor& target) {
  return output.to(SumType(output)).sub(target.to(SumType(output)));
}

class MeanSquaredError : public Average {
 public:
  at::Tensor Values(const at::Tensor& output, const at::Tensor& target) const override {
    CheckSameShape(output, target, "mean squared error");
    return Difference(output, target).square_();
  }
};

class RootMeanSquaredError : public MeanSquaredError {
 public:
  double Result(const std::vector<double>& sums) const override {
    return std::sqrt(MeanSquaredError::Result(sums));
  }
};

class MeanAbsoluteError : public Average {
 public:
  at::Tensor Values(const at::Tensor& output, const at::Tensor& target) const override {
    CheckSameShape(output, target, "mean absolute error");
    return Difference(output, target).abs_();
  }
};

class CosineSimilarity : public Average {
 public:
  at::Tensor Values(const at::Tensor& output, const at::Tensor& target) const override {
    CheckSameShape(output, target, "cosine similarity");
    TORCH_CHECK(output.dim() > 1, "metric cosine similarity: the output must be vectors ",
                "[batch, features], is ", output.sizes());
    const at::ScalarType type = SumType(output);
    const at::Tensor x = output.to(type), y = target.to(type);
    const at::Tensor lengths = x.square().sum(-1).sqrt_().mul_(y.square().sum(-1).sqrt_());
    return at::where(lengths.gt(0), x.mul(y).sum(-1).div(lengths), 0);
  }
};

class Perplexity : public Average {
 public:
  at::Tensor Values(const at::Tensor& output, const at::Tensor& target) const override {
    TORCH_CHECK(
        output.dim() > 1 && output.size(-1) > 0 && target.defined() &&
            target.sizes() == output.sizes().slice(0, output.dim() - 1) &&
            at::isIntegralType(target.scalar_type(), /*includeBool=*/false),
        "metric perplexity: the output must be logits [..., classes] and the target class "
        "numbers [...], are ",
        output.sizes(), " and ",
        target.defined() ? c10::str(target.sizes(), " of type ", target.scalar_type()) : "missing");
    const at::Tensor classes = target.to(at::kLong);
    const at::Tensor index = classes.clamp(0, output.size(-1) - 1);
    const at::Tensor each =
        output.to(SumType(output)).log_softmax(-1).gather(-1, index.unsqueeze(-1)).squeeze(-1);
    // The value of an invalid class number is NaN, which a weight of 0 excludes.
    return at::where(index.eq(classes), each.neg(), std::numeric_limits<double>::quiet_NaN());
  }
  double Result(const std::vector<double>& sums) const override {
    return sums.at(1) == 0 ? 0 : std::exp(sums[0] / sums[1]);
  }
};

}  // namespace

std::optional<MetricImage> Metric::Image(const std::vector<double>&) const { return std::nullopt; }

at::Tensor Metric::WeightedIncrement(const at::Tensor&, const at::Tensor&,
                                     const at::Tensor&) const {
  TORCH_CHECK(false,
              "a metric got weights, which it does not take: update it without, or give it a "
              "WeightedIncrement");
}

std::shared_ptr<const Metric> MakeMean() { return std::make_shared<Mean>(); }
std::shared_ptr<const Metric> MakeSum() { return std::make_shared<Sum>(); }
std::shared_ptr<const Metric> MakeAccuracy() { return std::make_shared<Accuracy>(); }
std::shared_ptr<const Metric> MakeTopKAccuracy(int k) { return std::make_shared<TopKAccuracy>(k); }
std::shared_ptr<const Metric> MakeBinaryAccuracy(double threshold) {
  return std::make_shared<BinaryAccuracy>(threshold);
}
std::shared_ptr<const Metric> MakeMeanSquaredError() {
  return std::make_shared<MeanSquaredError>();
}
std::shared_ptr<const Metric> MakeRootMeanSquaredError() {
  return std::make_shared<RootMeanSquaredError>();
}
std::shared_ptr<const Metric> MakeMeanAbsoluteError() {
  return std::make_shared<MeanAbsoluteError>();
}

std::shared_ptr<const Metric> MakeCosineSimilarity() {
  return std::make_shared<CosineSimilarity>();
}
std::shared_ptr<const Metric> MakePerplexity() { return std::make_shared<Perplexity>(); }

}  // namespace muster
