#include "examples/programs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "common/exported/program.h"

namespace muster {
namespace {

struct BuiltIn {
  const char* name;
  std::unique_ptr<Program> (*make)();
};
constexpr BuiltIn kBuiltIn[] = {
    {"fashion_mnist", MakeFashionMnist},
    {"linear", MakeLinear},
    {"matrix_factorization", MakeMatrixFactorization},
};

bool EndsWith(const std::string& text, std::string_view ending) {
  return text.size() >= ending.size() &&
         text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

absl::Status Unknown(const std::string& name) {
  std::vector<std::string> names;
  for (const BuiltIn& program : kBuiltIn) names.emplace_back(program.name);
  const std::string nearest = Nearest(name, names);
  return ConfigurationError(
      nearest.empty()
          ? fmt::format("program \"{}\" is unknown; built-in programs: {}", name,
                        fmt::join(names, ", "))
          : fmt::format("program \"{}\" is unknown, did you mean \"{}\"?", name, nearest));
}

}  // namespace

absl::StatusOr<ProgramFactory> FindProgram(const Json& program) {
  if (program.is_null()) return ConfigurationError("the job names no program: set \"program\"");
  if (exported::IsExported(program)) return exported::MakeExportedProgram(program);
  if (program.is_object()) {
    return ConfigurationError(fmt::format(
        "program {} is an object without \"exported\"{}: write the model with torch.export.save "
        "and "
        "name that file, as in {{\"exported\": \"model.pt2\", \"loss\": \"cross_entropy\"}}",
        Dump(program),
        program.contains("torchscript") ? ", and PyTorch has deprecated TorchScript" : ""));
  }
  if (!program.is_string()) {
    return ConfigurationError(
        fmt::format("program must be the name of a built-in program, is {}", program.dump()));
  }
  const std::string name = program.get<std::string>();
  for (const BuiltIn& built_in : kBuiltIn) {
    if (name == built_in.name) return ProgramFactory(built_in.make);
  }
  if (EndsWith(name, ".so")) {
    return ConfigurationError(fmt::format(
        "program \"{}\" is a plugin, and plugins are not supported yet: name a built-in program",
        name));
  }
  return Unknown(name);
}

}  // namespace muster
