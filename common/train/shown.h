// Converts the images and histograms that a program shows in a step or pass to a protobuf message,
// and back. In a parameter-server job, workers send this message to the chief.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/train/observer.h"
#include "muster/status.h"
#include "proto/parameter_server.pb.h"

namespace muster {

// The maximum size in bytes of the message for one batch. In a worker's report to the chief, the
// messages for all training batches together have at most this size. The message for a part of a
// validation or test pass may have the same size again. Large reports are sent in pieces
// (Leases.Tell in parameter_server.proto).
inline constexpr size_t kMaxShownBytes = 6 << 20;

// Converts images and histograms to a message of at most kMaxShownBytes. Adds all histograms first,
// because they are small. Then adds as many images of each tag as fit. If a histogram or some
// images of a tag do not fit, appends the tag to `left_out`.
proto::Shown ToMessage(const std::vector<ImageReport>& images,
                       const std::vector<HistogramReport>& histograms,
                       std::vector<std::string>* left_out);

// Returns a ConfigurationError if the message is damaged or too large. No worker of this version
// sends such a message.
absl::Status CheckShown(const proto::Shown& shown);

// Convert a part of a message back to a report for `step`. REQUIRES: CheckShown returned OK for the
// message.
ImageReport ImagesOf(const proto::Shown::Images& images, int64_t step);
HistogramReport HistogramOf(const proto::Shown::Histogram& histogram, int64_t step);

}  // namespace muster
