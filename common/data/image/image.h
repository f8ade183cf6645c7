// Pictures from the bytes of JPEG and PNG files, by libjpeg-turbo and libpng. Needs no LibTorch.
//
// The pixels are those that Pillow's Image.open(file), exif_transpose and convert("RGB") (or "L")
// give: palettes are looked up, CMYK and YCCK are converted, of 16 bits the upper 8 are kept, alpha
// is dropped, and a picture that its EXIF data say is rotated is turned upright.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster::data {

// Bytes that are all written before they are read: resize() leaves them as they are.
struct UnsetBytes : std::allocator<uint8_t> {
  template <typename T>
  struct rebind {
    using other = UnsetBytes;
  };
  void construct(uint8_t*) noexcept {}
  void construct(uint8_t* at, uint8_t value) noexcept { *at = value; }
};
using Pixels = std::vector<uint8_t, UnsetBytes>;

// Rows from the top, in each row pixels from the left, in each pixel its channels: red, green,
// blue, or grey alone.
struct Image {
  int64_t height = 0, width = 0, channels = 3;
  Pixels pixels;
};

// More pixels than that are refused, as Pillow does: a small file may claim a huge picture.
inline constexpr int64_t kMaxPixels = 178'956'970;

// Any thread. REQUIRES: `channels` is 1 or 3. Errors are DataErrors "'<name>' ...", with the offset
// at which a truncated or damaged file breaks off.
absl::StatusOr<Image> DecodeImage(std::string_view bytes, const std::string& name, int channels);

// The same of RGB straight into `planes`, [3][height][width], where the picture has that size and
// is stored upright in a way that allows it; false, with nothing said of what is in `planes`, where
// not: then DecodeImage has to do it.
absl::StatusOr<bool> DecodePlanes(std::string_view bytes, const std::string& name, int64_t height,
                                  int64_t width, uint8_t* planes);

// Whether a file of this name is taken for a picture: .jpg, .jpeg, .png, in any case.
bool HasImageExtension(std::string_view name);
// Whether it is a picture of a kind that is not read, such as .gif and .webp.
bool HasOtherImageExtension(std::string_view name);

}  // namespace muster::data
