// FNV-1a, 64 bits: for digests that tell mistakes apart, not attackers.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster {

inline constexpr uint64_t kFnvStart = 0xcbf29ce484222325;

// The hash of `a` followed by `b` is Fnv1a(b, Fnv1a(a)).
constexpr uint64_t Fnv1a(std::string_view text, uint64_t hash = kFnvStart) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace muster
