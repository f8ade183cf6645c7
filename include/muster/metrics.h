// Metrics over the cluster: each batch adds a few numbers, the sums of all replicas give the value.
// A metric holds no state; the loop keeps the sums (double precision), reduces them with the step,
// and resets them each epoch. Immutable, thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace muster {

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
};

std::shared_ptr<const Metric>
MakeMean();  // of output [batch] (or any shape: mean over all elements)
std::shared_ptr<const Metric> MakeSum();       // of output
std::shared_ptr<const Metric> MakeAccuracy();  // output [batch, classes] scores, target [batch]
                                               // integers; of equal scores the first
std::shared_ptr<const Metric> MakeTopKAccuracy(
    int k);  // likewise; classes that tie at the edge are all among the top k
std::shared_ptr<const Metric> MakeBinaryAccuracy(
    double threshold);  // output [batch] or [batch, 1], target 0 or 1
std::shared_ptr<const Metric> MakeMeanSquaredError();      // equal shapes, mean over all elements
std::shared_ptr<const Metric> MakeRootMeanSquaredError();  // its root
std::shared_ptr<const Metric> MakeMeanAbsoluteError();

}  // namespace muster
