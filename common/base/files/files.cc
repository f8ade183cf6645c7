#include "common/base/files/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "common/base/files/fd.h"
#include "common/base/glob.h"
#include "common/base/hash.h"

namespace muster {
namespace {

constexpr int64_t kBlock = 64 << 10, kBlocks = 256;

// Returns the offset of block `b`. In a large file, blocks are distributed so that the last block
// ends at the end of the file. In other files, they are contiguous.
int64_t StartOf(int64_t b, int64_t size) {
  if (size <= kBlock * kBlocks) return b * kBlock;
  const int64_t spread = size - kBlock, gaps = kBlocks - 1;
  return spread / gaps * b + spread % gaps * b / gaps;
}

namespace fs = std::filesystem;

absl::Status Unreadable(const std::string& path, const std::error_code& error) {
  return DataError(fmt::format("'{}' cannot be read: {}.", path, error.message()));
}

bool Hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

}  // namespace

std::string PathFrom(const std::string& folder, const std::string& path) {
  return path.empty() ? path : (std::filesystem::path(folder) / path).string();
}

absl::StatusOr<std::string> FileDigest(const std::string& path) {
  // O_NONBLOCK: a named pipe is refused below instead of blocking.
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file)
    return DataError(fmt::format("'{}' cannot be opened: {}.", path, std::strerror(errno)));
  struct stat info {};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return DataError(fmt::format("'{}' is not a regular file.", path));
  const int64_t size = info.st_size;
  const int64_t blocks = std::min(kBlocks, (size + kBlock - 1) / kBlock);
  std::vector<char> block(kBlock);
  uint64_t hash = kFnvStart;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t start = StartOf(b, size);
    for (int64_t done = 0; done < std::min(kBlock, size - start);) {
      const ssize_t got = pread(file.get(), block.data() + done, kBlock - done, start + done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0)
        return DataError(fmt::format("'{}' cannot be read: {}.", path, std::strerror(errno)));
      if (got == 0) return DataError(fmt::format("'{}' shrinks while it is read.", path));
      hash = Fnv1a({block.data() + done, static_cast<size_t>(got)}, hash);
      done += got;
    }
  }
  return fmt::format("{} bytes, {:016x}", size, hash);
}

absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, fs::directory_options::follow_directory_symlink,
                                      error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (Hidden(it->path())) {
      it.disable_recursion_pending();
    } else if (std::error_code ignored; it->is_regular_file(ignored)) {
      files.push_back(it->path().lexically_relative(folder).string());
    }
  }
  if (error) return Unreadable(folder, error);
  const auto key = [](const std::string& file) {
    const size_t slash = file.rfind('/');
    const bool below = slash != std::string::npos;
    return std::pair(below ? file.substr(0, slash) : "", below ? file.substr(slash + 1) : file);
  };
  std::sort(files.begin(), files.end(),
            [&](const std::string& a, const std::string& b) { return key(a) < key(b); });
  return files;
}

absl::StatusOr<std::vector<std::string>> ListFolders(const std::string& folder) {
  std::vector<std::string> folders;
  std::error_code error;
  for (fs::directory_iterator it(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored) && !Hidden(it->path()))
      folders.push_back(it->path().filename().string());
  }
  if (error) return Unreadable(folder, error);
  std::sort(folders.begin(), folders.end());
  return folders;
}

absl::StatusOr<std::vector<std::string>> MatchFiles(const std::string& path) {
  const fs::path pattern(path);
  const std::string name = pattern.filename().string();
  std::error_code error;
  if (fs::is_directory(pattern, error)) {
    MUSTER_ASSIGN_OR_RETURN(std::vector<std::string> files, ListFiles(path));
    for (std::string& file : files) file = PathFrom(path, file);
    return files;
  }
  if (name.find_first_of("*?") == std::string::npos || fs::exists(pattern, error))
    return std::vector<std::string>{path};
  std::vector<std::string> files;
  const std::string folder = pattern.has_parent_path() ? pattern.parent_path().string() : ".";
  for (fs::directory_iterator it(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    std::error_code ignored;
    if (!Hidden(it->path()) && it->is_regular_file(ignored) &&
        MatchesGlob(name, it->path().filename().string())) {
      files.push_back((pattern.parent_path() / it->path().filename()).string());
    }
  }
  if (error) return Unreadable(folder, error);
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<std::string> PathDigest(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> files, MatchFiles(path));
  if (files.size() == 1 && files[0] == path) return FileDigest(path);
  std::error_code error;
  const fs::path folder =
      fs::is_directory(path, error) ? fs::path(path) : fs::path(path).parent_path();
  uint64_t hash = kFnvStart;
  uintmax_t bytes = 0;
  for (const std::string& file : files) {
    const uintmax_t size = fs::file_size(file, error);
    if (error) return Unreadable(file, error);
    bytes += size;
    hash = Fnv1a(fmt::format("{} {}\n", fs::path(file).lexically_relative(folder).string(), size),
                 hash);
  }
  return fmt::format("{} files, {} bytes, {:016x}", files.size(), bytes, hash);
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return ConfigurationError(fmt::format("cannot read {}", path));
  return text.str();
}

std::string FirstLineOf(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace muster
