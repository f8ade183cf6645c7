// Images and histograms that a program shows. They are copied at once, because the next operation
// may change the tensors. They are reported when the step or the pass is complete.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "common/train/membership.h"

namespace muster {

inline constexpr int kMostImages = 3;  // Limit for one tag in a step or pass.

// The data of one step or pass on one replica. Only the first call for a tag counts.
class SummaryData {
 public:
  // If `wanted` is false, these functions only check their arguments and copy nothing. A wrong
  // argument is thus detected in the first step and on every replica. They throw a StatusError with
  // a ProgramError.
  void Image(bool wanted, const std::string& tag, const at::Tensor& images);
  void Histogram(bool wanted, const std::string& tag, const at::Tensor& values);

  std::vector<ImageReport> images;  // The loop sets `step`.
  std::vector<HistogramReport> histograms;
};

// Accepts any numeric tensor on any device.
HistogramReport MakeHistogram(const std::string& tag, const at::Tensor& values);

}  // namespace muster
