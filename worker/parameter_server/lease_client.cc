#include "worker/parameter_server/lease_client.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wait.h"
#include "common/flight/spans.h"
#include "common/push_pull/variable_messages.h"
#include "common/rpc/renewable_channel.h"
#include "common/rpc/retry.h"
#include "proto/parameter_server.grpc.pb.h"
#include "worker/parameter_server/lease_reports.h"
#include "worker/parameter_server/loaded_leases.h"

namespace muster::worker {
namespace {

using push_pull::IntegerBuffers;

// The deadline of a call. The chief holds a call for up to a second.
constexpr Duration kCall = std::chrono::seconds(10);
constexpr Duration kReportWithin =
    std::chrono::seconds(2);  // The deadline of a call that only reports.
// The pause after an answer that there is no work.
constexpr Duration kBetween = std::chrono::milliseconds(20);
// The size of a request's completed batches, above which the others go with the next request. The
// chief accepts 16 MiB (kMaxTellBytes), so that one large batch may exceed this limit.
constexpr size_t kMaxDoneBytes = 8 << 20;

// Returns whether the request is too large for one message.
bool IsLarge(const proto::NextRequest& request) {
  return request.ByteSizeLong() > rpc::kMaxPieceBytes;
}

grpc::Status Tell(proto::Leases::Stub* stub, grpc::ClientContext* context,
                  const proto::NextRequest& request, proto::NextReply* reply) {
  const std::string all = request.SerializeAsString();
  const auto writer = stub->Tell(context, reply);
  proto::TellPiece piece;
  piece.set_bytes(static_cast<int64_t>(all.size()));
  for (size_t begin = 0; begin < all.size(); begin += rpc::kMaxPieceBytes) {
    piece.set_data(all.substr(begin, rpc::kMaxPieceBytes));
    if (!writer->Write(piece)) break;  // Finish returns the reason.
  }
  writer->WritesDone();
  return writer->Finish();
}

// REQUIRES: a request that IsLarge asks for no work.
grpc::Status Send(proto::Leases::Stub* stub, grpc::ClientContext* context,
                  const proto::NextRequest& request, proto::NextReply* reply) {
  return IsLarge(request) ? Tell(stub, context, request, reply)
                          : stub->Next(context, request, reply);
}

void WantNothingIfLarge(proto::NextRequest* request) {
  if (!IsLarge(*request)) return;
  request->set_want(0);
  request->set_start(0);
}

// The time since which the chief has not answered one caller.
struct Patience {
  std::optional<MonotonicTime> since;
  rpc::Backoff backoff;
};

class LeaseClientImpl final : public LeaseClient {
 public:
  LeaseClientImpl(LeaseClientOptions options, std::shared_ptr<rpc::RenewableChannel> channel)
      : options_(std::move(options)),
        channel_(std::move(channel)),
        stub_(proto::Leases::NewStub(channel_->Get())),
        ready_(options_.depth, options_.ahead),
        thread_([this] { Run(); }) {}
  ~LeaseClientImpl() override {
    Stop(absl::CancelledError("the worker has finished"));
    thread_.join();
  }

  absl::StatusOr<LeasedWork> Take() override;
  void Complete(proto::BatchDone done) override;
  void Complete(proto::EvaluationDone done) override;
  void ReportIntegers(const IntegerBuffers& changed, uint64_t sequence) override;
  IntegerBuffers TakeIntegers() override;
  void Forget() override;
  absl::StatusOr<proto::View> NextView(uint64_t newer_than, bool* abandon) override;
  void Finish() override;
  void Stop(absl::Status why) override;

 private:
  void Run();
  // Makes one call. Returns false if it had no effect. The caller must then wait before the next.
  bool AskLocked(Patience* patience) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AnsweredLocked(const proto::NextReply& reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddLeaseLocked(const proto::Lease& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LoadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns a request with the pending reports, which also asks for work if `asks_for_work`. If the
  // request does not arrive, RequeueLocked must be called.
  proto::NextRequest RequestLocked(bool asks_for_work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RequeueLocked(const proto::NextRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ArrivedLocked(const proto::NextRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    recent_.Heard(request);
    for (const proto::BatchDone& done : request.done()) shown_.Forget(done.lease());
    integers_.Arrived(request);
  }
  void CompletedLocked(int64_t lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs `call` with a stub and a context, without the lock.
  template <typename Call>
  grpc::Status CallLocked(Duration deadline, const Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits before a retry and returns OK. Returns an error if a retry cannot help or the patience is
  // exhausted.
  absl::Status UnansweredLocked(const grpc::Status& status, Patience* patience)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FailLocked(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (error_.ok()) error_ = std::move(why);
    changed_.SignalAll();
  }
  // Returns the next loaded lease if it may not start yet. 0: none.
  int64_t WaitingLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return ready_.waiting(); }
  bool MayStartLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !ready_.empty() && WaitingLocked() == 0;
  }
  size_t ahead() const { return static_cast<size_t>(options_.ahead); }
  // A waiting lease comes first, because a further lease would keep this thread busy with loading.
  bool WantsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !over_ && held_.size() <= ahead() && given_.empty() && WaitingLocked() == 0;
  }
  bool LoadsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !given_.empty() && held_.size() - given_.size() <= ahead();
  }
  // Returns the time by which completed work must be reported. The time is in the past if this
  // worker has few leases left, because other workers may wait for its reports.
  MonotonicTime ReportDeadlineLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!evaluated_.empty() || (!done_.empty() && held_.size() <= ahead())) return {};
    return done_.empty() ? MonotonicTime::max() : first_done_ + BatchPace::kTogether;
  }

  const LeaseClientOptions options_;
  const std::shared_ptr<rpc::RenewableChannel> channel_;

  absl::Mutex mu_;
  // The stub of the current channel. A running call keeps the stub with which it began.
  std::shared_ptr<proto::Leases::Stub> stub_ ABSL_GUARDED_BY(mu_);
  CondVar changed_;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mu_);
  bool busy_ ABSL_GUARDED_BY(mu_) = false;          // The thread is in a call or loads.
  bool reporting_ ABSL_GUARDED_BY(mu_) = false;     // Another thread is in a call that reports.
  bool introduce_ ABSL_GUARDED_BY(mu_) = true;      // The chief may not know this worker.
  int put_back_ ABSL_GUARDED_BY(mu_) = 0;           // The number of requests that did not arrive.
  int64_t completed_ ABSL_GUARDED_BY(mu_) = 0;      // The number of completed leases.
  bool over_ ABSL_GUARDED_BY(mu_) = false;          // There will be no more work.
  bool finished_ ABSL_GUARDED_BY(mu_) = false;      // Finish was called.
  bool none_ ABSL_GUARDED_BY(mu_) = false;          // The chief's last answer was that it has none.
  std::vector<int64_t> held_ ABSL_GUARDED_BY(mu_);  // In the order of the chief's answers.
  std::deque<proto::Lease> given_ ABSL_GUARDED_BY(mu_);  // Held leases that are not loaded yet.
  LoadedLeases ready_ ABSL_GUARDED_BY(mu_);              // Held leases that are loaded.
  BatchPace pace_ ABSL_GUARDED_BY(mu_);
  std::vector<proto::BatchDone> done_ ABSL_GUARDED_BY(mu_);  // Not reported yet.
  // The time at which done_ received its first entry.
  MonotonicTime first_done_ ABSL_GUARDED_BY(mu_);
  // The batches in the request that waits for its answer.
  std::vector<proto::BatchDone> asked_done_ ABSL_GUARDED_BY(mu_);
  std::vector<proto::EvaluationDone> evaluated_ ABSL_GUARDED_BY(mu_);  // Not reported yet.
  RecentBatches recent_ ABSL_GUARDED_BY(mu_);
  ShownBatches shown_ ABSL_GUARDED_BY(mu_);
  ChangedIntegers integers_ ABSL_GUARDED_BY(mu_);
  std::optional<IntegerBuffers> begins_with_ ABSL_GUARDED_BY(mu_);

  const std::shared_ptr<SpanRecorder> spans_ = SpanThread::Recorder();
  std::thread thread_;
};

// ---- Calls to the chief

template <typename Call>
grpc::Status LeaseClientImpl::CallLocked(Duration deadline, const Call& call) {
  const std::unique_ptr<grpc::ClientContext> context = rpc::WithDeadline(deadline);
  calls_.insert(context.get());
  std::shared_ptr<proto::Leases::Stub> stub = stub_;
  mu_.Unlock();
  grpc::Status status = call(stub.get(), context.get());
  stub.reset();
  mu_.Lock();
  calls_.erase(context.get());
  return status;
}

proto::NextRequest LeaseClientImpl::RequestLocked(bool asks_for_work) {
  proto::NextRequest request;
  request.mutable_worker()->set_worker(options_.worker);
  request.mutable_worker()->set_incarnation(options_.incarnation);
  request.set_want(asks_for_work && WantsLocked() ? pace_.together() : 0);
  request.set_start(asks_for_work ? WaitingLocked() : 0);
  for (const int64_t lease : held_) request.add_held(lease);
  for (proto::EvaluationDone& done : evaluated_) *request.add_evaluated() = std::move(done);
  evaluated_.clear();
  if (introduce_) {
    request.set_digest(options_.digest);
    *request.mutable_variables() = push_pull::ToMessages(options_.variables);
    done_ = recent_.all();  // Includes done_.
  }
  size_t taken = 0;
  for (size_t bytes = 0; taken < done_.size() && bytes < kMaxDoneBytes; ++taken) {
    bytes += done_[taken].ByteSizeLong();
    *request.add_done() = std::move(done_[taken]);
  }
  done_.erase(done_.begin(), done_.begin() + static_cast<int64_t>(taken));
  integers_.AddTo(/*all=*/introduce_, &request);
  for (proto::BatchDone& done : *request.mutable_done()) shown_.AddTo(&done);
  return request;
}

void LeaseClientImpl::RequeueLocked(const proto::NextRequest& request) {
  // recent_ has all completed batches, and the next call to the chief reports them.
  introduce_ = true;
  ++put_back_;
  evaluated_.insert(evaluated_.begin(), request.evaluated().begin(), request.evaluated().end());
}

absl::Status LeaseClientImpl::UnansweredLocked(const grpc::Status& status, Patience* patience) {
  if (!rpc::IsUnreachable(status)) return rpc::FromGrpc(status, "the chief refused this worker");
  const MonotonicTime now = Clock::now();
  if (!patience->since) {
    patience->since = now;
    patience->backoff.Reset();
  }
  if (now - *patience->since >= options_.patience) {
    return DeadlinePassed(fmt::format("the chief ({}) gave no work for {:g} s: {}",
                                      options_.chief_address, Seconds(options_.patience),
                                      channel_->Why(status)));
  }
  const MonotonicTime until = Clock::now() + patience->backoff.Next();
  while (error_.ok() && !finished_)
    if (changed_.WaitUntil(&mu_, until)) break;
  if (error_.ok() && !finished_) {
    (void)channel_->Renew();
    stub_ = proto::Leases::NewStub(channel_->Get());
  }
  return error_;
}

bool LeaseClientImpl::AskLocked(Patience* patience) {
  proto::NextRequest request = RequestLocked(/*asks=*/true);
  WantNothingIfLarge(&request);
  proto::NextReply reply;
  busy_ = true;
  asked_done_.assign(request.done().begin(), request.done().end());
  const int put_back = put_back_;
  const int64_t completed = completed_;
  const MonotonicTime start = Clock::now();
  const grpc::Status status = CallLocked(kCall, [&](auto* stub, grpc::ClientContext* context) {
    return Send(stub, context, request, &reply);
  });
  busy_ = false;
  asked_done_.clear();
  if (!error_.ok()) return true;
  if (!status.ok()) {
    RequeueLocked(request);
    const absl::Status why = UnansweredLocked(status, patience);
    if (!why.ok()) FailLocked(why);
    return true;
  }
  patience->since.reset();
  if (reply.has_introduce()) {
    RequeueLocked(request);
    return true;
  }
  ArrivedLocked(request);
  if (!request.digest().empty() && !begins_with_)
    begins_with_.emplace(reply.buffers().begin(), reply.buffers().end());
  if (!request.digest().empty() && put_back == put_back_) introduce_ = false;
  if (request.want() > 0 || request.start() != 0) AnsweredLocked(reply);
  return !reply.has_wait() || completed_ != completed || Clock::now() - start > kBetween;
}

void LeaseClientImpl::AnsweredLocked(const proto::NextReply& reply) {
  switch (reply.answer_case()) {
    case proto::NextReply::kLease:
      AddLeaseLocked(reply.lease());
      for (const proto::Lease& lease : reply.more()) AddLeaseLocked(lease);
      return;
    case proto::NextReply::kStart: {
      LeasedWork* const work = ready_.Find(reply.start().lease());
      if (work == nullptr) return;  // Forget was called meanwhile.
      work->lease->mutable_training()->set_wait(false);
      work->may_start = Clock::now();
      break;
    }
    case proto::NextReply::kLost:
      for (const int64_t lost : reply.lost().leases()) {
        std::erase(held_, lost);
        ready_.Remove(lost);
        std::erase_if(given_, [lost](const proto::Lease& lease) { return lease.id() == lost; });
      }
      return;
    case proto::NextReply::kDone:
      over_ = true;
      break;
    default:  // kWait
      none_ = true;
  }
  changed_.SignalAll();
}

void LeaseClientImpl::AddLeaseLocked(const proto::Lease& lease) {
  if (std::count(held_.begin(), held_.end(), lease.id()) > 0) return;  // A repeated answer.
  held_.push_back(lease.id());
  given_.push_back(lease);
}

void LeaseClientImpl::LoadLocked() {
  const proto::Lease lease = std::move(given_.front());
  given_.pop_front();
  LeasedWork work;
  work.lease = lease;
  if (lease.has_training()) work.may_start = Clock::now();
  busy_ = true;
  mu_.Unlock();
  auto examples = options_.load(lease);
  mu_.Lock();
  busy_ = false;
  if (!examples.ok()) return FailLocked(examples.status());
  if (std::count(held_.begin(), held_.end(), lease.id()) == 0) return;  // Lost or forgotten.
  work.examples = *std::move(examples);
  work.loaded = Clock::now();
  ready_.Push(std::move(work));
  changed_.SignalAll();
}

void LeaseClientImpl::Run() {
  pthread_setname_np(pthread_self(), "leases");
  const SpanThread thread(spans_, "input thread");
  Patience patience;
  absl::MutexLock lock(&mu_);
  while (error_.ok() && !finished_) {
    if (LoadsLocked()) {
      LoadLocked();
      continue;
    }
    // A request that overtook the report would receive a completed lease again.
    const bool asks_for_work = !reporting_ && (WantsLocked() || WaitingLocked() != 0);
    const MonotonicTime report_by = reporting_ ? MonotonicTime::max() : ReportDeadlineLocked();
    if (!asks_for_work && report_by > Clock::now()) {
      changed_.WaitUntil(&mu_, report_by);
    } else if (!AskLocked(&patience) && error_.ok()) {
      changed_.WaitFor(&mu_, kBetween);
    }
  }
}

// ---- The worker's calls

absl::StatusOr<LeasedWork> LeaseClientImpl::Take() {
  absl::MutexLock lock(&mu_);
  none_ = false;
  // The chief holds a call for at most a second, and the patience limits its silence.
  while (error_.ok() && !MayStartLocked() && !over_ && !none_) changed_.Wait(&mu_);
  MUSTER_RETURN_IF_ERROR(error_);
  LeasedWork work;
  if (MayStartLocked()) {
    work = ready_.Pop();
    if (WaitingLocked() != 0) changed_.SignalAll();  // The thread can ask whether it may start.
  } else {
    work.done = over_;
  }
  return work;
}

void LeaseClientImpl::Complete(proto::BatchDone done) {
  absl::MutexLock lock(&mu_);
  const MonotonicTime now = Clock::now();
  // A chief that does not know this worker may have received none of these.
  if (!introduce_)
    for (const int64_t dropped : recent_.Drop(now)) shown_.Forget(dropped);
  pace_.Completed(now);
  if (done_.empty()) first_done_ = now;
  const int64_t lease = done.lease();
  if (done.has_shown()) shown_.Keep(lease, std::move(*done.mutable_shown()));
  done.clear_shown();
  recent_.Add(now, done);
  done_.push_back(std::move(done));
  CompletedLocked(lease);
}

void LeaseClientImpl::Complete(proto::EvaluationDone done) {
  absl::MutexLock lock(&mu_);
  const int64_t lease = done.lease();
  evaluated_.push_back(std::move(done));
  CompletedLocked(lease);
}

void LeaseClientImpl::ReportIntegers(const IntegerBuffers& changed, uint64_t sequence) {
  absl::MutexLock lock(&mu_);
  integers_.Change(changed, sequence);
}

IntegerBuffers LeaseClientImpl::TakeIntegers() {
  absl::MutexLock lock(&mu_);
  return begins_with_ ? std::exchange(*begins_with_, {}) : IntegerBuffers();
}

void LeaseClientImpl::CompletedLocked(int64_t lease) {
  std::erase(held_, lease);
  ++completed_;
  if (!busy_ || introduce_ || ReportDeadlineLocked() > Clock::now()) return changed_.SignalAll();
  // The chief may hold the current call until it has this report, and other workers may wait for
  // it. This report may overtake the current call, so it repeats the batches of that call. The
  // chief numbers steps in the order of reports.
  done_.insert(done_.begin(), asked_done_.begin(), asked_done_.end());
  const proto::NextRequest request = RequestLocked(/*asks=*/false);
  proto::NextReply reply;
  reporting_ = true;
  const grpc::Status status =
      CallLocked(kReportWithin, [&](auto* stub, grpc::ClientContext* context) {
        return Send(stub, context, request, &reply);
      });
  reporting_ = false;
  status.ok() && !reply.has_introduce() ? ArrivedLocked(request) : RequeueLocked(request);
  changed_.SignalAll();
}

void LeaseClientImpl::Forget() {
  absl::MutexLock lock(&mu_);
  held_.clear();
  given_.clear();
  ready_.Clear();
  changed_.SignalAll();
}

absl::StatusOr<proto::View> LeaseClientImpl::NextView(uint64_t newer_than, bool* abandon) {
  proto::GetViewRequest request;
  request.mutable_worker()->set_worker(options_.worker);
  request.mutable_worker()->set_incarnation(options_.incarnation);
  request.set_newer_than(newer_than);
  Patience patience;
  absl::MutexLock lock(&mu_);
  while (error_.ok()) {
    if (finished_) return absl::CancelledError("the job is done");
    proto::GetViewReply reply;
    const MonotonicTime start = Clock::now();
    const grpc::Status status = CallLocked(kCall, [&](auto* stub, grpc::ClientContext* context) {
      return stub->GetView(context, request, &reply);
    });
    if (!error_.ok()) break;
    if (!status.ok()) {
      MUSTER_RETURN_IF_ERROR(UnansweredLocked(status, &patience));
      continue;
    }
    patience.since.reset();
    if (reply.abandon()) {
      *abandon = true;
      return Superseded(
          "the chief counts this worker as lost, or the servers restarted from an older state");
    }
    const bool complete =
        std::all_of(reply.view().shards().begin(), reply.view().shards().end(),
                    [](const proto::ShardPlace& place) { return place.primary() >= 0; });
    if (reply.view().number() > newer_than && complete) return reply.view();
    request.set_newer_than(std::max(newer_than, reply.view().number()));
    if (Clock::now() - start < kBetween) changed_.WaitFor(&mu_, kBetween);
  }
  return error_;
}

void LeaseClientImpl::Finish() {
  absl::MutexLock lock(&mu_);
  over_ = finished_ = true;
  held_.clear();
  given_.clear();
  ready_.Clear();
  changed_.SignalAll();
  for (grpc::ClientContext* call : calls_) call->TryCancel();
}

void LeaseClientImpl::Stop(absl::Status why) {
  absl::MutexLock lock(&mu_);
  FailLocked(std::move(why));
  for (grpc::ClientContext* call : calls_) call->TryCancel();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LeaseClient>> LeaseClient::Make(LeaseClientOptions options) {
  MUSTER_ASSIGN_OR_RETURN(auto channel,
                          rpc::RenewableChannel::Make(options.chief_address, options.channel));
  return std::make_unique<LeaseClientImpl>(std::move(options), std::move(channel));
}

}  // namespace muster::worker
