#include "deploy/bundle/contents.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "common/base/files/files.h"
#include "deploy/bundle/archive.h"
#include "deploy/bundle/licenses.h"
#include "muster/json.h"
#include "muster/version.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrograms[] = {"muster",    "muster-chief", "muster-evaluator",
                                     "muster-ps", "muster-tool",  "muster-worker"};
constexpr char kNccl[] = "muster_nccl.so";

// Search paths of files in bin/ and programs/, and of files in lib/.
constexpr char kFromBeside[] = "$ORIGIN/../lib", kFromLib[] = "$ORIGIN";

bool IsFile(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// Returns the first of `places`, relative to `bin_dir`, that is a file, or "".
std::string Beside(const std::string& bin_dir, const std::vector<std::string>& places) {
  for (const std::string& place : places)
    if (const std::string path = bin_dir + "/" + place; IsFile(path)) return path;
  return "";
}

class Planner {
 public:
  explicit Planner(const BundleRequest& request) : request_(request) {}

  absl::StatusOr<Bundle> Plan() {
    for (const char* name : kPrograms) {
      const std::string path = request_.bin_dir + "/" + name;
      if (!IsFile(path))
        return ConfigurationError(
            fmt::format("{} is missing: build all programs (make programs)", path));
      MUSTER_RETURN_IF_ERROR(Add(fmt::format("bin/{}", name), path, kFromBeside));
    }
    if (request_.cuda) MUSTER_RETURN_IF_ERROR(AddNccl());
    MUSTER_RETURN_IF_ERROR(AddJobPrograms());
    MUSTER_ASSIGN_OR_RETURN(const auto libraries, FindLibraries(files_, request_.folders));
    for (const auto& [name, path] : libraries)
      MUSTER_RETURN_IF_ERROR(Add(fmt::format("lib/{}", name), path, kFromLib));
    AddDocuments(libraries);
    std::sort(bundle_.entries.begin(), bundle_.entries.end(),
              [](const BundleEntry& a, const BundleEntry& b) { return a.name < b.name; });
    return std::move(bundle_);
  }

 private:
  absl::Status Add(const std::string& name, const std::string& path,
                   const std::string& search_path) {
    MUSTER_ASSIGN_OR_RETURN(const ElfFile elf, ElfFile::Read(path));
    bundle_.glibc = std::max(bundle_.glibc, elf.glibc());
    bundle_.entries.push_back({name, path, "", search_path});
    files_.push_back(path);
    return absl::OkStatus();
  }

  absl::Status AddNccl() {
    const std::string path = Beside(
        request_.bin_dir,
        {fmt::format("../lib/{}", kNccl), fmt::format("{}/{}", MUSTER_MODULE_FOLDER, kNccl)});
    if (path.empty())
      return ConfigurationError(
          "this Muster was built without CUDA, so it has nothing for --cuda: leave it out, or "
          "build "
          "Muster with a CUDA LibTorch");
    return Add(fmt::format("lib/{}", kNccl), path, kFromLib);
  }

  absl::Status AddJobPrograms() {
    for (const std::string& path : request_.programs) {
      const std::string name = fmt::format("programs/{}", fs::path(path).filename().string());
      if (!job_programs_.insert(name).second)
        return ConfigurationError(
            fmt::format("two programs would be {}: rename one of them", name));
      MUSTER_RETURN_IF_ERROR(Add(name, path, kFromBeside));
    }
    return absl::OkStatus();
  }

  void AddDocuments(const std::map<std::string, std::string>& libraries) {
    const auto [major, minor] = bundle_.glibc;
    const Json about = {{"version", MUSTER_VERSION},
                        {"devices", request_.cuda ? "cuda" : "cpu"},
                        {"glibc", fmt::format("{}.{}", major, minor)},
                        {"programs", job_programs_}};
    bundle_.entries.push_back({"bundle.json", "", Dump(about, 1) + "\n", ""});
    for (const char* name : {"LICENSE", "muster.spdx.json"}) {
      // The places in a build folder and in an installation.
      const std::string path =
          Beside(request_.bin_dir,
                 {fmt::format("../{}", name), fmt::format("../share/doc/muster/{}", name)});
      if (!path.empty()) bundle_.entries.push_back({fmt::format("doc/{}", name), path, "", ""});
    }
    for (const auto& [name, path] : FindLicenses(libraries))
      bundle_.entries.push_back({fmt::format("doc/licenses/{}", name), path, "", ""});
  }

  const BundleRequest& request_;
  Bundle bundle_;
  std::vector<std::string> files_;
  std::set<std::string> job_programs_;
};

absl::Status AddBinary(const BundleEntry& entry, const std::string& name, ArchiveWriter* archive,
                       uint64_t* size) {
  MUSTER_ASSIGN_OR_RETURN(ElfFile elf, ElfFile::Read(entry.path));
  // If a library has no search path, the loader uses that of the program.
  if (!elf.SetSearchPath(entry.search_path)) {
    elf.RemoveSearchPath();
    if (entry.name.starts_with("bin/"))
      return ConfigurationError(fmt::format(
          "{} has no search path to replace: link it with -rpath {}", entry.path, kFromBeside));
  }
  elf.DropSymbols();
  *size += elf.bytes().size();
  return archive->Add(name, elf.bytes(), entry.name.starts_with("bin/"));
}

}  // namespace

absl::StatusOr<Bundle> PlanBundle(const BundleRequest& request) { return Planner(request).Plan(); }

absl::StatusOr<uint64_t> WriteBundle(const Bundle& bundle, const std::string& path,
                                     int compression) {
  MUSTER_ASSIGN_OR_RETURN(ArchiveWriter archive, ArchiveWriter::Open(path, compression));
  uint64_t size = 0;
  for (const BundleEntry& entry : bundle.entries) {
    const std::string name = fmt::format("{}/{}", kBundleFolder, entry.name);
    if (!entry.search_path.empty()) {
      MUSTER_RETURN_IF_ERROR(AddBinary(entry, name, &archive, &size));
      continue;
    }
    std::string text = entry.text;
    if (!entry.path.empty()) {
      MUSTER_ASSIGN_OR_RETURN(text, ReadTextFile(entry.path));
    }
    size += text.size();
    MUSTER_RETURN_IF_ERROR(archive.Add(name, text, /*executable=*/false));
  }
  MUSTER_RETURN_IF_ERROR(archive.Finish());
  return size;
}

}  // namespace muster
