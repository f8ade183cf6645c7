// 64-bit hash functions to detect accidental changes and to distribute keys evenly. They do not
// resist attacks.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster {

// The start value of the hash FNV-1a.
inline constexpr uint64_t kFnvStart = 0xcbf29ce484222325;

// Returns the FNV-1a hash of `text`. The hash of `a` followed by `b` is Fnv1a(b, Fnv1a(a)).
constexpr uint64_t Fnv1a(std::string_view text, uint64_t hash = kFnvStart) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// SplitMix64 returns the output of the random generator SplitMix64 (Steele et al. 2014) for the
// state `x`. After each output, the generator adds kSplitMixStep to its state. The function is a
// bijection. Each bit of `x` affects about half of the output bits.
inline constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15;
constexpr uint64_t SplitMix64(uint64_t x) {
  x += kSplitMixStep;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace muster
