// The JPEG and PNG decoders that DecodeImage calls. Internal to this folder.
#pragma once

#include <optional>

#include "common/data/image/image.h"

namespace muster::data {

struct Decoded {
  Image image;          // The channels are red, green and blue.
  int orientation = 1;  // The EXIF orientation. 1 means upright.
};

absl::StatusOr<Decoded> DecodeJpeg(std::string_view bytes, const std::string& name);
absl::StatusOr<bool> DecodeJpegPlanes(std::string_view bytes, const std::string& name,
                                      int64_t height, int64_t width, uint8_t* planes);
absl::StatusOr<Decoded> DecodePng(std::string_view bytes, const std::string& name);

// Returns the EXIF orientation (1 to 8) from `tiff`, which has a TIFF header and the first
// directory. Returns 1 if the directory has no valid orientation.
int OrientationOf(std::string_view tiff);

// Returns a DataError if the picture has no pixels, or more than kMaxPixels.
absl::Status CheckPixels(int64_t height, int64_t width, const std::string& name);

}  // namespace muster::data
