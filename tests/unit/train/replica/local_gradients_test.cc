#include "common/train/replica/gradients/local_gradients.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include <cmath>

#include "common/collective/group/formation.h"

namespace muster {
namespace {

class LocalGradientsTest : public ::testing::Test {
 protected:
  // Sets .grad and calls the hook as autograd does.
  void Give(int index, const at::Tensor& gradient) {
    parameters_[index].mutable_grad() = gradient;
    sink_.OnGradient(index);
  }

  std::vector<std::unique_ptr<collective::Communicator>> communicators_ =
      collective::MakeThreadCommunicators(1, std::chrono::seconds(10));
  std::vector<at::Tensor> parameters_ = {at::zeros({3}).requires_grad_(true),
                                         at::zeros({2, 2}).requires_grad_(true)};
  LocalGradients sink_{parameters_, communicators_[0].get(), /*control_capacity=*/2};
};

TEST_F(LocalGradientsTest, KeepsTheMemoryThatAutogradMade) {
  sink_.Begin({});
  sink_.BeginBackward(true, /*overlap=*/true);
  const void* made = nullptr;
  {
    const at::Tensor gradient = at::ones({3});
    made = gradient.const_data_ptr();
    Give(0, gradient);
  }
  sink_.EndBackward();
  at::Tensor control = at::tensor({1.f, 2.f});
  ASSERT_TRUE(sink_.Finish(&control).ok());
  EXPECT_EQ(sink_.gradients()[0].const_data_ptr(), made);
  EXPECT_FALSE(parameters_[0].grad().defined());
  EXPECT_TRUE(sink_.used(0));
  EXPECT_FALSE(sink_.used(1));
  EXPECT_FALSE(sink_.gradients()[1].defined());
  EXPECT_TRUE(at::equal(control, at::tensor({1.f, 2.f})));
}

TEST_F(LocalGradientsTest, AddsMicroBatchesAndSecondGradientsOfAPass) {
  sink_.Begin({});
  sink_.BeginBackward(false, /*overlap=*/true);
  Give(0, at::full({3}, 8.f));
  sink_.EndBackward();
  sink_.Scale(0.25);
  sink_.BeginBackward(true, /*overlap=*/true);
  Give(0, at::ones({3}));
  Give(0, at::ones({3}));
  sink_.EndBackward();
  at::Tensor control;
  sink_.LaunchAll(control);
  ASSERT_TRUE(sink_.Finish(&control).ok());
  EXPECT_TRUE(at::equal(sink_.gradients()[0], at::full({3}, 4.f)));
  EXPECT_DOUBLE_EQ(sink_.norm(), std::sqrt(48.0));
  EXPECT_FALSE(control.defined());
}

TEST_F(LocalGradientsTest, BeginForgetsTheStepBefore) {
  sink_.Begin({});
  sink_.BeginBackward(true, /*overlap=*/true);
  Give(1, at::ones({2, 2}));
  sink_.Cancel();
  sink_.Begin({});
  at::Tensor control;
  ASSERT_TRUE(sink_.Finish(&control).ok());
  EXPECT_FALSE(sink_.used(1));
}

TEST_F(LocalGradientsTest, SparseGradientsBecomeDense) {
  sink_.Begin({});
  Give(0, at::sparse_coo_tensor(at::tensor({1}, at::kLong).view({1, 1}), at::tensor({5.f}), {3}));
  at::Tensor control;
  ASSERT_TRUE(sink_.Finish(&control).ok());
  EXPECT_TRUE(at::equal(sink_.gradients()[0], at::tensor({0.f, 5.f, 0.f})));
}

// The gradients of both leaves of a sum of views are views of one tensor.
TEST_F(LocalGradientsTest, GradientsThatShareMemoryAreParted) {
  std::vector<at::Tensor> parameters = {at::zeros({2, 2}).requires_grad_(true),
                                        at::zeros({2, 2}).requires_grad_(true)};
  LocalGradients sink(parameters, communicators_[0].get(), 0);
  sink.Begin({});
  for (const bool last : {false, true}) {
    sink.BeginBackward(last, /*overlap=*/true);
    (parameters[0].view({4}) + parameters[1].view({4})).sum().backward();
    for (int i = 0; i < 2; ++i) sink.OnGradient(i);
    sink.EndBackward();
    if (!last) sink.Scale(0.5);
  }
  at::Tensor control;
  ASSERT_TRUE(sink.Finish(&control).ok());
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(at::equal(sink.gradients()[i], at::full({2, 2}, 1.5))) << sink.gradients()[i];
}

// A member that joins aborts the communicator of an elastic job's only member.
TEST_F(LocalGradientsTest, AnAbortIsReturned) {
  sink_.Begin({});
  Give(0, at::ones({3}));
  communicators_[0]->Abort(PeerLost("worker 1 joins"));
  at::Tensor control = at::tensor({1.f});
  EXPECT_FALSE(sink_.Finish(&control).ok());
}

}  // namespace
}  // namespace muster
