#include "deploy/commands/new_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "deploy/own_folder.h"
#include "deploy/template/templates.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

bool IsName(const std::string& name) {
  return !name.empty() && std::isalpha(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return c < 0x80 && (std::isalnum(c) || c == '_'); });
}

std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

absl::Status CheckEmpty(const fs::path& directory) {
  std::error_code error;
  const fs::file_status status = fs::status(directory, error);
  if (!fs::exists(status)) return absl::OkStatus();
  if (!fs::is_directory(status))
    return ConfigurationError(
        fmt::format("'{}' is a file: name a folder that is not there yet", directory.string()));
  const bool empty = fs::is_empty(directory, error);
  if (error)
    return ConfigurationError(
        fmt::format("cannot read the folder '{}': {}", directory.string(), error.message()));
  if (empty) return absl::OkStatus();
  return ConfigurationError(
      fmt::format("the folder '{}' is not empty: name another one", directory.string()));
}

class NewCommand : public Command {
 public:
  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app = muster.add_subcommand(
        "new",
        "Write a small project with a program of your own: it builds and trains without changes");
    app->add_option("DIR", directory_, "The folder to make")->required();
    app->add_option("--name", name_, "The program's name: letters, digits and '_'")
        ->default_str("the folder's");
    return app;
  }

  int Run() override { return ReportStatus("new", Write()); }

 private:
  absl::Status Write() {
    const std::string name =
        name_.empty() ? fs::absolute(directory_ + "/.").parent_path().filename().string() : name_;
    MUSTER_ASSIGN_OR_RETURN(const std::string folder, OwnFolder());
    const std::string root = fs::path(folder).parent_path().string();
    MUSTER_RETURN_IF_ERROR(WriteProject(directory_, name, root));
    fmt::print(
        "{0} is ready. Build it, and train it with two workers:\n"
        "  cd {0} && cmake -B build -DMuster_ROOT={1} && cmake --build build\n"
        "  {1}/bin/muster launch --workers 2 --job job.json\n"
        "The parts of program.cc to change are marked EDIT. README.md has more.\n",
        directory_, root);
    return absl::OkStatus();
  }

  std::string directory_, name_;
};

}  // namespace

std::unique_ptr<Command> MakeNewCommand() { return std::make_unique<NewCommand>(); }

std::string ClassName(const std::string& name) {
  std::string result;
  bool upper = true;
  for (const char c : name) {
    if (c != '_')
      result += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = c == '_';
  }
  return result;
}

absl::Status WriteProject(const std::string& directory, const std::string& name,
                          const std::string& root) {
  if (!IsName(name)) {
    return ConfigurationError(fmt::format(
        "'{}' is not a valid program name: give --name, with letters, digits and '_' only and a "
        "letter first",
        name));
  }
  MUSTER_RETURN_IF_ERROR(CheckEmpty(directory));
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    return ConfigurationError(
        fmt::format("cannot make the folder '{}': {}", directory, error.message()));
  }
  for (int i = 0; i < kNumTemplateFiles; ++i) {
    const std::string file = directory + "/" + kTemplateFiles[i].name;
    std::string text = Replaced(kTemplateFiles[i].text, "{{NAME}}", name);
    text = Replaced(std::move(text), "{{CLASS}}", ClassName(name) + "Program");
    std::ofstream out(file, std::ios::binary);
    out << Replaced(std::move(text), "{{ROOT}}", root);
    out.close();
    if (!out) return absl::UnavailableError(fmt::format("cannot write {}", file));
  }
  return absl::OkStatus();
}

}  // namespace muster
