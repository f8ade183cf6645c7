// TFRecord framing: length (8 bytes, little-endian), its masked CRC-32C, the data, its masked
// CRC-32C.
#pragma once

#include <string>
#include <string_view>

namespace muster::summary {

// Appends `data` as one record to `*file`.
void AppendRecord(std::string_view data, std::string* file);

}  // namespace muster::summary
