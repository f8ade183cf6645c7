#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <bit>
#include <numeric>

#include "muster/data.h"
#include "tests/unit/data/files.h"

namespace muster::data {
namespace {

using testing::HasSubstr;

class IdxTest : public testing::Test {
 protected:
  absl::StatusOr<at::Tensor> Read(const std::string& bytes) {
    WriteBytes(path_, bytes);
    return ReadIdx(path_);
  }
  // The sentence with which `bytes` are refused; it names the file.
  std::string Refusal(const std::string& bytes) {
    const absl::Status status = Read(bytes).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kDataDamaged);
    EXPECT_THAT(std::string(Message(status)), HasSubstr(path_));
    return std::string(Message(status));
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "train-images-idx3-ubyte";
  const std::string pixels_ = Idx(0x08, {2, 2, 3}, "abcdefghijkl");
};

TEST_F(IdxTest, ReadsPlainAndGzip) {
  const at::Tensor expected =
      at::tensor(std::vector<int>{97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108})
          .to(at::kByte)
          .reshape({2, 2, 3});
  for (const std::string& bytes :
       {pixels_, Gzip(pixels_), Gzip(pixels_.substr(0, 9)) + Gzip(pixels_.substr(9)),
        Gzip("") + Gzip(pixels_) + Gzip("")}) {
    const auto tensor = Read(bytes);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(tensor->scalar_type(), at::kByte);
    EXPECT_TRUE(at::equal(*tensor, expected));
  }
}

TEST_F(IdxTest, ReadsEveryTypeAsBigEndian) {
  const auto check = [&](uint8_t code, const std::string& data, at::ScalarType type,
                         std::vector<double> values) {
    for (bool gzip : {false, true}) {
      const std::string bytes = Idx(code, {2}, data);
      const auto tensor = Read(gzip ? Gzip(bytes) : bytes);
      ASSERT_TRUE(tensor.ok()) << tensor.status();
      EXPECT_EQ(tensor->scalar_type(), type);
      EXPECT_TRUE(at::equal(tensor->to(at::kDouble), at::tensor(values, at::kDouble)));
    }
  };
  const auto word = [](double value) {
    const auto bits = std::bit_cast<uint64_t>(value);
    return BigEndian(bits >> 32) + BigEndian(static_cast<uint32_t>(bits));
  };
  check(0x08, {'\x01', '\xff'}, at::kByte, {1, 255});
  check(0x09, {'\x01', '\xff'}, at::kChar, {1, -1});
  check(0x0B, {'\x01', '\x02', '\xff', '\xfe'}, at::kShort, {258, -2});
  check(0x0C, BigEndian(0x01020304) + BigEndian(-5), at::kInt, {0x01020304, -5});
  check(0x0D, BigEndian(std::bit_cast<uint32_t>(1.5f)) + BigEndian(std::bit_cast<uint32_t>(-0.1f)),
        at::kFloat, {1.5, static_cast<double>(-0.1f)});
  check(0x0E, word(1.5) + word(-0.1), at::kDouble, {1.5, -0.1});
}

TEST_F(IdxTest, ReadsAnEmptyArray) {
  const auto tensor = Read(Gzip(Idx(0x08, {0, 28, 28}, "")));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->sizes(), (at::IntArrayRef{0, 28, 28}));
}

TEST_F(IdxTest, SaysWhatIsWrong) {
  EXPECT_THAT(Refusal(""), HasSubstr("truncated: it ends within its header"));
  EXPECT_THAT(Refusal("hello, world"), HasSubstr("not an IDX file"));
  EXPECT_THAT(Refusal(Idx(0x0A, {2}, "ab")), HasSubstr("begins with 00 00 0a 01"));
  EXPECT_THAT(Refusal(Idx(0x08, {}, "a")), HasSubstr("0 dimensions"));
  EXPECT_THAT(Refusal(Idx(0x08, std::vector<uint32_t>(255, 1), "a")), HasSubstr("255 dimensions"));
  EXPECT_THAT(
      Refusal(Idx(0x08, {2, 3}, "abcde")),
      HasSubstr("truncated: its header says shape [2, 3], 6 bytes of data, and there are 5"));
  EXPECT_THAT(Refusal(Idx(0x08, {2, 3}, "abcdefg")), HasSubstr("there are more"));
  EXPECT_THAT(Refusal(Gzip(Idx(0x08, {2, 3}, "abcde"))), HasSubstr("there are 5"));
  EXPECT_THAT(Refusal(Gzip(Idx(0x08, {2, 3}, "abcdefg"))), HasSubstr("there are more"));
  const std::string gzip = Gzip(pixels_);
  EXPECT_THAT(Refusal(gzip.substr(0, gzip.size() - 5)), HasSubstr("stops in the middle"));
  EXPECT_THAT(Refusal(gzip + "tail"), HasSubstr("follow its gzip data"));
  std::string checksum = gzip;
  checksum[checksum.size() - 8] ^= 1;
  EXPECT_THAT(Refusal(checksum), HasSubstr("incorrect data check"));
  std::string length = gzip;
  length[length.size() - 4] ^= 1;
  EXPECT_THAT(Refusal(length), HasSubstr("incorrect length check"));
}

TEST_F(IdxTest, RefusesWhatIsNoFile) {
  EXPECT_THAT(std::string(Message(ReadIdx(folder_ / "none").status())),
              HasSubstr("/none' cannot be opened: No such file or directory."));
  EXPECT_THAT(std::string(Message(ReadIdx(folder_.path()).status())),
              HasSubstr("not a regular file"));
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(ExitCodeOf(ReadIdx(folder_ / "pipe").status()), ExitCode::kDataDamaged);
}

// Dimensions of a damaged header are compared with the file before memory is taken.
TEST_F(IdxTest, BelievesNoAbsurdHeader) {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  for (const std::vector<uint32_t>& shape :
       std::vector<std::vector<uint32_t>>{{0xffffffff},
                                          {0xffffffff, 0xffffffff},
                                          {0xffffffff, 0xffffffff, 0xffffffff},
                                          {0, 0xffffffff, 0xffffffff, 0xffffffff},
                                          {0x80000000, 0x80000000, 4},
                                          {0x10000, 0x10000, 0x10000, 0x10000},
                                          {1 << 30}}) {
    const std::string bytes = Idx(0x0E, shape, "abcdefgh");
    Refusal(bytes);
    Refusal(Gzip(bytes));
    // The gzip trailer agrees with the header, and the ratio of compression tells.
    std::string lying = Gzip(bytes);
    uint64_t size = 8;
    for (uint32_t dimension : shape) size *= dimension;
    size += 4 + 4 * shape.size();
    for (int i = 0; i < 4; ++i) lying[lying.size() - 4 + i] = static_cast<char>(size >> (8 * i));
    Refusal(lying);
  }
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 << 10);  // KiB
}

TEST_F(IdxTest, SurvivesTruncationAnywhere) {
  for (const std::string& whole : {pixels_, Gzip(pixels_), Gzip("") + Gzip(pixels_)}) {
    for (size_t size = 0; size < whole.size(); ++size) Refusal(whole.substr(0, size));
  }
}

// Each single bit: a gzip file is refused or (a bit that says nothing, such as of the time in its
// header) read rightly; of a plain one the data cannot be checked, the header can.
TEST_F(IdxTest, SurvivesFlippedBits) {
  const at::Tensor right = *Read(pixels_);
  const std::string gzip = Gzip(pixels_);
  int harmless = 0;
  for (size_t bit = 0; bit < gzip.size() * 8; ++bit) {
    std::string damaged = gzip;
    damaged[bit / 8] ^= 1 << (bit % 8);
    const auto tensor = Read(damaged);
    if (tensor.ok()) {
      EXPECT_TRUE(at::equal(*tensor, right)) << bit;
      ++harmless;
    } else {
      EXPECT_EQ(ExitCodeOf(tensor.status()), ExitCode::kDataDamaged);
    }
  }
  EXPECT_LT(harmless, 80);
  for (size_t bit = 0; bit < pixels_.size() * 8; ++bit) {
    std::string damaged = pixels_;
    damaged[bit / 8] ^= 1 << (bit % 8);
    const auto tensor = Read(damaged);
    const bool header = bit < 16 * 8;
    // Unsigned and signed bytes have one length: the types differ in one bit.
    const bool other_type = bit / 8 == 2 && tensor.ok();
    if (other_type) {
      EXPECT_EQ(tensor->scalar_type(), at::kChar);
    } else {
      EXPECT_EQ(tensor.ok(), !header) << bit;
    }
  }
}

TEST_F(IdxTest, PairsImagesWithLabels) {
  const std::string images = folder_ / "images.gz", labels = folder_ / "labels";
  WriteBytes(images, Gzip(pixels_));
  WriteBytes(labels, Idx(0x08, {2}, "\x03\x07"));
  const auto dataset = LoadIdxPair(images, labels);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 2);
  EXPECT_EQ((*dataset)->Get(1, {})->at(0).sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_EQ((*dataset)->Get(1, {})->at(1).item<int>(), 7);

  WriteBytes(labels, Idx(0x08, {3}, "\x03\x07\x01"));
  const absl::Status status = LoadIdxPair(images, labels).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kDataDamaged);
  EXPECT_THAT(std::string(Message(status)), HasSubstr(images + "' has 2 examples and '" + labels));
  EXPECT_THAT(std::string(Message(LoadIdxPair(labels, images).status())),
              HasSubstr(images + "' has 3 dimensions, and labels have one"));
  EXPECT_FALSE(LoadIdxPair(images, folder_ / "none").ok());
}

// The real files, where Debian's package puts them.
TEST(FashionMnistTest, Reads) {
  const std::string folder = "/usr/share/datasets/fashion-mnist/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no package dataset-fashion-mnist";
  const auto test =
      LoadIdxPair(folder + "t10k-images-idx3-ubyte.gz", folder + "t10k-labels-idx1-ubyte.gz");
  ASSERT_TRUE(test.ok()) << test.status();
  ASSERT_EQ((*test)->size(), 10000);
  std::vector<int64_t> indices(10000);
  std::iota(indices.begin(), indices.end(), 0);
  const auto all = (*test)->GetBatch(indices, {});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->at(0).sizes(), (at::IntArrayRef{10000, 28, 28}));
  for (int label = 0; label < 10; ++label) {
    EXPECT_EQ(all->at(1).eq(label).sum().item<int64_t>(), 1000);
  }
  EXPECT_NEAR(all->at(0).to(at::kFloat).mean().item<float>() / 255, 0.2868, 0.0005);
}

}  // namespace
}  // namespace muster::data
