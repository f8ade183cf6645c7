// Decodes JPEG and PNG files with libjpeg-turbo and libpng. Needs no LibTorch.
//
// The pixels equal the result of Pillow's Image.open(file), exif_transpose and convert("RGB") (or
// "L"). Palettes, CMYK and YCCK are converted to RGB. 16-bit samples keep their upper 8 bits, and
// alpha is dropped. Pictures are rotated as their EXIF orientation requires.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster::data {

// An allocator with which std::vector::resize() does not initialize new bytes. Callers must write
// all bytes before they read them.
struct UnsetBytes : std::allocator<uint8_t> {
  template <typename T>
  struct rebind {
    using other = UnsetBytes;
  };
  void construct(uint8_t*) noexcept {}
  void construct(uint8_t* at, uint8_t value) noexcept { *at = value; }
};
using Pixels = std::vector<uint8_t, UnsetBytes>;

// A decoded picture, in the order [height][width][channels]. The channels are red, green and blue,
// or only grey.
struct Image {
  int64_t height = 0, width = 0, channels = 3;
  Pixels pixels;
};

// The maximum number of pixels of a picture, as in Pillow. Without this limit, a small damaged file
// whose header gives a huge size would use too much memory.
inline constexpr int64_t kMaxPixels = 178'956'970;

// Decodes a picture. Thread-safe. REQUIRES: `channels` is 1 or 3. Errors are DataErrors "'<name>'
// ...". The error of a truncated or damaged file has the offset of the first bad byte.
absl::StatusOr<Image> DecodeImage(std::string_view bytes, const std::string& name, int channels);

// Decodes an RGB picture directly into `planes`, [3][height][width]. Returns false if the picture
// has another size, or a format that cannot be decoded directly. In that case, the content of
// `planes` is undefined, and the caller must call DecodeImage.
absl::StatusOr<bool> DecodePlanes(std::string_view bytes, const std::string& name, int64_t height,
                                  int64_t width, uint8_t* planes);

// Returns true for the names of readable pictures: .jpg, .jpeg and .png, in upper or lower case.
bool HasImageExtension(std::string_view name);
// Returns true for the names of pictures that cannot be read, such as .gif and .webp.
bool HasOtherImageExtension(std::string_view name);

}  // namespace muster::data
