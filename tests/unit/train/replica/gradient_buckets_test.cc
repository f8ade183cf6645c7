#include "common/train/replica/gradients/gradient_buckets.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include <thread>

#include "common/collective/group/formation.h"

namespace muster {
namespace {

using collective::MakeThreadCommunicators;
using ::testing::ElementsAre;

constexpr Duration kTimeout = std::chrono::minutes(1);

at::Tensor Parameter(at::Tensor value) { return value.requires_grad_(true); }

// Sets .grad and calls the hook as autograd would.
void Give(GradientBuckets& buckets, std::vector<at::Tensor>& parameters, int index,
          const at::Tensor& gradient) {
  parameters[index].mutable_grad() = gradient;
  buckets.OnGradient(index);
}

// Whether gradients are copied one by one, as on the CPU, or together, as on a GPU.
class GradientBucketsTest : public ::testing::TestWithParam<bool> {
 protected:
  static BucketOptions Options() {
    BucketOptions options;
    options.copies_together = GetParam();
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(GradientBuckets, GradientBucketsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Together" : "OneByOne"; });

TEST_P(GradientBucketsTest, ViewsHaveTheParametersStrides) {
  std::vector<at::Tensor> parameters = {
      Parameter(at::randn({4, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast)),
      Parameter(at::randn({5}))};
  auto communicators = MakeThreadCommunicators(1, kTimeout);
  GradientBuckets buckets(parameters, communicators[0].get(), Options());
  const at::Tensor g0 = at::randn({4, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast),
                   g1 = at::randn({5});
  buckets.Begin({});
  buckets.BeginBackward(true, /*overlap=*/true);
  Give(buckets, parameters, 1, g1);
  Give(buckets, parameters, 0, g0);
  buckets.EndBackward();
  at::Tensor control;
  ASSERT_TRUE(buckets.Finish(&control).ok());
  EXPECT_TRUE(at::equal(buckets.gradients()[0], g0));
  EXPECT_EQ(buckets.gradients()[0].strides(), parameters[0].strides());
  EXPECT_TRUE(at::equal(buckets.gradients()[1], g1));
  EXPECT_FALSE(parameters[0].grad().defined()) << "the fresh gradient is given back at once";
}

TEST_P(GradientBucketsTest, SmallBucketsSplitAndMixedTypesAreKeptApart) {
  std::vector<at::Tensor> parameters = {
      Parameter(at::zeros({100})), Parameter(at::zeros({100}, at::kDouble)),
      Parameter(at::zeros({100})), Parameter(at::zeros({7}, at::kBFloat16))};
  auto communicators = MakeThreadCommunicators(1, kTimeout);
  BucketOptions options = Options();
  options.bytes = options.first_bytes = 200;
  GradientBuckets buckets(parameters, communicators[0].get(), options);
  EXPECT_EQ(buckets.num_buckets(), 4);
  buckets.Begin({});
  buckets.BeginBackward(true, /*overlap=*/true);
  for (int i = 3; i >= 0; --i)
    Give(buckets, parameters, i, at::full_like(parameters[i], i + 1).detach());
  buckets.EndBackward();
  at::Tensor control;
  ASSERT_TRUE(buckets.Finish(&control).ok());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(buckets.gradients()[i].scalar_type(), parameters[i].scalar_type());
    EXPECT_EQ(buckets.gradients()[i].sum().item<double>(), (i + 1) * parameters[i].numel());
  }
}

TEST_P(GradientBucketsTest, SumsOverReplicasAndTellsWhatNobodyUsed) {
  constexpr int kReplicas = 3;
  auto communicators = MakeThreadCommunicators(kReplicas, kTimeout);
  std::vector<std::vector<at::Tensor>> gradients(kReplicas);
  std::vector<std::vector<float>> controls(kReplicas);
  std::vector<std::thread> threads;
  for (int r = 0; r < kReplicas; ++r) {
    threads.emplace_back([&, r] {
      std::vector<at::Tensor> parameters = {Parameter(at::zeros({3})), Parameter(at::zeros({4})),
                                            Parameter(at::zeros({5}))};
      BucketOptions options = Options();
      options.control_capacity = 2;
      GradientBuckets buckets(parameters, communicators[r].get(), options);
      for (int round = 0; round < 2; ++round) {
        buckets.Begin({});
        for (int micro = 0; micro < 2; ++micro) {
          buckets.BeginBackward(micro == 1, /*overlap=*/true);
          Give(buckets, parameters, 0, at::full({3}, r + 1.f));
          if (r == 1 && micro == 0)
            Give(buckets, parameters, 1,
                 at::ones({4}));  // only here, and not in the last micro-batch
          buckets.EndBackward();
        }
        at::Tensor control = at::tensor({1.f, static_cast<float>(r)});
        ASSERT_TRUE(buckets.Finish(&control).ok());
        gradients[r] = {};
        for (const at::Tensor& g : buckets.gradients())
          gradients[r].push_back(g.defined() ? g.clone() : g);
        controls[r] = {control[0].item<float>(), control[1].item<float>()};
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (int r = 0; r < kReplicas; ++r) {
    EXPECT_TRUE(at::equal(gradients[r][0], at::full({3}, 12.f)));  // two micro-batches of 1 + 2 + 3
    EXPECT_TRUE(at::equal(gradients[r][1], at::ones({4})));
    EXPECT_FALSE(gradients[r][2].defined());
    EXPECT_THAT(controls[r], ElementsAre(3.f, 3.f));
  }
}

TEST_P(GradientBucketsTest, AnAbortIsReturnedAndWakes) {
  auto communicators = MakeThreadCommunicators(2, kTimeout);
  std::vector<at::Tensor> parameters = {Parameter(at::zeros({3}))};
  GradientBuckets buckets(parameters, communicators[0].get(), Options());
  std::thread other([&] { communicators[1]->Abort(PeerLost("worker 1 is gone")); });
  buckets.Begin({});
  buckets.BeginBackward(true, /*overlap=*/true);
  Give(buckets, parameters, 0, at::ones({3}));
  buckets.EndBackward();
  at::Tensor control;
  const absl::Status status = buckets.Finish(&control);
  other.join();
  EXPECT_FALSE(status.ok());
}

// A backward pass within the backward pass: both gradients count, in a bucket that waits for the
// end of the pass from then on.
TEST_P(GradientBucketsTest, TwoGradientsInOnePassAddUp) {
  std::vector<at::Tensor> parameters = {Parameter(at::zeros({3})), Parameter(at::zeros({4}))};
  auto communicators = MakeThreadCommunicators(1, kTimeout);
  BucketOptions options = Options();
  options.bytes = options.first_bytes = 4;
  GradientBuckets buckets(parameters, communicators[0].get(), options);
  ASSERT_EQ(buckets.num_buckets(), 2);
  at::Tensor control;
  for (const bool overlap : {false, true}) {
    buckets.Begin({});
    buckets.BeginBackward(true, overlap);
    Give(buckets, parameters, 1, at::ones({4}));
    Give(buckets, parameters, 1, at::full({4}, 2.f));
    Give(buckets, parameters, 0, at::ones({3}));
    buckets.EndBackward();
    ASSERT_TRUE(buckets.Finish(&control).ok());
    EXPECT_TRUE(at::equal(buckets.gradients()[1], at::full({4}, 3.f)));
    EXPECT_TRUE(at::equal(buckets.gradients()[0], at::ones({3})));
  }
  // Where the first one is on its way already, it cannot.
  GradientBuckets fresh(parameters, communicators[0].get(), options);
  fresh.Begin({});
  fresh.BeginBackward(true, /*overlap=*/true);
  Give(fresh, parameters, 1, at::ones({4}));
  EXPECT_THROW(Give(fresh, parameters, 1, at::ones({4})), c10::Error);
}

TEST_P(GradientBucketsTest, ScaleMultipliesWhatCameSoFar) {
  std::vector<at::Tensor> parameters = {Parameter(at::zeros({3})), Parameter(at::zeros({4}))};
  auto communicators = MakeThreadCommunicators(1, kTimeout);
  GradientBuckets buckets(parameters, communicators[0].get(), Options());
  buckets.Begin({});
  buckets.BeginBackward(false, /*overlap=*/true);
  Give(buckets, parameters, 0, at::full({3}, 8.f));
  buckets.EndBackward();
  buckets.Scale(0.25);
  buckets.BeginBackward(true, /*overlap=*/true);
  Give(buckets, parameters, 0, at::ones({3}));
  buckets.EndBackward();
  at::Tensor control;
  ASSERT_TRUE(buckets.Finish(&control).ok());
  EXPECT_TRUE(at::equal(buckets.gradients()[0], at::full({3}, 3.f)));
  EXPECT_TRUE(buckets.used(0));
  EXPECT_FALSE(buckets.used(1));
  EXPECT_DOUBLE_EQ(buckets.norm(), std::sqrt(27.0));
}

}  // namespace
}  // namespace muster
