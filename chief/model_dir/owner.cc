#include "chief/model_dir/owner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "chief/model_dir/owner_record.h"
#include "common/base/files/created_files.h"
#include "common/base/files/fd.h"
#include "common/base/logging.h"
#include "common/base/wait.h"
#include "common/cluster/chief_term.h"
#include "common/process/process_start.h"
#include "common/rpc/host.h"

namespace muster::chief {
namespace {

// Syncs a directory to the disk. Ignores errors, because not every file system supports this.
void SyncDirectory(const std::string& path) {
  const Fd directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) (void)!fsync(directory.get());
}

bool Missing(int error) { return error == ENOENT || error == ENOTDIR || error == ESTALE; }

class OwnerImpl final : public Owner {
 public:
  explicit OwnerImpl(OwnerOptions options)
      : options_(std::move(options)), path_(options_.model_dir + "/owner.json") {}
  ~OwnerImpl() override;
  absl::Status Acquire();

  std::string run_id() const override {
    absl::MutexLock lock(&mu_);
    return mine_.run_id;
  }
  const std::string& previous_run_id() const override { return previous_run_id_; }
  const std::string& token() const override { return token_; }
  uint32_t term() const override {
    absl::MutexLock lock(&mu_);
    return mine_.term;
  }
  bool starts_new_run() const override { return starts_new_run_; }
  absl::Status RecordRun(const std::string& run_id, uint32_t term) override;
  absl::Status Check() override;

 private:
  // Locks owner.lock against other processes that want to take the directory. Closing the
  // descriptor releases the lock.
  absl::StatusOr<Fd> Lock() const;
  // Watches the file for OwnerOptions::watch. Returns true if it changes, because its owner is then
  // alive.
  bool SeenAlive(const OwnerRecord& other) const;
  // Returns whether the owner `other` is alive, and therefore keeps the directory.
  bool Alive(const OwnerRecord& other) const;
  // Called for a live owner. Returns OK after a short wait if Acquire should retry; `end` is the
  // deadline. Otherwise returns the error of Take.
  absl::Status WaitFor(const OwnerRecord& other, MonotonicTime end, MonotonicTime* next_line) const;
  // Takes the directory, or returns the owner that has it.
  absl::StatusOr<std::optional<OwnerRecord>> TryToTake();
  OwnerRecord NewRecord(const std::optional<OwnerRecord>& before) const;
  // Publishes a new file with `record`. Syncs it to the disk first, because the run's identity must
  // survive a crash of the host. With `first`, does so only if no file exists, and otherwise
  // returns a descriptor of -1.
  absl::StatusOr<Fd> Publish(const OwnerRecord& record, bool first) const;
  absl::Status WriteTemporary(const std::string& path, const OwnerRecord& record, Fd* file) const;
  absl::Status MakeDirectory() const;
  absl::Status NotWritable(int error) const;
  // Writes in place to the file that this owner published, even if it has another name now.
  absl::Status Rewrite(const OwnerRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writing_);
  void Refresh();
  absl::Status Beat();

  const OwnerOptions options_;
  const std::string path_;
  std::string previous_run_id_, token_;
  bool starts_new_run_ = false;
  Fd file_;
  // Acquired before mu_, so that writes happen in the order of their records.
  absl::Mutex writing_;
  size_t file_bytes_ ABSL_GUARDED_BY(writing_) = 0;
  mutable absl::Mutex mu_;
  CondVar wake_;
  OwnerRecord mine_ ABSL_GUARDED_BY(mu_);
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

absl::Status OwnerImpl::NotWritable(int error) const {
  switch (error) {
    // These errors may go away, so a restart may help.
    case ENOSPC:
    case EDQUOT:
    case EIO:
    case ESTALE:
    case ETIMEDOUT:
      return absl::UnavailableError(fmt::format("model_dir '{}' cannot be written to: {}",
                                                options_.model_dir, std::strerror(error)));
    default:
      return ConfigurationError(
          fmt::format("model_dir '{}' is not writable: {}; name a directory that "
                      "the chief may write to",
                      options_.model_dir, std::strerror(error)));
  }
}

// Creates the directory and its parents, and syncs new ones to the disk.
absl::Status OwnerImpl::MakeDirectory() const {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> missing;
  for (fs::path path = fs::absolute(options_.model_dir, error);
       !error && !fs::exists(path, error) && path.has_relative_path(); path = path.parent_path())
    missing.push_back(path);
  AddJobFolder(options_.model_dir);
  if (const int failed = MakeFolders(options_.model_dir); failed != 0) return NotWritable(failed);
  for (const fs::path& path : missing) SyncDirectory(path.parent_path());
  return absl::OkStatus();
}

absl::StatusOr<Fd> OwnerImpl::Lock() const {
  const std::string path = options_.model_dir + "/owner.lock";
  Fd file = CreateLockFile(path);
  if (file.get() < 0 && errno == ENXIO)
    return ConfigurationError(
        fmt::format("cannot lock {}: {}; remove it", path, FileErrorText(errno)));
  if (file.get() < 0) return NotWritable(errno);
  // The process with the lock may be watching another owner.
  const MonotonicTime end = Clock::now() + 2 * options_.watch;
  while (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) {
      LogWarning("model_dir '{}' cannot be locked ({}): do not start two jobs on it at once",
                 options_.model_dir, std::strerror(errno));
      return file;
    }
    if (Clock::now() >= end) {
      return PeerLost(
          fmt::format("model_dir '{}' is being taken by another chief, which has locked {} for "
                      "{:g} s",
                      options_.model_dir, path, Seconds(2 * options_.watch)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return file;
}

bool OwnerImpl::SeenAlive(const OwnerRecord& other) const {
  const MonotonicTime end = Clock::now() + options_.watch;
  while (Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const std::optional<OwnerRecord> now = ReadOwner(path_).record;
    if (now && now->left) return false;
    if (now && (now->beat != other.beat || now->token != other.token)) return true;
  }
  return false;
}

bool OwnerImpl::Alive(const OwnerRecord& other) const {
  if (other.left) return false;
  if (other.place == PlaceOfThisProcess() && StartOf(other.pid) != other.process_start) {
    LogInfo("model_dir '{}': its last owner (pid {}) is gone", options_.model_dir, other.pid);
    return false;
  }
  LogDebug(
      "model_dir '{}' has an owner (host {}, pid {}): the chief checks for {:g} s whether that "
      "process is alive",
      options_.model_dir, other.host, other.pid, Seconds(options_.watch));
  if (SeenAlive(other)) return true;
  LogWarning(
      "model_dir '{}': its owner (host {}, pid {}) did not update its record for {:g} s and loses "
      "the folder",
      options_.model_dir, other.host, other.pid, Seconds(options_.watch));
  return false;
}

absl::Status OwnerImpl::WaitFor(const OwnerRecord& other, MonotonicTime end,
                                MonotonicTime* next_line) const {
  const std::string who =
      fmt::format("run {}, chief on host {}, pid {}", other.run_id, other.host, other.pid);
  if (other.identity != options_.identity)
    return ConfigurationError(
        fmt::format("model_dir '{}' belongs to a running job ({}): give this job a model_dir of "
                    "its own, or end that one",
                    options_.model_dir, who));
  const auto given_up = [this] { return options_.give_up && options_.give_up(); };
  if (Clock::now() >= end)
    return PeerLost(
        fmt::format("model_dir '{}' still belongs to another process of this job ({}), which did "
                    "not leave it within {:g} s (timeouts.join); if that one is another job, give "
                    "this one a model_dir of its own",
                    options_.model_dir, who, Seconds(options_.wait)));
  if (Clock::now() >= *next_line) {
    LogInfo("model_dir '{}': the chief waits for another process of this job to leave it ({})",
            options_.model_dir, who);
    *next_line = Clock::now() + std::chrono::seconds(10);
  }
  const MonotonicTime next_look = std::min(end, Clock::now() + options_.refresh);
  while (Clock::now() < next_look && !given_up())
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (!given_up()) return absl::OkStatus();
  return Preempted(
      fmt::format("stopped as asked, while model_dir '{}' belonged to another process of this job",
                  options_.model_dir));
}

absl::Status OwnerImpl::WriteTemporary(const std::string& path, const OwnerRecord& record,
                                       Fd* file) const {
  const std::string text = Text(record, 0);
  *file = CreateFile(path, O_RDWR | O_TRUNC);
  if (file->get() < 0) return NotWritable(errno);
  errno = 0;
  if (write(file->get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      fsync(file->get()) != 0)
    return NotWritable(errno != 0 ? errno : ENOSPC);
  return absl::OkStatus();
}

absl::StatusOr<Fd> OwnerImpl::Publish(const OwnerRecord& record, bool first) const {
  const std::string temporary = fmt::format("{}.{}", path_, record.token);
  Fd file;
  absl::Status status = WriteTemporary(temporary, record, &file);
  if (status.ok() && first) {
    // Unlike rename, link does not replace a file that another chief has just written.
    const int error = link(temporary.c_str(), path_.c_str()) == 0 ? 0 : errno;
    if (error == 0 || error == EEXIST) {
      unlink(temporary.c_str());
      if (error != 0) return Fd();
      SyncDirectory(options_.model_dir);
      return file;
    }
  }
  if (status.ok() && rename(temporary.c_str(), path_.c_str()) != 0) status = NotWritable(errno);
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  SyncDirectory(options_.model_dir);
  return file;
}

absl::Status OwnerImpl::Rewrite(const OwnerRecord& record) {
  const std::string text = Text(record, file_bytes_);
  file_bytes_ = text.size();
  if (options_.before_write) options_.before_write();
  errno = 0;
  if (pwrite(file_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    return NotWritable(errno != 0 ? errno : ENOSPC);
  // NFS makes written data visible to other hosts at a close.
  close(dup(file_.get()));
  return absl::OkStatus();
}

OwnerRecord OwnerImpl::NewRecord(const std::optional<OwnerRecord>& before) const {
  const rpc::HostIdentity host = rpc::ThisHost();
  OwnerRecord mine = NextRecord(before, options_.run);
  mine.host = host.name;
  mine.pid = host.pid;
  mine.place = PlaceOfThisProcess();
  mine.process_start = StartOf(host.pid);
  mine.token = RandomHex();
  mine.identity = options_.identity;
  return mine;
}

absl::Status OwnerImpl::Acquire() {
  MUSTER_RETURN_IF_ERROR(MakeDirectory());
  const MonotonicTime end = Clock::now() + options_.wait;
  MonotonicTime next_line;
  while (true) {
    // Each try takes the lock again, because other processes wait for the lock too.
    MUSTER_ASSIGN_OR_RETURN(const std::optional<OwnerRecord> other, TryToTake());
    if (!other) return absl::OkStatus();
    MUSTER_RETURN_IF_ERROR(WaitFor(*other, end, &next_line));
  }
}

absl::StatusOr<std::optional<OwnerRecord>> OwnerImpl::TryToTake() {
  MUSTER_ASSIGN_OR_RETURN(const Fd lock, Lock());
  for (int attempt = 0; attempt < 5; ++attempt) {
    const OwnerFile before = ReadOwner(path_);
    if (before.record && Alive(*before.record)) return before.record;
    if (before.error != 0 && !Missing(before.error)) return NotWritable(before.error);
    const uint64_t term = before.record ? before.record->term : before.implausible_term;
    if (term >= kMaxTerms)  // There is no next term.
      return ConfigurationError(
          fmt::format("{} says that {} chiefs have had this run, more than any run has: put a copy "
                      "of it from before in its place, or remove it to begin a new run",
                      path_, term));
    if (before.error == 0 && !before.record)
      LogWarning("{} is damaged: the job starts a new run", path_);
    OwnerRecord mine = NewRecord(before.record);
    MUSTER_ASSIGN_OR_RETURN(Fd file, Publish(mine, before.error != 0));
    const std::optional<OwnerRecord> now = ReadOwner(path_).record;
    // Another process was faster.
    if (file.get() < 0 || !now || now->token != mine.token) continue;
    file_ = std::move(file);
    token_ = mine.token;
    previous_run_id_ = RunBefore(before.record);
    starts_new_run_ = options_.run == RunChoice::kNew || !mine.replaces.empty();
    {
      absl::MutexLock writing(&writing_);
      file_bytes_ = Text(mine, 0).size();
    }
    absl::MutexLock guard(&mu_);
    mine_ = std::move(mine);
    thread_ = std::thread([this] { Refresh(); });
    return std::optional<OwnerRecord>();
  }
  return PeerLost(fmt::format("model_dir '{}': several jobs try to take it; give each one its own",
                              options_.model_dir));
}

absl::Status OwnerImpl::Check() {
  const OwnerFile now = ReadOwner(path_);
  if (now.record && now.record->token == token_) return absl::OkStatus();
  if (Missing(now.error))
    return Superseded(fmt::format("{} is gone: model_dir was removed", path_));
  if (now.error != 0)
    return absl::UnavailableError(
        fmt::format("{} cannot be read: {}", path_, std::strerror(now.error)));
  return Superseded(fmt::format("model_dir '{}' was taken by another chief{}", options_.model_dir,
                                now.record
                                    ? fmt::format(" (host {}, pid {}, epoch {})", now.record->host,
                                                  now.record->pid, now.record->term)
                                    : ""));
}

absl::Status OwnerImpl::RecordRun(const std::string& run_id, uint32_t term) {
  absl::MutexLock writing(&writing_);
  OwnerRecord record;
  {
    absl::MutexLock lock(&mu_);
    if (mine_.begun && mine_.run_id == run_id && mine_.term >= term) return absl::OkStatus();
    ++mine_.beat;
    record = mine_;
  }
  record.run_id = run_id;
  record.term = std::max(record.term, term);
  record.begun = true;
  record.replaces.clear();
  MUSTER_RETURN_IF_ERROR(Check());
  MUSTER_RETURN_IF_ERROR(Rewrite(record));
  if (fsync(file_.get()) != 0) return NotWritable(errno);
  // Changes mine_ only now, because callers use the id and the term at once.
  absl::MutexLock lock(&mu_);
  mine_ = std::move(record);
  return absl::OkStatus();
}

void OwnerImpl::Refresh() {
  pthread_setname_np(pthread_self(), "owner");
  bool warned = false;
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (!exiting_) wake_.WaitFor(&mu_, options_.refresh);
      if (exiting_) return;
    }
    const absl::Status status = Beat();
    if (absl::IsAborted(status)) {
      if (options_.on_superseded) options_.on_superseded(status);
      return;
    }
    if (!status.ok() && !warned) LogWarning("{}", Message(status));
    warned = !status.ok();
  }
}

absl::Status OwnerImpl::Beat() {
  absl::MutexLock writing(&writing_);
  OwnerRecord record;
  {
    absl::MutexLock lock(&mu_);
    ++mine_.beat;
    record = mine_;
  }
  MUSTER_RETURN_IF_ERROR(Check());
  return Rewrite(record);
}

OwnerImpl::~OwnerImpl() {
  OwnerRecord record;
  {
    absl::MutexLock lock(&mu_);
    exiting_ = true;
    wake_.Signal();
    record = mine_;
  }
  if (!thread_.joinable()) return;  // Acquire has not succeeded.
  thread_.join();
  absl::MutexLock writing(&writing_);
  record.left = true;
  (void)Rewrite(record);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Owner>> Owner::Take(OwnerOptions options) {
  auto owner = std::make_unique<OwnerImpl>(std::move(options));
  MUSTER_RETURN_IF_ERROR(owner->Acquire());
  return owner;
}

}  // namespace muster::chief
