#include "common/train/state/tied_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/checkpoint/row_source.h"

namespace muster {
namespace {

using checkpoint::DType;
using checkpoint::Tensor;
using checkpoint::TensorSet;

constexpr const char* kStep = "step";

// Returns the values of a slot, or an empty list if the slot is not float32 or cannot be read.
std::vector<float> FloatsOf(const TensorSet& slots, const Tensor& tensor) {
  if (tensor.dtype != DType::kFloat32) return {};
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  const auto bytes = static_cast<int64_t>(tensor.bytes());
  const bool read =
      checkpoint::ReadTensor(slots, tensor, 0, bytes, reinterpret_cast<char*>(values.data())).ok();
  return read ? values : std::vector<float>();
}

// Returns true if training has changed the slot, or if `values` is empty.
bool Changed(const std::vector<float>& values, float initial) {
  return values.empty() ||
         std::any_of(values.begin(), values.end(), [=](float value) { return value != initial; });
}

// The set of slots that a checkpoint has under one name of a parameter.
struct Set {
  std::map<std::string, size_t> places;  // Slot name -> index in the TensorSet.
  bool changed = false;
  float steps = 0;
};

Set FindSet(const std::map<std::string_view, size_t>& there, const TensorSet& slots,
            const std::string& prefix, const NamedOptimizer& optimizer, const RuleSpec& rule) {
  Set set;
  for (const std::string& slot : optimizer.rule->slot_names()) {
    const auto found = there.find(fmt::format("{}.{}", prefix, slot));
    if (found == there.end()) continue;
    set.places[slot] = found->second;
    const std::vector<float> values = FloatsOf(slots, slots.tensors[found->second]);
    // The step counter does not show a change, because parameter servers counted the steps under
    // all names.
    if (slot != kStep)
      set.changed |= Changed(values, static_cast<float>(InitialSlotValue(rule, slot)));
    else if (values.size() == 1)
      set.steps = values[0];
  }
  return set;
}

// Returns the index of the set that was updated: a changed set with the most steps. If several have
// as many, returns the last, which synchronous training updated.
size_t Live(const std::vector<Set>& sets) {
  size_t live = 0;
  for (size_t i = 1; i < sets.size(); ++i) {
    const auto rank = [&](size_t s) { return std::pair(sets[s].changed, sets[s].steps); };
    if (sets[i].changed && rank(i) >= rank(live)) live = i;
  }
  return live;
}

}  // namespace

TensorSet UntieSlots(const TensorSet& slots, const Replica& replica) {
  std::map<std::string_view, size_t> there;
  for (size_t i = 0; i < slots.tensors.size(); ++i) there[slots.tensors[i].name] = i;
  TensorSet untied = slots;
  std::vector<bool> dropped(slots.tensors.size());
  const size_t skip = replica.models().size() == 1 ? replica.models()[0].name.size() + 1 : 0;
  for (const NamedOptimizer& optimizer : replica.optimizers()) {
    const auto spec = ParseOptimizer(optimizer.spec);
    for (size_t p = 0; spec.ok() && p < optimizer.candidate_aliases.size(); ++p) {
      if (optimizer.candidate_aliases[p].size() == 1) continue;
      std::vector<Set> sets;
      for (const std::string& name : optimizer.candidate_aliases[p])
        sets.push_back(FindSet(there, slots, optimizer.name + "." + name.substr(skip), optimizer,
                               spec->rule_of(optimizer.candidate_groups[p])));
      const Set& live = sets[Live(sets)];
      for (const auto& [slot, place] : sets.front().places) {
        const auto own = live.places.find(slot);
        if (own == live.places.end()) continue;
        untied.tensors[place] = slots.tensors[own->second];
        untied.tensors[place].name = slots.tensors[place].name;
      }
      for (size_t s = 1; s < sets.size(); ++s)
        for (const auto& [slot, place] : sets[s].places) dropped[place] = true;
    }
  }
  for (size_t i = dropped.size(); i > 0; --i)
    if (dropped[i - 1]) untied.tensors.erase(untied.tensors.begin() + static_cast<int64_t>(i) - 1);
  return untied;
}

}  // namespace muster
