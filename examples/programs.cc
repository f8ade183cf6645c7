#include "examples/programs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "common/exported/program.h"
#include "common/job/program_path.h"
#include "common/train/plugin.h"
#include "examples/programs/builtin.h"

namespace muster {
namespace {

struct BuiltIn {
  const char* name;
  std::unique_ptr<Program> (*make)();
};
constexpr BuiltIn kBuiltIn[] = {
    {"cyclegan", MakeCycleGan},
    {"fashion_mnist", MakeFashionMnist},
    {"image_classifier", MakeImageClassifier},
    {"language_model", MakeLanguageModel},
    {"linear", MakeLinear},
    {"matrix_factorization", MakeMatrixFactorization},
    {"recommender", MakeRecommender},
};

absl::Status Unknown(const std::string& name) {
  std::vector<std::string> names;
  for (const BuiltIn& program : kBuiltIn) names.emplace_back(program.name);
  const std::string nearest = Nearest(name, names);
  return ConfigurationError(
      nearest.empty()
          ? fmt::format("program \"{}\" is unknown; built-in programs: {}; a program of your own "
                        "is named by its path, as in \"./{}.so\"",
                        name, fmt::join(names, ", "), name)
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
  if (!ProgramFile(program).empty()) return LoadPlugin(name);
  return Unknown(name);
}

}  // namespace muster
