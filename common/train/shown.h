// Converts what a program shows (ImageReport, HistogramReport) for the call from a worker of a
// parameter-server job to the chief.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/train/membership.h"
#include "muster/status.h"
#include "proto/parameter_server.pb.h"

namespace muster {

// The limit for one batch. A worker reports at most the data of one batch and of one part of a pass
// at once, in pieces (Leases.Tell).
inline constexpr size_t kMostShownBytes = 6 << 20;

// Converts images and histograms to a message of at most kMostShownBytes. Adds histograms first,
// because they are small, then as many images of each tag as fit. `left_out` receives the tags that
// do not fit completely.
proto::Shown ToMessage(const std::vector<ImageReport>& images,
                       const std::vector<HistogramReport>& histograms,
                       std::vector<std::string>* left_out);

// Returns a ConfigurationError for a message that no worker produces.
absl::Status CheckShown(const proto::Shown& shown);

// Requires CheckShown to be OK.
ImageReport ImagesOf(const proto::Shown::Images& images, int64_t step);
HistogramReport HistogramOf(const proto::Shown::Histogram& histogram, int64_t step);

}  // namespace muster
