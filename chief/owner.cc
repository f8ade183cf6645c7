#include "chief/owner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/json.h"
#include "common/base/logging.h"
#include "common/rpc/host.h"

namespace muster {
namespace {

std::string RandomHex() {
  uint64_t number = 0;
  while (getrandom(&number, sizeof number, 0) != sizeof number) {
  }
  return fmt::format("{:016x}", number);
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Where a pid means something: the boot of a machine and its pid namespace.
std::string Place() {
  char space[128] = "";
  (void)!readlink("/proc/self/ns/pid", space, sizeof space - 1);
  return FirstLine("/proc/sys/kernel/random/boot_id") + " " + space;
}

// When a process began, in ticks since boot; "" if there is none. A pid alone may be used again.
std::string StartOf(int64_t pid) {
  const std::string stat = FirstLine(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return "";
  std::istringstream fields(stat.substr(name_end + 1));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;  // field 22 of the whole line
  return field;
}

struct Record {
  std::string run_id, host, place, process_start, token;
  uint32_t epoch = 0;
  int64_t pid = 0;
  uint64_t beat = 0;
  bool left = false;  // its owner went, in good order
};

std::optional<Record> Parse(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  Record r;
  try {
    r.run_id = json.at("run_id").get<std::string>();
    r.epoch = json.at("epoch").get<uint32_t>();
    r.host = json.value("host", "");
    r.pid = json.value("pid", int64_t{0});
    r.process_start = json.value("process_start", "");
    r.place = json.value("place", "");
    r.token = json.value("token", "");
    r.beat = json.value("beat", uint64_t{0});
    r.left = json.value("left", false);
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  return r;
}

std::string Text(const Record& r) {
  return Json{{"run_id", r.run_id}, {"epoch", r.epoch}, {"host", r.host},
              {"pid", r.pid},       {"place", r.place}, {"process_start", r.process_start},
              {"token", r.token},   {"beat", r.beat},   {"left", r.left}}
             .dump(2) +
         "\n";
}

class OwnerImpl final : public Owner {
 public:
  explicit OwnerImpl(OwnerOptions options)
      : options_(std::move(options)), path_(options_.model_dir + "/owner.json") {}
  ~OwnerImpl() override;
  absl::Status Acquire();

  const std::string& run_id() const override { return run_id_; }
  uint32_t epoch() const override {
    absl::MutexLock lock(&mu_);
    return mine_.epoch;
  }
  void RaiseEpoch(uint32_t epoch) override;
  absl::Status Check() override;

 private:
  std::optional<Record> Read(bool* exists) const;
  // Watches the file until it changes: true, its owner lives.
  bool SeenAlive(const Record& other) const;
  absl::Status RefuseIfAlive(const Record& other) const;
  absl::Status WriteTemporary(const Record& record, std::string* temporary) const;
  // Makes `record` the file's content. With `first`, only where there is no file: else false.
  absl::StatusOr<bool> Publish(const Record& record, bool first) const;
  absl::Status NotWritable(std::string_view why) const;
  void Refresh();

  const OwnerOptions options_;
  const std::string path_;
  std::string run_id_;
  mutable absl::Mutex mu_;
  absl::CondVar wake_;
  Record mine_ ABSL_GUARDED_BY(mu_);
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

absl::Status OwnerImpl::NotWritable(std::string_view why) const {
  return ConfigurationError(
      fmt::format("model_dir '{}' is not writable: {}; name a directory that "
                  "the chief may write to",
                  options_.model_dir, why));
}

std::optional<Record> OwnerImpl::Read(bool* exists) const {
  std::ifstream file(path_);
  *exists = file.is_open();
  std::stringstream text;
  text << file.rdbuf();
  return Parse(text.str());
}

bool OwnerImpl::SeenAlive(const Record& other) const {
  const MonotonicTime end = Clock::now() + options_.watch;
  while (Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    bool exists;
    const std::optional<Record> now = Read(&exists);
    if (now && now->left) return false;
    if (now && (now->beat != other.beat || now->token != other.token)) return true;
  }
  return false;
}

absl::Status OwnerImpl::RefuseIfAlive(const Record& other) const {
  if (other.left) return absl::OkStatus();
  if (other.place == Place() && StartOf(other.pid) != other.process_start) {
    LogInfo("model_dir '{}': its last owner (pid {}) is gone", options_.model_dir, other.pid);
    return absl::OkStatus();
  }
  LogInfo("model_dir '{}' has an owner (host {}, pid {}); watching for {:g} s whether it lives",
          options_.model_dir, other.host, other.pid, Seconds(options_.watch));
  if (!SeenAlive(other)) return absl::OkStatus();
  return ConfigurationError(fmt::format(
      "model_dir '{}' belongs to a running job (run {}, chief on host {}, pid {}): give "
      "this job a model_dir of its own, or end that one",
      options_.model_dir, other.run_id, other.host, other.pid));
}

absl::Status OwnerImpl::WriteTemporary(const Record& record, std::string* temporary) const {
  *temporary = fmt::format("{}.{}", path_, record.token);
  errno = 0;
  std::ofstream file(*temporary, std::ios::trunc);
  file << Text(record);
  file.close();
  if (file) return absl::OkStatus();
  return NotWritable(std::strerror(errno != 0 ? errno : EIO));
}

absl::StatusOr<bool> OwnerImpl::Publish(const Record& record, bool first) const {
  std::string temporary;
  MUSTER_RETURN_IF_ERROR(WriteTemporary(record, &temporary));
  if (first) {
    // A link, unlike a rename, does not replace what another chief has just written.
    const int error = link(temporary.c_str(), path_.c_str()) == 0 ? 0 : errno;
    if (error == 0 || error == EEXIST) {
      unlink(temporary.c_str());
      return error == 0;
    }
  }
  if (rename(temporary.c_str(), path_.c_str()) == 0) return true;
  const int error = errno;
  unlink(temporary.c_str());
  return NotWritable(std::strerror(error));
}

absl::Status OwnerImpl::Acquire() {
  std::error_code error;
  std::filesystem::create_directories(options_.model_dir, error);
  if (error) return NotWritable(error.message());
  for (int attempt = 0; attempt < 5; ++attempt) {
    bool exists;
    const std::optional<Record> before = Read(&exists);
    if (before) MUSTER_RETURN_IF_ERROR(RefuseIfAlive(*before));
    if (exists && !before) LogWarning("{} is damaged: it starts a new run", path_);
    const rpc::HostIdentity host = rpc::ThisHost();
    Record mine;
    mine.run_id = before && !options_.new_run ? before->run_id : RandomHex();
    mine.epoch = (before ? before->epoch : 0) + 1;
    mine.host = host.name;
    mine.pid = host.pid;
    mine.place = Place();
    mine.process_start = StartOf(host.pid);
    mine.token = RandomHex();
    MUSTER_ASSIGN_OR_RETURN(const bool published, Publish(mine, !exists));
    const std::optional<Record> now = Read(&exists);
    if (!published || !now || now->token != mine.token) continue;  // another one was quicker
    run_id_ = mine.run_id;
    absl::MutexLock lock(&mu_);
    mine_ = std::move(mine);
    thread_ = std::thread([this] { Refresh(); });
    return absl::OkStatus();
  }
  return ConfigurationError(fmt::format(
      "model_dir '{}': several jobs try to take it; give each one its own", options_.model_dir));
}

absl::Status OwnerImpl::Check() {
  bool exists;
  const std::optional<Record> now = Read(&exists);
  absl::MutexLock lock(&mu_);
  if (now && now->token == mine_.token) return absl::OkStatus();
  if (!exists) return Superseded(fmt::format("{} is gone: model_dir was removed", path_));
  return Superseded(fmt::format(
      "model_dir '{}' was taken by another chief{}", options_.model_dir,
      now ? fmt::format(" (host {}, pid {}, epoch {})", now->host, now->pid, now->epoch) : ""));
}

void OwnerImpl::RaiseEpoch(uint32_t epoch) {
  absl::MutexLock lock(&mu_);
  mine_.epoch = std::max(mine_.epoch, epoch);
  wake_.Signal();
}

void OwnerImpl::Refresh() {
  bool warned = false;
  while (true) {
    Record record;
    {
      absl::MutexLock lock(&mu_);
      if (!exiting_) wake_.WaitWithTimeout(&mu_, absl::FromChrono(options_.refresh));
      if (exiting_) return;
      ++mine_.beat;
      record = mine_;
    }
    if (const absl::Status superseded = Check(); !superseded.ok()) {
      if (options_.on_superseded) options_.on_superseded(superseded);
      return;
    }
    const absl::StatusOr<bool> published = Publish(record, false);
    if (!published.ok() && !warned) LogWarning("{}", Message(published.status()));
    warned = !published.ok();
  }
}

OwnerImpl::~OwnerImpl() {
  Record record;
  {
    absl::MutexLock lock(&mu_);
    exiting_ = true;
    wake_.Signal();
    record = mine_;
  }
  if (!thread_.joinable()) return;  // never acquired
  thread_.join();
  if (!Check().ok()) return;  // somebody else's now
  record.left = true;
  (void)Publish(record, false);
}

}  // namespace

std::string NewRunId() { return RandomHex(); }

absl::StatusOr<std::unique_ptr<Owner>> Owner::Take(OwnerOptions options) {
  auto owner = std::make_unique<OwnerImpl>(std::move(options));
  MUSTER_RETURN_IF_ERROR(owner->Acquire());
  return owner;
}

}  // namespace muster
