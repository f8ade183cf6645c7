#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <utility>

#include "common/collective/nccl.h"

namespace muster {
namespace {

// The module lies in the library folder beside the program's own folder.
absl::StatusOr<NcclFactory> LoadFactory() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  std::string why = "no such file";
  for (const char* folder : {"../lib", MUSTER_MODULE_FOLDER}) {
    const std::string path = (program.parent_path() / folder / "muster_nccl.so").string();
    if (!std::filesystem::exists(path, error)) continue;
    if (void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); module != nullptr) {
      if (void* symbol = dlsym(module, "MusterMakeNcclCommunicators"); symbol != nullptr) {
        return reinterpret_cast<NcclFactory>(symbol);
      }
    }
    why = dlerror();
    break;
  }
  return ConfigurationError(fmt::format(
      "Cannot load the NCCL backend, muster_nccl.so: {}. Training on CUDA devices needs a build "
      "with CUDA and NCCL; or set devices to cpu.",
      why));
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> MakeNcclCommunicators(
    std::unique_ptr<Communicator> group, const std::vector<int>& replicas_per_rank,
    const NcclOptions& options, const std::function<bool()>& aborted) {
  static const absl::StatusOr<NcclFactory> factory = LoadFactory();
  if (!factory.ok()) return factory.status();
  NcclRequest request{std::move(group), replicas_per_rank, options, aborted,
                      absl::UnknownError("")};
  (*factory)(&request);
  return std::move(request.result);
}

}  // namespace muster
