// A program with two small embedding tables, and its training examples.
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <utility>

#include "tests/unit/train/test_program.h"

namespace muster::testing {

constexpr int64_t kEmbeddingExamples = 30;

struct EmbeddingData {
  at::Tensor keys, y;
};
inline const EmbeddingData& TheData() {
  static const EmbeddingData data = [] {
    at::manual_seed(3);
    const at::Tensor keys = at::randint(-6, 6, {kEmbeddingExamples, 2}, at::kLong);
    return EmbeddingData{
        keys, keys.sum(1).to(at::kFloat) * 0.3f + 0.1f * at::randn({kEmbeddingExamples})};
  }();
  return data;
}

// Makes `p` a program that predicts y. The prediction is a bias, plus the elements of a row of
// "left" and of a row of "right".
inline void Summed(TestProgram& p, EmbeddingOptions options) {
  p.on_build = [options](TestProgram& self, Builder& builder) {
    self.model->parameter("b", at::zeros({}));
    builder.model("net", self.model);
    self.optimizers["sgd"] = builder.optimizer("sgd", {"net"}, "sgd", 0.05);
    self.embeddings["left"] = builder.embedding("left", options);
    self.embeddings["right"] = builder.embedding("right", options);
    builder.dataset(Split::kTrain, Tensors2(TheData().keys, TheData().y));
    builder.dataset(Split::kValidation, Tensors2(TheData().keys + 4, TheData().y));
  };
  const auto predict = [](TestProgram& self, auto& step, const at::Tensor& keys) {
    return step.lookup(self.embeddings["left"], keys.select(1, 0)).sum(1) +
           step.lookup(self.embeddings["right"], keys.select(1, 1)).sum(1) + (*self.model)["b"];
  };
  p.on_step = [predict](TestProgram& self, Step& step, const data::Batch& batch) {
    step.minimize(self.optimizers["sgd"], (predict(self, step, batch[0]) - batch[1]).square());
  };
  p.on_eval = [predict](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
    evaluation.loss((predict(self, evaluation, batch[0]) - batch[1]).square());
  };
}

inline EmbeddingOptions Small(Json optimizer = "adagrad") {
  EmbeddingOptions options;
  options.width = 3;
  options.optimizer = std::move(optimizer);
  options.learning_rate = 0.1;
  return options;
}

}  // namespace muster::testing
