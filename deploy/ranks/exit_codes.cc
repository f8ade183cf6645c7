#include "deploy/ranks/exit_codes.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace muster::ranks {
namespace {

void Write(const std::string& path, int code) {
  std::ofstream file(path);
  file << code << "\n" << std::flush;
  if (!file) fmt::print(stderr, "muster: cannot write {}: {}\n", path, std::strerror(errno));
}

}  // namespace

void WriteExitCode(const std::string& folder, std::optional<int> rank, int code) {
  constexpr int kFirstRetryable = 128;
  if (rank == 0) Write(folder + "/chief", code);
  if (code > 0 && code < kFirstRetryable) Write(folder + "/permanent", code);
}

}  // namespace muster::ranks
