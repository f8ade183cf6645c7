#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/data/files/array_file.h"
#include "muster/data.h"
#include "tests/unit/data/files.h"

namespace muster::data {
namespace {

using testing::HasSubstr;

// numpy itself, of the environment that LibTorch comes from.
void RunPython(const TempFolder& folder, const std::string& script) {
  WriteBytes(folder / "make.py", "import numpy as np\n" + script);
  const std::string command = fmt::format("cd '{}' && '{}' make.py", folder.path(), MUSTER_PYTHON);
  ASSERT_EQ(std::system(command.c_str()), 0);
}

std::string Npy(const std::string& header, const std::string& data, uint8_t major = 1) {
  const size_t size = header.size();
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(major);
  bytes += '\0';
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) bytes += static_cast<char>(size >> (8 * i));
  return bytes + header + data;
}

// Mapped or read, a file is the same, and so is what is wrong with it.
absl::StatusOr<at::Tensor> ReadEitherWay(const std::string& path) {
  auto read = ReadNpy(path);
  const auto mapped = MapNpy(path);
  EXPECT_EQ(mapped.status(), read.status());
  if (read.ok() && mapped.ok()) {
    EXPECT_EQ(mapped->scalar_type(), read->scalar_type());
    EXPECT_TRUE(mapped->is_contiguous());
    EXPECT_TRUE(at::equal(*mapped, *read)) << path;
  }
  return read;
}

class NpyTest : public testing::Test {
 protected:
  absl::StatusOr<at::Tensor> Read(const std::string& bytes) {
    WriteBytes(path_, bytes);
    return ReadEitherWay(path_);
  }
  std::string Refusal(const std::string& bytes) {
    const absl::Status status = Read(bytes).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kDataDamaged);
    EXPECT_THAT(std::string(Message(status)), HasSubstr(path_));
    return std::string(Message(status));
  }
  static std::string Head(const std::string& descr, const std::string& shape = "(2,)") {
    return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "x.npy";
};

TEST_F(NpyTest, ReadsWhatNumpyWrites) {
  RunPython(folder_, R"(
from numpy.lib import format as f
a = np.arange(24).reshape(2, 3, 4)
for t in 'f2 f4 f8 i1 i2 i4 i8 u1'.split():
    for v in (1, 2, 3):
        for order in 'CF':
            with open(f'{t}_{v}_{order}.npy', 'wb') as out:
                f.write_array(out, np.array(a, dtype=t, order=order), version=(v, 0))
np.save('bool.npy', np.array([True, False, True]))
np.save('scalar.npy', np.float32(2.5))
np.save('empty.npy', np.zeros((0, 3), dtype='f4'))
np.save('fortran_empty.npy', np.zeros((0, 3), dtype='f4', order='F'))
np.save('swapped.npy', np.arange(3, dtype='>f4'))
np.save('unsigned.npy', np.arange(3, dtype='u2'))
np.save('complex.npy', np.arange(3, dtype='c8'))
np.save('text.npy', np.array(['a', 'b']))
np.save('records.npy', np.zeros(2, dtype=[('a', '<f4'), ('b', '<i4')]))
np.save('objects.npy', np.array([{}, []], dtype=object), allow_pickle=True)
)");
  const at::Tensor expected = at::arange(24).reshape({2, 3, 4});
  const std::vector<std::pair<std::string, at::ScalarType>> types = {
      {"f2", at::kHalf},  {"f4", at::kFloat}, {"f8", at::kDouble}, {"i1", at::kChar},
      {"i2", at::kShort}, {"i4", at::kInt},   {"i8", at::kLong},   {"u1", at::kByte}};
  for (const auto& [name, type] : types) {
    for (int version : {1, 2, 3}) {
      for (char order : {'C', 'F'}) {
        const std::string file = fmt::format("{}_{}_{}.npy", name, version, order);
        const auto tensor = ReadEitherWay(folder_ / file);
        ASSERT_TRUE(tensor.ok()) << tensor.status();
        EXPECT_EQ(tensor->scalar_type(), type);
        EXPECT_TRUE(tensor->is_contiguous());
        EXPECT_TRUE(at::equal(tensor->to(at::kLong), expected)) << file;
      }
    }
  }
  const auto read = [&](const std::string& name) {
    auto tensor = ReadEitherWay(folder_ / name);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return *tensor;
  };
  EXPECT_EQ(read("bool.npy").scalar_type(), at::kBool);
  EXPECT_EQ(read("bool.npy").sum().item<int64_t>(), 2);
  EXPECT_EQ(read("scalar.npy").dim(), 0);
  EXPECT_EQ(read("scalar.npy").item<float>(), 2.5f);
  EXPECT_EQ(read("empty.npy").sizes(), (at::IntArrayRef{0, 3}));
  EXPECT_EQ(read("fortran_empty.npy").sizes(), (at::IntArrayRef{0, 3}));
  const auto refused = [&](const std::string& name, const std::string& why) {
    const absl::Status status = ReadEitherWay(folder_ / name).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kDataDamaged);
    EXPECT_THAT(std::string(Message(status)), testing::AllOf(HasSubstr(name), HasSubstr(why)));
  };
  refused("swapped.npy", "big-endian numbers (dtype '>f4'): save it as little-endian");
  refused("objects.npy", "Python objects (dtype '|O')");
  refused("unsigned.npy", "dtype '<u2', which is not supported");
  refused("complex.npy", "dtype '<c8', which is not supported");
  refused("text.npy", "dtype '<U1', which is not supported");
  refused("records.npy", "records, which is not supported");
}

TEST_F(NpyTest, ReadsOtherSpellingsOfTheHeader) {
  for (const char* header : {"{\"shape\":(2L,),\"fortran_order\":False,\"descr\":\"|u1\"}",
                             "{'descr': '<u1', 'fortran_order': True, 'shape': (2 , ) , }   \n",
                             "  {'shape': (2), 'descr': '=u1', 'fortran_order': False}",
                             "{'descr': '>u1', 'fortran_order': False, 'shape': (2,)}"}) {
    const auto tensor = Read(Npy(header, "ab"));
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(tensor->sizes(), at::IntArrayRef{2});
  }
}

TEST_F(NpyTest, SaysWhatIsWrong) {
  EXPECT_THAT(Refusal(""), HasSubstr("truncated"));
  EXPECT_THAT(Refusal("PK\x03\x04 an npz file"), HasSubstr("not an npy file"));
  EXPECT_THAT(Refusal(Npy(Head("<f4"), "abcdefgh", 4)), HasSubstr("version 4.0"));
  EXPECT_THAT(Refusal(Npy(Head("<f4"), "abcdefg")),
              HasSubstr("truncated: its header says shape [2], 8 bytes of data, and there are 7"));
  EXPECT_THAT(Refusal(Npy(Head("<f4"), "abcdefghi")), HasSubstr("there are more"));
  EXPECT_THAT(Refusal(Npy(Head("|b1"), "\x01\x02")), HasSubstr("neither 0 nor 1"));
  EXPECT_THAT(Refusal(Npy(std::string(70000, ' '), "", 2)), HasSubstr("claims 70000 bytes"));
  EXPECT_THAT(Refusal(Npy(Head("|u1", "(" + std::string(99, '1') + ",)"), "ab")),
              HasSubstr("header is not one of an array"));
  std::string deep = "(";
  for (int i = 0; i < 40; ++i) deep += "1,";
  EXPECT_THAT(Refusal(Npy(Head("|u1", deep + ")"), "a")), HasSubstr("40 dimensions"));
  for (const char* header :
       {"", "{", "{}", "[1, 2]", "{'descr': '<f4'}", "{'descr': <f4}", "{'descr': '<f4",
        "{'descr': '<f4', 'fortran_order': Perhaps, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} rest",
        "{'descr': '<f4', 'descr': '<f4', 'shape': (2,)}"}) {
    EXPECT_THAT(Refusal(Npy(header, "abcdefgh")), HasSubstr("header is not one of an array"))
        << header;
  }
  EXPECT_THAT(Refusal(Npy("{'descr': '', 'fortran_order': False, 'shape': (2,)}", "ab")),
              HasSubstr("not supported"));
}

TEST_F(NpyTest, BelievesNoAbsurdHeader) {
  for (const char* shape : {"(999999999999999999,)", "(999999999, 999999999, 999999999)",
                            "(0, 999999999999999999, 999999999999999999)", "(4294967296, 2)"}) {
    Refusal(Npy(Head("<f8", shape), "abcdefgh"));
  }
}

TEST_F(NpyTest, SurvivesTruncationAndFlippedBits) {
  const std::string whole = Npy(Head("<i2", "(2, 3)"), "abcdefghijkl");
  ASSERT_TRUE(Read(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) Refusal(whole.substr(0, size));
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] ^= 1 << (bit % 8);
    const auto tensor = Read(damaged);  // any result but a crash
    if (tensor.ok()) {
      EXPECT_EQ(tensor->nbytes(), 12u) << bit;
    } else {
      EXPECT_EQ(ExitCodeOf(tensor.status()), ExitCode::kDataDamaged);
    }
  }
}

}  // namespace
}  // namespace muster::data
