#include "ps/replication.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/logging.h"
#include "common/base/wait.h"
#include "ps/replication_link.h"

namespace muster::ps {
namespace {

// Between two tries to reach the backup.
constexpr Duration kRetry = std::chrono::milliseconds(200);
// Slower than a connection that is of any use: what many bytes add to a short limit.
constexpr double kLeastBytesPerSecond = 50e6;
// Of a piece of rows that are handed over: 4 MiB.
constexpr int64_t kPieceElements = 1 << 20;

Duration SendingTime(size_t bytes) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(static_cast<double>(bytes) / kLeastBytesPerSecond));
}

// A chunk on its way to the backup. Its state is handed over under a number; that number, and what
// is forwarded under it, is what the backup holds.
struct Lane {
  absl::Mutex mu;  // before the local store's locks, and the store's mu_
  CondVar changed;
  bool handed ABSL_GUARDED_BY(mu) = false;      // updates are forwarded
  uint32_t handover ABSL_GUARDED_BY(mu) = 0;    // of the newest state that left
  size_t bytes ABSL_GUARDED_BY(mu) = 0;         // of that state
  uint32_t required ABSL_GUARDED_BY(mu) = 0;    // which one contains all that is here
  uint32_t arrived ABSL_GUARDED_BY(mu) = 0;     // the newest that the backup has
  uint64_t forwards ABSL_GUARDED_BY(mu) = 0;    // counts them
  std::set<uint64_t> open ABSL_GUARDED_BY(mu);  // those under way
  bool settled ABSL_GUARDED_BY(mu) = false;     // handed, and arrived
};

class ReplicatedStoreImpl final : public ReplicatedStore {
 public:
  ReplicatedStoreImpl(std::shared_ptr<DenseStore> local, ReplicationOptions options)
      : local_(std::move(local)),
        options_(std::move(options)),
        lanes_(options_.chunks),
        strict_(options_.in_sync),
        unsettled_(options_.chunks),
        dialer_(options_) {
    for (int c = 0; c < options_.chunks; ++c) queue_.insert(c);
    thread_ = std::thread([this] { HandOverAll(); });
  }
  ~ReplicatedStoreImpl() override { Close(); }

  absl::Status Fill(int chunk, std::span<const float> parameters) override {
    return SetBack(chunk, [&] { return local_->Fill(chunk, parameters); });
  }
  absl::Status Restore(int chunk, ChunkState state, Piece piece) override {
    // Until its last piece the chunk is as it was.
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
  std::vector<RowColumn> columns(int chunk) const override { return local_->columns(chunk); }
  void Admit(int worker, uint64_t incarnation) override { local_->Admit(worker, incarnation); }
  // Not forwarded: what it is for, the chief mostly knows from the worker.
  void Expel(int worker) override { local_->Expel(worker); }
  absl::StatusOr<Pushed> Apply(int chunk, const Push& push, std::span<float> out) override;
  absl::StatusOr<int64_t> Pull(int chunk, std::span<float> out) const override {
    return local_->Pull(chunk, out);
  }
  absl::StatusOr<int64_t> PullRows(int chunk, std::span<const uint64_t> keys,
                                   std::span<float> rows) const override {
    return local_->PullRows(chunk, keys, rows);
  }
  Standing standing(int chunk) const override { return local_->standing(chunk); }
  absl::StatusOr<Pushed> Replay(int, const Push&, int64_t) override {
    return absl::FailedPreconditionError("a primary replays nothing");
  }
  int64_t applied() const override { return local_->applied(); }
  std::map<int, TableStatistics> tables() const override { return local_->tables(); }

  bool synced() const override {
    absl::MutexLock lock(&mu_);
    return synced_;
  }
  std::string trouble() const override {
    absl::MutexLock lock(&mu_);
    return trouble_;
  }
  Duration waiting() const override {
    absl::MutexLock lock(&mu_);
    if (!strict_ || waits_.empty()) return Duration::zero();
    return std::max(Duration::zero(), Clock::now() - *waits_.begin());
  }
  void Close() override;

 private:
  // A push that waits for the backup, as `waiting` tells it.
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

  using LinkPtr = std::unique_ptr<ReplicaLink>;
  static constexpr int kTellSynced = -1;

  bool Has(int chunk) const { return chunk >= 0 && chunk < options_.chunks; }
  template <typename Set>
  absl::Status SetBack(int chunk, Set set);
  absl::Status WaitLocked(Lane& lane, MonotonicTime deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lane.mu);
  Duration LimitLocked(const Lane& lane, const Push& push) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lane.mu);
  bool ForwardLocked(int chunk, Lane& lane, const Push& push, int64_t number)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lane.mu);
  absl::Status Forward(int chunk, const Push& push, int64_t number, uint32_t handover,
                       MonotonicTime deadline);
  void HandAnewLocked(int chunk, Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lane.mu);
  void SettleLocked(Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lane.mu);

  // ---- of the thread
  void HandOverAll();
  bool NextTask(int* task);
  absl::Status Reach();
  absl::Status HandOver(int chunk);
  // What a handover brings, all of it as of one moment.
  struct Handover {
    ReplicaFrame frame;
    ChunkState state;  // of a chunk of a table without the rows
    std::vector<RowColumn> columns;
    FrozenRows rows;
  };
  absl::StatusOr<bool> BeginHandOverLocked(int chunk, Lane& lane, Handover* handover)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lane.mu);
  absl::StatusOr<bool> Send(const Handover& handover);
  absl::StatusOr<bool> SendPiece(ReplicaFrame frame, const ChunkState& state);
  absl::Status TellSynced();
  void Note(const absl::Status& status, int task);

  const std::shared_ptr<DenseStore> local_;
  const ReplicationOptions options_;
  std::vector<Lane> lanes_;
  std::atomic<bool> strict_;  // set once, by the thread
  // One that does not count yet has let an update wait too long: until it has answered a handover,
  // none waits for it.
  std::atomic<bool> hangs_ = false;
  std::atomic<bool> closed_ = false;

  mutable absl::Mutex mu_;  // after any lane's
  CondVar woken_;
  int unsettled_ ABSL_GUARDED_BY(mu_);
  std::set<int> queue_ ABSL_GUARDED_BY(mu_);   // chunks to be handed over
  std::set<int> failed_ ABSL_GUARDED_BY(mu_);  // tasks, the last time; what trouble_ is about
  bool synced_ ABSL_GUARDED_BY(mu_) = false;
  std::string trouble_ ABSL_GUARDED_BY(mu_);
  std::multiset<MonotonicTime> waits_ ABSL_GUARDED_BY(mu_);  // of each push, since when
  std::vector<LinkPtr> idle_ ABSL_GUARDED_BY(mu_);  // connections that nobody forwards over now

  ReplicaDialer dialer_;
  // The thread's.
  LinkPtr link_;
  std::vector<Standing> theirs_;  // what the backup held at the beginning
  std::vector<bool> compared_;
  int last_ = -1;  // chunk that was taken from the queue
  std::thread thread_;
};

// ---- workers' pushes

absl::Status ReplicatedStoreImpl::WaitLocked(Lane& lane, MonotonicTime deadline) {
  const Duration left = deadline - Clock::now();
  if (closed_) return Superseded("the view has changed");
  if (left > Duration::zero()) lane.changed.WaitFor(&lane.mu, left);
  if (closed_) return Superseded("the view has changed");
  if (Clock::now() < deadline) return absl::OkStatus();
  return PeerLost(
      fmt::format("ps {}, the backup of shard {}, has not acknowledged a change, and "
                  "no new view came within {:g} s",
                  options_.backup, options_.shard, Seconds(options_.new_view)));
}

absl::StatusOr<Pushed> ReplicatedStoreImpl::Apply(int chunk, const Push& push,
                                                  std::span<float> out) {
  if (!Has(chunk)) return local_->Apply(chunk, push, out);
  const Wait wait(this, push.gradient.size_bytes());
  const MonotonicTime deadline = Clock::now() + options_.new_view;
  Lane& lane = lanes_[chunk];
  absl::MutexLock lock(&lane.mu);
  if (local_->serving())  // else the store says what is missing
    while (strict_ && !lane.handed) MUSTER_RETURN_IF_ERROR(WaitLocked(lane, deadline));
  if (closed_) return Superseded("the view has changed");
  const absl::StatusOr<Pushed> pushed = local_->Apply(chunk, push, out);
  if (!pushed.ok()) return pushed;
  // Not strict: the state that is to be handed over will contain it.
  if (!lane.handed) return pushed;
  const uint64_t forward = ++lane.forwards;
  if (pushed->applied) {
    const bool there = ForwardLocked(chunk, lane, push, pushed->updates);
    // Read after the chunk was marked: from then on nobody makes it strict.
    if (there || !strict_) return pushed;
  }
  // What was here before is acknowledged like what is new: when all that left earlier has arrived.
  const auto on_its_way = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lane.mu) {
    if (!lane.open.empty() && *lane.open.begin() < forward) return true;
    return strict_ && (!lane.handed || lane.arrived < lane.required);
  };
  while (on_its_way()) MUSTER_RETURN_IF_ERROR(WaitLocked(lane, deadline));
  return pushed;
}

// How long it may wait for the backup: where that counts, for the connection alone.
Duration ReplicatedStoreImpl::LimitLocked(const Lane& lane, const Push& push) const {
  // The state goes first.
  const Duration state = SendingTime(lane.arrived < lane.handover ? lane.bytes : 0);
  if (strict_) return options_.stall + state;
  return std::min(options_.stall, options_.hold + SendingTime(push.gradient.size_bytes())) + state;
}

// Releases the lock meanwhile. False: it is not there, and the chunk will be handed over anew.
bool ReplicatedStoreImpl::ForwardLocked(int chunk, Lane& lane, const Push& push, int64_t number) {
  if (hangs_ && !strict_) {
    HandAnewLocked(chunk, lane);
    return false;
  }
  const uint64_t forward = lane.forwards;
  const uint32_t handover = lane.handover;
  const MonotonicTime deadline = Clock::now() + LimitLocked(lane, push);
  lane.open.insert(forward);
  lane.mu.Unlock();
  const absl::Status status = Forward(chunk, push, number, handover, deadline);
  if (!status.ok() && Clock::now() >= deadline) hangs_ = true;
  lane.mu.Lock();
  lane.open.erase(forward);
  // Unless it was handed over since then.
  if (!status.ok() && lane.handed && lane.handover == handover) HandAnewLocked(chunk, lane);
  lane.changed.SignalAll();
  return status.ok();
}

absl::Status ReplicatedStoreImpl::Forward(int chunk, const Push& push, int64_t number,
                                          uint32_t handover, MonotonicTime deadline) {
  LinkPtr link;
  {
    absl::MutexLock lock(&mu_);
    if (!idle_.empty()) {
      link = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (link == nullptr) {
    MUSTER_ASSIGN_OR_RETURN(link, dialer_.Dial(deadline, nullptr));
  }
  UpdateHead head;
  head.incarnation = push.key.incarnation;
  head.sequence = push.key.sequence;
  head.number = number;
  head.learning_rate = push.learning_rate;
  head.worker = static_cast<uint32_t>(push.key.worker);
  head.flags = push.floor ? 1u : 0u;
  ReplicaFrame frame;
  frame.chunk = static_cast<uint32_t>(chunk);
  frame.handover = handover;
  MUSTER_ASSIGN_OR_RETURN(
      const bool fresh,
      link->Ask(ReplicaKind::kUpdate, frame,
                {std::as_bytes(std::span(&head, 1)), std::as_bytes(push.gradient)}, deadline));
  {
    absl::MutexLock lock(&mu_);
    idle_.push_back(std::move(link));
  }
  return fresh ? absl::OkStatus() : absl::AbortedError("the chunk was handed over anew");
}

void ReplicatedStoreImpl::HandAnewLocked(int chunk, Lane& lane) {
  lane.handed = false;
  lane.required = lane.handover + 1;
  absl::MutexLock lock(&mu_);
  if (std::exchange(lane.settled, false)) ++unsettled_;
  synced_ = false;
  queue_.insert(chunk);
  woken_.SignalAll();
}

void ReplicatedStoreImpl::SettleLocked(Lane& lane) {
  absl::MutexLock lock(&mu_);
  if (!std::exchange(lane.settled, true)) --unsettled_;
  lane.changed.SignalAll();
}

template <typename Set>
absl::Status ReplicatedStoreImpl::SetBack(int chunk, Set set) {
  if (!Has(chunk)) return set();
  Lane& lane = lanes_[chunk];
  absl::MutexLock lock(&lane.mu);
  MUSTER_RETURN_IF_ERROR(set());
  HandAnewLocked(chunk, lane);
  const MonotonicTime deadline = Clock::now() + options_.new_view;
  while (strict_ && (!lane.handed || lane.arrived < lane.required))
    MUSTER_RETURN_IF_ERROR(WaitLocked(lane, deadline));
  return absl::OkStatus();
}

void ReplicatedStoreImpl::Close() {
  closed_ = true;
  for (Lane& lane : lanes_) {
    absl::MutexLock lock(&lane.mu);
    lane.changed.SignalAll();
  }
  {
    absl::MutexLock lock(&mu_);
    woken_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

// ---- the thread

// Waits for something to do. False: closed.
bool ReplicatedStoreImpl::NextTask(int* task) {
  absl::MutexLock lock(&mu_);
  for (;;) {
    if (closed_) return false;
    if (!queue_.empty()) {
      // In turn: one that cannot be handed over keeps no other one waiting.
      auto next = queue_.upper_bound(last_);
      if (next == queue_.end()) next = queue_.begin();
      last_ = *task = *next;
      queue_.erase(next);
      return true;
    }
    if (unsettled_ == 0 && !synced_) {
      // From here on nothing is acknowledged without the backup; all before is there.
      strict_ = true;
      *task = kTellSynced;
      return true;
    }
    woken_.Wait(&mu_);  // until Close at the latest
  }
}

void ReplicatedStoreImpl::HandOverAll() {
  int task = 0;
  while (NextTask(&task)) {
    absl::Status status = Reach();
    if (status.ok()) status = task == kTellSynced ? TellSynced() : HandOver(task);
    Note(status, task);
  }
}

void ReplicatedStoreImpl::Note(const absl::Status& status, int task) {
  if (!status.ok()) link_.reset();
  absl::MutexLock lock(&mu_);
  if (status.ok() || closed_) {
    failed_.erase(task);
    if (failed_.empty() || closed_) trouble_.clear();
    return;
  }
  failed_.insert(task);
  const std::string trouble =
      fmt::format("the backup of shard {} on ps {} cannot be brought up to date: {}",
                  options_.shard, options_.backup, Message(status));
  if (trouble != trouble_) LogWarning("{}", trouble);
  trouble_ = trouble;
  if (task != kTellSynced) queue_.insert(task);
  const MonotonicTime until = Clock::now() + kRetry;
  while (!closed_)
    if (woken_.WaitUntil(&mu_, until)) break;
}

absl::Status ReplicatedStoreImpl::Reach() {
  if (link_ != nullptr) return absl::OkStatus();
  if (!compared_.empty()) {
    MUSTER_ASSIGN_OR_RETURN(link_, dialer_.Dial(Clock::now() + options_.stall, nullptr));
    return absl::OkStatus();
  }
  MUSTER_ASSIGN_OR_RETURN(link_, dialer_.Dial(Clock::now() + options_.stall, &theirs_));
  if (static_cast<int>(theirs_.size()) != options_.chunks)
    return PeerLost(
        fmt::format("it told of {} chunks, and there are {}", theirs_.size(), options_.chunks));
  compared_.assign(options_.chunks, false);
  return absl::OkStatus();
}

// False: there is nothing to hand over.
absl::StatusOr<bool> ReplicatedStoreImpl::BeginHandOverLocked(int chunk, Lane& lane,
                                                              Handover* handover) {
  const Standing mine = local_->standing(chunk);
  // Whoever fills it says so.
  if (mine.updates < 0 || lane.handed) return false;
  // A backup that was in sync has a part of what this primary has applied, in its order: where it
  // is as long, it is all.
  const bool first = !compared_[chunk] && lane.required == 0;
  compared_[chunk] = true;
  if (first && options_.in_sync && theirs_[chunk] == mine) {
    lane.handed = true;
    SettleLocked(lane);
    return false;
  }
  handover->columns = local_->columns(chunk);
  int64_t elements = 0;
  if (handover->columns.empty()) {
    MUSTER_ASSIGN_OR_RETURN(handover->state, local_->Copy(chunk));
    elements = static_cast<int64_t>(handover->state.parameters.size() *
                                    (1 + handover->state.slots.size()));
  } else {
    // Rows that change on the way are copied before: workers do not wait for it.
    MUSTER_ASSIGN_OR_RETURN(handover->rows, local_->Freeze(chunk));
    handover->state.updates = handover->rows.updates;
    handover->state.last = handover->rows.last;
    handover->state.counted = handover->rows.counted;
    for (const RowColumn& column : handover->columns) elements += column.elements;
    elements *= handover->rows.rows->size();
  }
  lane.handed = true;
  lane.required = ++lane.handover;
  lane.bytes = static_cast<size_t>(elements) * sizeof(float);
  handover->frame.chunk = static_cast<uint32_t>(chunk);
  handover->frame.handover = lane.handover;
  lane.changed.SignalAll();
  return true;
}

absl::StatusOr<bool> ReplicatedStoreImpl::SendPiece(ReplicaFrame frame, const ChunkState& state) {
  const std::string payload = EncodeState(state);
  return link_->Ask(ReplicaKind::kState, frame, {std::as_bytes(std::span(payload)), {}},
                    Clock::now() + options_.stall);
}

// False: the backup has a later state.
absl::StatusOr<bool> ReplicatedStoreImpl::Send(const Handover& handover) {
  if (handover.columns.empty()) return SendPiece(handover.frame, handover.state);
  int64_t elements = 2;
  for (const RowColumn& column : handover.columns) elements += column.elements;
  const int64_t most = std::max<int64_t>(1, kPieceElements / elements);
  const int64_t rows = handover.rows.rows->size();
  for (int64_t first = 0;; first += most) {
    const int64_t count = std::min(most, rows - first);
    ChunkState piece = RowsOf(*handover.rows.rows, handover.columns, first, count);
    piece.updates = handover.state.updates;
    piece.last = handover.state.last;
    if (first + count >= rows) piece.counted = handover.state.counted;
    ReplicaFrame frame = handover.frame;
    frame.more = first + count < rows;
    if (closed_) return Superseded("the view has changed");
    MUSTER_ASSIGN_OR_RETURN(const bool fresh, SendPiece(frame, piece));
    if (!fresh || !frame.more) return fresh;
  }
}

absl::Status ReplicatedStoreImpl::HandOver(int chunk) {
  Lane& lane = lanes_[chunk];
  Handover handover;
  {
    absl::MutexLock lock(&lane.mu);
    MUSTER_ASSIGN_OR_RETURN(const bool begun, BeginHandOverLocked(chunk, lane, &handover));
    if (!begun) return absl::OkStatus();
  }
  const absl::StatusOr<bool> fresh = Send(handover);
  absl::MutexLock lock(&lane.mu);
  const uint32_t number = handover.frame.handover;
  const bool newest = lane.handed && lane.handover == number;
  if (!fresh.ok()) {
    if (newest) HandAnewLocked(chunk, lane);
    return fresh.status();
  }
  hangs_ = false;
  lane.arrived = std::max(lane.arrived, number);
  if (newest) SettleLocked(lane);
  return absl::OkStatus();
}

absl::Status ReplicatedStoreImpl::TellSynced() {
  MUSTER_RETURN_IF_ERROR(
      link_->Ask(ReplicaKind::kSynced, {}, {}, Clock::now() + options_.stall).status());
  absl::MutexLock lock(&mu_);
  synced_ = unsettled_ == 0;
  if (synced_)
    LogInfo("the backup of shard {} on ps {} is up to date", options_.shard, options_.backup);
  return absl::OkStatus();
}

}  // namespace

std::shared_ptr<ReplicatedStore> ReplicatedStore::Make(std::shared_ptr<DenseStore> local,
                                                       ReplicationOptions options) {
  return std::make_shared<ReplicatedStoreImpl>(std::move(local), std::move(options));
}

}  // namespace muster::ps
