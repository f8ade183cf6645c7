// The language model GPT-2: Radford et al., Language Models are Unsupervised Multitask Learners
// (2019). GPT-2 is a decoder-only transformer with layer normalization before attention and MLP,
// learned position embeddings and the tanh form of GELU. The output layer shares its weights with
// the token embedding. Parameters have nanoGPT's names: wte.weight, wpe.weight, h.0.ln_1.weight,
// h.0.attn.c_attn.weight of shape [3 width, width], ..., ln_f.weight.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

namespace muster::nn {

struct GptOptions {
  int64_t vocabulary = 256, context = 128;  // `context` is the longest sequence, in tokens.
  int64_t layers = 4, heads = 4, width = 128;
  double dropout = 0;
  bool bias = true;  // True if linear layers and layer normalization have a bias.
  // True if the backward pass computes the activations of each block a second time, to save memory.
  bool activation_checkpoint = false;
};

class Gpt : public torch::nn::Module {
 public:
  // REQUIRES: width is a multiple of heads.
  explicit Gpt(const GptOptions& options);
  ~Gpt() override;
  // Returns logits [batch, length, vocabulary] for tokens, int64 [batch, length]. `length` is at
  // most `context`. Dropout draws from `generator`, or from LibTorch's default generator if
  // `generator` is undefined.
  at::Tensor forward(const at::Tensor& tokens, const at::Generator& generator = {});
  // Returns `count` tokens [batch, count] that continue `tokens`. Each token is drawn from the
  // `top_k` most likely tokens with the given temperature. top_k 0 means all tokens. Temperature 0
  // selects the most likely token. If a sequence is longer than `context`, the model sees only the
  // last `context` tokens of the sequence.
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
