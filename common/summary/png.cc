#include "common/summary/png.h"

#include <fmt/format.h>
#include <png.h>

namespace muster::summary {

absl::StatusOr<std::string> EncodePng(const uint8_t* pixels, int height, int width, int channels) {
  // The limit on height and width, which keeps libpng's sizes within 32 bits.
  constexpr int kMaxPixels = 1 << 14;
  if (height < 1 || width < 1 || height > kMaxPixels || width > kMaxPixels) {
    return ProgramError(fmt::format("a picture has 1 to {} pixels on a side, this one {} x {}",
                                    kMaxPixels, height, width));
  }
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  switch (channels) {
    case 1:
      image.format = PNG_FORMAT_GRAY;
      break;
    case 3:
      image.format = PNG_FORMAT_RGB;
      break;
    case 4:
      image.format = PNG_FORMAT_RGBA;
      break;
    default:
      return ProgramError(fmt::format(
          "a picture has 1 (gray), 3 (RGB) or 4 (RGBA) channels, this one {}", channels));
  }
  // This upper bound is only slightly larger than the pixels.
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(size, '\0');
  if (png_image_write_to_memory(&image, file.data(), &size, /*convert_to_8_bit=*/0, pixels,
                                /*row_stride=*/0, /*colormap=*/nullptr) == 0) {
    return ProgramError(fmt::format("libpng cannot encode a picture: {}", image.message));
  }
  file.resize(size);
  return file;
}

}  // namespace muster::summary
