// muster-bundle, which `muster bundle` runs. It is a separate program because no other command
// needs libarchive.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "common/base/logging.h"
#include "common/process/command_line.h"
#include "deploy/bundle/archive.h"
#include "deploy/bundle/contents.h"
#include "deploy/command.h"
#include "deploy/own_folder.h"
#include "muster/version.h"

namespace muster {
namespace {

struct Arguments {
  BundleRequest request;
  std::string output;
  bool cpu = false;
  int compression = 9;
};

absl::Status MakeBundle(Arguments arguments) {
  if (arguments.cpu && arguments.request.cuda)
    return ConfigurationError("--cpu and --cuda exclude each other: give one of them");
  if (arguments.compression < kMinCompression || arguments.compression > kMaxCompression)
    return ConfigurationError(fmt::format("--compression must be from {} to {}, is {}",
                                          kMinCompression, kMaxCompression, arguments.compression));
  MUSTER_ASSIGN_OR_RETURN(arguments.request.bin_dir, OwnFolder());
  arguments.request.folders = ReadLoaderFolders(std::getenv("LD_LIBRARY_PATH"), "/etc/ld.so.conf");
  MUSTER_ASSIGN_OR_RETURN(const Bundle bundle, PlanBundle(arguments.request));
  MUSTER_ASSIGN_OR_RETURN(const uint64_t size,
                          WriteBundle(bundle, arguments.output, arguments.compression));
  fmt::print("wrote {}: {}, {} MB unpacked, for hosts with glibc {}.{} or newer\n",
             arguments.output, arguments.request.cuda ? "CPU and CUDA" : "CPU only",
             size / 1'000'000, bundle.glibc.first, bundle.glibc.second);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  InitLogging("");
  CLI::App app("Muster", "muster");
  app.set_version_flag("--version", MUSTER_VERSION);
  app.require_subcommand(1);
  Arguments arguments;
  CLI::App* bundle = app.add_subcommand(
      "bundle", "Write programs and libraries as an archive, for hosts where nothing is installed");
  bundle->add_option("OUT", arguments.output, "The archive to write: NAME.tar.zst, or NAME.tar.gz")
      ->required();
  AddRepeated(bundle, "--program", &arguments.request.programs, "FILE",
              "The program of a job, built as a shared library; may be repeated");
  bundle->add_flag("--cuda", arguments.request.cuda, "Add the libraries for training on GPUs");
  bundle->add_flag("--cpu", arguments.cpu, "Omit these libraries (the default)");
  bundle->add_option("--compression", arguments.compression, "From 1, quick, to 19, small")
      ->type_name("N")
      ->capture_default_str();
  if (const std::optional<int> code = ParseCommandLine(app, argc, argv)) return *code;
  return ReportStatus("bundle", MakeBundle(std::move(arguments)));
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
