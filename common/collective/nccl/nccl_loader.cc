#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <utility>

#include "common/collective/nccl/nccl.h"

namespace muster::collective {
namespace {

// The functions of the module. Its file is in the library folder beside the program's folder.
struct Module {
  NcclFactory make = nullptr;
  CudaUuidsReader uuids = nullptr;
};

absl::StatusOr<Module> Load() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  std::string why = "no such file";
  for (const char* folder : {"../lib", MUSTER_MODULE_FOLDER}) {
    const std::string path = (program.parent_path() / folder / "muster_nccl.so").string();
    if (!std::filesystem::exists(path, error)) continue;
    if (void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); module != nullptr) {
      void* const make = dlsym(module, "MusterMakeNcclCommunicators");
      void* const uuids = dlsym(module, "MusterCudaUuids");
      if (make != nullptr && uuids != nullptr)
        return Module{reinterpret_cast<NcclFactory>(make),
                      reinterpret_cast<CudaUuidsReader>(uuids)};
    }
    why = dlerror();
    break;
  }
  return ConfigurationError(fmt::format(
      "Cannot load the NCCL backend, muster_nccl.so: {}. Training on CUDA devices needs a build "
      "with CUDA and NCCL; or set devices to cpu.",
      why));
}

const absl::StatusOr<Module>& Loaded() {
  static const absl::StatusOr<Module> module = Load();
  return module;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> CudaUuids(const std::vector<int>& devices) {
  MUSTER_RETURN_IF_ERROR(Loaded().status());
  CudaUuidsRequest request{devices, absl::UnknownError("")};
  Loaded()->uuids(&request);
  return std::move(request.result);
}

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> MakeNcclCommunicators(
    std::unique_ptr<Communicator> group, const std::vector<int>& replicas_per_rank,
    const NcclOptions& options, const std::function<bool()>& aborted) {
  MUSTER_RETURN_IF_ERROR(Loaded().status());
  NcclRequest request{std::move(group), replicas_per_rank, options, aborted,
                      absl::UnknownError("")};
  Loaded()->make(&request);
  return std::move(request.result);
}

}  // namespace muster::collective
