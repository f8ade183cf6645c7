#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "common/exported/graph/arguments.h"
#include "common/exported/graph/graph.h"
#include "common/exported/graph/source_line.h"

namespace muster::exported {
namespace {

using c10::IValue;

constexpr std::string_view kOperators = "torch.ops.", kHigherOrder = "torch.ops.higher_order.";
// A node that only checks metadata of the trace. It is ignored, because under autocast the type may
// differ.
constexpr char kMetadataCheck[] = "torch.ops.aten._assert_tensor_metadata.default";
constexpr char kView[] = "torch.ops.aten.view.default",
               kReshape[] = "torch.ops.aten.reshape.default";
constexpr char kOwnOperators[] =
    "write it with torch's own operators, or apply run_decompositions() before torch.export.save";

bool Writes(const c10::Argument& argument) {
  const c10::AliasInfo* info = argument.alias_info();
  if (info == nullptr) return false;
  const auto& contained = info->containedTypes();
  return info->isWrite() || std::any_of(contained.begin(), contained.end(),
                                        [](const c10::AliasInfo& c) { return c.isWrite(); });
}

// Parses "torch.ops.aten.add.Tensor" as aten::add, overload Tensor.
c10::OperatorHandle FindOperator(const std::string& target) {
  const std::string name = target.substr(kOperators.size());
  const size_t space = name.find('.'), overload = name.rfind('.');
  if (space != std::string::npos && overload != space) {
    std::string which = name.substr(overload + 1);
    if (which == "default") which.clear();
    const std::string full =
        name.substr(0, space) + "::" + name.substr(space + 1, overload - space - 1);
    const auto found = c10::Dispatcher::singleton().findSchema({full, which});
    if (found) return *found;
  }
  throw Unsupported("LibTorch has no such operator", kOwnOperators);
}

// Returns the description of a node for messages.
std::string Where(const Json& node) {
  std::string name = node.at("target").get<std::string>();
  if (name.starts_with(kOperators)) name = name.substr(kOperators.size());
  const std::string line = SourceLine(node.value("metadata", Json::object()));
  return line.empty() ? name : fmt::format("{} ({})", name, line);
}

}  // namespace

// Compiles one graph. Each nested graph has its own compiler.
class GraphCompiler {
 public:
  GraphCompiler(c10::Device device, const std::string& path)
      : device_(device), path_(path), graph_(std::make_shared<Graph>()) {}

  absl::StatusOr<std::shared_ptr<const Graph>> Compile(const Json& json) {
    try {
      for (const Json& input : json.at("inputs")) AddInput(input);
      for (const Json& node : json.at("nodes")) CompileNode(node);
      for (const Json& output : json.at("outputs")) AddOutput(output);
    } catch (const Json::exception& error) {
      return DataError(fmt::format("{} is damaged: its graph: {}", path_, error.what()));
    } catch (const c10::Error& error) {
      return DataError(
          fmt::format("{} is damaged: its graph: {}", path_, error.what_without_backtrace()));
    } catch (const std::out_of_range& error) {
      return DataError(fmt::format("{} is damaged: its graph: {}", path_, error.what()));
    } catch (const Unsupported& refused) {
      refusals_.push_back(refused.what());
    }
    if (!nested_.ok()) return nested_;
    if (!refusals_.empty()) {
      return ConfigurationError(fmt::format(
          "{} cannot run here: {}{}", path_, refusals_[0],
          refusals_.size() == 1 ? "" : fmt::format(" (and {} more)", refusals_.size() - 1)));
    }
    graph_->num_slots_ = static_cast<int>(aliases_.size());
    FindReleases();
    return std::shared_ptr<const Graph>(std::move(graph_));
  }

 private:
  int NewSlot(const std::string& name) {
    const int slot = static_cast<int>(aliases_.size());
    aliases_.emplace_back();
    if (!name.empty()) {
      TORCH_CHECK(slots_.emplace(name, slot).second, "two values are named ", name);
    }
    return slot;
  }
  int Slot(const std::string& name) const {
    const auto found = slots_.find(name);
    TORCH_CHECK(found != slots_.end(), "there is no value ", name);
    return found->second;
  }
  Operand OperandOf(const ParsedItem& item) const {
    if (!item.name.empty()) return {Slot(item.name), {}};
    return {-1, item.constant};
  }

  void AddInput(const Json& json) {
    const ParsedArgument input = ParseArgument(json, device_);
    TORCH_CHECK(!input.list && input.graph == nullptr, "an input is a list");
    const int index = static_cast<int>(graph_->input_slots_.size());
    const std::string& name = input.items[0].name;
    const int slot = NewSlot(name);
    aliases_[slot] = {index};
    graph_->input_slots_.push_back(slot);
    graph_->input_names_.push_back(name);
  }

  void AddOutput(const Json& json) {
    const ParsedArgument output = ParseArgument(json, device_);
    TORCH_CHECK(!output.list && output.graph == nullptr, "an output is a list");
    graph_->outputs_.push_back(OperandOf(output.items[0]));
    graph_->output_names_.push_back(output.items[0].name);
    const int slot = graph_->outputs_.back().slot;
    graph_->output_aliases_.push_back(slot < 0 ? std::set<int>() : aliases_[slot]);
  }

  void CompileNode(const Json& json) {
    const std::string target = json.at("target").get<std::string>();
    if (target == kMetadataCheck) return;
    Node node;
    node.where = Where(json);
    try {
      if (target.starts_with(kHigherOrder)) {
        HigherOrder(target.substr(kHigherOrder.size()), json, &node);
      } else if (target.starts_with(kOperators)) {
        Operator(target, json, &node);
      } else {
        SymbolicNode(target, json, &node);
      }
    } catch (const Unsupported& refused) {
      refusals_.push_back(fmt::format("{}: {}{}{}", node.where, refused.what(),
                                      refused.fix.empty() ? "" : ": ", refused.fix));
    }
    for (const Json& output : json.at("outputs")) AddNodeOutput(output, &node);
    PropagateAliases(node);
    graph_->nodes_.push_back(std::move(node));
  }

  void AddNodeOutput(const Json& json, Node* node) {
    const auto [tag, value] = MemberOf(json, "an output");
    NodeOutput output;
    if (tag == "as_tensors") {
      output.list = true;
      for (const Json& item : value) {
        output.slots.push_back(NewSlot(item.at("name").get<std::string>()));
      }
    } else if (tag != "as_none") {
      const ParsedArgument parsed = ParseArgument(json, device_);
      TORCH_CHECK(!parsed.list && !parsed.items[0].name.empty(), "an output has no name");
      output.slots.push_back(NewSlot(parsed.items[0].name));
    }
    node->outputs.push_back(std::move(output));
  }

  void SymbolicNode(const std::string& target, const Json& json, Node* node) const {
    const Symbolic symbolic = FindSymbolic(target);
    if (symbolic.function == nullptr) {
      throw Unsupported("this arithmetic on sizes is unknown", "write it with torch's operators");
    }
    node->kind = Node::kSymbolic;
    node->function = symbolic.function;
    for (const Json& input : json.at("inputs")) {
      const ParsedArgument argument = ParseArgument(input.at("arg"), device_);
      TORCH_CHECK(!argument.list, node->where, " takes a list");
      node->operands.push_back(OperandOf(argument.items[0]));
    }
    TORCH_CHECK(node->operands.size() == symbolic.operands, node->where, " takes ",
                symbolic.operands, " numbers");
  }

  void Operator(const std::string& target, const Json& json, Node* node) {
    node->kind = Node::kOperator;
    node->op = FindOperator(target);
    const c10::FunctionSchema& schema = node->op->schema();
    if (schema.name().starts_with("aten::_batch_norm_with_update")) {
      throw Unsupported("it cannot be switched to evaluation",
                        "save the program that torch.export.export gives, not its decomposition");
    }
    std::map<std::string, const Json*> given;
    for (const Json& input : json.at("inputs")) {
      given.emplace(input.at("name").get<std::string>(), &input.at("arg"));
    }
    for (const c10::Argument& parameter : schema.arguments()) {
      const auto found = given.find(parameter.name());
      if (found != given.end()) {
        AddArgument(parameter, ParseArgument(*found->second, device_), node);
        given.erase(found);
      } else if (parameter.default_value() ||
                 parameter.type()->kind() == c10::TypeKind::OptionalType) {
        node->arguments[0].push_back(parameter.default_value().value_or(IValue()));
      } else {
        throw Unsupported(fmt::format("its argument {} is missing", parameter.name()),
                          "export the model with torch 2.11");
      }
    }
    if (!given.empty()) {
      throw Unsupported(fmt::format("LibTorch's operator has no argument {}", given.begin()->first),
                        "export the model with torch 2.11");
    }
    // A reshape is the view where that is possible. The trace was made on one device. On another,
    // operators such as scaled_dot_product_attention return other strides, for which it may not be.
    if (target == kView) node->op = FindOperator(kReshape);
    PrepareEvaluation(node);
  }

  void AddArgument(const c10::Argument& parameter, const ParsedArgument& argument, Node* node) {
    TORCH_CHECK(argument.graph == nullptr, node->where, " takes a graph");
    const int place = static_cast<int>(node->arguments[0].size());
    c10::TypePtr type = parameter.type();
    if (type->kind() == c10::TypeKind::OptionalType) {
      if (!argument.list && argument.items[0].name.empty() && argument.items[0].constant.isNone()) {
        node->arguments[0].emplace_back();
        return;
      }
      type = type->containedType(0);
    }
    std::vector<Operand> operands;
    for (const ParsedItem& item : argument.items) operands.push_back(OperandOf(item));
    const bool list = type->kind() == c10::TypeKind::ListType;
    TORCH_CHECK(list || !argument.list, node->where, ": ", parameter.name(), " is no list");
    if (list && !argument.list) operands.resize(parameter.N().value_or(1), operands[0]);
    if (list) type = type->containedType(0);
    const bool constant =
        std::all_of(operands.begin(), operands.end(), [](const Operand& o) { return o.slot < 0; });
    if (constant) {
      node->arguments[0].push_back(list ? FitList(Constants(operands), *type)
                                        : Fit(operands[0].constant, *type));
      return;
    }
    node->arguments[0].emplace_back();
    node->fills.push_back(
        {list ? ListKind(*type) : Fill::kValue, place, type, std::move(operands)});
  }
  static std::vector<IValue> Constants(const std::vector<Operand>& operands) {
    std::vector<IValue> values;
    for (const Operand& operand : operands) values.push_back(operand.constant);
    return values;
  }
  static Fill::Kind ListKind(const c10::Type& element) {
    switch (element.kind()) {
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType:
        return Fill::kInts;
      case c10::TypeKind::TensorType:
        return Fill::kTensors;
      case c10::TypeKind::OptionalType:
        return Fill::kOptionalTensors;
      case c10::TypeKind::BoolType:
        return Fill::kBools;
      default:
        return Fill::kFloats;
    }
  }

  // Sets the arguments for kEvaluate if they differ from those for kTrain.
  static void PrepareEvaluation(Node* node) {
    const auto& parameters = node->op->schema().arguments();
    torch::jit::Stack evaluation = node->arguments[0];
    bool differs = false;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const std::string& name = parameters[i].name();
      const IValue& value = evaluation[i];
      const bool flag = name == "training" || name == "train" || name == "use_input_stats";
      if (flag && value.isBool() && value.toBool() && HasStatistics(*node)) {
        evaluation[i] = false;
        differs = true;
      } else if (name == "dropout_p" && value.isDouble() && value.toDouble() > 0) {
        evaluation[i] = 0.0;
        differs = true;
      }
    }
    if (differs) node->arguments[1] = std::move(evaluation);
  }
  // Returns false for a batch normalization without running statistics, which uses the batch's
  // statistics in evaluation too.
  static bool HasStatistics(const Node& node) {
    const c10::FunctionSchema& schema = node.op->schema();
    const auto place = schema.argumentIndexWithName("running_mean");
    if (!place) return schema.name().find("batch_norm") == std::string::npos;
    return std::any_of(node.fills.begin(), node.fills.end(),
                       [&](const Fill& fill) { return fill.argument == *place; });
  }

  void HigherOrder(const std::string& name, const Json& json, Node* node) {
    std::vector<ParsedArgument> arguments;
    const bool known =
        name == "wrap_with_set_grad_enabled" || name == "wrap_with_autocast" || name == "cond";
    if (!known) {
      throw Unsupported("this higher-order operator does not run outside of Python",
                        "write the model without it");
    }
    for (const Json& input : json.at("inputs")) {
      arguments.push_back(ParseArgument(input.at("arg"), device_));
    }
    size_t operands_from = 0;
    if (name == "wrap_with_set_grad_enabled") {
      node->kind = Node::kSetGradEnabled;
      node->enabled = arguments.at(0).items.at(0).constant.toBool();
      operands_from = 2;
    } else if (name == "wrap_with_autocast") {
      node->kind = Node::kAutocast;
      // The replica's device replaces the device in the file.
      node->device_type = device_.type();
      const IValue& type = arguments.at(1).items.at(0).constant;
      if (!type.isNone()) {
        const int64_t number = type.toInt();
        TORCH_CHECK(number >= 0 && number < static_cast<int64_t>(at::ScalarType::NumOptions),
                    node->where, " has no type with the number ", number);
        node->autocast_type = static_cast<at::ScalarType>(number);
      }
      node->enabled = arguments.at(2).items.at(0).constant.toBool();
      operands_from = 5;
    } else {
      node->kind = Node::kCondition;
      node->operands.push_back(OperandOf(arguments.at(0).items.at(0)));
      operands_from = 3;
    }
    for (size_t i = 0; i < arguments.size(); ++i) {
      const ParsedArgument& argument = arguments[i];
      if (i >= operands_from) {
        for (const ParsedItem& item : argument.items) node->operands.push_back(OperandOf(item));
      }
      if (argument.graph == nullptr) continue;
      auto graph = Graph::Compile(*argument.graph, device_, path_);
      if (!graph.ok()) {
        if (nested_.ok()) nested_ = graph.status();
        return;
      }
      node->graphs.push_back(*std::move(graph));
    }
    TORCH_CHECK(node->graphs.size() == (node->kind == Node::kCondition ? 2 : 1), node->where,
                " has ", node->graphs.size(), " graphs");
  }

  // Records the inputs that may share memory with the node's outputs, and the inputs that the node
  // writes.
  void PropagateAliases(const Node& node) {
    if (node.kind == Node::kOperator && node.op) {
      const c10::FunctionSchema& schema = node.op->schema();
      std::set<int> passed;
      for (const Fill& fill : node.fills) {
        const c10::Argument& parameter = schema.arguments()[fill.argument];
        if (parameter.alias_info() == nullptr) continue;
        std::set<int> inputs;
        for (const Operand& operand : fill.operands) Insert(operand, &inputs);
        passed.insert(inputs.begin(), inputs.end());
        // detach_ changes no values.
        if (!Writes(parameter) || schema.name() == "aten::detach_") continue;
        for (const int input : inputs) graph_->written_.emplace(input, node.where);
      }
      for (size_t i = 0; i < node.outputs.size() && i < schema.returns().size(); ++i) {
        if (schema.returns()[i].alias_info() == nullptr) continue;
        for (const int slot : node.outputs[i].slots) aliases_[slot] = passed;
      }
    }
    const size_t offset = node.kind == Node::kCondition ? 1 : 0;  // Skips the condition itself.
    for (const auto& graph : node.graphs) {
      for (const auto& [index, where] : graph->written_) {
        std::set<int> inputs;
        Insert(node.operands.at(index + offset), &inputs);
        for (const int input : inputs) graph_->written_.emplace(input, where);
      }
      for (size_t i = 0; i < node.outputs.size() && i < graph->output_aliases_.size(); ++i) {
        for (const int index : graph->output_aliases_[i]) {
          for (const int slot : node.outputs[i].slots) {
            Insert(node.operands.at(index + offset), &aliases_[slot]);
          }
        }
      }
    }
  }
  void Insert(const Operand& operand, std::set<int>* inputs) const {
    if (operand.slot < 0) return;
    inputs->insert(aliases_[operand.slot].begin(), aliases_[operand.slot].end());
  }

  // Finds the values that no later node reads, and the results that no node reads.
  void FindReleases() {
    std::vector<int> last(aliases_.size(), -1);
    const auto use = [&](const Operand& operand, int when) {
      if (operand.slot >= 0) last[operand.slot] = when;
    };
    const int count = static_cast<int>(graph_->nodes_.size());
    for (int n = 0; n < count; ++n) {
      for (const Operand& operand : graph_->nodes_[n].operands) use(operand, n);
      for (const Fill& fill : graph_->nodes_[n].fills) {
        for (const Operand& operand : fill.operands) use(operand, n);
      }
    }
    for (const Operand& output : graph_->outputs_) use(output, count);
    for (size_t slot = 0; slot < last.size(); ++slot) {
      if (last[slot] >= 0 && last[slot] < count) {
        graph_->nodes_[last[slot]].release.push_back(static_cast<int>(slot));
      }
    }
    for (const int slot : graph_->input_slots_) {
      if (last[slot] < 0) graph_->release_first_.push_back(slot);
    }
    for (Node& node : graph_->nodes_) {
      for (NodeOutput& output : node.outputs) {
        for (int& slot : output.slots) {
          if (last[slot] < 0) slot = -1;
        }
      }
    }
  }

  const c10::Device device_;
  const std::string& path_;
  std::shared_ptr<Graph> graph_;
  std::map<std::string, int> slots_;
  // For each slot, the inputs that the value may be a view of.
  std::vector<std::set<int>> aliases_;
  std::vector<std::string> refusals_;
  absl::Status nested_;
};

absl::StatusOr<std::shared_ptr<const Graph>> Graph::Compile(const Json& graph, c10::Device device,
                                                            const std::string& path) {
  return GraphCompiler(device, path).Compile(graph);
}

}  // namespace muster::exported
