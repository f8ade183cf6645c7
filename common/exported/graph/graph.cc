#include "common/exported/graph/graph.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace muster::exported {
namespace {

using c10::IValue;

const IValue& ValueOf(const Operand& operand, const std::vector<IValue>& values) {
  return operand.slot < 0 ? operand.constant : values[operand.slot];
}

IValue Filled(const Fill& fill, const std::vector<IValue>& values) {
  switch (fill.kind) {
    case Fill::kValue:
      return Fit(ValueOf(fill.operands[0], values), *fill.type);
    case Fill::kInts: {
      std::vector<int64_t> ints;
      ints.reserve(fill.operands.size());
      for (const Operand& operand : fill.operands) ints.push_back(ValueOf(operand, values).toInt());
      return ints;
    }
    case Fill::kTensors: {
      c10::List<at::Tensor> tensors;
      tensors.reserve(fill.operands.size());
      for (const Operand& operand : fill.operands) {
        tensors.push_back(ValueOf(operand, values).toTensor());
      }
      return tensors;
    }
    case Fill::kOptionalTensors: {
      c10::List<std::optional<at::Tensor>> tensors;
      tensors.reserve(fill.operands.size());
      for (const Operand& operand : fill.operands) {
        tensors.push_back(ValueOf(operand, values).toOptional<at::Tensor>());
      }
      return tensors;
    }
    case Fill::kFloats:
    case Fill::kBools:
      break;
  }
  std::vector<IValue> list;
  for (const Operand& operand : fill.operands) list.push_back(ValueOf(operand, values));
  return FitList(list, *fill.type);
}

// While the object exists, autocast is set as in `with torch.autocast(...)`.
class AutocastRegion {
 public:
  explicit AutocastRegion(const Node& node)
      : type_(node.device_type),
        was_enabled_(at::autocast::is_autocast_enabled(type_)),
        was_type_(at::autocast::get_autocast_dtype(type_)) {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(type_, node.enabled);
    if (node.autocast_type) at::autocast::set_autocast_dtype(type_, *node.autocast_type);
  }
  ~AutocastRegion() {
    at::autocast::set_autocast_enabled(type_, was_enabled_);
    at::autocast::set_autocast_dtype(type_, was_type_);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  AutocastRegion(const AutocastRegion&) = delete;
  AutocastRegion& operator=(const AutocastRegion&) = delete;

 private:
  const c10::DeviceType type_;
  const bool was_enabled_;
  const at::ScalarType was_type_;
};

bool IsTrue(const IValue& value) {
  return value.isTensor() ? value.toTensor().item().toBool()
         : value.isBool() ? value.toBool()
                          : value.toScalar().toBool();
}

// Stores a node's results in its slots.
void Store(const Node& node, std::vector<IValue>& results, std::vector<IValue>* values) {
  TORCH_CHECK(results.size() == node.outputs.size(), "it gave ", results.size(),
              " values where the file has ", node.outputs.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const NodeOutput& output = node.outputs[i];
    if (!output.list) {
      if (!output.slots.empty() && output.slots[0] >= 0) {
        (*values)[output.slots[0]] = std::move(results[i]);
      }
      continue;
    }
    const c10::List<at::Tensor> tensors = std::move(results[i]).toTensorList();
    TORCH_CHECK(tensors.size() == output.slots.size(), "it gave ", tensors.size(),
                " tensors where the file has ", output.slots.size());
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (output.slots[t] >= 0) (*values)[output.slots[t]] = tensors.get(t);
    }
  }
}

}  // namespace

IValue FitList(const std::vector<IValue>& values, const c10::Type& element) {
  const c10::TypeKind kind = element.kind();
  if (kind == c10::TypeKind::IntType || kind == c10::TypeKind::SymIntType) {
    c10::List<int64_t> list;
    for (const IValue& value : values) list.push_back(Fit(value, element).toInt());
    return list;
  }
  if (kind == c10::TypeKind::FloatType) {
    c10::List<double> list;
    for (const IValue& value : values) list.push_back(Fit(value, element).toDouble());
    return list;
  }
  if (kind == c10::TypeKind::BoolType) {
    c10::List<bool> list;
    for (const IValue& value : values) list.push_back(Fit(value, element).toBool());
    return list;
  }
  if (kind == c10::TypeKind::TensorType) {
    c10::List<at::Tensor> list;
    for (const IValue& value : values) list.push_back(Fit(value, element).toTensor());
    return list;
  }
  if (kind == c10::TypeKind::StringType) {
    c10::List<std::string> list;
    for (const IValue& value : values) list.push_back(value.toStringRef());
    return list;
  }
  if (kind == c10::TypeKind::OptionalType &&
      element.containedType(0)->kind() == c10::TypeKind::TensorType) {
    c10::List<std::optional<at::Tensor>> list;
    for (const IValue& value : values) list.push_back(value.toOptional<at::Tensor>());
    return list;
  }
  TORCH_CHECK(kind == c10::TypeKind::NumberType, "a list of ", element.str(), " is unknown");
  c10::impl::GenericList list(c10::NumberType::get());
  for (const IValue& value : values) list.push_back(value);
  return list;
}

IValue Fit(IValue value, const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::OptionalType:
      return value.isNone() ? value : Fit(std::move(value), *type.containedType(0));
    case c10::TypeKind::TensorType: {
      if (value.isNone()) return at::Tensor();
      if (!value.isScalar()) return value;
      const at::Scalar scalar = value.toScalar();
      at::Tensor number = at::scalar_tensor(scalar, at::dtype(scalar.type()));
      // As in Python, a number does not change the type of the tensor that it is combined with.
      number.unsafeGetTensorImpl()->set_wrapped_number(true);
      return number;
    }
    case c10::TypeKind::FloatType:
      if (value.isInt()) return static_cast<double>(value.toInt());
      if (value.isBool()) return static_cast<double>(value.toBool());
      return value;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return value.isBool() ? IValue(static_cast<int64_t>(value.toBool())) : value;
    case c10::TypeKind::BoolType:
      return value.isInt() ? IValue(value.toInt() != 0) : value;
    default:
      return value;
  }
}

void Graph::RunNode(const Node& node, Phase phase, std::vector<IValue>* values,
                    torch::jit::Stack* stack) const {
  if (node.kind == Node::kOperator) {
    const torch::jit::Stack& prepared = phase == Phase::kEvaluate && !node.arguments[1].empty()
                                            ? node.arguments[1]
                                            : node.arguments[0];
    stack->assign(prepared.begin(), prepared.end());
    for (const Fill& fill : node.fills) (*stack)[fill.argument] = Filled(fill, *values);
    node.op->callBoxed(*stack);
    Store(node, *stack, values);
    return;
  }
  std::vector<IValue> operands;
  operands.reserve(node.operands.size());
  for (const Operand& operand : node.operands) operands.push_back(ValueOf(operand, *values));
  std::vector<IValue> results;
  switch (node.kind) {
    case Node::kSymbolic:
      results.push_back(node.function(operands));
      break;
    case Node::kSetGradEnabled: {
      // If gradients are off (in evaluation), the file cannot switch them on.
      const at::AutoGradMode mode(node.enabled && at::GradMode::is_enabled());
      results = node.graphs[0]->Run(std::move(operands), phase);
      break;
    }
    case Node::kAutocast: {
      const AutocastRegion region(node);
      results = node.graphs[0]->Run(std::move(operands), phase);
      break;
    }
    case Node::kCondition: {
      const bool first = IsTrue(operands[0]);
      operands.erase(operands.begin());
      results = node.graphs[first ? 0 : 1]->Run(std::move(operands), phase);
      break;
    }
    case Node::kOperator:
      break;
  }
  Store(node, results, values);
}

std::vector<IValue> Graph::Run(std::vector<IValue> inputs, Phase phase) const {
  TORCH_CHECK(inputs.size() == input_slots_.size(), "a graph with ", input_slots_.size(),
              " inputs got ", inputs.size());
  std::vector<IValue> values(num_slots_);
  for (size_t i = 0; i < inputs.size(); ++i) values[input_slots_[i]] = std::move(inputs[i]);
  for (const int slot : release_first_) values[slot] = IValue();
  torch::jit::Stack stack;
  const Node* current = nullptr;
  std::string what;
  try {
    for (const Node& node : nodes_) {
      current = &node;
      RunNode(node, phase, &values, &stack);
      for (const int slot : node.release) values[slot] = IValue();
    }
    std::vector<IValue> outputs;
    outputs.reserve(outputs_.size());
    for (const Operand& output : outputs_) outputs.push_back(ValueOf(output, values));
    return outputs;
  } catch (const c10::Error& error) {
    what = error.what_without_backtrace();
  } catch (const std::exception& error) {
    what = error.what();
  }
  // The error of a nested graph already names its node.
  const bool named = current != nullptr && !current->graphs.empty();
  throw std::runtime_error(
      current == nullptr || named ? what : fmt::format("{}: {}", current->where, what));
}

std::set<int> Graph::Reaching(const std::vector<size_t>& outputs) const {
  std::vector<char> needed(num_slots_, 0);
  for (const size_t output : outputs) {
    if (outputs_.at(output).slot >= 0) needed[outputs_[output].slot] = 1;
  }
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    bool used = false;
    for (const NodeOutput& output : node->outputs) {
      for (const int slot : output.slots) used = used || (slot >= 0 && needed[slot] != 0);
    }
    const auto each_slot = [&](const auto& visit) {
      for (const Operand& operand : node->operands) visit(operand.slot);
      for (const Fill& fill : node->fills) {
        for (const Operand& operand : fill.operands) visit(operand.slot);
      }
    };
    // A node that writes to a value, or to the base of a view, counts as used even if its result is
    // unused.
    if (node->kind == Node::kOperator && node->op->schema().is_mutable()) used = true;
    if (!used) continue;
    each_slot([&](int slot) {
      if (slot >= 0) needed[slot] = 1;
    });
  }
  std::set<int> inputs;
  for (size_t i = 0; i < input_slots_.size(); ++i) {
    if (needed[input_slots_[i]] != 0) inputs.insert(static_cast<int>(i));
  }
  return inputs;
}

void Graph::AddTo(summary::GraphBuilder* builder, const std::vector<int>& inputs) const {
  std::vector<int> made_by(num_slots_, -1);  // The builder's number of each slot's producer.
  for (size_t i = 0; i < input_slots_.size(); ++i)
    if (input_slots_[i] >= 0) made_by[input_slots_[i]] = inputs[i];
  for (const Node& node : nodes_) {
    if (builder->size() >= summary::kMaxGraphNodes) return;
    if (!node.op && node.graphs.empty()) continue;  // Arithmetic on sizes, and modes.
    std::vector<int> from;
    const auto take = [&](const Operand& operand) {
      if (operand.slot >= 0 && made_by[operand.slot] >= 0) from.push_back(made_by[operand.slot]);
    };
    for (const Fill& fill : node.fills)
      std::for_each(fill.operands.begin(), fill.operands.end(), take);
    std::for_each(node.operands.begin(), node.operands.end(), take);
    std::string name = node.op ? node.op->operator_name().name : "graph";
    if (const size_t at = name.rfind("::"); at != std::string::npos) name = name.substr(at + 2);
    const int number = builder->AddOperation(name, from);
    for (const NodeOutput& output : node.outputs)
      for (const int slot : output.slots)
        if (slot >= 0) made_by[slot] = number;
  }
}

}  // namespace muster::exported
