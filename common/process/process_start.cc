#include "common/process/process_start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <sstream>

#include "common/base/files/files.h"

namespace muster {

std::string PlaceOfThisProcess() {
  char space[128] = "";
  (void)!readlink("/proc/self/ns/pid", space, sizeof space - 1);
  return FirstLineOf("/proc/sys/kernel/random/boot_id") + " " + space;
}

std::string StartOf(int64_t pid) {
  const std::string stat = FirstLineOf(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return "";
  std::istringstream fields(stat.substr(name_end + 1));
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return "";
  for (int i = 0; i < 19; ++i) fields >> field;  // Up to field 22, the start time.
  return field;
}

}  // namespace muster
