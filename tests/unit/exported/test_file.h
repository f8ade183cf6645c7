// Writes exported programs in the format of torch.export.save, for tests. tests/interop has files
// that Python wrote.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "muster/json.h"

namespace muster::exported {

// ---- Arguments of nodes.
inline Json Value(const std::string& name) { return {{"as_tensor", {{"name", name}}}}; }
inline Json Values(const std::vector<std::string>& names) {
  Json list = Json::array();
  for (const std::string& name : names) list.push_back({{"name", name}});
  return {{"as_tensors", list}};
}
inline Json Size(const std::string& name) { return {{"as_sym_int", {{"as_name", name}}}}; }
inline Json Int(int64_t n) { return {{"as_int", n}}; }
inline Json Ints(const std::vector<int64_t>& n) { return {{"as_ints", n}}; }
inline Json Float(double x) { return {{"as_float", x}}; }
inline Json Bool(bool b) { return {{"as_bool", b}}; }
inline Json None() { return {{"as_none", true}}; }

using Arguments = std::vector<std::pair<std::string, Json>>;

class TestFile {
 public:
  TestFile();

  // A size of -1 is the symbol s0 (the batch), -2 is s1.
  TestFile& Input(const std::string& name, const std::vector<int64_t>& sizes,
                  at::ScalarType dtype = at::kFloat);
  // The placeholder's name is "p_", "b_" or "c_" and the name with underscores in place of dots.
  TestFile& Parameter(const std::string& name, const at::Tensor& tensor, bool requires_grad = true);
  // Adds another name for the tensor of `other`, which must exist.
  TestFile& Tied(const std::string& name, const std::string& other);
  TestFile& Buffer(const std::string& name, const at::Tensor& tensor, bool persistent = true);
  TestFile& Constant(const std::string& name, const at::Tensor& tensor);
  TestFile& Node(const std::string& target, const Arguments& arguments,
                 const std::vector<Json>& outputs, const std::string& line = "");
  // Adds a call of torch.ops.aten.<target> that returns one tensor.
  TestFile& Aten(const std::string& target, const Arguments& arguments, const std::string& output);
  TestFile& Output(const std::string& name, int64_t dimensions = 2);
  TestFile& OutputSpec(Json spec);  // Replaces the spec of the last output.
  TestFile& Range(const std::string& symbol, Json least, Json most);

  // Give access to the JSON, for changes that the functions above do not support.
  Json& program() { return program_; }
  Json& graph() { return program_["graph_module"]["graph"]; }
  Json& signature() { return program_["graph_module"]["signature"]; }
  Json& weights() { return weights_; }
  std::map<std::string, std::string>& members() { return members_; }

  // Placeholders follow the order of the calls above. Returns the path.
  std::string Write(const std::string& name = "model.pt2");

 private:
  void Add(const std::string& kind, const std::string& prefix, const std::string& name, Json extra);
  void Store(const std::string& folder, const std::string& file, const std::string& name,
             const at::Tensor& tensor, bool parameter, bool requires_grad, Json* config);

  Json program_, weights_ = Json::object(), constants_ = Json::object();
  std::map<std::string, std::string> members_;
};

std::string TempPath(const std::string& name);

}  // namespace muster::exported
