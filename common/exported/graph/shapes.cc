#include "common/exported/graph/shapes.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/json/json_integer.h"
#include "common/exported/graph/archive.h"

namespace muster::exported {
namespace {

// Returns "s77" for "Symbol('s77', positive=True, integer=True)", and "" for any other expression.
std::string SymbolOf(const std::string& expression) {
  constexpr std::string_view kBegin = "Symbol('";
  if (!expression.starts_with(kBegin)) return "";
  const size_t end = expression.find('\'', kBegin.size());
  return expression.substr(kBegin.size(), end - kBegin.size());
}

Dimension DimensionOf(const Json& size) {
  if (size.contains("as_int")) return {JsonInteger(size.at("as_int")), ""};
  const std::string expression = size.at("as_expr").at("expr_str").get<std::string>();
  const std::string symbol = SymbolOf(expression);
  return {-1, symbol.empty() ? expression : symbol};
}

// Returns the names of forward()'s arguments.
std::vector<std::string> ArgumentNames(const Json& graph_module) {
  const Json& calls = graph_module.at("module_call_graph");
  for (const Json& call : calls) {
    if (!call.at("fqn").get<std::string>().empty()) continue;
    if (!call.contains("signature") || call.at("signature").is_null()) continue;
    const Json& names = call.at("signature").value("forward_arg_names", Json());
    if (names.is_array()) return names.get<std::vector<std::string>>();
  }
  return {};
}

// Returns a shape such as "[8, 3]". If the number of examples is unknown, returns "[batch, 3]".
std::string Text(at::IntArrayRef sizes) {
  std::vector<std::string> texts;
  for (const int64_t size : sizes) texts.push_back(std::to_string(size));
  if (!texts.empty() && texts[0] == "0") texts[0] = "batch";
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

bool Converts(at::ScalarType from, at::ScalarType to) {
  return from == to || c10::isFloatingType(to) || c10::isComplexType(to) ||
         (c10::isIntegralType(from, /*includeBool=*/true) &&
          c10::isIntegralType(to, /*includeBool=*/true));
}

}  // namespace

Shapes::Shapes(const Json& program, const std::vector<std::string>& names) {
  const Json& graph_module = program.at("graph_module");
  const Json& values = graph_module.at("graph").at("tensor_values");
  const std::vector<std::string> arguments = ArgumentNames(graph_module);
  for (size_t i = 0; i < names.size(); ++i) {
    const Json& meta = values.at(names[i]);
    InputShape input;
    // If an argument is a list or dict, there are more placeholders than arguments.
    input.name = arguments.size() == names.size() ? arguments[i] : names[i];
    input.dtype = ScalarTypeOfSchema(JsonInteger(meta.at("dtype")));
    for (const Json& size : meta.at("sizes")) input.dimensions.push_back(DimensionOf(size));
    inputs_.push_back(std::move(input));
  }
  for (const auto& [symbol, json] : program.at("range_constraints").items()) {
    Range range;
    if (json.at("min_val").is_number()) range.least = JsonInteger(json.at("min_val"));
    if (json.at("max_val").is_number()) range.most = JsonInteger(json.at("max_val"));
    ranges_[symbol] = range;
  }
}

absl::Status Shapes::CheckBatched() const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].dimensions.empty()) continue;
    return ConfigurationError(
        fmt::format("its input {} has no dimension: the first one of every input is the batch",
                    inputs_[i].name));
  }
  if (const Range range = batch(); range.least > range.most)
    return ConfigurationError("its inputs admit no number of examples in a batch");
  return absl::OkStatus();
}

Range Shapes::batch() const {
  Range all{1, std::numeric_limits<int64_t>::max()};
  for (const InputShape& input : inputs_) {
    const Dimension& first = input.dimensions.front();
    Range range;
    if (first.symbol.empty()) {
      range = {first.fixed, first.fixed};
    } else if (const auto found = ranges_.find(first.symbol); found != ranges_.end()) {
      range = found->second;
    }
    all.least = std::max(all.least, range.least);
    all.most = std::min(all.most, range.most);
  }
  return all;
}

std::string Shapes::Describe(size_t input) const {
  std::vector<std::string> sizes;
  for (const Dimension& dimension : inputs_[input].dimensions) {
    if (dimension.symbol.empty()) {
      sizes.push_back(std::to_string(dimension.fixed));
      continue;
    }
    const auto found = ranges_.find(dimension.symbol);
    const Range range = found == ranges_.end() ? Range{} : found->second;
    sizes.push_back(range.most == Range{}.most ? fmt::format("{} or more", range.least)
                                               : fmt::format("{} to {}", range.least, range.most));
  }
  return fmt::format("{} [{}]", c10::toString(inputs_[input].dtype), fmt::join(sizes, ", "));
}

absl::Status Shapes::Refuse(size_t input, at::IntArrayRef sizes, size_t dimension) const {
  const std::string& name = inputs_[input].name;
  return ConfigurationError(fmt::format(
      "its input {} has the shape {}, and the program was exported for {}: export it with "
      "dynamic_shapes={{\"{}\": {{{}: torch.export.Dim(\"size\", min=1)}}}}, or change the data",
      name, Text(sizes), Describe(input), name, dimension));
}

absl::Status Shapes::Check(size_t input, at::IntArrayRef sizes, at::ScalarType dtype) const {
  const InputShape& wanted = inputs_.at(input);
  if (!Converts(dtype, wanted.dtype)) {
    return ConfigurationError(fmt::format("its input {} is {}, and the program was exported for {}",
                                          wanted.name, c10::toString(dtype), Describe(input)));
  }
  if (sizes.size() != wanted.dimensions.size()) {
    return ConfigurationError(
        fmt::format("its input {} has the shape {}, and the program was exported for {}",
                    wanted.name, Text(sizes), Describe(input)));
  }
  for (size_t d = 0; d < sizes.size(); ++d) {
    const Dimension& dimension = wanted.dimensions[d];
    if (d == 0 && sizes[0] == 0) continue;  // An empty batch is always accepted.
    if (dimension.symbol.empty()) {
      if (sizes[d] != dimension.fixed) return Refuse(input, sizes, d);
    } else if (const auto found = ranges_.find(dimension.symbol); found != ranges_.end()) {
      if (!found->second.Holds(sizes[d])) return Refuse(input, sizes, d);
    }
  }
  return absl::OkStatus();
}

absl::Status Shapes::CheckBatch(const std::vector<at::Tensor>& batch) const {
  std::map<std::string, int64_t> bound;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(Check(i, batch.at(i).sizes(), batch[i].scalar_type()));
    for (size_t d = 0; d < inputs_[i].dimensions.size(); ++d) {
      const std::string& symbol = inputs_[i].dimensions[d].symbol;
      if (symbol.empty() || !ranges_.contains(symbol)) continue;
      const auto [known, fresh] = bound.emplace(symbol, batch[i].size(d));
      if (fresh || known->second == batch[i].size(d)) continue;
      return ConfigurationError(fmt::format(
          "its input {} has {} in dimension {}, where another input of the same size has {}",
          inputs_[i].name, batch[i].size(d), d, known->second));
    }
  }
  return absl::OkStatus();
}

absl::Status RefuseBatch(const std::string& path, const Shapes& shapes, int64_t examples) {
  const Range range = shapes.batch();
  const std::string admitted =
      range.least == range.most    ? fmt::format("exactly {} examples", range.least)
      : range.most == Range{}.most ? fmt::format("{} examples or more", range.least)
                                   : fmt::format("{} to {} examples", range.least, range.most);
  return ConfigurationError(fmt::format(
      "{} was exported for batches of {}, and a replica's part of a batch has {}: export it with "
      "dynamic_shapes={{\"{}\": {{0: torch.export.Dim(\"batch\", min=1)}}}}, or choose a "
      "global_batch_size (and drop_remainder) that gives every replica such parts",
      path, admitted, examples, shapes.inputs().front().name));
}

}  // namespace muster::exported
