// The image classifiers on a GPU, where their convolutions are channels_last, beside the CPU.
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <muster/vision.h>

#include "tests/gpu/gpu_test.h"

namespace muster::vision {
namespace {

class VisionOnGpu : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    at::globalContext().setAllowTF32CuDNN(false);
    at::manual_seed(3);
  }
  void TearDown() override { at::globalContext().setAllowTF32CuDNN(true); }

  void Compare(ImageClassifier& model) {
    model.train();
    const at::Tensor images = at::randn({4, 3, 64, 64}),
                     labels = at::tensor({0, 1, 2, 1}, at::kLong);
    const auto step = [&](const c10::Device& device) {
      model.to(device);
      model.zero_grad();
      const at::Tensor logits = model.forward(images.to(device));
      at::cross_entropy_loss(logits, labels.to(device)).backward();
      std::vector<at::Tensor> results = {logits.detach().cpu()};
      for (const at::Tensor& parameter : model.parameters()) {
        EXPECT_TRUE(device.is_cpu() || parameter.dim() != 4 ||
                    parameter.is_contiguous(at::MemoryFormat::ChannelsLast));
        results.push_back(parameter.grad().cpu());
      }
      return results;
    };
    const auto host = step(at::kCPU), device = step(device_);
    ASSERT_EQ(host.size(), device.size());
    for (size_t i = 0; i < host.size(); ++i)
      EXPECT_LT((device[i] - host[i]).norm().item<double>(), 1e-2 * host[i].norm().item<double>())
          << (i == 0 ? "output" : "gradient " + std::to_string(i));
  }
};

TEST_F(VisionOnGpu, MobileNetComputesWhatTheCpuDoes) {
  Compare(*MakeMobileNetV2({.classes = 3, .dropout = 0}));
}

TEST_F(VisionOnGpu, ResNetComputesWhatTheCpuDoes) {
  Compare(*MakeResNet({.depth = 18, .classes = 3}));
}

}  // namespace
}  // namespace muster::vision
