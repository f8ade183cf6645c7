#include "muster/nested.h"

#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "common/train/replica/replica.h"

namespace muster {

Nested::Nested(at::Tensor tensor) : is_tensor_(true), tensor_(std::move(tensor)) {}
Nested::Nested(std::initializer_list<std::pair<const std::string, Nested>> items) : items_(items) {}
Nested::Nested(Items items) : items_(std::move(items)) {}

at::Tensor Nested::Scalar(double number) { return at::full({}, number, at::kDouble); }
at::Tensor Nested::Integer(int64_t number, bool is_bool) {
  return at::full({}, number, is_bool ? at::kBool : at::kLong);
}

const at::Tensor& Nested::tensor() const {
  if (!is_tensor_)
    throw StatusError(ProgramError("a tensor was asked for, and the value is a dictionary"));
  return tensor_;
}

const Nested::Items& Nested::items() const {
  if (is_tensor_)
    throw StatusError(ProgramError("a dictionary was asked for, and the value is a tensor"));
  return items_;
}

const Nested& Nested::operator[](const std::string& name) const {
  const auto found = items().find(name);
  if (found != items_.end()) return found->second;
  std::string known;
  for (const auto& [have, value] : items_) known += (known.empty() ? "" : ", ") + have;
  throw StatusError(ProgramError(fmt::format("the value has no \"{}\"; it has: {}", name, known)));
}

Nested Nested::Map(const std::function<at::Tensor(const at::Tensor&)>& function) const {
  if (is_tensor_) return function(tensor_);
  Items items;
  for (const auto& [name, item] : items_) items[name] = item.Map(function);
  return Nested(std::move(items));
}

void Nested::ForEach(
    const std::function<void(const std::string&, const at::Tensor&)>& visit) const {
  for (const auto& item : items()) {
    const std::string& name = item.first;
    if (item.second.is_tensor()) {
      visit(name, item.second.tensor());
      continue;
    }
    item.second.ForEach([&](const std::string& below, const at::Tensor& tensor) {
      visit(name + "/" + below, tensor);
    });
  }
}

}  // namespace muster
