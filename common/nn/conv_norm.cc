#include "common/nn/conv_norm.h"

#include <ATen/TensorOperators.h>
#include <torch/nn/init.h>

#include "muster/vision.h"

namespace muster::vision {

torch::nn::Conv2d MakeConv(const ConvOptions& o) {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(o.in, o.out, o.kernel)
                             .stride(o.stride)
                             .padding((o.kernel - 1) / 2)
                             .groups(o.groups)
                             .bias(false));
  torch::nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
  // Channels last like the images, on every device: parameter servers compare the order of
  // elements.
  conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
  return conv;
}

torch::nn::BatchNorm2d MakeNorm(int64_t channels) { return torch::nn::BatchNorm2d(channels); }

at::Tensor CheckedImages(const at::Tensor& images, const char* name) {
  TORCH_CHECK(images.dim() == 4 && images.size(1) == 3, name,
              " takes images [batch, 3, height, width], not ", images.sizes());
  TORCH_CHECK(images.is_floating_point(), name, " takes floating-point images, not ",
              images.scalar_type());
  return images.contiguous(at::MemoryFormat::ChannelsLast);
}

void ImageClassifier::freeze_base(bool frozen) {
  const std::string last = std::string(head()) + ".";
  for (auto& item : named_parameters())
    if (!item.key().starts_with(last)) item.value().requires_grad_(!frozen);
  for (auto& item : named_modules()) {
    if (item.key().empty() || (item.key() + ".").starts_with(last)) continue;
    if (frozen) item.value()->eval();
    if (!frozen) item.value()->train(is_training());
  }
}

}  // namespace muster::vision
