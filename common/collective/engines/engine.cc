#include "common/collective/engines/engine.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/collective/failed_work.h"
#include "common/collective/operation_spans.h"

namespace muster::collective {
namespace {

class CommunicatorImpl;

class OperationWork : public Work, public std::enable_shared_from_this<OperationWork> {
 public:
  OperationWork(CommunicatorImpl* front, Operation operation)
      : front(front), operation(operation) {}
  absl::Status Wait() override;
  bool Done() const override { return done.load(std::memory_order_acquire); }

  CommunicatorImpl* const front;  // Not owned. Outlives every unfinished Work.
  const Operation operation;
  MonotonicTime deadline{};
  const OperationLabel label;
  absl::Status status;  // Guarded by the mutex of `front` until done, then constant.
  std::atomic<bool> done{false};
};

class CommunicatorImpl : public Communicator {
 public:
  CommunicatorImpl(std::unique_ptr<Engine> engine, CommunicatorOptions options)
      : engine_(std::move(engine)),
        options_(std::move(options)),
        recorder_(options_.recorder),
        spans_(options_.rank),
        timeout_(options_.timeout) {
    if (options_.progress_thread) thread_ = std::thread([this] { Progress(); });
  }

  ~CommunicatorImpl() override {
    bool under_way;
    {
      absl::MutexLock lock(&mutex_);
      under_way = running_ || !queue_.empty();
      ending_ = true;
      changed_.SignalAll();
    }
    if (under_way) Abort(Superseded("The communicator was destroyed."));
    if (thread_.joinable()) thread_.join();
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::string Describe() const override { return engine_->Describe(); }
  std::vector<std::string> labels() const override { return options_.labels; }
  std::shared_ptr<FlightRecorder> TakeRecorder() override {
    absl::MutexLock lock(&mutex_);
    return std::exchange(recorder_, nullptr);
  }
  void IssueFor(const Signature& asked) override {
    absl::MutexLock lock(&mutex_);
    asked_ = asked;
  }

  WorkPtr AllReduce(Buffer buffer, ReduceOp op) override {
    Signature s{.count = buffer.count, .verb = Verb::kAllReduce, .type = buffer.type, .op = op};
    return Issue({s, buffer, buffer}, CheckReducible(buffer));
  }
  WorkPtr Broadcast(Buffer buffer, int root) override {
    Signature s{.count = buffer.count, .root = root, .verb = Verb::kBroadcast, .type = buffer.type};
    absl::Status valid = CheckBuffer(buffer);
    if (root < 0 || root >= size()) {
      valid = ProgramError(fmt::format("broadcast from rank {} in a group of {}", root, size()));
    }
    return Issue({s, buffer, buffer}, valid);
  }
  WorkPtr AllGather(Buffer send, Buffer receive) override {
    Signature s{.count = send.count, .verb = Verb::kAllGather, .type = send.type};
    absl::Status valid = CheckBuffer(send);
    if (receive.type != send.type || receive.count != send.count * size()) {
      valid = SizesError("all_gather", send, receive, "receive must hold size() times send");
    }
    return Issue({s, send, receive}, valid);
  }
  WorkPtr ReduceScatter(Buffer send, Buffer receive, ReduceOp op) override {
    Signature s{
        .count = receive.count, .verb = Verb::kReduceScatter, .type = receive.type, .op = op};
    absl::Status valid = CheckReducible(receive);
    if (receive.type != send.type || send.count != receive.count * size()) {
      valid = SizesError("reduce_scatter", send, receive, "send must hold size() times receive");
    }
    return Issue({s, send, receive}, valid);
  }
  WorkPtr Barrier() override { return Issue({Signature{}, {}, {}}, absl::OkStatus()); }

  std::shared_ptr<void> AllocateReducible(int64_t bytes) override {
    return engine_->AllocateReducible(bytes);
  }

  void Abort(absl::Status why) override {
    if (why.ok()) why = Superseded("The communicator was aborted.");
    absl::MutexLock lock(&mutex_);
    PoisonLocked(why);
    engine_->Wake(poison_);
    while (running_) changed_.Wait(&mutex_);
    CloseLocked();
  }

  absl::Status status() const override {
    absl::MutexLock lock(&mutex_);
    return poison_;
  }

  void set_timeout(Duration timeout) override {
    absl::MutexLock lock(&mutex_);
    timeout_ = timeout;
    engine_->set_timeout(timeout);
  }

  absl::Status WaitFor(OperationWork& work) {
    absl::MutexLock lock(&mutex_);
    while (!work.Done()) {
      if (!options_.progress_thread && !running_ && !queue_.empty()) {
        RunNextLocked(Clock::now() + timeout_);
      } else {
        changed_.Wait(&mutex_);
      }
    }
    return work.status;
  }

 private:
  absl::Status CheckBuffer(const Buffer& buffer) const {
    if (buffer.count < 0 || (buffer.data == nullptr && buffer.count > 0)) {
      return ProgramError(
          fmt::format("A collective operation was given {} elements at a null or invalid address.",
                      buffer.count));
    }
    return absl::OkStatus();
  }
  absl::Status CheckReducible(const Buffer& buffer) const {
    if (buffer.type == DataType::kByte) return ProgramError("Bytes cannot be reduced.");
    return CheckBuffer(buffer);
  }
  absl::Status SizesError(const char* verb, const Buffer& send, const Buffer& receive,
                          const char* rule) const {
    return ProgramError(fmt::format("{} of {} x {} into {} x {} in a group of {}: {}.", verb,
                                    DataTypeName(send.type), send.count, DataTypeName(receive.type),
                                    receive.count, size(), rule));
  }

  WorkPtr Issue(Operation operation, absl::Status valid) {
    absl::MutexLock lock(&mutex_);
    if (!poison_.ok()) return std::make_shared<FailedWork>(poison_);
    // Poisons the group. Otherwise the other ranks would wait for this one until their deadline.
    if (!valid.ok()) {
      PoisonLocked(valid);
      engine_->Wake(valid);
      if (!running_) CloseLocked();
      return std::make_shared<FailedWork>(valid);
    }
    operation.signature.sequence = ++sequence_;
    if (asked_) {
      operation.signature.for_replicas = true;
      operation.signature.asked_root = asked_->root;
      operation.signature.asked_verb = asked_->verb;
      operation.signature.asked_op = asked_->op;
    }
    auto work = std::make_shared<OperationWork>(this, operation);
    if (options_.progress_thread) work->deadline = Clock::now() + timeout_;
    queue_.push_back(work);
    if (options_.progress_thread) changed_.SignalAll();
    return work;
  }

  // Takes the first operation and runs it. Releases the lock meanwhile.
  void RunNextLocked(MonotonicTime deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::shared_ptr<OperationWork> work = std::move(queue_.front());
    queue_.pop_front();
    running_ = true;
    FlightRecorder* const recorder = recorder_.get();  // Valid during this call.
    mutex_.Unlock();
    const CollectiveCall call = CallOf(work->operation.signature, rank());
    if (recorder != nullptr) recorder->Starts(call);
    const MonotonicTime begin = Clock::now();
    const uint64_t span = recorder != nullptr ? spans_.Open(work->label, call, begin) : 0;
    absl::Status status = engine_->Run(work->operation, deadline);
    if (recorder != nullptr) spans_.Add(work->label, call, begin, span);
    mutex_.Lock();
    // The communicator was aborted before the error. The abort's reason is more useful.
    if (!poison_.ok()) status = poison_;
    if (recorder != nullptr) recorder->Ends(call, Message(status));
    if (!status.ok()) PoisonLocked(status);
    work->status = status;
    work->done.store(true, std::memory_order_release);
    if (!status.ok()) CloseLocked();
    running_ = false;
    changed_.SignalAll();
  }

  void PoisonLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (poison_.ok()) poison_ = why;
    for (const auto& work : queue_) {
      work->status = poison_;
      work->done.store(true, std::memory_order_release);
    }
    queue_.clear();
    changed_.SignalAll();
  }

  void CloseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!std::exchange(closed_, true)) engine_->Close(poison_);
  }

  void Progress() {
    absl::MutexLock lock(&mutex_);
    for (;;) {
      if (!queue_.empty()) {
        RunNextLocked(queue_.front()->deadline);
      } else if (ending_) {
        return;
      } else {
        changed_.Wait(&mutex_);
      }
    }
  }

  const std::unique_ptr<Engine> engine_;
  const CommunicatorOptions options_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<FlightRecorder> recorder_ ABSL_GUARDED_BY(mutex_);
  const OperationSpans spans_;
  absl::CondVar changed_;
  std::deque<std::shared_ptr<OperationWork>> queue_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;  // The engine runs an operation.
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<Signature> asked_ ABSL_GUARDED_BY(mutex_);
  absl::Status poison_ ABSL_GUARDED_BY(mutex_);
  Duration timeout_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

absl::Status OperationWork::Wait() {
  if (Done()) return status;
  return front->WaitFor(*this);
}

class AloneEngine : public Engine {
 public:
  std::string Describe() const override { return "one rank"; }
  absl::Status Run(const Operation& operation, MonotonicTime) override {
    const Buffer &from = operation.send, &to = operation.receive;
    if (from.data != to.data && to.bytes() > 0) std::memcpy(to.data, from.data, to.bytes());
    return absl::OkStatus();
  }
  void Wake(const absl::Status&) override {}
  void Close(const absl::Status&) override {}
};

}  // namespace

std::unique_ptr<Communicator> MakeCommunicator(std::unique_ptr<Engine> engine,
                                               CommunicatorOptions options) {
  return std::make_unique<CommunicatorImpl>(std::move(engine), std::move(options));
}

CollectiveCall CallOf(const Signature& s, int rank) {
  CollectiveCall call;
  call.replica = rank;
  call.sequence = s.sequence;
  call.operation = VerbName(s.verb);
  if (s.verb == Verb::kBarrier) return call;
  call.type = DataTypeName(s.type).data();
  call.count = s.count;
  call.bytes = s.count * SizeOf(s.type);
  if (s.verb == Verb::kBroadcast) call.root = s.root;
  if (s.verb == Verb::kAllReduce || s.verb == Verb::kReduceScatter)
    call.reduction = ReduceOpName(s.op).data();
  return call;
}

std::unique_ptr<Engine> MakeAloneEngine() { return std::make_unique<AloneEngine>(); }

}  // namespace muster::collective
