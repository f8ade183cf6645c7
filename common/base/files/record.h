// Writes and reads records in TFRecord format. A record consists of the length (8 bytes,
// little-endian), the masked CRC-32C of the length, the data, and the masked CRC-32C of the data.
#pragma once

#include <istream>
#include <string>
#include <string_view>

namespace muster {

// Appends `data` as one record to `*file`.
void AppendRecord(std::string_view data, std::string* file);

// Reads the next record from `*file` into `*data`. Returns false if no complete record is left, or
// if a checksum is wrong.
bool ReadRecord(std::istream* file, std::string* data);

}  // namespace muster
