// Metrics over the cluster. Each batch adds a few numbers to sums, and the sums over all replicas
// determine the value. A metric holds no state. The loop keeps the sums in double precision,
// reduces them with the step, and resets them each epoch. Immutable. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace muster {

// An image for TensorBoard: [height][width][3] bytes, red, green and blue.
struct MetricImage {
  int height = 0, width = 0;
  std::vector<uint8_t> pixels;
};

class Metric {
 public:
  virtual ~Metric() = default;
  // The number of sums.
  virtual int width() const = 0;
  // Returns the contribution of these examples to the sums: shape [width()], float32 (float64 for
  // float64 outputs), on the inputs' device. Must not synchronize with the host. Returns zeros for
  // an empty batch. Counts must be exact in float32 (below 2^24 per step). Throws c10::Error if the
  // shapes are invalid.
  virtual at::Tensor Increment(const at::Tensor& output, const at::Tensor& target) const = 0;
  // As Increment, with weights: one for each example, or one for each value that the metric
  // averages. A weight of 0 excludes a value, even NaN. Metrics without weights keep the default,
  // which throws c10::Error.
  virtual at::Tensor WeightedIncrement(const at::Tensor& output, const at::Tensor& target,
                                       const at::Tensor& weights) const;
  // Returns the value from the sums over all examples, 0 if there were none.
  virtual double Result(const std::vector<double>& sums) const = 0;
  // Returns an image of the sums to show at the end of an epoch or a pass. Most metrics have none.
  virtual std::optional<MetricImage> Image(const std::vector<double>& sums) const;
};

// The mean of output [batch], or of all elements for any other shape.
std::shared_ptr<const Metric> MakeMean();
std::shared_ptr<const Metric> MakeSum();  // The sum of output.
// Output: scores [batch, classes]. Target: integers or probabilities. If scores are equal, the
// first one counts.
std::shared_ptr<const Metric> MakeAccuracy();
// As accuracy. Classes that tie at the boundary all count as among the top k.
std::shared_ptr<const Metric> MakeTopKAccuracy(int k);
// Output [batch] or [batch, 1], target 0 or 1.
std::shared_ptr<const Metric> MakeBinaryAccuracy(double threshold);
std::shared_ptr<const Metric> MakeMeanSquaredError();  // Equal shapes, mean over all elements.
std::shared_ptr<const Metric>
MakeRootMeanSquaredError();  // The square root of the mean squared error.
std::shared_ptr<const Metric> MakeMeanAbsoluteError();
// Equal shapes [batch, ..., features]. The mean of the cosines between vectors along the last
// dimension. A cosine is 0 if one of the two vectors is 0.
std::shared_ptr<const Metric> MakeCosineSimilarity();
// The exponential of the mean cross entropy. Output: logits [..., classes]. Target: class numbers
// [...].
std::shared_ptr<const Metric> MakePerplexity();

// Metrics of right and wrong decisions, defined as in keras.metrics.
// Outputs are scores, in one of three forms:
//  - Any shape, with targets of the same shape. A target other than 0 is positive.
//  - Scores [..., classes], with class numbers [...]. A class number counts as 1 for its class and
//    as 0 for the others.
//  - A column [batch, 1], with targets [batch].

// A value counts as predicted positive if it is above the threshold. With top_k it must also be
// among the k largest in the last dimension, where the first of equal values wins.
struct DecisionOptions {
  std::optional<double> threshold;  // Absent: 0.5, or no threshold if top_k is set.
  int top_k = 0;                    // 0: no limit.
  int class_id = -1;                // Only this class of the last dimension counts. -1: all.
};
// True positives divided by predicted positives.
std::shared_ptr<const Metric> MakePrecision(DecisionOptions options = {});
// True positives divided by all positives.
std::shared_ptr<const Metric> MakeRecall(DecisionOptions options = {});

enum class ClassAverage {
  kMicro,    // Over the decisions of all classes together.
  kMacro,    // The mean over classes.
  kWeighted  // The mean over classes, weighted by how often each class occurs.
};
struct FScoreOptions {
  double beta = 1;
  ClassAverage average = ClassAverage::kMicro;
  int classes = 1;  // Size of the last dimension. Not needed for kMicro.
  // Absent: the largest value of the last dimension counts as predicted positive, unless it is 0.
  std::optional<double> threshold;
  int class_id = -1;  // Only this class counts, whatever the average. -1: all.
};
// (1 + beta^2) precision x recall / (beta^2 precision + recall).
std::shared_ptr<const Metric> MakeFScore(FScoreOptions options = {});

struct AucOptions {
  enum class Curve { kRoc, kPrecisionRecall };
  enum class Summation { kInterpolation, kMinoring, kMajoring };
  Curve curve = Curve::kRoc;
  Summation summation = Summation::kInterpolation;
  int num_thresholds = 200;  // Evenly spaced from 0 to 1.
  // True: the sigmoid of outputs is used. False: outputs are from 0 to 1.
  bool from_logits = false;
};
// The area under the curve, as keras.metrics.AUC, over all values of an output together.
std::shared_ptr<const Metric> MakeAuc(AucOptions options = {});

// Counts by (true class, class with the highest score). The value is the share on the diagonal. The
// image shows true classes as rows, and larger shares of a row darker. `classes` is from 2 to
// kMostConfusionClasses. Invalid class numbers are not counted.
inline constexpr int kMostConfusionClasses = 256;
std::shared_ptr<const Metric> MakeConfusionMatrix(int classes);

}  // namespace muster
