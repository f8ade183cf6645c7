// A GPT: a decoder-only transformer with layer normalisation before each part, learned positions,
// GELU (tanh), and a head that shares the tokens' embedding. Radford et al., Language Models are
// Unsupervised Multitask Learners (2019). Parameters have nanoGPT's names: wte.weight, wpe.weight,
// h.0.ln_1.weight, h.0.attn.c_attn.weight [3 width, width], ..., ln_f.weight.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

namespace muster::nn {

struct GptOptions {
  int64_t vocabulary = 256, context = 128;  // context: the most tokens of a sequence
  int64_t layers = 4, heads = 4, width = 128;
  double dropout = 0;
  bool bias = true;                    // in linear layers and layer normalisation
  bool activation_checkpoint = false;  // a block keeps its input alone, and is run again
};

class Gpt : public torch::nn::Module {
 public:
  // REQUIRES: width is a multiple of heads.
  explicit Gpt(const GptOptions& options);
  ~Gpt() override;
  // Tokens, int64 [batch, length], length up to `context`; logits [batch, length, vocabulary].
  // Dropout draws from `generator` (LibTorch's default one if it is not defined).
  at::Tensor forward(const at::Tensor& tokens, const at::Generator& generator = {});
  // `count` tokens [batch, count] that go on from these, each drawn with the temperature from the
  // `top_k` likeliest (0: all); temperature 0 takes the likeliest. A sequence that outgrows the
  // context goes on from its last tokens.
  at::Tensor generate(const at::Tensor& tokens, int64_t count, double temperature, int64_t top_k,
                      const at::Generator& generator);

 private:
  class Block;
  const GptOptions options_;
  at::Tensor tokens_, positions_;
  std::vector<std::shared_ptr<Block>> blocks_;
  at::Tensor norm_weight_, norm_bias_;
};

}  // namespace muster::nn
