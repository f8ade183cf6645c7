#include "common/exported/graph/symbolic.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include <limits>

namespace muster::exported {
namespace {

using c10::IValue;

IValue Call(const std::string& target, const std::vector<IValue>& operands) {
  const Symbolic symbolic = FindSymbolic(target);
  EXPECT_NE(symbolic.function, nullptr) << target;
  EXPECT_EQ(symbolic.operands, operands.size()) << target;
  return symbolic.function(operands);
}

// As in Python: -7 // 2 is -4, -7 % 2 is 1, 7 % -2 is -1.
TEST(Symbolic, WholeNumbersAsInPython) {
  EXPECT_EQ(Call("_operator.floordiv", {-7, 2}).toInt(), -4);
  EXPECT_EQ(Call("_operator.floordiv", {7, -2}).toInt(), -4);
  EXPECT_EQ(Call("_operator.floordiv", {-8, 2}).toInt(), -4);
  EXPECT_EQ(Call("_operator.mod", {-7, 2}).toInt(), 1);
  EXPECT_EQ(Call("_operator.mod", {7, -2}).toInt(), -1);
  EXPECT_EQ(Call("_operator.pow", {3, 4}).toInt(), 81);
  EXPECT_EQ(Call("_operator.pow", {1, 1'000'000'000'000}).toInt(), 1);
  EXPECT_EQ(Call("_operator.lshift", {3, 4}).toInt(), 48);
  EXPECT_EQ(Call("_operator.rshift", {48, 4}).toInt(), 3);
  EXPECT_EQ(Call("_operator.neg", {5}).toInt(), -5);
  EXPECT_EQ(Call("_operator.sub", {true, 3}).toInt(), -2);
  EXPECT_EQ(Call("torch.sym_max", {2, 9}).toInt(), 9);
  EXPECT_EQ(Call("torch.sym_min", {2, 9}).toInt(), 2);
}

TEST(Symbolic, RealNumbersAsInPython) {
  EXPECT_TRUE(Call("_operator.truediv", {4, 2}).isDouble());
  EXPECT_DOUBLE_EQ(Call("_operator.truediv", {7, 2}).toDouble(), 3.5);
  EXPECT_DOUBLE_EQ(Call("_operator.floordiv", {-7.5, 2}).toDouble(), -4);
  EXPECT_DOUBLE_EQ(Call("_operator.mod", {-7.5, 2}).toDouble(), 0.5);
  EXPECT_DOUBLE_EQ(Call("_operator.pow", {2, -1}).toDouble(), 0.5);
  EXPECT_DOUBLE_EQ(Call("_operator.add", {1, 0.5}).toDouble(), 1.5);
  EXPECT_EQ(Call("math.trunc", {-2.7}).toInt(), -2);
  EXPECT_EQ(Call("math.floor", {-2.5}).toInt(), -3);
  EXPECT_EQ(Call("math.ceil", {-2.5}).toInt(), -2);
  EXPECT_EQ(Call("torch.sym_int", {2.9}).toInt(), 2);
  EXPECT_DOUBLE_EQ(Call("torch.sym_float", {3}).toDouble(), 3);
  EXPECT_DOUBLE_EQ(Call("torch.sym_sqrt", {16}).toDouble(), 4);
}

TEST(Symbolic, Truth) {
  EXPECT_TRUE(Call("_operator.lt", {1, 1.5}).toBool());
  EXPECT_FALSE(Call("_operator.ge", {1, 2}).toBool());
  EXPECT_TRUE(Call("_operator.ne", {1, 2}).toBool());
  EXPECT_FALSE(Call("_operator.and_", {true, false}).toBool());
  EXPECT_EQ(Call("_operator.and_", {6, 3}).toInt(), 2);
  EXPECT_TRUE(Call("_operator.or_", {true, false}).toBool());
  EXPECT_TRUE(Call("torch.sym_not", {false}).toBool());
  EXPECT_EQ(Call("torch.sym_ite", {false, 4, 5}).toInt(), 5);
}

// The least number has no opposite, and a processor divides by none of such.
TEST(Symbolic, TheLeastNumber) {
  const int64_t least = std::numeric_limits<int64_t>::min();
  EXPECT_THROW(Call("_operator.floordiv", {least, -1}), c10::Error);
  EXPECT_THROW(Call("_operator.neg", {least}), c10::Error);
  EXPECT_EQ(Call("_operator.mod", {least, -1}).toInt(), 0);
  EXPECT_EQ(Call("_operator.floordiv", {7, -1}).toInt(), -7);
}

TEST(Symbolic, APowerTakesAFewSteps) {
  const int64_t many = int64_t{1} << 62;
  EXPECT_EQ(Call("_operator.pow", {-1, many}).toInt(), 1);
  EXPECT_EQ(Call("_operator.pow", {-1, many + 1}).toInt(), -1);
  EXPECT_EQ(Call("_operator.pow", {0, many}).toInt(), 0);
  EXPECT_EQ(Call("_operator.pow", {2, 62}).toInt(), many);
  EXPECT_EQ(Call("_operator.pow", {-2, 63}).toInt(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Call("_operator.pow", {0, 0}).toInt(), 1);
}

TEST(Symbolic, WhatHasNoAnswerThrows) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(Call("_operator.floordiv", {1, 0}), c10::Error);
  EXPECT_THROW(Call("_operator.mod", {1, 0}), c10::Error);
  EXPECT_THROW(Call("_operator.truediv", {1, 0}), c10::Error);
  EXPECT_THROW(Call("_operator.mul", {most, 2}), c10::Error);
  EXPECT_THROW(Call("_operator.add", {most, 1}), c10::Error);
  EXPECT_THROW(Call("_operator.pow", {10, 30}), c10::Error);
  EXPECT_THROW(Call("_operator.lshift", {1, -1}), c10::Error);
  EXPECT_THROW(Call("_operator.pow", {-3, most}), c10::Error);
  EXPECT_THROW(Call("math.trunc", {std::numeric_limits<double>::infinity()}), c10::Error);
  EXPECT_EQ(FindSymbolic("_operator.matmul").function, nullptr);
}

}  // namespace
}  // namespace muster::exported
