#include "common/job/program_path.h"

#include <fmt/format.h>

#include <filesystem>

#include "common/base/files/files.h"

namespace muster {
namespace {

constexpr char kExported[] = "exported";

}  // namespace

std::string ProgramFile(const Json& program) {
  if (program.is_string()) {
    const auto& name = program.get_ref<const std::string&>();
    return name.find('/') != std::string::npos || name.ends_with(".so") ? name : "";
  }
  if (!program.is_object()) return "";
  const auto exported = program.find(kExported);
  return exported != program.end() && exported->is_string() ? exported->get<std::string>() : "";
}

Json WithProgramFile(Json program, const std::string& path) {
  (program.is_object() ? program[kExported] : program) = path;
  return program;
}

void ResolveProgramFile(const std::string& folder, Json* program) {
  const std::string file = ProgramFile(*program);
  if (file.empty()) return;
  const std::string path = std::filesystem::path(PathFrom(folder, file)).lexically_normal();
  *program = WithProgramFile(*program, path);
}

Json PortableProgram(Json program) {
  const std::string file = ProgramFile(program);
  if (file.empty()) return program;
  return WithProgramFile(std::move(program), std::filesystem::path(file).filename().string());
}

absl::Status AddProgramDigest(const Json& program, Json* digests) {
  const std::string file = ProgramFile(program);
  if (file.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> digest = FileDigest(file);
  if (!digest.ok()) {
    return ConfigurationError(fmt::format(
        "program: {} A path is relative to the folder of the job file.", Message(digest.status())));
  }
  (*digests)["program"] = *digest;
  return absl::OkStatus();
}

}  // namespace muster
