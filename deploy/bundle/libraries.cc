#include "deploy/bundle/libraries.h"

#include <absl/strings/str_replace.h>
#include <absl/strings/str_split.h>
#include <fmt/format.h>
#include <glob.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <utility>

#include "common/base/files/files.h"
#include "common/base/glob.h"
#include "deploy/bundle/elf_file.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// The limit of nested includes, because files may include each other.
constexpr int kMaxIncludes = 8;

// A library that loads others at run time (dlopen) from the same folder.
struct LoadedLater {
  const char *library, *pattern;
};
constexpr LoadedLater kLoadedLater[] = {
    // For linear algebra, and for kernels that LibTorch compiles at run time.
    {"libtorch_cuda.so", "libtorch_cuda_linalg.so"},
    {"libtorch_cuda.so", "libcaffe2_nvrtc.so"},
    {"libcudnn.so.*", "libcudnn_*.so.*"},
    {"libnvrtc.so.*", "libnvrtc-builtins.so.*"},
};

void ReadLdSoConf(const std::string& path, int depth, std::vector<std::string>* folders) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    line = line.substr(0, line.find('#'));
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t:,"), absl::SkipEmpty());
    if (words.empty()) continue;
    if (words[0] != "include") {
      folders->insert(folders->end(), words.begin(), words.end());
      continue;
    }
    for (size_t i = 1; i < words.size() && depth < kMaxIncludes; ++i) {
      glob_t found{};
      const std::string pattern = PathFrom(fs::path(path).parent_path().string(), words[i]);
      if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
        for (size_t j = 0; j < found.gl_pathc; ++j)
          ReadLdSoConf(found.gl_pathv[j], depth + 1, folders);
      }
      globfree(&found);
    }
  }
}

// Returns the folders of a search path. Skips empty parts, which mean the current folder, because a
// bundle must not depend on it.
std::vector<std::string> SearchFolders(const std::string& path, const std::string& file) {
  const std::string origin = fs::path(file).parent_path().string();
  std::vector<std::string> folders = absl::StrSplit(path, ':', absl::SkipEmpty());
  for (std::string& folder : folders)
    folder = absl::StrReplaceAll(folder, {{"${ORIGIN}", origin}, {"$ORIGIN", origin}});
  return folders;
}

class Finder {
 public:
  explicit Finder(const LoaderFolders& folders) : folders_(folders) {}

  absl::StatusOr<std::map<std::string, std::string>> Find(const std::vector<std::string>& files) {
    for (const std::string& file : files) waiting_.push_back({file, {}});
    while (!waiting_.empty()) {
      const Waiting next = std::move(waiting_.front());
      waiting_.pop_front();
      MUSTER_RETURN_IF_ERROR(FindFor(next));
    }
    return std::move(found_);
  }

 private:
  struct Waiting {
    std::string path;
    // The DT_RPATH folders of the file that loads it.
    std::vector<std::string> inherited;
  };

  absl::Status FindFor(const Waiting& file) {
    MUSTER_ASSIGN_OR_RETURN(const ElfFile elf, ElfFile::Read(file.path));
    if (machine_ == 0) machine_ = elf.machine();
    if (elf.machine() != machine_)
      return ConfigurationError(
          fmt::format("{} is for another kind of processor than Muster", file.path));
    std::vector<std::string> own = SearchFolders(elf.search_path(), file.path);
    std::vector<std::string> places, rpath;
    if (!elf.has_runpath()) {
      rpath = own;
      rpath.insert(rpath.end(), file.inherited.begin(), file.inherited.end());
      own.clear();
    }
    for (const auto* more : {static_cast<const std::vector<std::string>*>(&rpath), &folders_.first,
                             static_cast<const std::vector<std::string>*>(&own), &folders_.system})
      places.insert(places.end(), more->begin(), more->end());
    for (const std::string& name : elf.needed()) {
      // The loader does not search again for a library that is loaded.
      if (BelongsToHost(name) || found_.contains(name)) continue;
      const std::string path = Look(name, places);
      if (path.empty())
        return ConfigurationError(fmt::format(
            "{} needs {}, which is in no folder that the loader searches: install it, or name its "
            "folder in LD_LIBRARY_PATH",
            file.path, name));
      Add(name, path, rpath);
    }
    return absl::OkStatus();
  }

  std::string Look(const std::string& name, const std::vector<std::string>& places) const {
    for (const std::string& folder : places) {
      const std::string path = folder + "/" + name;
      std::error_code error;
      if (!fs::is_regular_file(path, error)) continue;
      const absl::StatusOr<ElfFile> elf = ElfFile::Read(path);
      if (elf.ok() && elf->machine() == machine_) return path;
    }
    return "";
  }

  void Add(const std::string& name, const std::string& path,
           const std::vector<std::string>& inherited) {
    if (!found_.emplace(name, path).second) return;
    waiting_.push_back({path, inherited});
    std::error_code error;
    for (const auto& [library, pattern] : kLoadedLater) {
      if (!MatchesGlob(library, name)) continue;
      for (const fs::directory_entry& entry :
           fs::directory_iterator(fs::path(path).parent_path(), error)) {
        const std::string sibling = entry.path().filename().string();
        if (MatchesGlob(pattern, sibling) && sibling.find(".alt.") == std::string::npos)
          Add(sibling, entry.path().string(), inherited);
      }
    }
  }

  const LoaderFolders& folders_;
  int machine_ = 0;
  std::deque<Waiting> waiting_;
  std::map<std::string, std::string> found_;
};

}  // namespace

LoaderFolders ReadLoaderFolders(const char* library_path, const std::string& ld_so_conf) {
  LoaderFolders folders;
  if (library_path != nullptr)
    folders.first = absl::StrSplit(library_path, absl::ByAnyChar(":;"), absl::SkipEmpty());
  ReadLdSoConf(ld_so_conf, 0, &folders.system);
  for (const char* folder : {"/lib64", "/usr/lib64", "/lib", "/usr/lib"})
    folders.system.push_back(folder);
  return folders;
}

bool BelongsToHost(std::string_view name) {
  // glibc's libraries work only with the loader of the same glibc.
  for (const char* pattern :
       {"ld-linux*", "libc.so.*", "libm.so.*", "libmvec.so.*", "libdl.so.*", "libpthread.so.*",
        "librt.so.*", "libutil.so.*", "libresolv.so.*", "libanl.so.*", "libnss_*.so.*",
        "libthread_db.so.*", "libc_malloc_debug.so.*", "libBrokenLocale.so.*",
        // NVIDIA's driver.
        "libcuda.so.*", "libnvidia-*.so.*"})
    if (MatchesGlob(pattern, name)) return true;
  return false;
}

absl::StatusOr<std::map<std::string, std::string>> FindLibraries(
    const std::vector<std::string>& files, const LoaderFolders& folders) {
  return Finder(folders).Find(files);
}

}  // namespace muster
