// What a program shows: pictures and distributions, copied off its tensors at once, because the
// next operation may change those. Reported when the step, or the pass, is through.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "common/train/membership.h"

namespace muster {

inline constexpr int kMostImages = 3;  // of a tag, in a step or pass

// Of one step or pass on one replica; of a tag the first call counts.
class SummaryData {
 public:
  // Where `wanted` is false, nothing is copied; arguments are checked all the same, so that a wrong
  // one is found in the first step and on every replica. StatusError: a ProgramError.
  void Image(bool wanted, const std::string& tag, const at::Tensor& images);
  void Histogram(bool wanted, const std::string& tag, const at::Tensor& values);

  std::vector<ImageReport> images;  // `step` is left for the loop
  std::vector<HistogramReport> histograms;
};

// Any numeric tensor, from any device.
HistogramReport MakeHistogram(const std::string& tag, const at::Tensor& values);

}  // namespace muster
