#include "deploy/tool/export_table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <numeric>

#include "common/checkpoint/export_file.h"

namespace muster {
namespace {

using checkpoint::DType;
using checkpoint::TensorInfo;
using ::testing::HasSubstr;

constexpr int64_t kRows = 1 << 18, kWidth = 64;  // of each file: 64 MiB of rows

// A file of a checkpoint: the keys that are `file` modulo 2, the largest first, of which row `key`
// has its key in every element; and another table, and slots, which nobody is to read.
class RowsOfFile final : public checkpoint::RowSource {
 public:
  explicit RowsOfFile(int64_t file, int64_t width = kWidth) : file_(file), width_(width) {
    tensors_ = {{"users.keys", DType::kInt64, {kRows}},
                {"users.rows", DType::kFloat32, {kRows, width}},
                {"users.momentum", DType::kFloat32, {kRows, width}},
                {"items.keys", DType::kInt64, {kRows}},
                {"items.rows", DType::kFloat32, {kRows, width}}};
  }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  absl::Status ReadBytes(size_t tensor, int64_t begin, int64_t bytes, char* out) const override {
    if (tensor > 1) return absl::InternalError("it is not asked for");
    const int64_t row_bytes =
        tensor == 0 ? sizeof(int64_t) : width_ * static_cast<int64_t>(sizeof(float));
    for (int64_t i = begin / row_bytes; i < (begin + bytes) / row_bytes; ++i) {
      const int64_t key = (kRows - 1 - i) * 2 + file_;
      if (tensor == 0) {
        std::memcpy(out, &key, sizeof key);
        out += sizeof key;
        continue;
      }
      const std::vector<float> row(width_, static_cast<float>(key));
      std::memcpy(out, row.data(), row.size() * sizeof(float));
      out += row.size() * sizeof(float);
    }
    return absl::OkStatus();
  }

 private:
  const int64_t file_, width_;
  std::vector<TensorInfo> tensors_;
};

checkpoint::Snapshot TwoFiles(int64_t width = kWidth) {
  checkpoint::Snapshot snapshot;
  snapshot.tables = {std::make_shared<RowsOfFile>(0), std::make_shared<RowsOfFile>(1, width)};
  return snapshot;
}

class ExportTableTest : public ::testing::Test {
 protected:
  ExportTableTest()
      : path_(fmt::format("{}table-{}.safetensors", ::testing::TempDir(), getpid())) {}
  ~ExportTableTest() override { unlink(path_.c_str()); }
  const std::string path_;
};

// Private memory of this process.
rlim_t Data() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmData:")) return std::stoul(line.substr(7)) << 10;
  return 0;
}

TEST_F(ExportTableTest, NeedsTheMemoryForOneCopyOfItsRows) {
  const checkpoint::Snapshot snapshot = TwoFiles();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
  const rlimit tight{Data() + 2 * kRows * kWidth * sizeof(float) * 3 / 2, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &tight), 0);
  const absl::Status exported = ExportTable(snapshot, "users", path_);
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &before), 0);
  ASSERT_TRUE(exported.ok()) << exported;
  const auto read = checkpoint::ReadExport(checkpoint::PosixFileSystem(), path_);
  ASSERT_TRUE(read.ok()) << read.status();
  const checkpoint::Tensor* keys = read->snapshot.model.Find("keys");
  const checkpoint::Tensor* rows = read->snapshot.model.Find("rows");
  ASSERT_TRUE(keys != nullptr && rows != nullptr);
  EXPECT_EQ(rows->shape, (std::vector<int64_t>{2 * kRows, kWidth}));
  for (int64_t key = 0; key < 2 * kRows; key += 1001) {
    int64_t found = 0;
    std::memcpy(&found, keys->data + key * sizeof found, sizeof found);
    EXPECT_EQ(found, key);
    std::vector<float> row(kWidth);
    std::memcpy(row.data(), rows->data + key * kWidth * sizeof(float), kWidth * sizeof(float));
    EXPECT_EQ(row, std::vector<float>(kWidth, static_cast<float>(key)));
  }
}

TEST_F(ExportTableTest, RefusesFilesThatDoNotFit) {
  const absl::Status exported = ExportTable(TwoFiles(kWidth / 2), "users", path_);
  EXPECT_TRUE(absl::IsDataLoss(exported)) << exported;
  EXPECT_THAT(std::string(Message(exported)),
              HasSubstr("\"users.rows\" has rows of another kind in another file"));
}

}  // namespace
}  // namespace muster
