// TFRecord framing: length (8 bytes, little-endian), its masked CRC-32C, the data, and the masked
// CRC-32C of the data.
#pragma once

#include <istream>
#include <string>
#include <string_view>

namespace muster {

// Appends `data` as one record to `*file`.
void AppendRecord(std::string_view data, std::string* file);

// Reads the next record from `*file` into `*data`. Returns false if there is no further complete
// record.
bool ReadRecord(std::istream* file, std::string* data);

}  // namespace muster
