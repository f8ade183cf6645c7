// TFRecord framing: length (8 bytes, little-endian), its masked CRC-32C, the data, its masked
// CRC-32C.
#pragma once

#include <istream>
#include <string>
#include <string_view>

namespace muster {

// Appends `data` as one record to `*file`.
void AppendRecord(std::string_view data, std::string* file);

// Reads the next record from `*file` to `*data`. False: there is no whole one more.
bool ReadRecord(std::istream* file, std::string* data);

}  // namespace muster
