// What the two decoders give to DecodeImage. Internal to this folder.
#pragma once

#include <optional>

#include "common/data/image/image.h"

namespace muster::data {

struct Decoded {
  Image image;          // red, green, blue
  int orientation = 1;  // EXIF's: 1 is upright
};

absl::StatusOr<Decoded> DecodeJpeg(std::string_view bytes, const std::string& name);
absl::StatusOr<bool> DecodeJpegPlanes(std::string_view bytes, const std::string& name,
                                      int64_t height, int64_t width, uint8_t* planes);
absl::StatusOr<Decoded> DecodePng(std::string_view bytes, const std::string& name);

// EXIF's orientation, 1 to 8, from a TIFF header and its first directory; 1 where that says nothing
// that makes sense.
int OrientationOf(std::string_view tiff);

// A DataError where there are no pixels, or more than kMaxPixels.
absl::Status CheckPixels(int64_t height, int64_t width, const std::string& name);

}  // namespace muster::data
