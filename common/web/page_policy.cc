#include "common/web/page_policy.h"

#include <openssl/sha.h>

#include "absl/strings/escaping.h"

namespace muster::web {

std::string SourceOfText(std::string_view text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return "'sha256-" + absl::Base64Escape({reinterpret_cast<const char*>(digest), sizeof digest}) +
         "'";
}

}  // namespace muster::web
