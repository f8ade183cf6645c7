#include "common/base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "common/base/fd.h"
#include "common/base/hash.h"

namespace muster {
namespace {

constexpr int64_t kBlock = 64 << 10, kBlocks = 256;

// Where block `b` of a file begins: one after the other, or spread so that the last ends with it.
int64_t StartOf(int64_t b, int64_t size) {
  if (size <= kBlock * kBlocks) return b * kBlock;
  const int64_t spread = size - kBlock, gaps = kBlocks - 1;
  return spread / gaps * b + spread % gaps * b / gaps;
}

}  // namespace

std::string PathFrom(const std::string& folder, const std::string& path) {
  return path.empty() ? path : (std::filesystem::path(folder) / path).string();
}

absl::StatusOr<std::string> FileDigest(const std::string& path) {
  // O_NONBLOCK: a named pipe is refused below, not waited for.
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

}  // namespace muster
