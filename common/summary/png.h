// Encodes pictures as PNG files in memory.
#pragma once

#include <cstdint>
#include <string>

#include "muster/status.h"

namespace muster::summary {

// `pixels` is [height][width][channels] of 8 bits. 1 channel is grey, 3 are RGB, 4 RGBA. A
// ProgramError says which number is invalid.
absl::StatusOr<std::string> EncodePng(const uint8_t* pixels, int height, int width, int channels);

}  // namespace muster::summary
