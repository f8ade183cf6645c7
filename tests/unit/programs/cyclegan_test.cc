// The parts of CycleGAN that its comparison with PyTorch (reference.cyclegan) does not see.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <set>

#include "examples/programs/cyclegan_pool.h"
#include "examples/programs/models/cyclegan_nets.h"

namespace muster::nn {
namespace {

// Pictures of one pixel: the numbers from `first` on.
at::Tensor Numbers(int64_t first, int64_t count) {
  return at::arange(first, first + count, at::kFloat).reshape({count, 1, 1, 1});
}
at::Tensor Buffer(const PicturePools& pools, const char* name) {
  return *pools.named_buffers().find(name);
}

TEST(PicturePools, FillUpFirstAndGiveBackWhatTheyKeep) {
  PicturePools pools(4, {1, 1, 1});
  const at::Generator generator = at::detail::createCPUGenerator(1);
  for (int64_t i = 0; i < 2; ++i) {
    const auto [x, y] = pools.Exchange(Numbers(2 * i, 2), Numbers(100 + 2 * i, 2), generator);
    EXPECT_TRUE(at::equal(x, Numbers(2 * i, 2)));
    EXPECT_TRUE(at::equal(y, Numbers(100 + 2 * i, 2)));
    EXPECT_EQ(Buffer(pools, "count_x").item<int64_t>(), 2 * i + 2);
  }
  EXPECT_TRUE(at::equal(Buffer(pools, "x"), Numbers(0, 4)));
  EXPECT_TRUE(at::equal(Buffer(pools, "y"), Numbers(100, 4)));
}

TEST(PicturePools, GiveAnOlderPictureForOneInTwoAndKeepTheNewOne) {
  PicturePools pools(4, {1, 1, 1});
  const at::Generator generator = at::detail::createCPUGenerator(1);
  std::set<float> kept;
  int older = 0;
  const int64_t pictures = 2000;
  for (int64_t i = 0; i < pictures; ++i) {
    const at::Tensor in = Numbers(i, 1);
    const auto given = pools.Exchange(in, in, generator).first.item<float>();
    if (i < 4) {
      kept.insert(static_cast<float>(i));
    } else if (given != static_cast<float>(i)) {
      ++older;
      EXPECT_EQ(kept.erase(given), 1U) << given;
      kept.insert(static_cast<float>(i));
    }
    if (i < 3) continue;
    for (int64_t k = 0; k < 4; ++k)
      EXPECT_TRUE(kept.contains(Buffer(pools, "x")[k].item<float>())) << i;
  }
  EXPECT_NEAR(older, pictures / 2, 100);
  EXPECT_EQ(Buffer(pools, "count_x").item<int64_t>(), 4);
  // Nothing of an empty batch.
  const at::Tensor before = Buffer(pools, "x").clone();
  EXPECT_EQ(pools.Exchange(Numbers(0, 0), Numbers(0, 0), generator).first.size(0), 0);
  EXPECT_TRUE(at::equal(Buffer(pools, "x"), before));
}

TEST(PicturePools, LeaveTheGivenPicturesAlone) {
  PicturePools pools(1, {1, 1, 1});
  const at::Generator generator = at::detail::createCPUGenerator(1);
  const at::Tensor in = Numbers(0, 50);
  pools.Exchange(in, in, generator);
  EXPECT_TRUE(at::equal(in, Numbers(0, 50)));
}

TEST(ResnetGenerator, KeepsShapesAndHasThePapersParameters) {
  ResnetGenerator nine({.blocks = 9}), six({.blocks = 6});
  const auto count = [](const torch::nn::Module& net) {
    int64_t parameters = 0;
    for (const at::Tensor& p : net.parameters()) parameters += p.numel();
    return parameters;
  };
  // The authors print for their networks: 11.378 and 7.838 million, 2.765 for the discriminator.
  EXPECT_EQ(count(nine), 11378179);
  EXPECT_EQ(count(six), 7837699);
  EXPECT_EQ(count(PatchDiscriminator({})), 2764737);
  for (const auto& item : nine.named_parameters()) {
    const bool bias = item.key().ends_with("bias");
    EXPECT_NEAR(item.value().std().item<float>(), bias ? 0 : 0.02, 0.001) << item.key();
    EXPECT_NEAR(item.value().mean().item<float>(), 0, 0.001) << item.key();
    // Nothing normalises what the last convolution gives.
    EXPECT_EQ(item.value().requires_grad(), !bias || item.key() == "model.26.bias") << item.key();
  }
  ResnetGenerator small({.channels = 1, .width = 2, .blocks = 1});
  for (const int64_t batch : {0, 1, 3}) {
    const at::Tensor out = small.forward(at::zeros({batch, 1, 8, 12}));
    EXPECT_EQ(out.sizes(), at::IntArrayRef({batch, 1, 8, 12}));
    EXPECT_LE(out.abs().sum().item<float>(), static_cast<float>(out.numel()));
  }
}

TEST(PatchDiscriminator, JudgesPatches) {
  PatchDiscriminator net({.width = 2});
  EXPECT_EQ(net.forward(at::zeros({2, 3, 256, 256})).sizes(), at::IntArrayRef({2, 1, 30, 30}));
  EXPECT_EQ(net.forward(at::zeros({1, 3, 24, 28})).sizes(), at::IntArrayRef({1, 1, 1, 1}));
  EXPECT_EQ(net.forward(at::zeros({0, 3, 64, 64})).sizes(), at::IntArrayRef({0, 1, 6, 6}));
}

}  // namespace
}  // namespace muster::nn
