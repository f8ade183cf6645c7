// A small CycleGAN with the numbers of make_cycle_gan_reference.py. It has two generators, two
// discriminators and four optimizers. The losses share parts of one autograd graph.
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>

#include "tests/unit/train/test_program.h"

namespace muster::testing {

struct CycleGan {
  static constexpr int64_t kSteps = 20, kBatch = 8, kHidden = 4, kSize = 3;

  static at::Tensor Numbers(std::vector<int64_t> shape, int64_t start) {
    at::Tensor numbers = at::empty(shape, at::kDouble);
    for (int64_t i = 0; i < numbers.numel(); ++i)
      numbers.data_ptr<double>()[i] = 0.7 * std::sin(1.3 * static_cast<double>(start + i));
    return numbers.to(at::kFloat);
  }
  static at::Tensor Batches(int64_t start) {
    std::vector<at::Tensor> all;
    for (int64_t step = 0; step < kSteps; ++step)
      all.push_back(Numbers({kBatch, kSize}, start + 1000 * step));
    return at::cat(all);
  }

  static void Build(TestProgram& self, Builder& builder) {
    int64_t start = 0;
    for (const std::string name : {"g", "f", "x", "y"}) {
      start += 1000;
      const int64_t outputs = name == "g" || name == "f" ? kSize : 1;
      auto net = std::make_shared<Tensors>();
      net->parameter("w1", Numbers({kHidden, kSize}, start));
      net->parameter("b1", Numbers({kHidden}, start + 100));
      net->parameter("w2", Numbers({outputs, kHidden}, start + 200));
      net->parameter("b2", Numbers({outputs}, start + 300));
      self.model->register_module(name, net);
      builder.model(name, net);
      self.optimizers[name] = builder.optimizer(
          name, {name}, {{"name", "adam"}, {"beta1", 0.5}, {"epsilon", 1e-8}}, 0.01);
    }
    builder.dataset(Split::kTrain, Tensors2(Batches(10000), Batches(50000)));
  }

  static at::Tensor Run(TestProgram& self, const std::string& net, const at::Tensor& x) {
    const auto all = self.model->named_parameters();
    const at::Tensor hidden = (at::matmul(x, all[net + ".w1"].t()) + all[net + ".b1"]).tanh();
    return at::matmul(hidden, all[net + ".w2"].t()) + all[net + ".b2"];
  }

  // Returns the losses of each network, with one value per example.
  static std::map<std::string, at::Tensor> Losses(TestProgram& self, const data::Batch& batch) {
    const at::Tensor &x = batch[0], &y = batch[1];
    const at::Tensor fake_y = Run(self, "g", x), fake_x = Run(self, "f", y);
    const at::Tensor cycle =
        (Run(self, "f", fake_y) - x).abs().mean(1) + (Run(self, "g", fake_x) - y).abs().mean(1);
    const at::Tensor judged_x = Run(self, "x", fake_x), judged_y = Run(self, "y", fake_y);
    return {{"g", (judged_y - 1).square().mean(1) + 10 * cycle},
            {"f", (judged_x - 1).square().mean(1) + 10 * cycle},
            {"x", ((Run(self, "x", x) - 1).square() + judged_x.square()).mean(1) / 2},
            {"y", ((Run(self, "y", y) - 1).square() + judged_y.square()).mean(1) / 2}};
  }
  static std::vector<Objective> Objectives(TestProgram& self, const data::Batch& batch) {
    std::vector<Objective> all;
    const auto losses = Losses(self, batch);
    for (const char* name : {"g", "f", "x", "y"})
      all.push_back({self.optimizers.at(name), losses.at(name)});
    return all;
  }

  // Concatenates the parameters in the order of the reference.
  static at::Tensor Flat(const std::map<std::string, at::Tensor>& parameters) {
    std::vector<at::Tensor> all;
    for (const std::string net : {"g", "f", "x", "y"})
      for (const char* name : {".w1", ".b1", ".w2", ".b2"})
        all.push_back(parameters.at(net + name).reshape({-1}));
    return at::cat(all);
  }
};

}  // namespace muster::testing
