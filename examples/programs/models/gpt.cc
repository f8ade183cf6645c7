#include "gpt.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <muster/activation_checkpoint.h>

#include <cmath>

namespace muster::nn {
namespace {

constexpr double kDeviation = 0.02;  // The standard deviation of initial weights.

// A module with the parameter "weight" and optionally "bias".
class Weights : public torch::nn::Module {
 public:
  Weights(at::Tensor weight_value, at::Tensor bias_value)
      : weight(register_parameter("weight", std::move(weight_value))) {
    if (bias_value.defined()) bias = register_parameter("bias", std::move(bias_value));
  }
  at::Tensor weight, bias;
};

std::shared_ptr<Weights> MakeLinear(int64_t in, int64_t out, bool bias, double deviation) {
  return std::make_shared<Weights>(at::empty({out, in}).normal_(0, deviation),
                                   bias ? at::zeros({out}) : at::Tensor());
}
std::shared_ptr<Weights> MakeNorm(int64_t width, bool bias) {
  return std::make_shared<Weights>(at::ones({width}), bias ? at::zeros({width}) : at::Tensor());
}
at::Tensor Apply(const Weights& linear, const at::Tensor& x) {
  return at::linear(x, linear.weight, linear.bias);
}
at::Tensor Normalised(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias);
}

// Inverted dropout with a mask from the generator.
at::Tensor Dropped(const at::Tensor& x, double rate, const at::Generator& generator) {
  if (rate == 0) return x;
  const auto own = generator.defined() ? std::optional(generator) : std::nullopt;
  return x * at::empty_like(x).bernoulli_(1 - rate, own).div_(1 - rate);
}

}  // namespace

class Gpt::Block : public torch::nn::Module {
 public:
  explicit Block(const GptOptions& o) : heads_(o.heads), dropout_(o.dropout) {
    // The smaller deviation keeps the variance of a sum over all residual branches.
    const double narrow = kDeviation / std::sqrt(2.0 * static_cast<double>(o.layers));
    const auto attention = std::make_shared<torch::nn::Module>("attn");
    const auto mlp = std::make_shared<torch::nn::Module>("mlp");
    norm1_ = register_module("ln_1", MakeNorm(o.width, o.bias));
    register_module("attn", attention);
    norm2_ = register_module("ln_2", MakeNorm(o.width, o.bias));
    register_module("mlp", mlp);
    qkv_ =
        attention->register_module("c_attn", MakeLinear(o.width, 3 * o.width, o.bias, kDeviation));
    joined_ = attention->register_module("c_proj", MakeLinear(o.width, o.width, o.bias, narrow));
    widened_ = mlp->register_module("c_fc", MakeLinear(o.width, 4 * o.width, o.bias, kDeviation));
    narrowed_ = mlp->register_module("c_proj", MakeLinear(4 * o.width, o.width, o.bias, narrow));
  }

  at::Tensor forward(const at::Tensor& input, const at::Generator& generator) {
    const double rate = is_training() ? dropout_ : 0;
    const at::Tensor x = input + Dropped(Attention(Normalised(input, norm1_->weight, norm1_->bias)),
                                         rate, generator);
    const at::Tensor wide =
        at::gelu(Apply(*widened_, Normalised(x, norm2_->weight, norm2_->bias)), "tanh");
    return x + Dropped(Apply(*narrowed_, wide), rate, generator);
  }

 private:
  // Does not apply dropout to attention weights, because fused kernels draw from LibTorch's default
  // generator, which the replicas of a process share.
  at::Tensor Attention(const at::Tensor& x) {
    const auto parts = Apply(*qkv_, x).chunk(3, -1);
    const auto by_head = [&](const at::Tensor& part) {
      return part.unflatten(-1, {heads_, part.size(-1) / heads_}).transpose(1, 2);
    };
    const at::Tensor y = at::scaled_dot_product_attention(
        by_head(parts[0]), by_head(parts[1]), by_head(parts[2]), {}, 0.0, /*is_causal=*/true);
    return Apply(*joined_, y.transpose(1, 2).flatten(-2));
  }

  const int64_t heads_;
  const double dropout_;
  std::shared_ptr<Weights> norm1_, norm2_, qkv_, joined_, widened_, narrowed_;
};

Gpt::Gpt(const GptOptions& o) : options_(o) {
  const auto embedding = [&](const char* name, int64_t rows) {
    const auto made =
        std::make_shared<Weights>(at::empty({rows, o.width}).normal_(0, kDeviation), at::Tensor());
    return register_module(name, made)->weight;
  };
  tokens_ = embedding("wte", o.vocabulary);
  positions_ = embedding("wpe", o.context);
  const auto blocks = register_module("h", std::make_shared<torch::nn::Module>("h"));
  for (int64_t i = 0; i < o.layers; ++i)
    blocks_.push_back(blocks->register_module(std::to_string(i), std::make_shared<Block>(o)));
  const auto norm = register_module("ln_f", MakeNorm(o.width, o.bias));
  norm_weight_ = norm->weight;
  norm_bias_ = norm->bias;
}
Gpt::~Gpt() = default;

at::Tensor Gpt::forward(const at::Tensor& tokens, const at::Generator& generator) {
  TORCH_CHECK(tokens.dim() == 2 && tokens.size(1) <= options_.context,
              "a GPT takes tokens [batch, length] of at most ", options_.context, ", not ",
              tokens.sizes());
  const int64_t length = tokens.size(1);
  at::Tensor x = at::embedding(tokens_, tokens) + positions_.slice(0, 0, length);
  x = Dropped(x, is_training() ? options_.dropout : 0, generator);
  for (const auto& block : blocks_) {
    if (options_.activation_checkpoint && is_training()) {
      x = activation_checkpoint(
          [block = block.get(), generator](const at::Tensor& input) {
            return block->forward(input, generator);
          },
          x);
    } else {
      x = block->forward(x, generator);
    }
  }
  return at::linear(Normalised(x, norm_weight_, norm_bias_), tokens_);
}

at::Tensor Gpt::generate(const at::Tensor& tokens, int64_t count, double temperature, int64_t top_k,
                         const at::Generator& generator) {
  at::Tensor all = tokens;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t from = std::max<int64_t>(0, all.size(1) - options_.context);
    at::Tensor logits = forward(all.slice(1, from)).select(1, -1).to(at::kFloat);
    at::Tensor next;
    if (temperature == 0) {
      next = logits.argmax(-1, /*keepdim=*/true);
    } else {
      logits = logits / temperature;
      if (top_k > 0 && top_k < options_.vocabulary) {
        const at::Tensor least = std::get<0>(logits.topk(top_k)).slice(-1, top_k - 1, top_k);
        logits = logits.masked_fill(logits < least, -INFINITY);
      }
      next = logits.softmax(-1).cpu().multinomial(1, false, generator).to(logits.device());
    }
    all = at::cat({all, next}, 1);
  }
  return all.slice(1, tokens.size(1));
}

}  // namespace muster::nn
