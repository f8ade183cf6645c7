#include "common/checkpoint/row_source.h"

#include <gmock/gmock.h>

#include <vector>

namespace muster::checkpoint {
namespace {

using testing::HasSubstr;

class JoinRowsTest : public testing::Test {
 protected:
  // One more file with this tensor alone.
  void Add(const std::string& name, DType dtype, std::vector<int64_t> shape) {
    TensorSet set;
    Tensor& tensor = set.tensors.emplace_back();
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.shape = std::move(shape);
    tensor.data = zeros_.data();
    ASSERT_LE(tensor.bytes(), zeros_.size());
    sources_.push_back(RowsInMemory(set, {}));
  }
  std::string Refusal() {
    TensorSet model, optimizer;
    const absl::Status joined = JoinRows(sources_, &model, &optimizer);
    EXPECT_TRUE(absl::IsDataLoss(joined)) << joined;
    return joined.ToString();
  }

  const std::string zeros_ = std::string(4096, '\0');
  RowSources sources_;
};

// A count is read into one number, which rows in its place do not fit in.
TEST_F(JoinRowsTest, ACountIsOneInEachFile) {
  Add("t.step", DType::kInt64, {});
  Add("t.step", DType::kInt64, {1, 100});
  EXPECT_THAT(Refusal(), HasSubstr("of another kind in another file"));
  std::swap(sources_[0], sources_[1]);
  EXPECT_THAT(Refusal(), HasSubstr("of another kind in another file"));
}

TEST_F(JoinRowsTest, ACountIsAnInteger) {
  Add("t.step", DType::kFloat32, {});
  EXPECT_THAT(Refusal(), HasSubstr("must be an I64"));
}

TEST_F(JoinRowsTest, RowsAreOfOneTypeAndWidth) {
  Add("t.rows", DType::kFloat32, {2, 3});
  Add("t.rows", DType::kFloat32, {2, 4});
  EXPECT_THAT(Refusal(), HasSubstr("of another kind in another file"));
}

// Rows without elements take no bytes, and may be as many as a file says.
TEST_F(JoinRowsTest, NumbersOfRowsDoNotOverflow) {
  for (int file = 0; file < 2; ++file) Add("t.rows", DType::kInt8, {int64_t{1} << 62, 0});
  EXPECT_THAT(Refusal(), HasSubstr("more rows than any tensor"));
}

}  // namespace
}  // namespace muster::checkpoint
