#include "common/data/files/damage.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace muster::data {
namespace {

// The key of the Status payload that marks an error as no damage.
constexpr char kNoDamage[] = "muster/no_damage";

bool IsOfTheFile(int error_number) {
  switch (error_number) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EACCES:
    case EPERM:
    case ESTALE:
    case ETIMEDOUT:
      return false;
    default:
      return true;
  }
}

}  // namespace

absl::Status FileError(const std::string& path, const char* done, int error_number) {
  const char* fix = error_number == EMFILE ? " Raise the limit of open files (ulimit -n)." : "";
  absl::Status status = DataError(
      fmt::format("'{}' cannot be {}: {}.{}", path, done, std::strerror(error_number), fix));
  if (!IsOfTheFile(error_number)) status.SetPayload(kNoDamage, absl::Cord());
  return status;
}

bool IsDamage(const absl::Status& status) {
  return !status.ok() && ExitCodeOf(status) == ExitCode::kDataDamaged &&
         !status.GetPayload(kNoDamage);
}

}  // namespace muster::data
