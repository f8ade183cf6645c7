// Measures the cost of the interpreter of exported programs: a training step of one model, run from
// its graph and written in C++ with the same operators, in turns. Prints the medians and their
// ratio, and the time of the graph alone with tensors of one element, which is that of the
// interpreter and the dispatcher.
//
//   exported_bench MODEL.pt2 [BATCH [SECONDS]]     (bench/exported.py writes the model and runs it)
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <time.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <vector>

#include "common/exported/graph/model.h"

namespace muster {
namespace {

using exported::Model;
using exported::Phase;

using Parameters = std::vector<at::Tensor>;

// The transformer of bench/exported.py: the same operators as in its graph.
at::Tensor Forward(const Parameters& p, const at::Tensor& tokens, int64_t heads, int64_t layers) {
  const int64_t n = tokens.size(0), length = tokens.size(1), width = p[0].size(1);
  at::Tensor x = at::embedding(p[0], tokens) + at::alias(p[1]);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const auto w = [&](int i) { return p[2 + layer * 12 + i]; };
    const at::Tensor y = at::layer_norm(x, {width}, w(0), w(1), 1e-5);
    const auto split = [&](const at::Tensor& t) {
      return t.view({n, length, heads, width / heads}).transpose(1, 2);
    };
    const std::vector<at::Tensor> qkv = at::linear(y, w(2), w(3)).chunk(3, -1);
    const at::Tensor attended = at::scaled_dot_product_attention(
        split(qkv[0]), split(qkv[1]), split(qkv[2]), {}, 0.0, /*is_causal=*/true);
    x = x + at::linear(attended.transpose(1, 2).reshape({n, length, width}), w(4), w(5));
    const at::Tensor z = at::layer_norm(x, {width}, w(6), w(7), 1e-5);
    x = x + at::linear(at::gelu(at::linear(z, w(8), w(9))), w(10), w(11));
  }
  return at::linear(x, p[2 + layers * 12], p[3 + layers * 12]);
}

// Returns the CPU time of this process, which other processes affect less than the wall clock.
double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double Step(const Parameters& parameters, const std::function<at::Tensor()>& forward,
            const at::Tensor& labels) {
  const double begin = CpuSeconds();
  const at::Tensor out = forward();
  const at::Tensor loss = at::cross_entropy_loss(out.flatten(0, -2), labels.flatten());
  torch::autograd::backward({loss}, {}, false, false, {parameters.begin(), parameters.end()});
  {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& p : parameters) {
      p.add_(p.grad(), -1e-3);
      p.mutable_grad() = at::Tensor();
    }
  }
  return CpuSeconds() - begin;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

int Run(const std::string& path, int64_t batch, double seconds) {
  at::set_num_threads(1);
  auto archive = exported::ReadArchive(path, "");
  if (!archive.ok()) return fmt::print(stderr, "{}\n", Message(archive.status())), 1;
  auto model = Model::Make(*archive, c10::kCPU);
  if (!model.ok()) return fmt::print(stderr, "{}\n", Message(model.status())), 1;
  constexpr int64_t kLength = 64, kHeads = 4, kLayers = 4, kWords = 256;
  const at::Tensor tokens = at::randint(kWords, {batch, kLength}, at::kLong);
  const at::Tensor labels = at::randint(kWords, {batch, kLength}, at::kLong);
  // Both train the same tensors: at this size, where a tensor lies in memory makes a step up to
  // 6 % faster or slower.
  Parameters parameters;
  for (const auto& item : (*model)->module()->named_parameters()) {
    parameters.push_back(item.value());
  }
  const auto graph = [&] { return (*model)->Forward({tokens}, Phase::kTrain, 0); };
  const auto written = [&] { return Forward(parameters, tokens, kHeads, kLayers); };
  {
    const at::NoGradGuard no_grad;
    if (!at::allclose(graph(), written(), 1e-4, 1e-5)) {
      return fmt::print(stderr, "the graph and the C++ do not compute the same\n"), 1;
    }
  }
  std::vector<double> interpreted, direct;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end || interpreted.size() < 5) {
    // Each goes first in turns: the second finds memory as the first left it.
    const bool first = interpreted.size() % 2 == 0;
    if (first) interpreted.push_back(Step(parameters, graph, labels));
    direct.push_back(Step(parameters, written, labels));
    if (!first) interpreted.push_back(Step(parameters, graph, labels));
  }
  const double a = Median(interpreted), b = Median(direct);
  fmt::print(
      "batch {}: {:.3f} ms of CPU a step interpreted, {:.3f} ms in C++, ratio {:.4f} ({} steps of "
      "each)\n",
      batch, a * 1e3, b * 1e3, a / b, interpreted.size());
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  return muster::Run(argv[1], argc > 2 ? std::atoll(argv[2]) : 8,
                     argc > 3 ? std::atof(argv[3]) : 10);
}
