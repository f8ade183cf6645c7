#include "common/data/records/tar_file.h"

#include <gmock/gmock.h>

#include <cstdio>

#include "tests/unit/data/files.h"

namespace muster::data {
namespace {

using testing::HasSubstr;

// A header (POSIX.1-1988 ustar) and what follows it, filled to whole blocks.
std::string Entry(char type, const std::string& name, const std::string& bytes) {
  std::string block(512, '\0');
  block.replace(0, name.size(), name);
  char size[12];
  std::snprintf(size, sizeof(size), "%011zo", bytes.size());
  block.replace(124, 11, size, 11);
  block[156] = type;
  block.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  char checksum[8];
  std::snprintf(checksum, sizeof(checksum), "%06o", sum);
  block.replace(148, 7, checksum, 7);
  std::string padded = bytes;
  padded.resize((bytes.size() + 511) / 512 * 512);
  return block + padded;
}

const std::string kEnd(1024, '\0');

TEST(TarFile, LongNamesReplaceShortOnes) {
  const TempFolder folder;
  WriteBytes(folder / "a.tar", Entry('L', "././@LongLink", std::string(120, 'n') + '\0') +
                                   Entry('0', "short", "data") + kEnd);
  const auto tar = TarFile::Open(folder / "a.tar");
  ASSERT_TRUE(tar.ok()) << tar.status();
  ASSERT_EQ((*tar)->members().size(), 1u);
  EXPECT_EQ((*tar)->members()[0].name, std::string(120, 'n'));
  EXPECT_EQ((*tar)->members()[0].bytes, "data");
}

TEST(TarFile, AFileWithoutANameIsRefused) {
  const TempFolder folder;
  for (const std::string& before :
       {std::string(), Entry('L', "././@LongLink", std::string(3, '\0'))}) {
    WriteBytes(folder / "a.tar",
               Entry('0', "first", "data") + before + Entry('0', "", "data") + kEnd);
    const auto tar = TarFile::Open(folder / "a.tar");
    ASSERT_FALSE(tar.ok());
    EXPECT_THAT(tar.status().message(),
                HasSubstr("' is damaged: the member that begins at byte " +
                          std::to_string(1024 + before.size()) + " has no name."));
  }
}

}  // namespace
}  // namespace muster::data
