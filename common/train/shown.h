// What a program shows (ImageReport, HistogramReport) on its way from a worker of a
// parameter-server job to the chief.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/train/membership.h"
#include "muster/status.h"
#include "proto/parameter_server.pb.h"

namespace muster {

// Of one batch. A worker tells of a batch's and of a part of a pass's at once, at the most, in
// pieces (Leases.Tell).
inline constexpr size_t kMostShownBytes = 6 << 20;

// Histograms first: they are small. Of a tag's pictures the first ones that fit; `left_out`: the
// tags of which not all do.
proto::Shown ToMessage(const std::vector<ImageReport>& images,
                       const std::vector<HistogramReport>& histograms,
                       std::vector<std::string>* left_out);

// A ConfigurationError: what no worker makes.
absl::Status CheckShown(const proto::Shown& shown);

// REQUIRES: CheckShown found nothing.
ImageReport ImagesOf(const proto::Shown::Images& images, int64_t step);
HistogramReport HistogramOf(const proto::Shown::Histogram& histogram, int64_t step);

}  // namespace muster
