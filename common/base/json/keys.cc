#include "muster/keys.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace muster {

int64_t HashKey(std::string_view text, KeyHash hash) {
  const uint64_t bits = hash == KeyHash::kXxh3 ? XXH3_64bits(text.data(), text.size())
                                               : XXH64(text.data(), text.size(), /*seed=*/0);
  return static_cast<int64_t>(bits);
}

}  // namespace muster
