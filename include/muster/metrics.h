// Metrics over the cluster: each batch adds a few numbers, the sums of all replicas give the value.
// A metric holds no state; the loop keeps the sums (double precision), reduces them with the step,
// and resets them each epoch. Immutable, thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace muster {

// A picture for TensorBoard: [height][width][3] bytes, red, green and blue.
struct MetricImage {
  int height = 0, width = 0;
  std::vector<uint8_t> pixels;
};

class Metric {
 public:
  virtual ~Metric() = default;
  // How many sums it keeps.
  virtual int width() const = 0;
  // Shape [width()], float32 (float64 for float64 outputs), on the inputs' device, without a host
  // synchronisation: what these examples
  // add. Zeros for an empty batch. Counts must be exact in float32 (below 2^24 a step). Throws
  // c10::Error on shapes that cannot be right.
  virtual at::Tensor Increment(const at::Tensor& output, const at::Tensor& target) const = 0;
  // Likewise, where the examples count as `weights` say: one for each example, or for each value
  // that the metric averages. Zeros of the weights hide what is there, NaN too. Metrics that cannot
  // do so leave this as it is: it throws c10::Error.
  virtual at::Tensor WeightedIncrement(const at::Tensor& output, const at::Tensor& target,
                                       const at::Tensor& weights) const;
  // The value, from the sums over all examples; 0 where there were none.
  virtual double Result(const std::vector<double>& sums) const = 0;
  // What to show of the sums at the end of an epoch or a pass besides the value; most have nothing.
  virtual std::optional<MetricImage> Image(const std::vector<double>& sums) const;
};

std::shared_ptr<const Metric>
MakeMean();  // of output [batch] (or any shape: mean over all elements)
std::shared_ptr<const Metric> MakeSum();       // of output
std::shared_ptr<const Metric> MakeAccuracy();  // output [batch, classes] scores, target [batch]
                                               // integers, or probabilities; ties: the first
std::shared_ptr<const Metric> MakeTopKAccuracy(
    int k);  // likewise; classes that tie at the edge are all among the top k
std::shared_ptr<const Metric> MakeBinaryAccuracy(
    double threshold);  // output [batch] or [batch, 1], target 0 or 1
std::shared_ptr<const Metric> MakeMeanSquaredError();      // equal shapes, mean over all elements
std::shared_ptr<const Metric> MakeRootMeanSquaredError();  // its root
std::shared_ptr<const Metric> MakeMeanAbsoluteError();
// Of equal shapes [batch, ..., features]: the mean of the cosines between vectors along the last
// dimension, 0 where one of the two is 0.
std::shared_ptr<const Metric> MakeCosineSimilarity();
// The exponential of the mean cross entropy of logits [..., classes] and class numbers [...].
std::shared_ptr<const Metric> MakePerplexity();

// ---- What counts right and wrong decisions, with the definitions of keras.metrics.
// Outputs are scores of any shape with targets of that shape, which are positive where they are not
// 0; or scores [..., classes] with class numbers [...], which count as 1 for their class and 0 for
// the others; or a column [batch, 1] with targets [batch].

// A value is taken for positive where it is above the threshold and, with top_k, among the k
// largest in the last dimension (of equal ones the first).
struct DecisionOptions {
  std::optional<double> threshold;  // absent: 0.5, and none with top_k
  int top_k = 0;                    // 0: all
  int class_id = -1;                // of the last dimension only this one counts; -1: all
};
// Right positives over all that were taken for positive.
std::shared_ptr<const Metric> MakePrecision(DecisionOptions options = {});
// ... over all that are positive.
std::shared_ptr<const Metric> MakeRecall(DecisionOptions options = {});

enum class ClassAverage {
  kMicro,    // of all classes' decisions together
  kMacro,    // the mean over classes
  kWeighted  // likewise, each class counts as often as it occurs
};
struct FScoreOptions {
  double beta = 1;
  ClassAverage average = ClassAverage::kMicro;
  int classes = 1;  // size of the last dimension; kMicro does not need it
  // Absent: in the last dimension the largest value is taken for positive, unless it is 0.
  std::optional<double> threshold;
  int class_id = -1;  // only this one counts, whatever the average; -1: all
};
// (1 + beta^2) precision x recall / (beta^2 precision + recall).
std::shared_ptr<const Metric> MakeFScore(FScoreOptions options = {});

struct AucOptions {
  enum class Curve { kRoc, kPrecisionRecall };
  enum class Summation { kInterpolation, kMinoring, kMajoring };
  Curve curve = Curve::kRoc;
  Summation summation = Summation::kInterpolation;
  int num_thresholds = 200;  // evenly from 0 to 1
  bool from_logits = false;  // the sigmoid of outputs counts; else they are from 0 to 1
};
// The area under the curve of keras.metrics.AUC, all values of an output together.
std::shared_ptr<const Metric> MakeAuc(AucOptions options = {});

// Counts by (true class, class with the highest score), also as a picture: rows are true classes,
// and shares of a row dark. The value is the share on the diagonal. `classes`: 2 to
// kMostConfusionClasses; class numbers that are none count nowhere.
inline constexpr int kMostConfusionClasses = 256;
std::shared_ptr<const Metric> MakeConfusionMatrix(int classes);

}  // namespace muster
