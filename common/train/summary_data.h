// Images and histograms that a program shows in a step or a pass. The data is copied at once,
// because the program's next operation may change the tensors. The loop reports it when the step or
// pass is complete.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "common/train/membership.h"

namespace muster {

inline constexpr int kMaxImages = 3;  // Maximum for one tag in a step or pass.

// The data of one step or pass on one replica. Only the first call for a tag counts.
class SummaryData {
 public:
  // Both functions check their arguments, and copy them if `wanted` is true. Every replica thus
  // detects a wrong argument in the first step. Both throw a StatusError with a ProgramError.
  void Image(bool wanted, const std::string& tag, const at::Tensor& images);
  void Histogram(bool wanted, const std::string& tag, const at::Tensor& values);

  std::vector<ImageReport> images;  // The loop sets `step`.
  std::vector<HistogramReport> histograms;
};

// Accepts a numeric tensor of any type on any device.
HistogramReport MakeHistogram(const std::string& tag, const at::Tensor& values);

}  // namespace muster
