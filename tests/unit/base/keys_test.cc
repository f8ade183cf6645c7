// Hashes of text are those that other libraries have by these names.
#include "muster/keys.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace muster {
namespace {

uint64_t Bits(std::string_view text, KeyHash hash) {
  return static_cast<uint64_t>(HashKey(text, hash));
}

// The values are from the documentation of xxHash and of python-xxhash.
TEST(HashKey, IsTheOneThatIsPublished) {
  EXPECT_EQ(Bits("", KeyHash::kXxh64), 0xef46db3751d8e999u);
  EXPECT_EQ(Bits("a", KeyHash::kXxh64), 0xd24ec4f1a98c6e5bu);
  EXPECT_EQ(Bits("abc", KeyHash::kXxh64), 0x44bc2cf5ad770999u);
  EXPECT_EQ(Bits("Nobody inspects the spammish repetition", KeyHash::kXxh64), 0xfbcea83c8a378bf1u);
  EXPECT_EQ(Bits("", KeyHash::kXxh3), 0x2d06800538d394c2u);
  EXPECT_EQ(Bits("a", KeyHash::kXxh3), 0xe6c632b61e964e1fu);
  EXPECT_EQ(Bits("abc", KeyHash::kXxh3), 0x78af5f94892f3950u);
}

TEST(HashKey, TakesAnyBytesOfAnyLength) {
  std::set<int64_t> keys;
  std::string text;
  for (int length = 0; length < 1000; ++length, text += static_cast<char>(length))
    for (const KeyHash hash : {KeyHash::kXxh64, KeyHash::kXxh3}) keys.insert(HashKey(text, hash));
  EXPECT_EQ(keys.size(), 2000u);
  EXPECT_EQ(HashKey("key"), HashKey("key", KeyHash::kXxh64));
}

}  // namespace
}  // namespace muster
