#include "common/data/image/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "absl/strings/ascii.h"
#include "common/data/image/codecs.h"

namespace muster::data {
namespace {

std::string ExtensionOf(std::string_view name) {
  const size_t dot = name.rfind('.'), slash = name.rfind('/');
  if (dot == std::string_view::npos || (slash != std::string_view::npos && dot < slash)) return "";
  return absl::AsciiStrToLower(std::string(name.substr(dot)));
}

// Returns a description of a file that is neither JPEG nor PNG, from its first bytes.
std::string KindOf(std::string_view bytes) {
  if (bytes.empty()) return "it is empty";
  if (bytes.starts_with("GIF8")) return "it is a GIF file";
  if (bytes.starts_with("BM")) return "it is a BMP file";
  if (bytes.starts_with("RIFF") && bytes.substr(0, 12).ends_with("WEBP"))
    return "it is a WebP file";
  if (bytes.starts_with(std::string_view("II*\0", 4)) ||
      bytes.starts_with(std::string_view("MM\0*", 4))) {
    return "it is a TIFF file";
  }
  std::string start;
  for (const char c : bytes.substr(0, 8)) {
    const auto byte = static_cast<unsigned char>(c);
    start += std::isprint(byte) && byte < 0x80 ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return fmt::format("it begins with \"{}\"", start);
}

// Rotates or mirrors the picture so that it is upright. Orientations 5 to 8 of EXIF are the first
// four with rows and columns swapped.
Image Upright(Image image, int orientation) {
  if (orientation == 1) return image;
  const bool swapped = orientation >= 5;
  Image upright;
  upright.height = swapped ? image.width : image.height;
  upright.width = swapped ? image.height : image.width;
  upright.pixels.resize(image.pixels.size());
  // `bottom` is true if row 0 of the stored picture is at the bottom. `right` is true if column 0
  // is at the right.
  const bool bottom = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  const bool right = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  for (int64_t y = 0; y < upright.height; ++y) {
    for (int64_t x = 0; x < upright.width; ++x) {
      const int64_t v = bottom ? upright.height - 1 - y : y, h = right ? upright.width - 1 - x : x;
      const uint8_t* from =
          &image.pixels[3 * (swapped ? h * image.width + v : v * image.width + h)];
      std::copy(from, from + 3, &upright.pixels[3 * (y * upright.width + x)]);
    }
  }
  return upright;
}

// Computes ITU-R 601-2 luma with 16 fraction bits, as Pillow's convert("L").
void MakeGrey(Image* image) {
  const size_t count = image->pixels.size() / 3;
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* rgb = &image->pixels[3 * i];
    image->pixels[i] =
        static_cast<uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
  }
  image->pixels.resize(count);
  image->channels = 1;
}

}  // namespace

int OrientationOf(std::string_view tiff) {
  const bool little = tiff.starts_with("II");
  if (tiff.size() < 8 || (!little && !tiff.starts_with("MM"))) return 1;
  const auto number = [&](size_t at, size_t size) -> uint64_t {
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) {
      const size_t byte = little ? size - 1 - i : i;
      value = value << 8 | static_cast<unsigned char>(tiff[at + byte]);
    }
    return value;
  };
  const size_t directory = number(4, 4);
  if (directory > tiff.size() - 2) return 1;
  const size_t entries = number(directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + 12 * i;
    if (entry + 12 > tiff.size()) return 1;
    constexpr uint64_t kOrientation = 0x0112, kShort = 3;
    if (number(entry, 2) != kOrientation || number(entry + 2, 2) != kShort) continue;
    const uint64_t value = number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

absl::Status CheckPixels(int64_t height, int64_t width, const std::string& name) {
  if (height > 0 && width > 0 && height <= kMaxPixels / width) return absl::OkStatus();
  return DataError(fmt::format("'{}' claims to hold {} x {} pixels; at most {} are read.", name,
                               width, height, kMaxPixels));
}

absl::StatusOr<Image> DecodeImage(std::string_view bytes, const std::string& name, int channels) {
  absl::StatusOr<Decoded> decoded;
  if (bytes.starts_with("\xff\xd8")) {
    decoded = DecodeJpeg(bytes, name);
  } else if (bytes.starts_with("\x89PNG")) {
    decoded = DecodePng(bytes, name);
  } else {
    return DataError(fmt::format("'{}' is no JPEG and no PNG file: {}.", name, KindOf(bytes)));
  }
  if (!decoded.ok()) return decoded.status();
  Image image = Upright(std::move(decoded->image), decoded->orientation);
  if (channels == 1) MakeGrey(&image);
  return image;
}

absl::StatusOr<bool> DecodePlanes(std::string_view bytes, const std::string& name, int64_t height,
                                  int64_t width, uint8_t* planes) {
  if (!bytes.starts_with("\xff\xd8")) return false;
  return DecodeJpegPlanes(bytes, name, height, width, planes);
}

bool HasImageExtension(std::string_view name) {
  const std::string extension = ExtensionOf(name);
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

bool HasOtherImageExtension(std::string_view name) {
  static constexpr std::array<std::string_view, 11> kOthers = {
      ".avif", ".bmp", ".gif", ".heic", ".jxl", ".pgm", ".pnm", ".ppm", ".tif", ".tiff", ".webp"};
  return std::find(kOthers.begin(), kOthers.end(), ExtensionOf(name)) != kOthers.end();
}

}  // namespace muster::data
