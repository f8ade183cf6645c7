// Metrics over all replicas. A Metric computes the contribution of a batch to a few sums, and the
// metric's value from the sums over all replicas. A Metric has no state: the loop keeps the sums in
// double precision, reduces them with the step, and resets them each epoch. Immutable. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace muster {

// An RGB image for TensorBoard. `pixels` has the order [height][width][3].
struct MetricImage {
  int height = 0, width = 0;
  std::vector<uint8_t> pixels;
};

class Metric {
 public:
  virtual ~Metric() = default;
  // Returns the number of sums.
  virtual int width() const = 0;
  // Returns the contribution of these examples to the sums: a tensor of shape [width()] on the
  // inputs' device, float32 (float64 for float64 outputs). Returns zeros for an empty batch. Throws
  // c10::Error if the shapes are invalid. An implementation must not synchronize with the host. Its
  // counts must be exact in float32 (below 2^24 per step).
  virtual at::Tensor Increment(const at::Tensor& output, const at::Tensor& target) const = 0;
  // Like Increment, with one weight for each example or for each value that the metric averages. A
  // value with weight 0 does not count, even if the value is NaN. The default implementation, for
  // metrics without weights, throws c10::Error.
  virtual at::Tensor WeightedIncrement(const at::Tensor& output, const at::Tensor& target,
                                       const at::Tensor& weights) const;
  // Returns the metric's value from the sums over all examples. Returns 0 if there are no examples.
  virtual double Result(const std::vector<double>& sums) const = 0;
  // Returns an image of the sums, which is shown at the end of an epoch or pass. Most metrics
  // return nullopt.
  virtual std::optional<MetricImage> Image(const std::vector<double>& sums) const;
};

// Averages all elements of the output, usually [batch].
std::shared_ptr<const Metric> MakeMean();
std::shared_ptr<const Metric> MakeSum();  // Sums all elements of the output.
// The output has scores [batch, classes]. The target has integers or probabilities. Among equal
// scores, the first one counts as the highest.
std::shared_ptr<const Metric> MakeAccuracy();
// Arguments are those of MakeAccuracy. If several classes share the k-th highest score, all of them
// count as among the top k.
std::shared_ptr<const Metric> MakeTopKAccuracy(int k);
// The output has shape [batch] or [batch, 1]. Targets are 0 or 1.
std::shared_ptr<const Metric> MakeBinaryAccuracy(double threshold);
std::shared_ptr<const Metric> MakeMeanSquaredError();      // Requires equal shapes.
std::shared_ptr<const Metric> MakeRootMeanSquaredError();  // Requires equal shapes.
std::shared_ptr<const Metric> MakeMeanAbsoluteError();
// Averages the cosines between vectors along the last dimension. Output and target have equal
// shapes [batch, ..., features]. If one of two vectors is 0, their cosine is 0.
std::shared_ptr<const Metric> MakeCosineSimilarity();
// Computes the exponential of the mean cross entropy. The output has logits [..., classes]. The
// target has class numbers [...].
std::shared_ptr<const Metric> MakePerplexity();

// The following metrics count correct and wrong binary decisions, as in keras.metrics. Outputs are
// scores, in one of three forms:
//  - Any shape, with targets of the same shape. A target other than 0 is positive.
//  - Scores [..., classes], with class numbers [...]. A class number counts as 1 for its class and
//    as 0 for the others.
//  - A column [batch, 1], with targets [batch].

// A value counts as predicted positive if it is above the threshold. With top_k, the value must
// also be among the k largest of the last dimension. Among equal values, earlier ones count as
// larger.
struct DecisionOptions {
  std::optional<double> threshold;  // Default: 0.5, or no threshold if top_k is set.
  int top_k = 0;                    // 0 means no limit.
  int class_id = -1;                // Selects one class of the last dimension. -1 selects all.
};
// Computes true positives divided by predicted positives.
std::shared_ptr<const Metric> MakePrecision(DecisionOptions options = {});
// Computes true positives divided by actual positives.
std::shared_ptr<const Metric> MakeRecall(DecisionOptions options = {});

enum class ClassAverage {
  kMicro,    // One score from the counts of all classes together.
  kMacro,    // The mean of the scores of the classes.
  kWeighted  // The mean of the scores of the classes, weighted by their frequencies.
};
struct FScoreOptions {
  double beta = 1;
  ClassAverage average = ClassAverage::kMicro;
  int classes = 1;  // The size of the last dimension. kMicro does not need it.
  // Without a threshold, the largest value of the last dimension counts as predicted positive,
  // unless this value is 0.
  std::optional<double> threshold;
  int class_id = -1;  // Selects one class, with any `average`. -1 selects all.
};
// Computes (1 + beta^2) * precision * recall / (beta^2 * precision + recall).
std::shared_ptr<const Metric> MakeFScore(FScoreOptions options = {});

struct AucOptions {
  enum class Curve { kRoc, kPrecisionRecall };
  enum class Summation { kInterpolation, kMinoring, kMajoring };
  Curve curve = Curve::kRoc;
  Summation summation = Summation::kInterpolation;
  int num_thresholds = 200;  // The thresholds are evenly spaced from 0 to 1.
  // If true, the sigmoid is applied to outputs. If false, outputs must be in [0, 1].
  bool from_logits = false;
};
// Computes the area under the curve as keras.metrics.AUC does. All values of the outputs form one
// curve.
std::shared_ptr<const Metric> MakeAuc(AucOptions options = {});

// Counts examples by true class and by the class with the highest score. The value is the fraction
// of examples on the diagonal. In the image, rows are true classes, and a darker cell has a larger
// fraction of its row. `classes` is from 2 to kMostConfusionClasses. Invalid class numbers are not
// counted.
inline constexpr int kMostConfusionClasses = 256;
std::shared_ptr<const Metric> MakeConfusionMatrix(int classes);

}  // namespace muster
