#include "common/base/process/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace muster {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// Reads a file with one number. Returns nullopt if the file does not exist or contains "max".
std::optional<uint64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// Returns the number after `word` at the beginning of a line.
uint64_t NumberOf(const std::string& path, const std::string& word, uint64_t missing) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    uint64_t number = 0;
    if (words >> first >> number && first == word) return number;
  }
  return missing;
}

uint64_t Left(uint64_t limit, uint64_t used, uint64_t cached) {
  used -= std::min(used, cached);
  return limit - std::min(limit, used);
}

// Returns the minimum over the cgroup and its parents up to the root of the hierarchy.
uint64_t LeftInGroups(const std::string& hierarchy, std::string group, const char* limit_file,
                      const char* used_file, const char* cached_word) {
  uint64_t left = kUnlimited;
  while (true) {
    const std::string folder = hierarchy + (group == "/" ? "" : group);
    const auto limit = NumberIn(folder + "/" + limit_file);
    if (limit) {
      const uint64_t cached = NumberOf(folder + "/memory.stat", cached_word, 0);
      left = std::min(left, Left(*limit, NumberIn(folder + "/" + used_file).value_or(0), cached));
    }
    if (group.empty() || group == "/") return left;
    group.resize(group.rfind('/'));
  }
}

}  // namespace

uint64_t AvailableMemory(const std::string& root) {
  uint64_t left = NumberOf(root + "/proc/meminfo", "MemAvailable:", kUnlimited / 1024) * 1024;
  std::ifstream groups(root + "/proc/self/cgroup");
  // The format is hierarchy-ID:controllers:path. Version 2 has the ID 0 and names no controller.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (group.empty() || group.front() != '/') continue;
    if (controllers.empty())
      left = std::min(left, LeftInGroups(root + "/sys/fs/cgroup", group, "memory.max",
                                         "memory.current", "inactive_file"));
    if (("," + controllers + ",").find(",memory,") != std::string::npos)
      left = std::min(left,
                      LeftInGroups(root + "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
                                   "memory.usage_in_bytes", "total_inactive_file"));
  }
  return left;
}

}  // namespace muster
