#include "tests/unit/exported/test_file.h"

#include <caffe2/serialize/inline_container.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/exported/graph/archive.h"

namespace muster::exported {
namespace {

Json SizesOf(at::IntArrayRef sizes) {
  Json list = Json::array();
  for (const int64_t size : sizes) {
    if (size >= 0) {
      list.push_back({{"as_int", size}});
    } else {
      list.push_back({{"as_expr",
                       {{"expr_str", size == -1 ? "Symbol('s0', positive=True, integer=True)"
                                                : "Symbol('s1', positive=True, integer=True)"}}}});
    }
  }
  return list;
}

int64_t SchemaNumber(at::ScalarType type) {
  for (int64_t number = 1; number < 64; ++number) {
    try {
      if (ScalarTypeOfSchema(number) == type) return number;
    } catch (const c10::Error&) {
    }
  }
  return 0;
}

std::string Placeholder(const std::string& prefix, std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  return prefix + name;
}

}  // namespace

std::string TempPath(const std::string& name) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const auto folder =
      std::filesystem::path(testing::TempDir()) / test->test_suite_name() / test->name();
  std::filesystem::create_directories(folder);
  return (folder / name).string();
}

TestFile::TestFile() {
  program_ = {{"graph_module",
               {{"graph",
                 {{"inputs", Json::array()},
                  {"outputs", Json::array()},
                  {"nodes", Json::array()},
                  {"tensor_values", Json::object()},
                  {"sym_int_values", Json::object()},
                  {"sym_bool_values", Json::object()}}},
                {"signature", {{"input_specs", Json::array()}, {"output_specs", Json::array()}}},
                {"module_call_graph", Json::array()}}},
              {"opset_version", {{"aten", 10}}},
              {"range_constraints", {{"s0", {{"min_val", 1}, {"max_val", nullptr}}}}},
              {"schema_version", {{"major", 8}, {"minor", 17}}},
              {"torch_version", "2.11.0"}};
}

void TestFile::Add(const std::string& kind, const std::string& prefix, const std::string& name,
                   Json extra) {
  const std::string placeholder = Placeholder(prefix, name);
  graph()["inputs"].push_back(Value(placeholder));
  extra["arg"] = {{"name", placeholder}};
  signature()["input_specs"].push_back({{kind, extra}});
}

void TestFile::Store(const std::string& folder, const std::string& file, const std::string& name,
                     const at::Tensor& tensor, bool parameter, bool requires_grad, Json* config) {
  const at::Tensor dense = tensor.detach().contiguous();
  members_[folder + file] =
      std::string(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
  (*config)[name] = {{"path_name", file},
                     {"is_param", parameter},
                     {"use_pickle", false},
                     {"tensor_meta",
                      {{"dtype", SchemaNumber(dense.scalar_type())},
                       {"sizes", SizesOf(dense.sizes())},
                       {"requires_grad", requires_grad},
                       {"device", {{"type", "cpu"}, {"index", nullptr}}},
                       {"strides", SizesOf(dense.strides())},
                       {"storage_offset", {{"as_int", 0}}},
                       {"layout", 7}}}};
}

TestFile& TestFile::Input(const std::string& name, const std::vector<int64_t>& sizes,
                          at::ScalarType dtype) {
  graph()["inputs"].push_back(Value(name));
  graph()["tensor_values"][name] = {{"dtype", SchemaNumber(dtype)}, {"sizes", SizesOf(sizes)}};
  signature()["input_specs"].push_back({{"user_input", {{"arg", Value(name)}}}});
  return *this;
}
TestFile& TestFile::Parameter(const std::string& name, const at::Tensor& tensor,
                              bool requires_grad) {
  Add("parameter", "p_", name, {{"parameter_name", name}});
  Store("data/weights/", "weight_" + std::to_string(members_.size()), name, tensor, true,
        requires_grad, &weights_);
  return *this;
}
TestFile& TestFile::Tied(const std::string& name, const std::string& other) {
  Add("parameter", "p_", name, {{"parameter_name", name}});
  weights_[name] = weights_[other];
  return *this;
}
TestFile& TestFile::Buffer(const std::string& name, const at::Tensor& tensor, bool persistent) {
  Add("buffer", "b_", name, {{"buffer_name", name}, {"persistent", persistent}});
  const std::string number = std::to_string(members_.size());
  if (persistent) {
    Store("data/weights/", "weight_" + number, name, tensor, false, false, &weights_);
  } else {
    Store("data/constants/", "tensor_" + number, name, tensor, false, false, &constants_);
  }
  return *this;
}
TestFile& TestFile::Constant(const std::string& name, const at::Tensor& tensor) {
  Add("tensor_constant", "c_", name, {{"tensor_constant_name", name}});
  Store("data/constants/", "tensor_" + std::to_string(members_.size()), name, tensor, false, false,
        &constants_);
  return *this;
}

TestFile& TestFile::Node(const std::string& target, const Arguments& arguments,
                         const std::vector<Json>& outputs, const std::string& line) {
  Json inputs = Json::array();
  for (const auto& [name, argument] : arguments) {
    inputs.push_back({{"name", name}, {"arg", argument}, {"kind", 1}});
  }
  Json metadata = Json::object();
  if (!line.empty()) metadata["stack_trace"] = line;
  graph()["nodes"].push_back(
      {{"target", target}, {"inputs", inputs}, {"outputs", outputs}, {"metadata", metadata}});
  return *this;
}
TestFile& TestFile::Aten(const std::string& target, const Arguments& arguments,
                         const std::string& output) {
  return Node("torch.ops.aten." + target, arguments, {Value(output)});
}
TestFile& TestFile::Output(const std::string& name, int64_t dimensions) {
  graph()["outputs"].push_back(Value(name));
  // An input that comes out is known already.
  graph()["tensor_values"].emplace(
      name, Json{{"dtype", 7}, {"sizes", SizesOf(std::vector<int64_t>(dimensions, 1))}});
  signature()["output_specs"].push_back({{"user_output", {{"arg", Value(name)}}}});
  return *this;
}
TestFile& TestFile::OutputSpec(Json spec) {
  signature()["output_specs"].back() = std::move(spec);
  return *this;
}
TestFile& TestFile::Range(const std::string& symbol, Json least, Json most) {
  program_["range_constraints"][symbol] = {{"min_val", least}, {"max_val", most}};
  return *this;
}

std::string TestFile::Write(const std::string& name) {
  const std::string path = TempPath(name);
  std::map<std::string, std::string> members = members_;
  members.emplace("models/model.json", program_.dump());
  members.emplace("data/weights/model_weights_config.json", Json{{"config", weights_}}.dump());
  members.emplace("data/constants/model_constants_config.json",
                  Json{{"config", constants_}}.dump());
  members.emplace("archive_format", "pt2");
  caffe2::serialize::PyTorchStreamWriter writer(path);
  for (const auto& [member, bytes] : members) {
    if (bytes != "absent") writer.writeRecord(member, bytes.data(), bytes.size());
  }
  writer.writeEndOfFile();
  return path;
}

}  // namespace muster::exported
