// Keys of embedding tables, made of text by hashes that anyone can repeat: the same on every
// machine and in every version, and what other languages have by these names.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster {

enum class KeyHash {
  kXxh64,  // XXH64, with seed 0
  kXxh3    // the 64 bits of XXH3, with seed 0
};

// All 64 bits of the hash of these bytes, as a signed number. In Python:
//   numpy.uint64(xxhash.xxh64_intdigest(text)).astype(numpy.int64)
// Two texts of a table share a row with probability 2^-64; of 100 million different ones, that any
// two do is one in 3,700.
int64_t HashKey(std::string_view text, KeyHash hash = KeyHash::kXxh64);

}  // namespace muster
