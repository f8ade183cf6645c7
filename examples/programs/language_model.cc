// Trains a GPT to continue texts. The job provides the text in data.train and data.validation, as
// windows of tokens [length] and the tokens that follow each of them (formats "text" and "tokens").
// program_args:
//   layers, heads, width   default 4, 4 and 128. GPT-2 small has 12, 12 and 768
//   vocabulary             default 256, for bytes
//   context                longest sequence in tokens, default: the length of the training windows
//   dropout                default 0
//   bias                   whether linear layers and normalization have a bias, default true
//   activation_checkpoint  saves memory, takes a third more time, default false
//   generate               number of tokens that `muster predict` adds, default 200
//   temperature            of the random choice of tokens, default 0.8. 0: the most likely token
//   top_k                  number of most likely tokens to choose from, default 0: all tokens
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <muster/losses.h>

#include "builtin.h"
#include "columns.h"
#include "models/gpt.h"

namespace muster {
namespace {

constexpr int64_t kBytes = 256;

struct Arguments {
  nn::GptOptions gpt;
  int64_t generate = 200, top_k = 0;
  double temperature = 0.8;
};

Arguments Read(JsonObject& args, int64_t length) {
  Arguments a;
  a.gpt.context = length;
  const auto positive = [&](const char* key, int64_t* value) {
    args.Read(key, value);
    if (*value < 1) args.Fail(key, fmt::format("must be above 0, is {}", *value));
    *value = std::max<int64_t>(1, *value);
  };
  positive("layers", &a.gpt.layers);
  positive("heads", &a.gpt.heads);
  positive("width", &a.gpt.width);
  positive("vocabulary", &a.gpt.vocabulary);
  positive("context", &a.gpt.context);
  positive("generate", &a.generate);
  args.Read("dropout", &a.gpt.dropout).Read("bias", &a.gpt.bias);
  args.Read("activation_checkpoint", &a.gpt.activation_checkpoint);
  args.Read("temperature", &a.temperature).Read("top_k", &a.top_k);
  if (a.gpt.width % a.gpt.heads != 0) {
    args.Fail("width",
              fmt::format("must be a multiple of heads, {}, is {}", a.gpt.heads, a.gpt.width));
    a.gpt.heads = 1;
  }
  if (!(a.gpt.dropout >= 0 && a.gpt.dropout < 1))
    args.Fail("dropout", fmt::format("must be from 0 to below 1, is {}", a.gpt.dropout));
  if (!(a.temperature >= 0))
    args.Fail("temperature", fmt::format("must not be below 0, is {}", a.temperature));
  if (a.top_k < 0) args.Fail("top_k", fmt::format("must not be below 0, is {}", a.top_k));
  if (a.gpt.context < length) {
    args.Fail("context", fmt::format("must not be below the length of the training windows, {}, "
                                     "is {}",
                                     length, a.gpt.context));
  }
  return a;
}

// Returns the number of tokens in a window of the training data.
int64_t LengthOf(const std::vector<data::Column>& columns) {
  if (columns.empty()) {
    throw StatusError(ConfigurationError(
        "the job has no data.train: name a text there, as in {\"format\": \"text\", \"path\": "
        "\"book.txt\", \"length\": 128}"));
  }
  if (columns.size() == 2 && columns[0].shape.size() == 1 && columns[0].shape == columns[1].shape)
    return columns[0].shape[0];
  throw StatusError(ConfigurationError(fmt::format(
      "an example of data.train must be tokens [length] and those that follow, [length], is {}",
      Shown(columns))));
}

class LanguageModel : public Program {
 public:
  void build(Builder& builder) override {
    arguments_ = Read(builder.args(), LengthOf(builder.data_columns(Split::kTrain)));
    gpt_ = std::make_shared<nn::Gpt>(arguments_.gpt);
    seed_ = builder.seed();
    builder.model("gpt", gpt_);
    // Weight decay applies to embeddings, as in GPT-2, but not to norms and biases.
    optimizer_ = builder.optimizer(
        "optimizer", {"gpt"},
        {{"name", "adamw"},
         {"beta2", 0.95},
         {"weight_decay", 0.1},
         {"global_clipnorm", 1.0},
         {"groups", {{{"parameters", {"*.bias", "*ln_*"}}, {"weight_decay", 0}}}}},
        {{"name", "cosine"}, {"initial", 1e-3}, {"warmup_steps", 100}});
    perplexity_ = builder.metric("perplexity", MakePerplexity());
  }

  void train_step(Step& step, const data::Batch& batch) override {
    const at::Tensor logits = gpt_->forward(batch[0], step.generator());
    step.minimize(optimizer_, Loss(logits, batch[1]));
    step.update(perplexity_, logits.detach(), batch[1]);
  }

  void eval_step(Evaluation& evaluation, const data::Batch& batch) override {
    const at::Tensor logits = gpt_->forward(batch[0]);
    evaluation.loss(Loss(logits, batch[1]));
    evaluation.update(perplexity_, logits, batch[1]);
  }

  // Returns tokens [n, generate] that continue the tokens [n, length].
  at::Tensor predict(Prediction&, const data::Batch& batch) override {
    const at::Tensor& tokens = batch[0];
    if (tokens.dim() != 2 || tokens.size(1) == 0 || tokens.is_floating_point()) {
      throw std::invalid_argument(fmt::format("the input must be integers [n, tokens], is {} of {}",
                                              c10::str(tokens.sizes()),
                                              c10::toString(tokens.scalar_type())));
    }
    if (tokens.min().item<int64_t>() < 0 ||
        tokens.max().item<int64_t>() >= arguments_.gpt.vocabulary) {
      throw std::invalid_argument(fmt::format(
          "tokens must be from 0 to {}, are from {} to {}", arguments_.gpt.vocabulary - 1,
          tokens.min().item<int64_t>(), tokens.max().item<int64_t>()));
    }
    // Draws on the host for any device, so that a seed always gives the same text.
    const at::Generator generator = at::detail::createCPUGenerator(seed_);

    return gpt_->generate(tokens.to(at::kLong), arguments_.generate, arguments_.temperature,
                          arguments_.top_k, generator);
  }

  data::Batch encode(const std::string& prompt) override {
    CheckBytes();
    if (prompt.empty())
      throw std::invalid_argument("the prompt is empty: give the text's beginning");
    at::Tensor tokens = at::empty({1, static_cast<int64_t>(prompt.size())}, at::kLong);
    for (size_t i = 0; i < prompt.size(); ++i)
      tokens[0][static_cast<int64_t>(i)] = static_cast<int64_t>(static_cast<uint8_t>(prompt[i]));
    return {tokens};
  }
  std::string decode(const at::Tensor& outputs) override {
    CheckBytes();
    std::string text;
    const at::Tensor row = outputs[0].to(at::kLong).contiguous();
    for (int64_t i = 0; i < row.size(0); ++i)
      text += static_cast<char>(row.const_data_ptr<int64_t>()[i]);
    return text;
  }

 private:
  void CheckBytes() const {
    if (arguments_.gpt.vocabulary == kBytes) return;
    throw std::invalid_argument(
        fmt::format("the model's tokens are not bytes (vocabulary is {}): give their numbers by "
                    "--input",
                    arguments_.gpt.vocabulary));
  }
  static at::Tensor Loss(const at::Tensor& logits, const at::Tensor& next) {
    return cross_entropy(logits, next.to(at::kLong), {.class_dim = -1});
  }

  Arguments arguments_;
  uint64_t seed_ = 0;
  std::shared_ptr<nn::Gpt> gpt_;
  OptimizerHandle optimizer_;
  MetricHandle perplexity_;
};

}  // namespace

std::unique_ptr<Program> MakeLanguageModel() { return std::make_unique<LanguageModel>(); }

}  // namespace muster
