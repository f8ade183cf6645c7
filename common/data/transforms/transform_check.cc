#include "common/data/transforms/transform_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "common/data/image/image.h"

namespace muster::data {
namespace {

constexpr int64_t kMaxSide = 32768;

using StepError = std::optional<WrongStep>;  // WrongStep::step is set later.

template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

StepError Wrong(std::string key, std::string what) {
  return WrongStep{0, std::move(key), std::move(what)};
}

bool IsSide(int64_t side) { return side >= 1 && side <= kMaxSide; }

StepError CheckSize(int64_t height, int64_t width) {
  if (IsSide(height) && IsSide(width)) return std::nullopt;
  return Wrong(
      "size", fmt::format("must be sides of 1 to {} pixels, is [{}, {}]", kMaxSide, height, width));
}

// Returns true if `range` is a valid range in [low, high].
bool IsWithin(const std::pair<double, double>& range, double low, double high) {
  return low <= range.first && range.first <= range.second && range.second <= high;
}

std::string Shown(const std::pair<double, double>& range) {
  return fmt::format("[{}, {}]", range.first, range.second);
}

StepError Check(const Resize& step) {
  if (step.shorter_side == 0) return CheckSize(step.height, step.width);
  if (step.height != 0 || step.width != 0)
    return Wrong("size", "is a shorter side, or a height and a width, and not all three");
  if (IsSide(step.shorter_side)) return std::nullopt;
  return Wrong("size", fmt::format("must be a side of 1 to {} pixels, or [height, width], is {}",
                                   kMaxSide, step.shorter_side));
}

StepError Check(const CenterCrop& step) { return CheckSize(step.height, step.width); }

StepError Check(const RandomCrop& step) {
  if (StepError wrong = CheckSize(step.height, step.width)) return wrong;
  const auto good = [](int64_t border) { return border >= 0 && border <= kMaxSide; };
  if (std::all_of(step.padding.begin(), step.padding.end(), good)) return std::nullopt;
  return Wrong("padding", fmt::format("must be from 0 to {} pixels on each side, is [{}]", kMaxSide,
                                      fmt::join(step.padding, ", ")));
}

StepError Check(const RandomResizedCrop& step) {
  if (StepError wrong = CheckSize(step.height, step.width)) return wrong;
  if (!IsWithin(step.scale, 0, 1) || step.scale.first == 0) {
    return Wrong("scale", fmt::format("must be the least and the largest part of a picture's area, "
                                      "above 0 and at most 1, such as [0.08, 1], is {}",
                                      Shown(step.scale)));
  }
  if (!IsWithin(step.ratio, 1e-3, 1e3)) {
    return Wrong("ratio", fmt::format("must be the least and the largest width over height, from "
                                      "0.001 to 1000, such as [0.75, 1.3333], is {}",
                                      Shown(step.ratio)));
  }
  return std::nullopt;
}

StepError Check(const RandomHorizontalFlip& step) {
  if (step.p >= 0 && step.p <= 1) return std::nullopt;
  return Wrong("p", fmt::format("must be a probability from 0 to 1, is {}", step.p));
}

StepError Check(const ColorJitter& step) {
  const std::pair<const char*, const std::pair<double, double>&> factors[] = {
      {"brightness", step.brightness},
      {"contrast", step.contrast},
      {"saturation", step.saturation}};
  for (const auto& [key, range] : factors) {
    if (IsWithin(range, 0, 1e6)) continue;
    return Wrong(key, fmt::format("must be from 0 on, or two such factors, the smaller one first, "
                                  "makes {}",
                                  Shown(range)));
  }
  if (IsWithin(step.hue, -0.5, 0.5)) return std::nullopt;
  return Wrong("hue", fmt::format("must be from 0 to 0.5, or two numbers from -0.5 to 0.5, the "
                                  "smaller one first, makes {}",
                                  Shown(step.hue)));
}

StepError Check(const Normalize& step) {
  // The limits are those of float32, so that the results are float32 numbers.
  const auto count = [](const std::vector<double>& values, double least, double most) {
    return (values.size() == 1 || values.size() == 3) &&
           std::all_of(values.begin(), values.end(),
                       [=](double v) { return least <= std::abs(v) && std::abs(v) <= most; });
  };
  if (!count(step.mean, 0, 1e15))
    return Wrong("mean", "must be a number for each channel, or one for all, of at most 1e15");
  if (!count(step.std, 1e-12, 1e12)) {
    return Wrong("std",
                 "must be a number other than 0 for each channel, or one for all, of a "
                 "magnitude from 1e-12 to 1e12");
  }
  return std::nullopt;
}

// Checks that a crop fits into `size`, after adding `more_height` and `more_width` to it.
StepError CheckCrop(int64_t height, int64_t width, int64_t more_height, int64_t more_width,
                    const PictureSize& size) {
  if (size.height == 0) {
    const int64_t side = size.shorter_side;
    if (side == 0 || height <= side + more_height || width <= side + more_width)
      return std::nullopt;
    return Wrong("size", fmt::format("is {} x {}, and the pictures' shorter side is {} there: a "
                                     "crop must fit into the picture",
                                     height, width, side));
  }
  if (height <= size.height + more_height && width <= size.width + more_width) return std::nullopt;
  const bool padded = more_height > 0 || more_width > 0;
  return Wrong("size",
               fmt::format("is {} x {}, and the picture is {} x {} there{}: a crop must fit into "
                           "the picture",
                           height, width, size.height + more_height, size.width + more_width,
                           padded ? ", with its padding" : ""));
}

StepError Follow(const Transform& transform, PictureSize* size) {
  const auto to = [size](int64_t height, int64_t width) -> StepError {
    *size = {height, width, 0};
    return std::nullopt;
  };
  return std::visit(
      Overloaded{
          [&](const Resize& step) -> StepError {
            if (step.shorter_side == 0) return to(step.height, step.width);
            if (size->height > 0) {
              const PictureSize resized = Resized(step, size->height, size->width);
              const std::string wrong = TooManyPixels(*size, resized);
              if (!wrong.empty()) return Wrong("size", wrong);
              *size = resized;
            } else {
              size->shorter_side = step.shorter_side;
            }
            return std::nullopt;
          },
          [&](const CenterCrop& step) -> StepError {
            const StepError wrong = CheckCrop(step.height, step.width, 0, 0, *size);
            return wrong ? wrong : to(step.height, step.width);
          },
          [&](const RandomCrop& step) -> StepError {
            const auto [left, top, right, bottom] = step.padding;
            const StepError wrong =
                CheckCrop(step.height, step.width, top + bottom, left + right, *size);
            return wrong ? wrong : to(step.height, step.width);
          },
          [&](const RandomResizedCrop& step) -> StepError { return to(step.height, step.width); },
          [](const auto&) -> StepError { return std::nullopt; }},
      transform);
}

}  // namespace

std::optional<WrongStep> FindWrongStep(const std::vector<Transform>& steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    StepError wrong = std::visit([](const auto& step) { return Check(step); }, steps[i]);
    if (!wrong && std::holds_alternative<Normalize>(steps[i]) && i + 1 < steps.size())
      wrong = Wrong("", "is normalize, which must be the last of the steps on a picture");
    if (!wrong) continue;
    wrong->step = i;
    return wrong;
  }
  return std::nullopt;
}

std::optional<WrongStep> FindTooLarge(const std::vector<Transform>& steps, PictureSize* size) {
  for (size_t i = 0; i < steps.size(); ++i) {
    StepError wrong = Follow(steps[i], size);
    if (!wrong) continue;
    wrong->step = i;
    return wrong;
  }
  return std::nullopt;
}

PictureSize Resized(const Resize& resize, int64_t height, int64_t width) {
  const int64_t side = resize.shorter_side;
  if (side == 0) return {resize.height, resize.width, 0};
  return width <= height ? PictureSize{side * height / width, side, 0}
                         : PictureSize{side, side * width / height, 0};
}

std::string TooManyPixels(const PictureSize& from, const PictureSize& to) {
  if (to.height <= kMaxPixels / std::max<int64_t>(1, to.width)) return "";
  return fmt::format("makes {} x {} pixels of the picture's {} x {}; at most {} are made",
                     to.height, to.width, from.height, from.width, kMaxPixels);
}

int64_t Margin(int64_t whole, int64_t part) {
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(whole - part) / 2));
}

const char* NameOf(const Transform& step) {
  return std::visit(Overloaded{[](const Resize&) { return "resize"; },
                               [](const CenterCrop&) { return "center_crop"; },
                               [](const RandomCrop&) { return "random_crop"; },
                               [](const RandomResizedCrop&) { return "random_resized_crop"; },
                               [](const RandomHorizontalFlip&) { return "random_horizontal_flip"; },
                               [](const ColorJitter&) { return "color_jitter"; },
                               [](const Normalize&) { return "normalize"; }},
                    step);
}

bool IsMixUpAlpha(double alpha) { return alpha >= 1e-6 && alpha <= 1e6; }

bool IsRandom(const Transform& step) {
  return !std::holds_alternative<Resize>(step) && !std::holds_alternative<CenterCrop>(step) &&
         !std::holds_alternative<Normalize>(step);
}

}  // namespace muster::data
