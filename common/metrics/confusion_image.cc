#include "common/metrics/confusion_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace muster {
namespace {

using Colour = std::array<uint8_t, 3>;
constexpr Colour kLine = {200, 200, 200}, kDark = {8, 48, 107}, kWhite = {255, 255, 255};

// Glyphs of 3 x 5 points. A row has three bits. The first row is in the highest bits.
constexpr int kLetterWidth = 3, kLetterHeight = 5;
int LetterOf(char c) {
  constexpr std::array<int, 10> kDigits = {
      0b111'101'101'101'111, 0b010'110'010'010'111, 0b111'001'111'100'111, 0b111'001'111'001'111,
      0b101'101'111'001'001, 0b111'100'111'001'111, 0b111'100'111'101'111, 0b111'001'010'010'010,
      0b111'101'111'101'111, 0b111'101'111'001'111};
  if (c >= '0' && c <= '9') return kDigits[c - '0'];
  switch (c) {
    case '.':
      return 0b000'000'000'000'010;
    case 'k':
      return 0b100'101'110'110'101;
    case 'M':
      return 0b101'111'111'101'101;
    default:
      return 0b000'000'111'000'000;  // The glyph of '-', also for unknown characters.
  }
}

// Returns the count in at most four characters.
std::string Shortened(double count) {
  if (!std::isfinite(count)) return "-";
  if (count == std::floor(count) && count < 1e4) return fmt::format("{:.0f}", count);
  if (count < 99.95) return fmt::format("{:.1f}", count);
  if (count < 9999.5) return fmt::format("{:.0f}", count);
  if (count < 999'500) return fmt::format("{:.0f}k", count / 1e3);
  return count < 999.5e6 ? fmt::format("{:.0f}M", count / 1e6) : "-";
}

class Canvas {
 public:
  explicit Canvas(int size) {
    image_.height = image_.width = size;
    image_.pixels.resize(static_cast<size_t>(size) * size * 3);
    Fill(0, 0, size, size, kLine);
  }
  void Fill(int top, int left, int height, int width, const Colour& colour) {
    for (int y = top; y < top + height; ++y)
      for (int x = left; x < left + width; ++x)
        std::copy(colour.begin(), colour.end(),
                  image_.pixels.begin() + (static_cast<int64_t>(y) * image_.width + x) * 3);
  }
  // Each point of a glyph is `scale` pixels wide and high.
  void Write(const std::string& text, int top, int left, int scale, const Colour& colour) {
    for (size_t i = 0; i < text.size(); ++i) {
      const int letter = LetterOf(text[i]);
      for (int point = 0; point < kLetterWidth * kLetterHeight; ++point) {
        if ((letter >> (kLetterWidth * kLetterHeight - 1 - point) & 1) == 0) continue;
        const int x = static_cast<int>(i) * (kLetterWidth + 1) + point % kLetterWidth;
        Fill(top + point / kLetterWidth * scale, left + x * scale, scale, scale, colour);
      }
    }
  }
  MetricImage Take() { return std::move(image_); }

 private:
  MetricImage image_;
};

}  // namespace

MetricImage DrawConfusionMatrix(const std::vector<double>& counts, int classes) {
  constexpr int kMaxWritten = 20, kWrittenCell = 40, kScale = 2, kSide = 640;
  const bool written = classes <= kMaxWritten;
  const int cell = written ? kWrittenCell : std::max(2, kSide / classes);
  const int line = cell > 4 ? 1 : 0;
  Canvas canvas(classes * (cell + line) + line);
  for (int row = 0; row < classes; ++row) {
    const auto begin = counts.begin() + static_cast<int64_t>(row) * classes;
    double sum = 0;
    for (auto it = begin; it != begin + classes; ++it) sum += *it;
    for (int column = 0; column < classes; ++column) {
      const double share = sum > 0 ? std::clamp(begin[column] / sum, 0.0, 1.0) : 0;
      Colour colour;
      for (size_t c = 0; c < colour.size(); ++c)
        colour[c] = static_cast<uint8_t>(std::lround(kWhite[c] + share * (kDark[c] - kWhite[c])));
      const int top = line + row * (cell + line), left = line + column * (cell + line);
      canvas.Fill(top, left, cell, cell, colour);
      if (!written) continue;
      const std::string text = Shortened(begin[column]);
      const int width = (static_cast<int>(text.size()) * (kLetterWidth + 1) - 1) * kScale;
      canvas.Write(text, top + (cell - kLetterHeight * kScale) / 2, left + (cell - width) / 2,
                   kScale, share > 0.5 ? kWhite : kDark);
    }
  }
  return canvas.Take();
}

}  // namespace muster
