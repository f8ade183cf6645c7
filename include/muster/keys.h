// Computes keys of embedding tables from text. The hash functions are public standards, so programs
// in other languages compute the same keys. The keys are the same on every machine and in every
// version.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster {

enum class KeyHash {
  kXxh64,  // XXH64 with seed 0.
  kXxh3    // XXH3 with 64 bits and seed 0.
};

// Returns the 64-bit hash of the bytes of `text`, as a signed number. In Python:
//   numpy.uint64(xxhash.xxh64_intdigest(text)).astype(numpy.int64)
// Two different texts have the same hash with probability 2^-64. Among 100 million texts, the
// probability that two have the same hash is 1 in 3,700.
int64_t HashKey(std::string_view text, KeyHash hash = KeyHash::kXxh64);

}  // namespace muster
