// Encodes pictures as PNG files in memory.
#pragma once

#include <cstdint>
#include <string>

#include "muster/status.h"

namespace muster::summary {

// Returns the PNG file of one picture. `pixels` has the order [height][width][channels] with 8 bits
// per value. `channels` is 1 for grey, 3 for RGB, or 4 for RGBA. If a size or `channels` is
// invalid, returns a ProgramError that names the invalid number.
absl::StatusOr<std::string> EncodePng(const uint8_t* pixels, int height, int width, int channels);

}  // namespace muster::summary
