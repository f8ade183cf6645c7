#include "common/collective/tensor.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::collective {
namespace {

using ::testing::HasSubstr;

TEST(TensorBuffer, HoldsTheTensorsMemory) {
  const at::Tensor x = at::zeros({2, 3}, at::kBFloat16);
  const absl::StatusOr<Buffer> buffer = TensorBuffer(x);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->data, x.data_ptr());
  EXPECT_EQ(buffer->count, 6);
  EXPECT_EQ(buffer->type, DataType::kBFloat16);
}

TEST(TensorBuffer, TypesThatCannotBeReducedAreBytes) {
  const absl::StatusOr<Buffer> buffer = TensorBuffer(at::zeros({5}, at::kInt));
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->type, DataType::kByte);
  EXPECT_EQ(buffer->count, 20);
}

TEST(TensorBuffer, RefusesWhatIsNotContiguousInOneSentence) {
  const absl::StatusOr<Buffer> buffer = TensorBuffer(at::zeros({2, 3}).t());
  EXPECT_EQ(ExitCodeOf(buffer.status()), ExitCode::kProgramFailed);
  EXPECT_THAT(std::string(Message(buffer.status())),
              HasSubstr("shape [3, 2] and strides [1, 3], which is not contiguous"));
}

TEST(TensorBuffer, RefusesSparseAndUndefinedTensors) {
  EXPECT_THAT(std::string(Message(TensorBuffer(at::zeros({2, 2}).to_sparse()).status())),
              HasSubstr("sparse"));
  EXPECT_FALSE(TensorBuffer(at::Tensor()).ok());
}

}  // namespace
}  // namespace muster::collective
