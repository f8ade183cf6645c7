#include "common/train/summary_data.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/summary/histogram.h"
#include "common/train/replica/replica.h"

namespace muster {
namespace {

[[noreturn]] void Refuse(const char* call, const std::string& tag, const std::string& what) {
  throw StatusError(ProgramError(fmt::format("{}(\"{}\") {}", call, tag, what)));
}

void CheckTag(const char* call, const std::string& tag, const at::Tensor& tensor) {
  if (tag.empty()) Refuse(call, tag, "needs a name");
  if (!tensor.defined()) Refuse(call, tag, "got an undefined tensor");
  if (tensor.is_complex()) Refuse(call, tag, "got complex numbers");
}

ImageReport MakeImages(const std::string& tag, const at::Tensor& images) {
  const at::NoGradGuard no_grad;
  at::Tensor some = images.detach().narrow(0, 0, std::min<int64_t>(kMaxImages, images.size(0)));
  some = some.to(at::kCPU).permute({0, 2, 3, 1});
  if (some.is_floating_point())
    some = some.to(at::kFloat).nan_to_num(0).clamp(0, 1).mul(255).round().to(at::kByte);
  some = some.contiguous();
  ImageReport report;
  report.tag = tag;
  report.count = static_cast<int>(some.size(0));
  report.height = static_cast<int>(some.size(1));
  report.width = static_cast<int>(some.size(2));
  report.channels = static_cast<int>(some.size(3));
  const uint8_t* pixels = some.const_data_ptr<uint8_t>();
  report.pixels.assign(pixels, pixels + some.numel());
  return report;
}

template <typename Report>
bool Has(const std::vector<Report>& reports, const std::string& tag) {
  return std::any_of(reports.begin(), reports.end(),
                     [&tag](const Report& report) { return report.tag == tag; });
}

}  // namespace

void SummaryData::Image(bool wanted, const std::string& tag, const at::Tensor& tensor) {
  CheckTag("image", tag, tensor);
  const int64_t channels = tensor.dim() == 4 ? tensor.size(1) : 0;
  if (channels != 1 && channels != 3 && channels != 4) {
    Refuse("image", tag,
           fmt::format("needs shape [batch, channels, height, width] with 1, 3 or 4 channels, got "
                       "[{}]",
                       fmt::join(tensor.sizes(), ", ")));
  }
  if (!tensor.is_floating_point() && tensor.scalar_type() != at::kByte)
    Refuse("image", tag, "needs floating-point numbers from 0 to 1, or bytes");
  if (wanted && tensor.numel() > 0 && !Has(images, tag)) images.push_back(MakeImages(tag, tensor));
}

void SummaryData::Histogram(bool wanted, const std::string& tag, const at::Tensor& tensor) {
  CheckTag("histogram", tag, tensor);
  if (wanted && tensor.numel() > 0 && !Has(histograms, tag))
    histograms.push_back(MakeHistogram(tag, tensor));
}

HistogramReport MakeHistogram(const std::string& tag, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor host = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  return {tag, 0, summary::DistributionOf(host.const_data_ptr<double>(), host.numel())};
}

}  // namespace muster
