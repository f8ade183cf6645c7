// Collects the images and histograms that a program shows in a training step or an evaluation pass.
// Copies the data in each call, because the program may change the tensors after the call. The
// training loop sends the copies to TensorBoard when the step or pass is complete.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "common/train/observer.h"

namespace muster {

// The maximum number of images for one tag in a step or pass.
inline constexpr int kMaxImages = 3;

// The data of one step or pass on one replica. Calls with an empty tensor are ignored. Of the other
// calls, only the first for each tag counts.
class SummaryData {
 public:
  // `wanted` is true in steps for which summaries are written. Both functions copy `images` or
  // `values` only in these steps. Both functions check their arguments in every step. A wrong
  // argument therefore fails in the first step on every replica. The error is a StatusError with a
  // ProgramError.
  void Image(bool wanted, const std::string& tag, const at::Tensor& images);
  void Histogram(bool wanted, const std::string& tag, const at::Tensor& values);

  // The field `step` of each report in both lists is 0. The training loop sets the field later.
  std::vector<ImageReport> images;
  std::vector<HistogramReport> histograms;
};

// Returns the histogram of the elements of `values`, a real numeric tensor of any type on any
// device.
HistogramReport MakeHistogram(const std::string& tag, const at::Tensor& values);

}  // namespace muster
