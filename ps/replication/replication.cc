#include "ps/replication/replication.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/logging.h"
#include "common/base/wait.h"
#include "common/push_pull/narrow.h"
#include "ps/replication/handover.h"
#include "ps/replication/replication_link.h"

namespace muster::ps {
namespace {

using push_pull::ChunkPush;
using push_pull::Pushed;

// Time between two attempts to reach the backup.
constexpr Duration kRetry = std::chrono::milliseconds(200);
// The rate of the slowest useful connection. A short limit is extended by the time to send the
// bytes at this rate.
constexpr double kMinBytesPerSecond = 50e6;
// Connections of a shard to its backup. Each has a thread on the backup.
constexpr int kLinks = 2;

Duration SendingTime(size_t bytes) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(static_cast<double>(bytes) / kMinBytesPerSecond));
}

using LinkPtr = std::shared_ptr<ReplicaLink>;

// How the primary replicates one chunk.
struct ChunkReplica {
  absl::Mutex mu;  // Locked before the local store's mutexes, the store's mu_ and a link's mutex.
  CondVar changed;
  // The link on which the state was sent, or on which the backup reported that it has the state.
  // Updates are sent on this link. Null: the state must be sent again.
  LinkPtr link ABSL_GUARDED_BY(mu);
  uint64_t sent ABSL_GUARDED_BY(mu) = 0;  // The newest frame for the chunk on that link.
  bool handing_over ABSL_GUARDED_BY(mu) =
      false;                               // The state is being sent, and updates wait for that.
  size_t bytes ABSL_GUARDED_BY(mu) = 0;    // The size of that state.
  uint64_t round ABSL_GUARDED_BY(mu) = 0;  // How often the state had to be sent again.
  // The backup has applied the first updates of the chunk, and no others.
  bool is_prefix ABSL_GUARDED_BY(mu) = false;
  bool settled ABSL_GUARDED_BY(mu) = false;  // The state has arrived.
};

// A gradient as it is applied and as it is sent.
struct Rounded {
  std::vector<float> values;
  std::vector<uint16_t> narrow;  // The numbers in 16 bits, without keys.
};

class ReplicatedStoreImpl final : public ReplicatedStore {
 public:
  ReplicatedStoreImpl(std::shared_ptr<ShardStore> local, ReplicationOptions options)
      : local_(std::move(local)),
        options_(std::move(options)),
        replicas_(options_.chunks),
        strict_(options_.in_sync),
        unsettled_(options_.chunks),
        dialer_(options_),
        links_(std::min(kLinks, std::max(1, options_.chunks))),
        backup_versions_(options_.chunks) {
    for (int c = 0; c < options_.chunks; ++c) {
      queue_.insert(c);
      const std::vector<push_pull::RowColumn> columns = local_->columns(c);
      widths_.push_back(columns.empty() ? 0 : static_cast<size_t>(columns[0].elements));
      absl::MutexLock lock(&replicas_[c].mu);
      replicas_[c].is_prefix = options_.in_sync;
    }
    thread_ = std::thread([this] { HandOverAll(); });
  }
  ~ReplicatedStoreImpl() override { Close(); }

  absl::Status Fill(int chunk, std::span<const float> parameters) override {
    return SetBack(chunk, [&] { return local_->Fill(chunk, parameters); });
  }
  absl::Status Restore(int chunk, ChunkState state, Piece piece) override {
    // The chunk does not change until its last piece.
    if (!piece.last) return local_->Restore(chunk, std::move(state), piece);
    return SetBack(chunk, [&] { return local_->Restore(chunk, std::move(state), piece); });
  }
  bool serving() const override { return local_->serving(); }
  absl::StatusOr<ChunkState> Copy(int chunk) const override { return local_->Copy(chunk); }
  absl::StatusOr<FrozenRows> Freeze(int chunk) const override { return local_->Freeze(chunk); }
  absl::StatusOr<std::shared_ptr<FrozenChunk>> FreezeDense(int chunk) const override {
    return local_->FreezeDense(chunk);
  }
  absl::StatusOr<ChunkState> Read(int chunk, FrozenChunk* frozen) const override {
    return local_->Read(chunk, frozen);
  }
  std::vector<push_pull::RowColumn> columns(int chunk) const override {
    return local_->columns(chunk);
  }
  void Admit(int worker, uint64_t incarnation) override { local_->Admit(worker, incarnation); }
  // Not forwarded, because the backup replays updates of any worker.
  void Expel(int worker) override { local_->Expel(worker); }
  absl::StatusOr<Pushed> Apply(int chunk, const ChunkPush& push, std::span<float> out) override;
  absl::Status Await(int chunk) override;
  absl::StatusOr<int64_t> Pull(int chunk, std::span<float> out) const override {
    return local_->Pull(chunk, out);
  }
  absl::StatusOr<int64_t> PullRows(int chunk, std::span<const uint64_t> keys,
                                   std::span<float> rows) const override {
    return local_->PullRows(chunk, keys, rows);
  }
  ChunkVersion chunk_version(int chunk) const override { return local_->chunk_version(chunk); }
  absl::StatusOr<Pushed> Replay(int, const ChunkPush&, int64_t) override {
    return absl::FailedPreconditionError("a primary replays nothing");
  }
  int64_t applied() const override { return local_->applied(); }
  std::map<int, push_pull::TableStatistics> tables() const override { return local_->tables(); }

  bool synced() const override {
    absl::MutexLock lock(&mu_);
    return synced_;
  }
  std::string last_error() const override {
    absl::MutexLock lock(&mu_);
    return last_error_;
  }
  Duration waiting() const override {
    absl::MutexLock lock(&mu_);
    if (!strict_ || waits_.empty()) return Duration::zero();
    return std::max(Duration::zero(), Clock::now() - *waits_.begin());
  }
  void Close() override;

 private:
  // A push that waits for the backup, for `waiting`.
  class Wait {
   public:
    Wait(ReplicatedStoreImpl* store, size_t bytes) : store_(store) {
      absl::MutexLock lock(&store_->mu_);
      at_ = store_->waits_.insert(Clock::now() + SendingTime(bytes));
    }
    ~Wait() {
      absl::MutexLock lock(&store_->mu_);
      store_->waits_.erase(at_);
    }

   private:
    ReplicatedStoreImpl* const store_;
    std::multiset<MonotonicTime>::iterator at_;
  };

  static constexpr int kReportSynced = -1;

  bool Has(int chunk) const { return chunk >= 0 && chunk < options_.chunks; }
  int LinkOf(int chunk) const { return chunk % static_cast<int>(links_.size()); }
  // Returns how many elements of a gradient come before its numbers.
  size_t KeyElements(int chunk, size_t elements) const {
    return widths_[chunk] == 0 ? 0 : 2 * (elements / (2 + widths_[chunk]));
  }
  template <typename Set>
  absl::Status SetBack(int chunk, Set set);
  absl::Status WaitLocked(ChunkReplica& replica, MonotonicTime deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica.mu);
  absl::Status AwaitTurnLocked(int chunk, ChunkReplica& replica, MonotonicTime deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica.mu);
  const Rounded* Round(int chunk, std::span<const float> gradient) const;
  void ForwardLocked(int chunk, ChunkReplica& replica, const ChunkPush& push,
                     const Rounded* rounded, int64_t number)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica.mu);
  void RestartHandoverLocked(int chunk, ChunkReplica& replica)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica.mu);
  void SettleLocked(ChunkReplica& replica) ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica.mu);

  // ---- Called by the thread
  void HandOverAll();
  bool NextTask(int* task);
  absl::Status Reach(int link);
  absl::Status HandOver(int chunk);
  bool MatchesLocked(int chunk, ChunkReplica& replica) ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica.mu);
  absl::Status ReportSynced();
  void Note(const absl::Status& status, int task);

  const std::shared_ptr<ShardStore> local_;
  const ReplicationOptions options_;
  std::vector<size_t> widths_;  // Indexed by chunk. 0 if the chunk is not of a table.
  std::vector<ChunkReplica> replicas_;
  std::atomic<bool> strict_;  // Set once, by the thread.
  // A backup that is not in sync has delayed an update for too long. Until it answers a handover,
  // no update waits for it.
  std::atomic<bool> hangs_ = false;
  std::atomic<bool> closed_ = false;

  mutable absl::Mutex mu_;  // Locked after a ChunkReplica's mutex.
  CondVar woken_;
  int unsettled_ ABSL_GUARDED_BY(mu_);
  std::set<int> queue_ ABSL_GUARDED_BY(mu_);  // Chunks to hand over.
  // Tasks whose last attempt failed; last_error_ is about them.
  std::set<int> failed_ ABSL_GUARDED_BY(mu_);
  bool synced_ ABSL_GUARDED_BY(mu_) = false;
  std::string last_error_ ABSL_GUARDED_BY(mu_);
  std::multiset<MonotonicTime> waits_ ABSL_GUARDED_BY(mu_);  // Start of each push's wait.

  // Used only by the thread.
  ReplicaDialer dialer_;
  std::vector<LinkPtr> links_;
  // The versions that the backup reported on the newest link. An entry is empty once it is
  // outdated.
  std::vector<ChunkVersion> backup_versions_;
  int last_ = -1;  // The last chunk taken from the queue.
  std::thread thread_;
};

// ---- Pushes of workers

absl::Status ReplicatedStoreImpl::WaitLocked(ChunkReplica& replica, MonotonicTime deadline) {
  const Duration left = deadline - Clock::now();
  if (closed_) return Superseded("the view has changed");
  if (left > Duration::zero()) replica.changed.WaitFor(&replica.mu, left);
  if (closed_) return Superseded("the view has changed");
  if (Clock::now() < deadline) return absl::OkStatus();
  return PeerLost(
      fmt::format("ps {}, the backup of shard {}, has not acknowledged a change, and "
                  "no new view came within {:g} s",
                  options_.backup, options_.shard, Seconds(options_.new_view)));
}

// Waits until an update can be forwarded or need not be.
absl::Status ReplicatedStoreImpl::AwaitTurnLocked(int chunk, ChunkReplica& replica,
                                                  MonotonicTime deadline) {
  const MonotonicTime begin = Clock::now();
  while (replica.handing_over || (strict_ && replica.link == nullptr)) {
    const MonotonicTime held = begin + options_.hold + SendingTime(replica.bytes);
    if (!strict_ && (hangs_ || Clock::now() >= held)) {
      hangs_ = true;
      RestartHandoverLocked(chunk, replica);
      return absl::OkStatus();
    }
    MUSTER_RETURN_IF_ERROR(WaitLocked(replica, strict_ ? deadline : std::min(deadline, held)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Pushed> ReplicatedStoreImpl::Apply(int chunk, const ChunkPush& push,
                                                  std::span<float> out) {
  if (!Has(chunk)) return local_->Apply(chunk, push, out);
  ChunkPush applied = push;
  const Rounded* rounded = Round(chunk, push.gradient);
  if (rounded != nullptr) applied.gradient = rounded->values;
  absl::StatusOr<Pushed> pushed;
  {
    const Wait wait(this, push.gradient.size_bytes());
    ChunkReplica& replica = replicas_[chunk];
    absl::MutexLock lock(&replica.mu);
    if (local_->serving())  // Otherwise the store says what is missing.
      MUSTER_RETURN_IF_ERROR(AwaitTurnLocked(chunk, replica, Clock::now() + options_.new_view));
    if (closed_) return Superseded("the view has changed");
    pushed = local_->Apply(chunk, applied, out);
    // An update that is not forwarded is in the state that will be handed over.
    if (pushed.ok() && pushed->applied && replica.link != nullptr)
      ForwardLocked(chunk, replica, applied, rounded, pushed->updates);
  }
  if (pushed.ok() && !push.ahead) MUSTER_RETURN_IF_ERROR(Await(chunk));
  return pushed;
}

// Returns once all frames of the chunk sent so far have arrived. A push that the chunk already
// contained is thus acknowledged like a new one.
absl::Status ReplicatedStoreImpl::Await(int chunk) {
  // strict_ is read after the chunk's update was sent. The thread that sets it waits for that
  // update.
  if (!Has(chunk) || !strict_) return absl::OkStatus();
  const Wait wait(this, 0);
  const MonotonicTime deadline = Clock::now() + options_.new_view;
  ChunkReplica& replica = replicas_[chunk];
  for (;;) {
    LinkPtr link;
    uint64_t sent = 0;
    {
      absl::MutexLock lock(&replica.mu);
      while (replica.link == nullptr) MUSTER_RETURN_IF_ERROR(WaitLocked(replica, deadline));
      link = replica.link;
      sent = replica.sent;
    }
    if (link->Await(sent).ok()) return absl::OkStatus();
    if (closed_) return Superseded("the view has changed");
    absl::MutexLock lock(&replica.mu);
    if (replica.link == link) RestartHandoverLocked(chunk, replica);
  }
}

// Returns a thread-local rounded gradient, null if gradients are sent as they are.
const Rounded* ReplicatedStoreImpl::Round(int chunk, std::span<const float> gradient) const {
  if (options_.compression == push_pull::Compression::kNone) return nullptr;
  thread_local Rounded rounded;
  const size_t keys = KeyElements(chunk, gradient.size());
  rounded.values.resize(gradient.size());
  rounded.narrow.resize(gradient.size() - keys);
  std::copy_n(gradient.data(), keys, rounded.values.data());  // Keys are not numbers.
  push_pull::Narrow(options_.compression, gradient.subspan(keys), rounded.narrow.data());
  push_pull::Widen(options_.compression, rounded.narrow.data(),
                   std::span(rounded.values).subspan(keys));
  return &rounded;
}

void ReplicatedStoreImpl::ForwardLocked(int chunk, ChunkReplica& replica, const ChunkPush& push,
                                        const Rounded* rounded, int64_t number) {
  const UpdateHead head = HeadOf(push, number, options_.compression);
  ReplicaFrame frame;
  frame.chunk = static_cast<uint32_t>(chunk);
  const size_t keys = KeyElements(chunk, push.gradient.size());
  const ReplicaLink::Payload payload = {
      std::as_bytes(std::span(&head, 1)), std::as_bytes(push.gradient.first(keys)),
      rounded != nullptr ? std::as_bytes(std::span(rounded->narrow))
                         : std::as_bytes(push.gradient.subspan(keys))};
  const Duration held = options_.hold + SendingTime(push.gradient.size_bytes());
  const auto sent = replica.link->Send(ReplicaKind::kUpdate, frame, payload,
                                       strict_ ? options_.stall : std::min(options_.stall, held));
  if (sent.ok()) {
    replica.sent = *sent;
    return;
  }
  if (absl::IsDeadlineExceeded(sent.status())) hangs_ = true;
  RestartHandoverLocked(chunk, replica);
}

void ReplicatedStoreImpl::RestartHandoverLocked(int chunk, ChunkReplica& replica) {
  replica.link = nullptr;
  replica.handing_over = false;
  ++replica.round;
  replica.changed.SignalAll();
  absl::MutexLock lock(&mu_);
  if (std::exchange(replica.settled, false)) ++unsettled_;
  synced_ = false;
  queue_.insert(chunk);
  woken_.SignalAll();
}

void ReplicatedStoreImpl::SettleLocked(ChunkReplica& replica) {
  replica.is_prefix = true;
  replica.changed.SignalAll();
  absl::MutexLock lock(&mu_);
  if (!std::exchange(replica.settled, true)) --unsettled_;
}

template <typename Set>
absl::Status ReplicatedStoreImpl::SetBack(int chunk, Set set) {
  if (!Has(chunk)) return set();
  ChunkReplica& replica = replicas_[chunk];
  absl::MutexLock lock(&replica.mu);
  MUSTER_RETURN_IF_ERROR(set());
  replica.is_prefix = false;
  RestartHandoverLocked(chunk, replica);
  const MonotonicTime deadline = Clock::now() + options_.new_view;
  while (strict_ && !replica.settled) MUSTER_RETURN_IF_ERROR(WaitLocked(replica, deadline));
  return absl::OkStatus();
}

void ReplicatedStoreImpl::Close() {
  closed_ = true;
  for (ChunkReplica& replica : replicas_) {
    absl::MutexLock lock(&replica.mu);
    replica.changed.SignalAll();
  }
  {
    absl::MutexLock lock(&mu_);
    woken_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

// ---- The thread

// Waits for something to do. Returns false if closed.
bool ReplicatedStoreImpl::NextTask(int* task) {
  absl::MutexLock lock(&mu_);
  for (;;) {
    if (closed_) return false;
    if (!queue_.empty()) {
      // Round robin, so that a chunk that cannot be handed over does not block others.
      auto next = queue_.upper_bound(last_);
      if (next == queue_.end()) next = queue_.begin();
      last_ = *task = *next;
      queue_.erase(next);
      return true;
    }
    if (unsettled_ == 0 && !synced_) {
      // From here on, no update is acknowledged before the backup has it. All earlier updates were
      // sent.
      strict_ = true;
      *task = kReportSynced;
      return true;
    }
    woken_.Wait(&mu_);  // Close wakes it at the latest.
  }
}

void ReplicatedStoreImpl::HandOverAll() {
  int task = 0;
  while (NextTask(&task)) Note(task == kReportSynced ? ReportSynced() : HandOver(task), task);
}

void ReplicatedStoreImpl::Note(const absl::Status& status, int task) {
  absl::MutexLock lock(&mu_);
  if (status.ok() || closed_) {
    failed_.erase(task);
    if (failed_.empty() || closed_) last_error_.clear();
    return;
  }
  failed_.insert(task);
  const std::string last_error =
      fmt::format("the backup of shard {} on ps {} cannot be brought up to date: {}",
                  options_.shard, options_.backup, Message(status));
  if (last_error != last_error_) LogWarning("{}", last_error);
  last_error_ = last_error;
  if (task != kReportSynced) queue_.insert(task);
  const MonotonicTime until = Clock::now() + kRetry;
  while (!closed_)
    if (woken_.WaitUntil(&mu_, until)) break;
}

// Opens the link if it is closed or has failed. Chunks that used a failed link must be sent again.
absl::Status ReplicatedStoreImpl::Reach(int link) {
  LinkPtr& there = links_[link];
  if (there != nullptr && there->status().ok()) return absl::OkStatus();
  for (int c = link; c < options_.chunks; c += static_cast<int>(links_.size())) {
    absl::MutexLock lock(&replicas_[c].mu);
    if (replicas_[c].link != nullptr) RestartHandoverLocked(c, replicas_[c]);
  }
  std::vector<ChunkVersion> backup_versions;
  MUSTER_ASSIGN_OR_RETURN(there, dialer_.Dial(Clock::now() + options_.stall, &backup_versions));
  if (static_cast<int>(backup_versions.size()) != options_.chunks) {
    there = nullptr;
    return PeerLost(fmt::format("it answered with {} chunks, and the shard has {}",
                                backup_versions.size(), options_.chunks));
  }
  for (int c = link; c < options_.chunks; c += static_cast<int>(links_.size()))
    backup_versions_[c] = backup_versions[c];
  return absl::OkStatus();
}

// Returns whether the backup has the chunk's whole state. If so, sends later updates on the link.
// The backup has it if it has as many updates and the replica's `is_prefix` is true.
bool ReplicatedStoreImpl::MatchesLocked(int chunk, ChunkReplica& replica) {
  const bool same =
      std::exchange(backup_versions_[chunk], ChunkVersion()) == local_->chunk_version(chunk);
  if (!same || !replica.is_prefix) return false;
  replica.link = links_[LinkOf(chunk)];
  replica.sent = 0;
  SettleLocked(replica);
  return true;
}

absl::Status ReplicatedStoreImpl::HandOver(int chunk) {
  MUSTER_RETURN_IF_ERROR(Reach(LinkOf(chunk)));
  const LinkPtr link = links_[LinkOf(chunk)];
  ChunkReplica& replica = replicas_[chunk];
  absl::StatusOr<Handover> handover;
  uint64_t round = 0;
  {
    absl::MutexLock lock(&replica.mu);
    // The call that fills the chunk will queue it.
    if (local_->chunk_version(chunk).updates < 0 || replica.link != nullptr)
      return absl::OkStatus();
    if (MatchesLocked(chunk, replica)) return absl::OkStatus();
    handover = Handover::Of(*local_, chunk);
    MUSTER_RETURN_IF_ERROR(handover.status());
    round = replica.round;
    replica.handing_over = true;
    replica.bytes = handover->bytes();
  }
  const absl::StatusOr<uint64_t> sent = handover->Send(*link, options_.stall, closed_);
  if (sent.ok()) {
    absl::MutexLock lock(&replica.mu);
    if (replica.round != round) return absl::OkStatus();  // It was reset, and is queued.
    replica.link = link;
    replica.sent = *sent;
    replica.handing_over = false;
    replica.changed.SignalAll();
  }
  const absl::Status arrived = sent.ok() ? link->Await(*sent) : sent.status();
  absl::MutexLock lock(&replica.mu);
  const bool newest = replica.round == round;
  if (!arrived.ok()) {
    if (newest) RestartHandoverLocked(chunk, replica);
    return arrived;
  }
  hangs_ = false;
  if (newest) SettleLocked(replica);
  return absl::OkStatus();
}

absl::Status ReplicatedStoreImpl::ReportSynced() {
  for (int link = 0; link < static_cast<int>(links_.size()); ++link) {
    MUSTER_RETURN_IF_ERROR(Reach(link));
    MUSTER_RETURN_IF_ERROR(links_[link]->Await(links_[link]->sent()));
  }
  {
    absl::MutexLock lock(&mu_);
    if (unsettled_ > 0) return absl::OkStatus();  // A link failed.
  }
  MUSTER_ASSIGN_OR_RETURN(const uint64_t frame,
                          links_[0]->Send(ReplicaKind::kSynced, {}, {}, options_.stall));
  MUSTER_RETURN_IF_ERROR(links_[0]->Await(frame));
  absl::MutexLock lock(&mu_);
  synced_ = unsettled_ == 0;
  if (synced_)
    LogInfo("the backup of shard {} on ps {} is up to date", options_.shard, options_.backup);
  return absl::OkStatus();
}

}  // namespace

std::shared_ptr<ReplicatedStore> ReplicatedStore::Make(std::shared_ptr<ShardStore> local,
                                                       ReplicationOptions options) {
  return std::make_shared<ReplicatedStoreImpl>(std::move(local), std::move(options));
}

}  // namespace muster::ps
