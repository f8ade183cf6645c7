// Small snapshots for tests, with tensors of every type, scalars and empty tensors. The step
// determines the bytes.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/checkpoint.h"

namespace muster::checkpoint::testing_support {

inline TensorSet MakeTensors(std::vector<TensorInfo> infos, unsigned seed) {
  size_t bytes = 0;
  for (const TensorInfo& info : infos) bytes += info.bytes();
  auto memory = std::make_shared<std::string>(bytes, '\0');
  std::mt19937 random(seed);
  for (char& c : *memory) c = static_cast<char>(random());
  TensorSet set;
  size_t at = 0;
  for (TensorInfo& info : infos) {
    set.tensors.push_back({std::move(info), memory->data() + at});
    at += set.tensors.back().bytes();
  }
  set.memory = memory;
  return set;
}

inline TensorSet EveryType(unsigned seed) {
  std::vector<TensorInfo> infos = {{"scalar", DType::kFloat32, {}},
                                   {"empty", DType::kFloat64, {0, 3}}};
  for (int i = 0; i < kNumDTypes; ++i) {
    infos.push_back({"of." + std::string(kDTypeNames[i]), static_cast<DType>(i), {3, 1 + i}});
  }
  return MakeTensors(std::move(infos), seed);
}

inline Snapshot MakeSnapshot(int64_t step) {
  Snapshot snapshot;
  SavedState& state = snapshot.state;
  state.step = step;
  state.epoch = step / 10;
  state.offset = step % 10 * 32;
  state.examples = step * 32;
  state.epoch_loss_sum = 0.1 * static_cast<double>(step);
  state.epoch_examples = state.offset;
  state.epoch_metric_sums = {1.0 / 3, static_cast<double>(step)};
  state.global_batch_size = 32;
  state.run_id = "run1";
  state.job = {{"program", "linear"}, {"seed", 42}};
  state.versions = {{"muster", "0.1.0"}};
  snapshot.model = EveryType(static_cast<unsigned>(step));
  snapshot.optimizer =
      MakeTensors({{"sgd.w.momentum", DType::kFloat32, {5, 7}}}, static_cast<unsigned>(step) + 1);
  return snapshot;
}

// Returns where the two differ, "" if they are equal.
inline std::string Difference(const TensorSet& a, const TensorSet& b) {
  if (a.tensors.size() != b.tensors.size()) return "number of tensors";
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const Tensor &x = a.tensors[i], &y = b.tensors[i];
    if (x.name != y.name || x.dtype != y.dtype || x.shape != y.shape) return "tensor " + x.name;
    if (std::string_view(x.data, x.bytes()) != std::string_view(y.data, y.bytes())) {
      return "bytes of " + x.name;
    }
  }
  return "";
}
inline std::string Difference(const Snapshot& a, const Snapshot& b) {
  if (ToJson(a.state) != ToJson(b.state)) return "state";
  const std::string model = Difference(a.model, b.model);
  return model.empty() ? Difference(a.optimizer, b.optimizer) : model;
}

}  // namespace muster::checkpoint::testing_support
