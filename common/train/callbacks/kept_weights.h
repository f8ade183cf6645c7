// Weights that callbacks remember, by callback: the best ones, a moving average. Copies of a
// replica's parameters and of those buffers that are equal on all replicas, equal on all replicas
// themselves. For the replica's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace muster {

class KeptWeights {
 public:
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
  // The replica's own tensors, which this does not change but in PutBack and Swap.
  explicit KeptWeights(NamedTensors own) : own_(std::move(own)) {}

  void Keep(const std::string& callback);
  // REQUIRES: it is kept.
  void PutBack(const std::string& callback);
  // What is kept and the replica's own change places. REQUIRES: it is kept.
  void Swap(const std::string& callback);
  // kept = decay * kept + (1 - decay) * own; the first time a copy. Integers are copied.
  void Average(const std::string& callback, double decay);

  bool Has(const std::string& callback) const { return kept_.contains(callback); }
  // Of these callbacks, in a fixed order; those that are not kept yet are from now on.
  std::vector<at::Tensor> Of(const std::set<std::string>& callbacks);
  // Forgets all others.
  void Only(const std::set<std::string>& callbacks);
  std::set<std::string> callbacks() const;
  const NamedTensors& own() const { return own_; }
  // By the names of the replica's own.
  NamedTensors Of(const std::string& callback) const;

 private:
  const NamedTensors own_;
  std::map<std::string, std::vector<at::Tensor>> kept_;
};

}  // namespace muster
