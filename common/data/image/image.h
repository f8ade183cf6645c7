// Decodes JPEG and PNG files with libjpeg-turbo and libpng. Needs no LibTorch.
//
// The pixels equal those of Pillow's Image.open(file), exif_transpose and convert("RGB") (or "L").
// Palettes are looked up, and CMYK and YCCK are converted. 16-bit samples keep their upper 8 bits,
// and alpha is dropped. A picture that its EXIF data mark as rotated is turned upright.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster::data {

// Allocator that leaves new bytes uninitialized in resize(), for bytes that are all written before
// they are read.
struct UnsetBytes : std::allocator<uint8_t> {
  template <typename T>
  struct rebind {
    using other = UnsetBytes;
  };
  void construct(uint8_t*) noexcept {}
  void construct(uint8_t* at, uint8_t value) noexcept { *at = value; }
};
using Pixels = std::vector<uint8_t, UnsetBytes>;

// Rows from top to bottom, pixels from left to right, and the channels of each pixel: red, green,
// blue, or grey alone.
struct Image {
  int64_t height = 0, width = 0, channels = 3;
  Pixels pixels;
};

// The limit on pixels, as in Pillow, because a small file may claim a huge picture.
inline constexpr int64_t kMaxPixels = 178'956'970;

// Decodes a picture. Thread-safe. REQUIRES: `channels` is 1 or 3. Errors are DataErrors "'<name>'
// ...", with the offset at which a truncated or damaged file breaks off.
absl::StatusOr<Image> DecodeImage(std::string_view bytes, const std::string& name, int channels);

// Decodes an RGB picture straight into `planes`, [3][height][width]. Returns false where the
// picture has another size or its stored form does not allow this. `planes` is then undefined, and
// the caller uses DecodeImage.
absl::StatusOr<bool> DecodePlanes(std::string_view bytes, const std::string& name, int64_t height,
                                  int64_t width, uint8_t* planes);

// True for the extensions of readable pictures: .jpg, .jpeg, .png, in any case.
bool HasImageExtension(std::string_view name);
// True for the extensions of pictures that cannot be read, such as .gif and .webp.
bool HasOtherImageExtension(std::string_view name);

}  // namespace muster::data
