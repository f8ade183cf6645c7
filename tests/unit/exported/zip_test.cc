#include "common/base/files/zip.h"

#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

#include "common/exported/graph/archive.h"
#include "tests/unit/exported/test_file.h"

namespace muster::exported {
namespace {

using testing::HasSubstr;

std::string Bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::string Put(const std::string& bytes) {
  const std::string path = TempPath("changed.pt2");
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TestFile Small() {
  TestFile file;
  file.Input("x", {-1, 2});
  file.members()["data/weights/weight_0"] = "twelve bytes";
  return file;
}

TEST(Zip, ReadsWhatLibTorchWrites) {
  const auto zip = ZipReader::Open(Small().Write(), ArchiveZip());
  ASSERT_TRUE(zip.ok()) << zip.status();
  EXPECT_EQ((*zip)->ReadText("data/weights/weight_0").value(), "twelve bytes");
  EXPECT_EQ((*zip)->Size("data/weights/weight_0"), 12);
  EXPECT_FALSE((*zip)->Has("weight_0"));
  EXPECT_THAT((*zip)->names(), testing::Contains("byteorder"));
}

TEST(Zip, AMemberThatIsMissingIsNamed) {
  const auto zip = ZipReader::Open(Small().Write(), ArchiveZip());
  const auto text = (*zip)->ReadText("models/other.json");
  EXPECT_EQ(ExitCodeOf(text.status()), ExitCode::kDataDamaged);
  EXPECT_THAT(text.status().message(), HasSubstr("models/other.json is missing"));
}

TEST(Zip, AFileThatIsNotThereIsAMistakeInTheJob) {
  const auto zip = ZipReader::Open(TempPath("none.pt2"), ArchiveZip());
  EXPECT_EQ(ExitCodeOf(zip.status()), ExitCode::kConfiguration);
  EXPECT_THAT(zip.status().message(), HasSubstr("none.pt2"));
}

TEST(Zip, AFlippedByteIsFoundByTheChecksum) {
  const std::string path = Small().Write();
  std::string bytes = Bytes(path);
  bytes[bytes.find("twelve")] ^= 1;
  const auto zip = ZipReader::Open(Put(bytes), ArchiveZip());
  ASSERT_TRUE(zip.ok()) << zip.status();
  const auto text = (*zip)->ReadText("data/weights/weight_0");
  EXPECT_EQ(ExitCodeOf(text.status()), ExitCode::kDataDamaged);
  EXPECT_THAT(text.status().message(), HasSubstr("checksum of data/weights/weight_0"));
}

// A cut at any place, or a change of any byte of the directory, gives an error or the same content,
// never a crash.
TEST(Zip, DamageOfAnyKindIsAStatus) {
  const std::string whole = Bytes(Small().Write());
  for (size_t size = 0; size < whole.size(); size += 7) {
    const auto zip = ZipReader::Open(Put(whole.substr(0, size)), ArchiveZip());
    ASSERT_FALSE(zip.ok()) << size;
    EXPECT_EQ(ExitCodeOf(zip.status()), ExitCode::kDataDamaged) << size;
  }
  const size_t directory = whole.find("PK\x01\x02");
  ASSERT_NE(directory, std::string::npos);
  int refused = 0;
  for (size_t at = directory; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0xff);
    const auto zip = ZipReader::Open(Put(bytes), ArchiveZip());
    if (!zip.ok() || !(*zip)->ReadText("data/weights/weight_0").ok()) ++refused;
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace muster::exported
