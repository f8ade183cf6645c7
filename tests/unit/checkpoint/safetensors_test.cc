#include "common/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <random>

#include "common/base/files/crc32c.h"
#include "muster/json.h"
#include "tests/unit/checkpoint/memory_file_system.h"
#include "tests/unit/checkpoint/snapshots.h"

namespace muster::checkpoint {
namespace {

using testing::HasSubstr;
using testing_support::Difference;
using testing_support::EveryType;
using testing_support::MakeTensors;

// The file's bytes, and what the writer said of them.
absl::StatusOr<std::string> Written(const TensorSet& set) {
  MemoryFileSystem files;
  ChecksummedFile out(files.Create("/f").value());
  MUSTER_RETURN_IF_ERROR(WriteSafetensors(set, out));
  MUSTER_RETURN_IF_ERROR(out.Finish());
  std::string bytes = ReadFile(files, "/f").value();
  EXPECT_EQ(out.size(), static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(out.crc(), Crc32c(bytes));
  return bytes;
}

absl::StatusOr<TensorSet> Read(const std::string& bytes) {
  MemoryFileSystem files;
  (void)files.Create("/f").value();
  EXPECT_TRUE(files.Overwrite("/f", bytes).ok());
  uint32_t crc = 0;
  absl::StatusOr<TensorSet> set = ReadSafetensors(*files.Open("/f").value(), &crc);
  EXPECT_TRUE(!set.ok() || crc == Crc32c(bytes));
  return set;
}

std::string File(const std::string& header, size_t data_bytes) {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, 'd');
}

TEST(Safetensors, EveryTypeComesBack) {
  const TensorSet set = EveryType(7);
  const auto bytes = Written(set);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto read = Read(*bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Difference(set, *read), "");
  for (const Tensor& tensor : read->tensors) {
    const auto address = reinterpret_cast<uintptr_t>(tensor.data);
    EXPECT_EQ(address % kDTypeBytes[static_cast<int>(tensor.dtype)], 0u) << tensor.name;
  }
}

TEST(Safetensors, LayoutIsAsTheFormatSays) {
  const std::string bytes =
      Written(MakeTensors({{"b", DType::kUInt8, {3}}, {"a", DType::kInt32, {}}}, 1)).value();
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},)"
      R"("a":{"dtype":"I32","shape":[],"data_offsets":[0,4]}})";
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(bytes.substr(8, json.size()), json);
  EXPECT_EQ(bytes.substr(8 + json.size(), length - json.size()),
            std::string(length - json.size(), ' '));
  EXPECT_EQ(bytes.size(), 8 + length + 7);
}

TEST(Safetensors, NoTensorsAndLargeOnes) {
  for (const TensorSet& set :
       {MakeTensors({}, 0), MakeTensors({{"large", DType::kFloat32, {1'000'003}},
                                         {"small", DType::kInt8, {3}},
                                         {"also large", DType::kFloat16, {700'001}}},
                                        3)}) {
    const auto read = Read(Written(set).value());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(Difference(set, *read), "");
  }
}

TEST(Safetensors, NamesOfAnyKind) {
  const TensorSet set = MakeTensors({{"quote\"back\\slash\nline", DType::kInt8, {1}},
                                     {"größe/層", DType::kInt8, {2}},
                                     {std::string("nul\0in", 6), DType::kInt8, {2}}},
                                    3);
  const auto read = Read(Written(set).value());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Difference(set, *read), "");
  for (const char* name : {"", "__metadata__", "\xff\xfe"}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(Written(MakeTensors({{name, DType::kInt8, {1}}}, 1)).status()))
        << name;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(
      Written(MakeTensors({{"a", DType::kInt8, {1}}, {"a", DType::kInt8, {1}}}, 1)).status()));
}

TEST(Safetensors, ForeignHeadersAreRead) {
  // Padding, metadata with other keys, holes in no place, data in another order than the header.
  const auto set =
      Read(File(R"({"z":{"shape":[2],"dtype":"I8","data_offsets":[0,2]} , "__metadata__":{"x":"y"},
      "e":{"dtype":"BF16","shape":[0],"data_offsets":[2,2]},"a":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}}   )",
                4));
  ASSERT_TRUE(set.ok()) << set.status();
  ASSERT_EQ(set->tensors.size(), 3u);
  EXPECT_EQ(set->tensors[0].name, "z");
  EXPECT_EQ(set->Find("a")->data, set->Find("z")->data + 2);
  EXPECT_EQ(set->Find("e")->dtype, DType::kBFloat16);
}

TEST(Safetensors, TypesOfOthersAreReportedOnRequest) {
  const std::string bytes = File(
      R"({"q":{"dtype":"U32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F16","shape":[1],)"
      R"("data_offsets":[8,10]},"h":{"dtype":"F4","shape":[3],"data_offsets":[10,12]}})",
      12);
  EXPECT_THAT(std::string(Message(Read(bytes).status())),
              ::testing::HasSubstr("tensor \"q\" has the type \"U32\", which this version"));
  MemoryFileSystem files;
  (void)files.Create("/f").value();
  ASSERT_TRUE(files.Overwrite("/f", bytes).ok());
  uint32_t crc = 0;
  ForeignTensors foreign;
  const auto set = ReadSafetensors(*files.Open("/f").value(), &crc, &foreign);
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(foreign, (ForeignTensors{{"q", "U32"}, {"h", "F4"}}));
  ASSERT_EQ(set->tensors.size(), 1u);
  EXPECT_EQ(set->tensors[0].name, "a");
  for (const char* places : {"[8,0]", "[0,9]", "[0,4]", "[0,400]"}) {
    const std::string header = R"({"q":{"dtype":"U32","shape":[2],"data_offsets":)";
    const auto bad = ParseSafetensorsHeader(header + places + "}}", 8, /*foreign=*/true);
    EXPECT_TRUE(absl::IsDataLoss(bad.status())) << places;
  }
}

struct Bad {
  const char* header;
  int data_bytes;
  const char* why;
};

TEST(Safetensors, WhatIsWrongIsSaid) {
  const Bad bads[] = {
      {R"( {})", 0, "does not begin with {"},
      {R"({)", 0, "not valid JSON at byte"},
      {R"({} x)", 0, "not valid JSON at byte"},
      {R"({"a":1})", 0, R"("a" is a number, not an object)"},
      {R"({"a":{}})", 0, R"(tensor "a" has no dtype)"},
      {R"({"a":{"dtype":"I8","shape":[1]}})", 1, R"(tensor "a" has no data_offsets)"},
      {R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
       1, R"("a" comes twice)"},
      {R"({"a":{"dtype":"I8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1,
       "has dtype twice"},
      {R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1],"x":1}})", 1, R"(has a key "x")"},
      {R"({"a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}})", 8, R"(the type "C64")"},
      {R"({"a":{"dtype":"I8","shape":1,"data_offsets":[0,1]}})", 1,
       "shape of tensor \"a\" holds a number"},
      {R"({"a":{"dtype":"I8","shape":[-1],"data_offsets":[0,1]}})", 1, "holds a negative number"},
      {R"({"a":{"dtype":"I8","shape":[1.0],"data_offsets":[0,1]}})", 1, "holds a fraction"},
      {R"({"a":{"dtype":"I8","shape":[[1]],"data_offsets":[0,1]}})", 1, "holds a list"},
      {R"({"a":{"dtype":"I8","shape":[{}],"data_offsets":[0,1]}})", 1, "holds an object"},
      {R"({"a":{"dtype":"I8","shape":[null],"data_offsets":[0,1]}})", 1, "holds null"},
      {R"({"a":{"dtype":["I8"],"shape":[1],"data_offsets":[0,1]}})", 1,
       "dtype of tensor \"a\" holds a list"},
      {R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0]}})", 1, "must be two numbers"},
      {R"({"a":{"dtype":"I8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1,
       "too large"},
      {R"({"a":{"dtype":"I8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "too large"},
      {R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0,
       "too large"},
      {R"({"a":{"dtype":"F32","shape":[0,4611686018427387904],"data_offsets":[0,0]}})", 0,
       "too large"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
       "lies at 0 to 4, but needs 8 bytes"},
      {R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[2,0]}})", 2, "lies at 2 to 0"},
      {R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[1,3]}})", 3, "leaves a hole before it"},
      {R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"I8","shape":[2],"data_offsets":[1,3]}})",
       3, "overlaps another"},
      {R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})", 1,
       "ends at byte 2 of the data, which has 1"},
      {R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})", 3,
       "end at byte 2 of the data, which has 3"},
      {R"({"__metadata__":{"a":1}})", 0, "not a string"},
      {R"({"__metadata__":[]})", 0, "not an object"},
      {"{\"\xff\":{}}", 0, "not valid JSON"},
  };
  for (const Bad& bad : bads) {
    const auto set = Read(File(bad.header, bad.data_bytes));
    EXPECT_TRUE(absl::IsDataLoss(set.status())) << bad.header;
    EXPECT_THAT(set.status().ToString(), HasSubstr(bad.why)) << bad.header;
  }
}

TEST(Safetensors, LengthsThatCannotBe) {
  EXPECT_THAT(Read("").status().ToString(), HasSubstr("0 bytes, too few"));
  EXPECT_THAT(Read("1234567").status().ToString(), HasSubstr("7 bytes, too few"));
  for (const uint64_t length : {uint64_t{3}, uint64_t{1} << 40, ~uint64_t{0}}) {
    std::string bytes(10, '{');
    std::memcpy(bytes.data(), &length, 8);
    EXPECT_THAT(Read(bytes).status().ToString(), HasSubstr("the file has 10"));
  }
  EXPECT_TRUE(absl::IsDataLoss(Read(File("", 0)).status()));
  EXPECT_TRUE(absl::IsDataLoss(Read(File(std::string(100'000, '['), 0)).status()));
  EXPECT_TRUE(absl::IsDataLoss(Read(File("{\"a\":" + std::string(100'000, '['), 0)).status()));
}

std::string Mutated(std::string text, std::mt19937& random) {
  static const char* const kPieces[] = {"\"",      "{",        "}",
                                        "[",       "]",        ",",
                                        ":",       "null",     "-1",
                                        "1e9",     "true",     "9223372036854775807",
                                        "\\u0000", "\"a\":{}", "18446744073709551616",
                                        "0"};
  for (int times = 1 + static_cast<int>(random() % 3); times > 0; --times) {
    const size_t at = text.empty() ? 0 : random() % text.size();
    const size_t size = text.empty() ? 0 : random() % std::min<size_t>(20, text.size() - at);
    switch (random() % 5) {
      case 0:
        if (!text.empty()) text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, size);
        break;
      case 2:
        text.insert(at, kPieces[random() % std::size(kPieces)]);
        break;
      case 3:
        text.insert(random() % (text.size() + 1), text.substr(at, size));
        break;
      default:
        text.replace(at, size, kPieces[random() % std::size(kPieces)]);
    }
  }
  return text;
}

TEST(Safetensors, MutatedHeadersAreReadOrRefused) {
  const std::string bytes = Written(EveryType(7)).value();
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const std::string header = bytes.substr(8, length);
  const int64_t data_bytes = static_cast<int64_t>(bytes.size() - 8 - length);
  std::mt19937 random(20);
  int read = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::string text = Mutated(header, random);
    const auto parsed = ParseSafetensorsHeader(text, data_bytes, /*foreign=*/false);
    if (!parsed.ok()) {
      ASSERT_TRUE(absl::IsDataLoss(parsed.status())) << text;
      ASSERT_FALSE(parsed.status().message().empty());
      continue;
    }
    ++read;  // a changed name, or a blank
    int64_t sum = 0;
    for (const auto& entry : parsed->tensors) {
      ASSERT_LE(entry.begin + static_cast<int64_t>(entry.bytes()), data_bytes);
      sum += static_cast<int64_t>(entry.bytes());
    }
    ASSERT_EQ(sum, data_bytes) << text;
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace muster::checkpoint
