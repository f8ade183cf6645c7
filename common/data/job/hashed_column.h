// Hashed columns. A column of text can be hashed to keys of embedding tables. The column's key
// "hash" in the job is the name of the hash function. DataColumn::decode (job_data.h) of such a
// column is "hash " followed by this name. Internal to this folder.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "muster/keys.h"

namespace muster::data {

inline constexpr std::pair<std::string_view, KeyHash> kKeyHashes[] = {{"xxh3", KeyHash::kXxh3},
                                                                      {"xxh64", KeyHash::kXxh64}};
// The prefix of DataColumn::decode for hashed columns.
inline constexpr std::string_view kHashed = "hash ";

inline std::optional<KeyHash> HashOf(std::string_view decode) {
  for (const auto& [name, hash] : kKeyHashes)
    if (decode.starts_with(kHashed) && decode.substr(kHashed.size()) == name) return hash;
  return std::nullopt;
}

}  // namespace muster::data
