#include "common/exported/graph/arguments.h"

#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <fmt/format.h>

#include <limits>
#include <map>

#include "common/base/json/json_integer.h"
#include "common/exported/graph/archive.h"

namespace muster::exported {
namespace {

using c10::IValue;

// The numbers of layouts and memory formats in the schema differ from LibTorch's.
int64_t LayoutOf(const Json& json) {
  static const std::map<int64_t, c10::Layout> kLayouts = {
      {1, c10::Layout::Sparse},    {2, c10::Layout::SparseCsr}, {3, c10::Layout::SparseCsc},
      {4, c10::Layout::SparseBsr}, {5, c10::Layout::SparseBsc}, {6, c10::Layout::Mkldnn},
      {7, c10::Layout::Strided}};
  return static_cast<int64_t>(kLayouts.at(JsonInteger(json)));
}
int64_t MemoryFormatOf(const Json& json) {
  static const std::map<int64_t, c10::MemoryFormat> kFormats = {
      {1, c10::MemoryFormat::Contiguous},
      {2, c10::MemoryFormat::ChannelsLast},
      {3, c10::MemoryFormat::ChannelsLast3d},
      {4, c10::MemoryFormat::Preserve}};
  return static_cast<int64_t>(kFormats.at(JsonInteger(json)));
}

// Parses a JSON number, or the text "Infinity", "-Infinity" or "NaN".
double ParseFloat(const Json& json) {
  if (!json.is_string()) return json.get<double>();
  const std::string text = json.get<std::string>();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  TORCH_CHECK(text == "NaN", "\"", text, "\" is no number");
  return std::numeric_limits<double>::quiet_NaN();
}

// Parses the union types within arguments: {"as_name": ...}, {"as_int": ...}, {"as_tensor": ...},
// ...
ParsedItem Item(const Json& json) {
  const auto [tag, value] = MemberOf(json, "an argument");
  if (tag == "as_name") return {value.get<std::string>(), {}};
  if (tag == "as_tensor") return {value.at("name").get<std::string>(), {}};
  if (tag == "as_int") return {"", int64_t{JsonInteger(value)}};
  if (tag == "as_float") return {"", ParseFloat(value)};
  if (tag == "as_bool") return {"", value.get<bool>()};
  if (tag == "as_none") return {"", IValue()};
  throw Unsupported(fmt::format("it has an argument of the kind {}", tag), "");
}

using Parser = std::function<ParsedArgument(const Json&, c10::Device)>;

ParsedArgument One(ParsedItem item) { return {false, {std::move(item)}, nullptr}; }
template <typename Convert>
Parser Constant(Convert convert) {
  return [convert](const Json& value, c10::Device) { return One({"", IValue(convert(value))}); };
}
template <typename Convert>
Parser Constants(Convert convert) {
  return [convert](const Json& value, c10::Device) {
    ParsedArgument parsed{true, {}, nullptr};
    for (const Json& item : value) parsed.items.push_back({"", IValue(convert(item))});
    return parsed;
  };
}
ParsedArgument Named(const Json& value, c10::Device) {
  return One({value.at("name").get<std::string>(), {}});
}
ParsedArgument NamedList(const Json& value, c10::Device) {
  ParsedArgument parsed{true, {}, nullptr};
  for (const Json& item : value) parsed.items.push_back({item.at("name").get<std::string>(), {}});
  return parsed;
}
ParsedArgument Union(const Json& value, c10::Device) { return One(Item(value)); }
ParsedArgument UnionList(const Json& value, c10::Device) {
  ParsedArgument parsed{true, {}, nullptr};
  for (const Json& item : value) parsed.items.push_back(Item(item));
  return parsed;
}
ParsedArgument DeviceArgument(const Json& value, c10::Device device) {
  const bool meta = value.at("type").get<std::string>() == "meta";
  return One({"", IValue(meta ? c10::Device(c10::kMeta) : device)});
}
ParsedArgument GraphArgument(const Json& value, c10::Device) {
  return {false, {{"", IValue()}}, &value.at("graph")};
}

int64_t ToInt(const Json& json) { return JsonInteger(json); }
bool ToBool(const Json& json) { return json.get<bool>(); }
std::string ToString(const Json& json) { return json.get<std::string>(); }
int64_t ToScalarType(const Json& json) {
  return static_cast<int64_t>(ScalarTypeOfSchema(int64_t{JsonInteger(json)}));
}
c10::complex<double> ToComplex(const Json& json) {
  return {ParseFloat(json.at("real")), ParseFloat(json.at("imag"))};
}

}  // namespace

Member MemberOf(const Json& json, const char* what) {
  TORCH_CHECK(json.is_object() && json.size() == 1, what, " is no union");
  // Does not call items(), because its elements live only as long as its iterator.
  const auto member = json.begin();
  return {member.key(), member.value()};
}

ParsedArgument ParseArgument(const Json& argument, c10::Device device) {
  static const std::map<std::string, Parser> kParsers = {
      {"as_none",
       [](const Json&, c10::Device) {
         return One({"", IValue()});
       }},
      {"as_tensor", Named},
      {"as_tensors", NamedList},
      {"as_optional_tensor", Union},
      {"as_optional_tensors", UnionList},
      {"as_int", Constant(ToInt)},
      {"as_ints", Constants(ToInt)},
      {"as_float", Constant(ParseFloat)},
      {"as_floats", Constants(ParseFloat)},
      {"as_bool", Constant(ToBool)},
      {"as_bools", Constants(ToBool)},
      {"as_string", Constant(ToString)},
      {"as_strings", Constants(ToString)},
      {"as_complex", Constant(ToComplex)},
      {"as_sym_int", Union},
      {"as_sym_ints", UnionList},
      {"as_sym_float", Union},
      {"as_sym_floats", UnionList},
      {"as_sym_bool", Union},
      {"as_sym_bools", UnionList},
      {"as_scalar_type", Constant(ToScalarType)},
      {"as_memory_format", Constant(MemoryFormatOf)},
      {"as_layout", Constant(LayoutOf)},
      {"as_device", DeviceArgument},
      {"as_graph", GraphArgument},
  };
  const auto [tag, value] = MemberOf(argument, "an argument");
  const auto parser = kParsers.find(tag);
  if (parser == kParsers.end()) {
    // No operator of LibTorch takes as_custom_obj, as_operator, as_nested_tensors, as_int_lists or
    // as_string_to_argument.
    throw Unsupported(fmt::format("it has an argument of the kind {}", tag),
                      "write it with torch's own operators");
  }
  return parser->second(value, device);
}

}  // namespace muster::exported
