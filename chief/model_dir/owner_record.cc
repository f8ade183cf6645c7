#include "chief/model_dir/owner_record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "common/base/files/fd.h"
#include "common/base/json/json_integer.h"
#include "common/cluster/chief_term.h"
#include "muster/json.h"

namespace muster::chief {
namespace {

// Size of the file. It leaves room for growth, so that each write in place has the same size.
constexpr size_t kRecordBytes = 1024;
// Hosts, paths and identities are shorter. A longer file is not a record.
constexpr size_t kMaxOwnerFileBytes = 64 << 10;

OwnerFile Parse(const std::string& text) {
  const absl::StatusOr<Json> parsed = ParseJson(text, "owner.json");
  if (!parsed.ok() || !parsed->is_object()) return {};
  const Json& json = *parsed;
  OwnerRecord r;
  try {
    r.run_id = json.at("run_id").get<std::string>();
    const uint64_t term = JsonInteger(json.at("epoch"));
    if (term > kMaxTerms) return {.implausible_term = term};
    r.term = static_cast<uint32_t>(term);
    r.host = json.value("host", "");
    r.pid = JsonIntegerOr(json, "pid", int64_t{0});
    r.process_start = json.value("process_start", "");
    r.place = json.value("place", "");
    r.token = json.value("token", "");
    r.identity = json.value("identity", "");
    r.beat = JsonIntegerOr(json, "beat", uint64_t{0});
    r.left = json.value("left", false);
    // Files of earlier versions have no "begun".
    r.begun = json.value("begun", true);
    r.replaces = json.value("replaces", "");
  } catch (const Json::exception&) {
    return {};
  }
  return {std::move(r)};
}

}  // namespace

std::string RandomHex() {
  uint64_t number = 0;
  while (getrandom(&number, sizeof number, 0) != sizeof number) {
  }
  return fmt::format("{:016x}", number);
}

std::string Text(const OwnerRecord& r, size_t at_least) {
  std::string text =
      Json{{"run_id", r.run_id},     {"epoch", r.term},  {"host", r.host},
           {"pid", r.pid},           {"place", r.place}, {"process_start", r.process_start},
           {"token", r.token},       {"beat", r.beat},   {"left", r.left},
           {"identity", r.identity}, {"begun", r.begun}, {"replaces", r.replaces}}
          .dump(2);
  text.resize(std::max({text.size() + 1, kRecordBytes, at_least}) - 1, ' ');
  return text + '\n';
}

OwnerFile ReadOwnerOnce(const std::string& path) {
  // A named pipe must not block the chief. pread fails on it.
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return {.error = errno};
  std::string text(kMaxOwnerFileBytes, '\0');
  const ssize_t size = pread(file.get(), text.data(), text.size(), 0);
  if (size < 0) return {.error = errno};
  text.resize(static_cast<size_t>(size));
  return Parse(text);
}

// Reads unreadable content again, because the owner may be writing to the file.
OwnerFile ReadOwner(const std::string& path) {
  OwnerFile look = ReadOwnerOnce(path);
  for (int i = 0; i < 5 && look.error == 0 && !look.record; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    look = ReadOwnerOnce(path);
  }
  return look;
}

OwnerRecord NextRecord(const std::optional<OwnerRecord>& before, RunChoice choice) {
  OwnerRecord next;
  next.begun = false;
  next.run_id = RandomHex();
  if (!before) {
    next.term = 1;
    return next;
  }
  next.term = before->term + 1;
  if (choice == RunChoice::kNew) {
    next.replaces = RunBefore(before);
  } else if (!before->begun && !before->replaces.empty() && choice == RunChoice::kContinue) {
    // The new run that was to replace this run never began.
    next.run_id = before->replaces;
    next.begun = true;
  } else {
    next.run_id = before->run_id;
    next.begun = before->begun;
    next.replaces = before->replaces;
  }
  return next;
}

std::string RunBefore(const std::optional<OwnerRecord>& before) {
  if (!before) return "";
  return before->begun ? before->run_id : before->replaces;
}

}  // namespace muster::chief
