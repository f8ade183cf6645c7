#include "common/job/job_security.h"

#include <filesystem>
#include <utility>

#include "common/base/files/files.h"
#include "common/base/json/ordered_json.h"
#include "common/job/job_checks.h"

namespace muster {
namespace {

// Sets `*to` to the value of the key. Does nothing if the key is missing or has another type.
void Take(const OrderedJson& object, const char* key, std::string* to) {
  if (const auto at = object.find(key); at != object.end() && at->is_string())
    *to = at->get<std::string>();
}

void Take(const OrderedJson& object, const char* key, bool* to) {
  if (const auto at = object.find(key); at != object.end() && at->is_boolean())
    *to = at->get<bool>();
}

Job SecurityOf(const std::string& path, const std::vector<std::string>& overrides) {
  absl::StatusOr<OrderedJson> read = ReadOrderedJsonFile(path);
  OrderedJson json = read.ok() ? *std::move(read) : OrderedJson::object();
  for (const std::string& override : overrides) (void)ApplyOverride(override, &json);
  Job job;
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  Take(json, "folder", &job.folder);
  job.folder = job.folder.empty() ? folder : PathFrom(folder, job.folder);
  const auto part = [&](const char* key) {
    const auto at = json.find(key);
    return at == json.end() ? OrderedJson::object() : *at;
  };
  const OrderedJson security = part("security"), tls = part("tls");
  Take(security, "key_file", &job.security.key_file);
  Take(security, "insecure", &job.security.insecure);
  Take(tls, "certificate", &job.tls.certificate);
  Take(tls, "key", &job.tls.key);
  Take(tls, "authority", &job.tls.authority);
  return job;
}

}  // namespace

absl::Status LoadJobOrSecurity(const std::string& path, const std::vector<std::string>& overrides,
                               Job* job) {
  absl::StatusOr<Job> loaded = LoadJob(path, overrides);
  if (!loaded.ok()) {
    *job = SecurityOf(path, overrides);
    return loaded.status();
  }
  *job = *std::move(loaded);
  return absl::OkStatus();
}

}  // namespace muster
