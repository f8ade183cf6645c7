// Metrics over all replicas (devices). A Metric is described by a few sums over examples.
// Increment() computes the sums over the examples of one batch. Result() computes the metric's
// value from the sums of all replicas. A Metric has no state. The training loop keeps the sums in
// double precision. In each step, the loop adds up the sums of all replicas. In each epoch, the
// loop resets the sums. Immutable. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace muster {

// An RGB image for TensorBoard. `pixels` has the shape [height][width][3].
struct MetricImage {
  int height = 0, width = 0;
  std::vector<uint8_t> pixels;
};

class Metric {
 public:
  virtual ~Metric() = default;
  // Returns the number of sums.
  virtual int width() const = 0;
  // Returns the sums over these examples: a tensor of shape [width()] on the inputs' device,
  // float32 (float64 for float64 outputs). Returns zeros for an empty batch. Throws c10::Error if
  // the shapes are invalid. An implementation must not wait for the GPU, as Tensor::item() does.
  // Counts must be exact in float32, so they must stay below 2^24 per step.
  virtual at::Tensor Increment(const at::Tensor& output, const at::Tensor& target) const = 0;
  // Like Increment, with one weight for each example or for each value that the metric averages. A
  // value with weight 0 does not count, even if the value is NaN. The default implementation throws
  // c10::Error, because the metric does not support weights.
  virtual at::Tensor WeightedIncrement(const at::Tensor& output, const at::Tensor& target,
                                       const at::Tensor& weights) const;
  // Returns the metric's value. `sums` are the sums over all examples. Returns 0 if there are no
  // examples.
  virtual double Result(const std::vector<double>& sums) const = 0;
  // Returns an image of the sums, which TensorBoard shows for each epoch or pass. The default
  // implementation returns nullopt: no image.
  virtual std::optional<MetricImage> Image(const std::vector<double>& sums) const;
};

// Averages all elements of the output. The usual shape is [batch].
std::shared_ptr<const Metric> MakeMean();
std::shared_ptr<const Metric> MakeSum();  // Sums all elements of the output.
// Computes the fraction of examples whose true class has the highest score. The output has scores
// [batch, classes]. The target has class numbers [batch] or probabilities [batch, classes]. Among
// equal scores, the first counts as the highest. The check of probabilities waits for the GPU.
std::shared_ptr<const Metric> MakeAccuracy();
// Computes the fraction of examples whose true class has one of the k highest scores. Output and
// target are as for MakeAccuracy. Each score equal to the k-th highest score counts as one of the k
// highest.
std::shared_ptr<const Metric> MakeTopKAccuracy(int k);
// Predicts 1 for outputs above the threshold, and 0 for all others. Computes the fraction of
// correct predictions. The output has shape [batch] or [batch, 1]. Targets are 0 or 1.
std::shared_ptr<const Metric> MakeBinaryAccuracy(double threshold);
std::shared_ptr<const Metric> MakeMeanSquaredError();      // Requires equal shapes.
std::shared_ptr<const Metric> MakeRootMeanSquaredError();  // Requires equal shapes.
std::shared_ptr<const Metric> MakeMeanAbsoluteError();
// Averages the cosine similarity of the output's and the target's vectors. The last dimension holds
// the elements of a vector. Output and target have equal shapes [batch, ..., features]. If either
// vector is 0, the similarity is 0.
std::shared_ptr<const Metric> MakeCosineSimilarity();
// Computes the exponential of the mean cross entropy. The output has logits [..., classes]. The
// target has class numbers [...].
std::shared_ptr<const Metric> MakePerplexity();

// The following metrics, up to MakeAuc, count correct and wrong binary decisions, as in
// keras.metrics. Outputs are scores. Outputs and targets have one of three forms:
//  - Any shape, with targets of the same shape. A target other than 0 is positive.
//  - Scores [..., classes], with class numbers [...]. A class number means target 1 for this class
//    and target 0 for all other classes.
//  - A column [batch, 1], with targets [batch].

// Selects the values that count as predicted positive. A value must be above the threshold. If
// top_k is set, the value must also be among the top_k largest values of the last dimension. Among
// equal values, earlier values count as larger.
struct DecisionOptions {
  std::optional<double> threshold;  // Default: 0.5, or no threshold if top_k is set.
  int top_k = 0;                    // 0 means no limit.
  int class_id = -1;                // Counts only this class (last dimension). -1: all classes.
};
// Computes true positives divided by predicted positives.
std::shared_ptr<const Metric> MakePrecision(DecisionOptions options = {});
// Computes true positives divided by actual positives.
std::shared_ptr<const Metric> MakeRecall(DecisionOptions options = {});

enum class ClassAverage {
  kMicro,  // One score, computed from the counts of all classes together.
  kMacro,  // The mean of the scores of the classes.
  // The mean of the scores of the classes, weighted by the number of examples of each class.
  kWeighted
};
struct FScoreOptions {
  double beta = 1;
  ClassAverage average = ClassAverage::kMicro;
  int classes = 1;  // The size of the last dimension. kMicro does not need it.
  // Values above the threshold count as predicted positive. Without a threshold, only the largest
  // value of the last dimension counts as predicted positive. If the largest value is 0, no value
  // counts as predicted positive.
  std::optional<double> threshold;
  int class_id = -1;  // Computes the score of only this class, for any `average`. -1: all classes.
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
// Computes the area under the curve as keras.metrics.AUC does. There is one curve for all values of
// the outputs together.
std::shared_ptr<const Metric> MakeAuc(AucOptions options = {});

// Counts examples by true class and by predicted class (the class with the highest score). The
// metric's value is the fraction of examples whose predicted class is the true class. In the image,
// each row is a true class, and each column is a predicted class. A darker cell has a larger
// fraction of the row's examples. `classes` is from 2 to kMostConfusionClasses. Examples with an
// invalid class number are not counted.
inline constexpr int kMostConfusionClasses = 256;
std::shared_ptr<const Metric> MakeConfusionMatrix(int classes);

}  // namespace muster
