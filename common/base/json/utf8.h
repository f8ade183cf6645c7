// Makes text valid for protobuf strings and JSON. Both accept only UTF-8. File names may contain
// any bytes, and so may errors that quote file names.
#pragma once

#include <string>
#include <string_view>

namespace muster {

// Returns `text` with each invalid byte sequence replaced by U+FFFD.
std::string ValidUtf8(std::string_view text);

}  // namespace muster
