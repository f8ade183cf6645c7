// Keys of embedding tables, computed from text by public hash functions. They are the same on every
// machine, in every version, and in other languages.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster {

enum class KeyHash {
  kXxh64,  // XXH64, with seed 0
  kXxh3    // the 64 bits of XXH3, with seed 0
};

// Returns all 64 bits of the hash of the bytes, as a signed number. In Python:
//   numpy.uint64(xxhash.xxh64_intdigest(text)).astype(numpy.int64)
// Two texts of a table collide with probability 2^-64. Among 100 million texts, the probability of
// any collision is 1 in 3,700.
int64_t HashKey(std::string_view text, KeyHash hash = KeyHash::kXxh64);

}  // namespace muster
