// Text for places that take UTF-8 only: protobuf strings, JSON. Names of files, and errors that
// quote them, may hold any bytes.
#pragma once

#include <string>
#include <string_view>

namespace muster {

// `text` with U+FFFD for each sequence of bytes that is not UTF-8; the rest as it is.
std::string ValidUtf8(std::string_view text);

}  // namespace muster
