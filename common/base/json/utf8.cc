#include "common/base/json/utf8.h"

#include "muster/json.h"

namespace muster {

// Dump replaces invalid UTF-8, and parsing returns the rest unchanged.
std::string ValidUtf8(std::string_view text) {
  return Json::parse(Dump(Json(text))).get<std::string>();
}

}  // namespace muster
