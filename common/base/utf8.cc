#include "common/base/utf8.h"

#include "muster/json.h"

namespace muster {

// Dump replaces what is not UTF-8, and what it writes is read back as it was.
std::string ValidUtf8(std::string_view text) {
  return Json::parse(Dump(Json(text))).get<std::string>();
}

}  // namespace muster
