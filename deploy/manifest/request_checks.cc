#include "deploy/manifest/request_checks.h"

#include <absl/strings/ascii.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "muster/json.h"

namespace muster {
namespace {

// TF_CONFIG is an environment variable, which Linux limits to 128 KiB.
constexpr int kMaxTasks = 1000;
constexpr int kMaxGpus = 64;  // No node has more.
constexpr size_t kMaxConfigMapBytes = 1 << 20;
constexpr size_t kMaxLabelBytes = 63, kMaxNameBytes = 253;  // A label's value, an object.

bool IsLower(char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c); }

// Returns true for "5Gi", "5.5Gi" and "5368709120", but not for 0.
bool IsQuantity(std::string_view text) {
  const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, end), unit = text.substr(end);
  const bool digits = !number.empty() && absl::ascii_isdigit(number.front()) &&
                      absl::ascii_isdigit(number.back()) &&
                      std::count(number.begin(), number.end(), '.') <= 1;
  constexpr std::string_view kUnits[] = {"",  "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
                                         "k", "M",  "G",  "T",  "P",  "E"};
  return digits && number.find_first_of("123456789") != std::string_view::npos &&
         std::find(std::begin(kUnits), std::end(kUnits), unit) != std::end(kUnits);
}

// Returns true for a DNS subdomain: labels of lower-case letters, digits and '-', with dots.
bool IsObjectName(std::string_view text) {
  char before = '.';
  for (const char c : text) {
    const bool separator = c == '.' || c == '-';
    if (!separator && !IsLower(c)) return false;
    if (c == '.' ? !IsLower(before) : c == '-' && before == '.') return false;
    before = c;
  }
  return IsLower(before);
}

// Returns true if `text` has the form of an image name. Does not check that the image exists.
bool IsImage(std::string_view text) {
  return !text.empty() && absl::ascii_isalnum(text.front()) && absl::ascii_isalnum(text.back()) &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(c) ||
                  std::string_view("._-/:@+").find(c) != std::string_view::npos;
         });
}

absl::Status CheckRange(const char* option, int count, int most, std::string_view why) {
  if (count < 0)
    return ConfigurationError(fmt::format("--{} is {}: it must not be negative", option, count));
  if (count <= most) return absl::OkStatus();
  return ConfigurationError(
      fmt::format("--{} is {}: it must be at most {}, {}", option, count, most, why));
}

absl::Status CheckSizes(const ManifestRequest& request) {
  const std::string room = "for which TF_CONFIG has room as an environment variable";
  MUSTER_RETURN_IF_ERROR(CheckRange("workers", request.workers, kMaxTasks, room));
  MUSTER_RETURN_IF_ERROR(CheckRange("ps", request.ps, kMaxTasks, room));
  MUSTER_RETURN_IF_ERROR(CheckRange("gpus", request.gpus, kMaxGpus, "because a pod has one node"));
  if (request.ps > 0 && request.workers == 0)
    return ConfigurationError(
        "parameter servers without workers would train nothing: give --workers 1 or more");
  if (request.members() > kMaxTasks)
    return ConfigurationError(fmt::format(
        "{} tasks are more than the {} that TF_CONFIG has room for as an environment variable",
        request.members(), kMaxTasks));
  return absl::OkStatus();
}

absl::Status CheckImage(const char* option, const std::string& image) {
  if (IsImage(image)) return absl::OkStatus();
  return ConfigurationError(fmt::format(
      "--{} is {}: give the name of an image, such as registry.example.com/team/muster:1", option,
      Dump(Json(image))));
}

absl::Status CheckName(const char* option, const std::string& name, size_t most) {
  if (name.empty() || (name.size() <= most && IsObjectName(name))) return absl::OkStatus();
  return ConfigurationError(fmt::format(
      "--{} is {}: a name has at most {} lower-case letters, digits, '-' and '.', and begins and "
      "ends with a letter or digit",
      option, Dump(Json(name)), most));
}

}  // namespace

absl::Status CheckRequest(const ManifestRequest& request) {
  MUSTER_RETURN_IF_ERROR(CheckSizes(request));
  MUSTER_RETURN_IF_ERROR(CheckImage("image", request.image));
  if (!request.tensorboard.empty())
    MUSTER_RETURN_IF_ERROR(CheckImage("tensorboard", request.tensorboard));
  MUSTER_RETURN_IF_ERROR(CheckName("queue", request.queue, kMaxLabelBytes));
  MUSTER_RETURN_IF_ERROR(CheckName("storage-class", request.storage_class, kMaxNameBytes));
  if (!IsQuantity(request.storage))
    return ConfigurationError(
        fmt::format("--storage is {}: give a size above 0 as Kubernetes has it, such as 5Gi",
                    Dump(Json(request.storage))));
  if (!request.queue.empty() && request.manifest_operator == ManifestOperator::kNone)
    return ConfigurationError(
        "--queue needs --operator tfjob or jobset: Kueue admits Jobs one by one, and two runs "
        "could each wait for the rest of the other");
  if (request.preflight && request.manifest_operator != ManifestOperator::kNone)
    return ConfigurationError(
        "--preflight prints Jobs of Kubernetes' own, which need the same nodes and network: leave "
        "--operator out");
  if (request.shares_volume() && request.storage_class.empty())
    return ConfigurationError(
        "--tensorboard needs --storage-class: TensorBoard and the chief may run on two nodes, so "
        "name a class whose volumes many nodes can mount (ReadWriteMany)");
  return absl::OkStatus();
}

absl::Status CheckConfigMapSize(const ManifestRequest& request) {
  const size_t bytes = request.job.size() + Dump(PodCluster(request).ToJson()).size() + 1;
  if (bytes <= kMaxConfigMapBytes) return absl::OkStatus();
  return ConfigurationError(
      fmt::format("the job file and the cluster have {} bytes, and a ConfigMap has room for {}: "
                  "put lists and tables into files of the image",
                  bytes, kMaxConfigMapBytes));
}

}  // namespace muster
