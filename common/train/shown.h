// Converts images and histograms that a program shows (ImageReport, HistogramReport) to a message
// and back. A worker of a parameter-server job sends the message to the chief.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/train/membership.h"
#include "muster/status.h"
#include "proto/parameter_server.pb.h"

namespace muster {

// The maximum size of the message for one batch. A worker reports at most one batch and one part of
// a pass at once. It sends them in pieces (Leases.Tell).
inline constexpr size_t kMaxShownBytes = 6 << 20;

// Converts images and histograms to a message of at most kMaxShownBytes. Adds all histograms
// first, because they are small, then as many images of each tag as fit. Adds the tags that do not
// fit completely to `left_out`.
proto::Shown ToMessage(const std::vector<ImageReport>& images,
                       const std::vector<HistogramReport>& histograms,
                       std::vector<std::string>* left_out);

// Returns a ConfigurationError for a message that no worker produces.
absl::Status CheckShown(const proto::Shown& shown);

// REQUIRES: CheckShown is OK for the message.
ImageReport ImagesOf(const proto::Shown::Images& images, int64_t step);
HistogramReport HistogramOf(const proto::Shown::Histogram& histogram, int64_t step);

}  // namespace muster
