#include "common/train/shown.h"

#include <fmt/format.h>

#include <algorithm>

namespace muster {
namespace {

void AddHistogram(const HistogramReport& report, proto::Shown::Histogram* message) {
  const summary::Distribution& distribution = report.distribution;
  message->set_tag(report.tag);
  message->set_count(distribution.count);
  message->set_not_finite(distribution.not_finite);
  message->set_min(distribution.min);
  message->set_max(distribution.max);
  message->set_sum(distribution.sum);
  message->set_sum_squares(distribution.sum_squares);
  *message->mutable_limits() = {distribution.limits.begin(), distribution.limits.end()};
  *message->mutable_counts() = {distribution.counts.begin(), distribution.counts.end()};
}

void AddImages(const ImageReport& report, size_t count, size_t bytes, proto::Shown* shown) {
  proto::Shown::Images* message = shown->add_images();
  message->set_tag(report.tag);
  message->set_count(static_cast<int>(count));
  message->set_height(report.height);
  message->set_width(report.width);
  message->set_channels(report.channels);
  message->set_pixels(report.pixels.data(), bytes);
}

absl::Status Wrong(const std::string& tag, const std::string& what) {
  return ConfigurationError(fmt::format("what was shown as \"{}\" {}", tag, what));
}

}  // namespace

proto::Shown ToMessage(const std::vector<ImageReport>& images,
                       const std::vector<HistogramReport>& histograms,
                       std::vector<std::string>* left_out) {
  proto::Shown shown;
  size_t left = kMaxShownBytes;
  for (const HistogramReport& report : histograms) {
    const summary::Distribution& distribution = report.distribution;
    const size_t bytes = 100 + report.tag.size() +
                         (distribution.limits.size() + distribution.counts.size()) * sizeof(double);
    if (bytes > left) {
      left_out->push_back(report.tag);
      continue;
    }
    AddHistogram(report, shown.add_histograms());
    left -= bytes;
  }
  for (const ImageReport& report : images) {
    const size_t others = 100 + report.tag.size();
    const size_t each = std::max<size_t>(1, report.pixels.size() / std::max(1, report.count));
    const size_t fit = std::min<size_t>(report.count, left > others ? (left - others) / each : 0);
    if (fit < static_cast<size_t>(report.count)) left_out->push_back(report.tag);
    if (fit == 0) continue;
    AddImages(report, fit, fit * each, &shown);
    left -= others + fit * each;
  }
  return shown;
}

absl::Status CheckShown(const proto::Shown& shown) {
  for (const proto::Shown::Images& images : shown.images()) {
    uint64_t bytes = 1;
    for (const int size : {images.count(), images.height(), images.width(), images.channels()}) {
      if (size <= 0 || static_cast<size_t>(size) > kMaxShownBytes)
        return Wrong(images.tag(), "has no pixels, or too many");
      bytes = std::min<uint64_t>(bytes * static_cast<uint64_t>(size), kMaxShownBytes + 1);
    }
    if (bytes != images.pixels().size())
      return Wrong(images.tag(), fmt::format("has {} bytes of pixels, and not {}",
                                             images.pixels().size(), bytes));
  }
  for (const proto::Shown::Histogram& histogram : shown.histograms())
    if (histogram.limits_size() != histogram.counts_size() || histogram.limits_size() == 0)
      return Wrong(histogram.tag(), fmt::format("has {} limits of buckets, and {} counts",
                                                histogram.limits_size(), histogram.counts_size()));
  return absl::OkStatus();
}

ImageReport ImagesOf(const proto::Shown::Images& images, int64_t step) {
  return {images.tag(),
          step,
          images.count(),
          images.height(),
          images.width(),
          images.channels(),
          {images.pixels().begin(), images.pixels().end()}};
}

HistogramReport HistogramOf(const proto::Shown::Histogram& histogram, int64_t step) {
  HistogramReport report;
  report.tag = histogram.tag();
  report.step = step;
  summary::Distribution& distribution = report.distribution;
  distribution.count = histogram.count();
  distribution.not_finite = histogram.not_finite();
  distribution.min = histogram.min();
  distribution.max = histogram.max();
  distribution.sum = histogram.sum();
  distribution.sum_squares = histogram.sum_squares();
  distribution.limits = {histogram.limits().begin(), histogram.limits().end()};
  distribution.counts = {histogram.counts().begin(), histogram.counts().end()};
  return report;
}

}  // namespace muster
