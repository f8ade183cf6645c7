#include "common/data/transforms/picture_steps.h"

#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace muster::data {
namespace {

// A picture between two steps, [height, width, channels]. Each row is dense.
class Work {
 public:
  Work(at::Tensor pixels, RandomNumbers random) : pixels_(std::move(pixels)), random_(random) {}

  void operator()(const Resize& step) {
    const PictureSize size = Resized(step, height(), width());
    ResizeTo(size.height, size.width);
  }
  void operator()(const CenterCrop& step) {
    Crop(Margin(height(), step.height), Margin(width(), step.width), step.height, step.width);
  }
  void operator()(const RandomCrop& step) {
    const auto [left, top, right, bottom] = step.padding;
    if (left + top + right + bottom > 0) {
      Unflip();
      at::Tensor padded = at::zeros({height() + top + bottom, width() + left + right, channels()},
                                    at::TensorOptions(at::kByte));
      padded.narrow(0, top, height()).narrow(1, left, width()).copy_(pixels_);
      Own(std::move(padded));
    }
    const int64_t y = random_.Below(height() - step.height + 1);
    const int64_t x = random_.Below(width() - step.width + 1);
    Crop(y, x, step.height, step.width);
  }
  void operator()(const RandomResizedCrop& step) {
    const auto [y, x, height, width] = Choose(step);
    Crop(y, x, height, width);
    ResizeTo(step.height, step.width);
  }
  void operator()(const RandomHorizontalFlip& step) {
    if (random_.Uniform() < step.p) flip_ = !flip_;
  }
  void operator()(const ColorJitter& step) {
    std::array<int, 4> order = {0, 1, 2, 3};
    for (int i = 3; i > 0; --i) std::swap(order[i], order[random_.Below(i + 1)]);
    const std::pair<double, double>* ranges[] = {&step.brightness, &step.contrast, &step.saturation,
                                                 &step.hue};
    double factors[4];
    for (int i = 0; i < 4; ++i) factors[i] = random_.Uniform(ranges[i]->first, ranges[i]->second);
    for (const int what : order) {
      const double nothing = what == 3 ? 0 : 1;
      if (ranges[what]->first == nothing && ranges[what]->second == nothing) continue;
      Adjust(what, factors[what]);
    }
  }
  void operator()(const Normalize& step) { normalize_ = &step; }

  void Finish(at::Tensor* out) const {
    const at::ScalarType type = normalize_ == nullptr ? at::kByte : at::kFloat;
    const std::array<int64_t, 3> shape = {channels(), height(), width()};
    if (!out->defined() || out->sizes() != at::IntArrayRef(shape) || out->scalar_type() != type ||
        !out->is_contiguous()) {
      *out = at::empty(shape, at::TensorOptions(type));
    }
    const PixelRows rows = {pixels_.const_data_ptr<uint8_t>(), height(), width(), channels(),
                            pixels_.stride(0)};
    if (normalize_ == nullptr) {
      return CopyPlanes(rows, flip_, out->mutable_data_ptr<uint8_t>(), height() * width());
    }
    std::array<float, 3> mean = {}, std = {};
    for (int64_t c = 0; c < channels(); ++c) {
      mean[c] = static_cast<float>(normalize_->mean[normalize_->mean.size() == 1 ? 0 : c]);
      std[c] = static_cast<float>(normalize_->std[normalize_->std.size() == 1 ? 0 : c]);
    }
    NormalizePlanes(rows, flip_, mean.data(), std.data(), out->mutable_data_ptr<float>());
  }

 private:
  int64_t height() const { return pixels_.size(0); }
  int64_t width() const { return pixels_.size(1); }
  int64_t channels() const { return pixels_.size(2); }

  void Own(at::Tensor pixels) {
    pixels_ = std::move(pixels);
    own_ = true;
  }

  // Crops to a part of the picture without a copy.
  void Crop(int64_t y, int64_t x, int64_t height, int64_t width) {
    if (flip_) x = this->width() - width - x;
    pixels_ = pixels_.narrow(0, y, height).narrow(1, x, width);
  }

  void ResizeTo(int64_t to_height, int64_t to_width) {
    if (height() == to_height && width() == to_width) return;
    Unflip();   // The rounding of the weights need not be symmetric.
    Compact();  // Faster than LibTorch's own copy.
    const at::Tensor resized = at::_upsample_bilinear2d_aa(
        pixels_.permute({2, 0, 1}).unsqueeze(0), {to_height, to_width}, /*align_corners=*/false);
    Own(resized.select(0, 0).permute({1, 2, 0}).contiguous());
  }

  // Makes the pixels contiguous.
  void Compact() {
    if (pixels_.is_contiguous()) return;
    at::Tensor dense = at::empty(pixels_.sizes(), at::TensorOptions(at::kByte));
    const int64_t row = width() * channels(), stride = pixels_.stride(0);
    const auto* from = pixels_.const_data_ptr<uint8_t>();
    auto* to = dense.mutable_data_ptr<uint8_t>();
    for (int64_t y = 0; y < height(); ++y) std::memcpy(to + y * row, from + y * stride, row);
    Own(std::move(dense));
  }

  void Unflip() {
    if (flip_) Own(pixels_.flip(1));
    flip_ = false;
  }

  // Changes each pixel independently of the others. A pending flip therefore makes no difference.
  void Adjust(int what, double factor) {
    Compact();
    if (!own_) Own(pixels_.clone());
    const int64_t count = height() * width();
    auto* data = pixels_.mutable_data_ptr<uint8_t>();
    if (what == 0) {
      AdjustBrightness(data, count * channels(), factor);
    } else if (what == 1) {
      AdjustContrast(data, count, channels(), factor);
    } else if (channels() == 3 && what == 2) {
      AdjustSaturation(data, count, factor);
    } else if (channels() == 3) {
      AdjustHue(data, count, factor);
    }
  }

  // Draws {top, left, height, width} as torchvision does. Returns the centre if ten draws do not
  // fit.
  std::array<int64_t, 4> Choose(const RandomResizedCrop& step) {
    const auto [least, most] = step.ratio;
    const auto full_height = static_cast<double>(height()),
               full_width = static_cast<double>(width());
    const auto rounded = [](double side) { return static_cast<int64_t>(std::nearbyint(side)); };
    for (int attempt = 0; attempt < 10; ++attempt) {
      const double area =
          full_height * full_width * random_.Uniform(step.scale.first, step.scale.second);
      const double ratio = std::exp(random_.Uniform(std::log(least), std::log(most)));
      const int64_t w = rounded(std::sqrt(area * ratio)), h = rounded(std::sqrt(area / ratio));
      if (w <= 0 || w > width() || h <= 0 || h > height()) continue;
      const int64_t top = random_.Below(height() - h + 1);
      return {top, random_.Below(width() - w + 1), h, w};
    }
    int64_t w = width(), h = height();
    if (full_width / full_height < least) {
      h = std::clamp<int64_t>(rounded(full_width / least), 1, h);
    } else if (full_width / full_height > most) {
      w = std::clamp<int64_t>(rounded(full_height * most), 1, w);
    }
    return {(height() - h) / 2, (width() - w) / 2, h, w};
  }

  at::Tensor pixels_;
  RandomNumbers random_;
  bool own_ = false;   // True if the pixels are a private copy, which may be changed.
  bool flip_ = false;  // True if a flip is pending.
  const Normalize* normalize_ = nullptr;
};

}  // namespace

std::optional<PixelRows> RowsOf(const at::Tensor& picture) {
  if (picture.scalar_type() != at::kByte || picture.dim() != 3) return std::nullopt;
  const int64_t channels = picture.size(0);
  if ((channels != 1 && channels != 3) || picture.numel() == 0) return std::nullopt;
  if ((channels == 3 && picture.stride(0) != 1) || picture.stride(2) != channels)
    return std::nullopt;
  return PixelRows{picture.const_data_ptr<uint8_t>(), picture.size(1), picture.size(2), channels,
                   picture.stride(1)};
}

at::ScalarType PictureSteps::type() const {
  return !steps_.empty() && std::holds_alternative<Normalize>(steps_.back()) ? at::kFloat
                                                                             : at::kByte;
}

std::optional<WrongStep> PictureSteps::Apply(const at::Tensor& picture, RandomNumbers random,
                                             at::Tensor* out) const {
  PictureSize size = {picture.size(1), picture.size(2), 0};
  if (auto wrong = FindTooLarge(steps_, &size)) return wrong;
  at::Tensor pixels = picture.permute({1, 2, 0});
  if (!RowsOf(picture)) pixels = pixels.contiguous();
  Work work(std::move(pixels), random);
  for (const Transform& step : steps_) std::visit(work, step);
  work.Finish(out);
  return std::nullopt;
}

}  // namespace muster::data
