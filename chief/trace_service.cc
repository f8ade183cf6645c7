#include "chief/trace_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chief/trace_mailbox.h"
#include "chief/trace_recording.h"
#include "common/base/logging.h"
#include "common/base/peer_text.h"
#include "common/base/wait.h"
#include "common/rpc/retry.h"
#include "common/rpc/server/server.h"
#include "proto/trace.grpc.pb.h"

namespace muster::chief {
namespace {

using checkpoint::JoinPath;

constexpr int kMaxSteps = 1000;
constexpr std::chrono::milliseconds kMaxLimit = std::chrono::minutes(10);
constexpr size_t kPiece = 1 << 20;  // Of a file, for Read.
constexpr char kPart[] = ".part";   // Suffix of a file that is being written.
// After this time nobody waits for an answer any more.
constexpr std::chrono::hours kMail(1);
// How often model_dir is looked at for a request.
constexpr Duration kLook = std::chrono::seconds(1);

// A call that is answered later, under the mutex of the service.
class HeldCall final : public grpc::ServerUnaryReactor {
 public:
  HeldCall(absl::Mutex* mu, std::function<void()> on_cancel)
      : mu_(mu), on_cancel_(std::move(on_cancel)) {}
  // REQUIRES: the mutex is held, and open().
  void Answer(const grpc::Status& status) {
    open_ = false;
    Finish(status);
  }
  bool open() const { return open_; }
  void OnCancel() override {
    absl::MutexLock lock(mu_);
    if (!open_) return;
    Answer(grpc::Status::CANCELLED);
    on_cancel_();
  }
  void OnDone() override { self_.reset(); }
  static std::shared_ptr<HeldCall> Make(
      absl::Mutex* mu, std::function<void()> on_cancel = [] {}) {
    auto call = std::make_shared<HeldCall>(mu, std::move(on_cancel));
    call->self_ = call;
    return call;
  }

 private:
  absl::Mutex* const mu_;
  const std::function<void()> on_cancel_;  // Called with the mutex.
  bool open_ = true;                       // Guarded by *mu_.
  std::shared_ptr<HeldCall> self_;
};

template <typename Reply>
struct Held {
  std::shared_ptr<HeldCall> call;
  Reply* reply = nullptr;  // Valid while the call is open.
  bool open() const { return call != nullptr && call->open(); }
};

grpc::Status Unavailable(const char* why) {
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, why);
}

class TraceServiceImpl final : public TraceService, public proto::Trace::CallbackService {
 public:
  explicit TraceServiceImpl(TraceServiceOptions options)
      : options_(std::move(options)),
        folder_(JoinPath(options_.model_dir, kTraceFolder)),
        own_clock_(ClockOfThisProcess()),
        next_id_((uint64_t{std::random_device{}()} << 16) + 1),
        thread_([this] { Run(); }) {}

  ~TraceServiceImpl() override {
    {
      absl::MutexLock lock(&mu_);
      exiting_ = true;
      changed_.SignalAll();
    }
    thread_.join();
  }

  grpc::Service* service() override { return this; }
  void Close(Duration limit) override;

  // From proto::Trace.
  grpc::ServerUnaryReactor* Await(grpc::CallbackServerContext* context,
                                  const proto::TraceAwaitRequest* request,
                                  proto::TraceAwaitReply* reply) override;
  grpc::ServerUnaryReactor* Align(grpc::CallbackServerContext* context,
                                  const proto::TraceAlignRequest* request,
                                  proto::TraceAlignReply* reply) override;
  grpc::ServerUnaryReactor* Clock(grpc::CallbackServerContext* context,
                                  const proto::TraceClockRequest* request,
                                  proto::TraceClockReply* reply) override;
  grpc::ServerUnaryReactor* Keep(grpc::CallbackServerContext* context,
                                 const proto::TraceKeepRequest* request,
                                 proto::TraceKeepReply* reply) override;
  grpc::ServerUnaryReactor* Record(grpc::CallbackServerContext* context,
                                   const proto::TraceRecordRequest* request,
                                   proto::TraceRecordReply* reply) override;
  grpc::ServerUnaryReactor* Read(grpc::CallbackServerContext* context,
                                 const proto::TraceReadRequest* request,
                                 proto::TraceReadReply* reply) override;

 private:
  struct Active {
    uint64_t id = 0;
    Duration limit{};
    TraceRecording recording;
    Held<proto::TraceRecordReply> asked;  // Empty if the request came through model_dir.
    std::string mail;                     // The id of that request, else empty.
    std::map<std::string, Held<proto::TraceAlignReply>> aligning;
    bool writing = false;
  };
  struct Finished {
    uint64_t id = 0;
    std::string text;
  };

  // Begins a trace if it can.
  grpc::Status BeginLocked(int64_t steps, Duration limit, Held<proto::TraceRecordReply> asked,
                           std::string mail) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  grpc::Status CheckRequest(int64_t steps, Duration limit) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the active trace if the caller who asked for it has gone, because it blocks others.
  void DropAbandonedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes a request from model_dir, if there is one. Releases the mutex meanwhile.
  void LookLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Announce(const std::string& task, proto::TraceAwaitReply* reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AnswerAlignedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run();
  // Makes the file of the active trace and answers the caller. Releases the mutex meanwhile.
  void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::string> Write(int64_t step, const std::string& text) const;
  absl::Status Prune(const std::string& newest) const;
  void AnswerMail(const std::string& id, const proto::TraceRecordReply& reply) const;

  const TraceServiceOptions options_;
  const std::string folder_, own_clock_;
  absl::Mutex mu_;
  CondVar changed_;
  uint64_t next_id_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Held<proto::TraceAwaitReply>> waiting_ ABSL_GUARDED_BY(mu_);
  std::optional<Active> active_ ABSL_GUARDED_BY(mu_);
  Finished finished_ ABSL_GUARDED_BY(mu_);  // The last trace, for Read.
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // The last member, because it uses the others.
};

// ---- Calls of tasks

bool TraceServiceImpl::Announce(const std::string& task, proto::TraceAwaitReply* reply) {
  if (!active_ || !active_->recording.Begin(task)) return false;
  reply->set_id(active_->id);
  reply->set_limit_ms(Milliseconds(active_->limit));
  return true;
}

grpc::ServerUnaryReactor* TraceServiceImpl::Await(grpc::CallbackServerContext* context,
                                                  const proto::TraceAwaitRequest* request,
                                                  proto::TraceAwaitReply* reply) {
  grpc::Status refusal = rpc::RequireDeadline(*context, "Await");
  if (refusal.ok()) refusal = rpc::RequireSpeaker(*context, request->task());
  if (refusal.ok() && request->cluster_digest() != options_.cluster_digest)
    refusal = grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "another cluster");
  const auto& tasks = options_.tasks;
  if (refusal.ok() && std::find(tasks.begin(), tasks.end(), request->task()) == tasks.end())
    refusal = grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                           SanitizePeerText(request->task(), 100) + " is no member");
  const auto call = HeldCall::Make(&mu_);
  absl::MutexLock lock(&mu_);
  if (refusal.ok() && closed_) refusal = Unavailable("the job ends");
  if (!refusal.ok() || Announce(request->task(), reply)) {
    call->Answer(refusal);
    return call.get();
  }
  auto& waiting = waiting_[request->task()];
  if (waiting.open()) waiting.call->Answer(Unavailable("another process of the task came"));
  waiting = {call, reply};
  return call.get();
}

grpc::ServerUnaryReactor* TraceServiceImpl::Align(grpc::CallbackServerContext* context,
                                                  const proto::TraceAlignRequest* request,
                                                  proto::TraceAlignReply* reply) {
  grpc::Status refusal = rpc::RequireDeadline(*context, "Align");
  if (refusal.ok()) refusal = rpc::RequireSpeaker(*context, request->task());
  const auto call = HeldCall::Make(&mu_);
  absl::MutexLock lock(&mu_);
  if (!refusal.ok() || !active_ || active_->id != request->id() || active_->writing) {
    call->Answer(refusal);  // An empty reply says that the recording is over.
    return call.get();
  }
  active_->recording.Align(request->task(), request->step(), muster::Clock::now());
  auto& aligning = active_->aligning[request->task()];
  if (aligning.open()) aligning.call->Answer(grpc::Status::OK);
  aligning = {call, reply};
  AnswerAlignedLocked();
  changed_.SignalAll();
  return call.get();
}

void TraceServiceImpl::AnswerAlignedLocked() {
  const MonotonicTime now = muster::Clock::now();
  for (auto& [task, held] : active_->aligning) {
    if (!held.open()) continue;
    const auto window = active_->recording.Window(task, now);
    if (!window) continue;
    *held.reply = *window;
    held.call->Answer(grpc::Status::OK);
  }
}

grpc::ServerUnaryReactor* TraceServiceImpl::Clock(grpc::CallbackServerContext* context,
                                                  const proto::TraceClockRequest*,
                                                  proto::TraceClockReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reply->set_monotonic_ns(
      std::chrono::duration_cast<std::chrono::nanoseconds>(muster::Clock::now().time_since_epoch())
          .count());
  reactor->Finish(rpc::RequireDeadline(*context, "Clock"));
  return reactor;
}

grpc::ServerUnaryReactor* TraceServiceImpl::Keep(grpc::CallbackServerContext* context,
                                                 const proto::TraceKeepRequest* request,
                                                 proto::TraceKeepReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  grpc::Status refusal = rpc::RequireDeadline(*context, "Keep");
  if (refusal.ok()) refusal = rpc::RequireSpeaker(*context, request->task());
  if (refusal.ok()) {
    absl::MutexLock lock(&mu_);
    if (!active_ || active_->id != request->id() || active_->writing) {
      reply->set_reason("this trace is over");
    } else {
      reply->set_reason(active_->recording.Take(*request, own_clock_));
      AnswerAlignedLocked();
      changed_.SignalAll();
    }
    reply->set_kept(reply->reason().empty());
  }
  reactor->Finish(refusal);
  return reactor;
}

// ---- Calls of people

grpc::Status TraceServiceImpl::CheckRequest(int64_t steps, Duration limit) const {
  const auto invalid = [](const std::string& why) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, why);
  };
  if (steps < 1 || steps > kMaxSteps)
    return invalid(fmt::format("steps must be 1 to {}", kMaxSteps));
  if (limit <= Duration::zero() || limit > kMaxLimit)
    return invalid(fmt::format("the limit must be above 0 and at most {:g} s", Seconds(kMaxLimit)));
  if (closed_) return Unavailable("the job ends");
  if (active_)
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                        "another trace is being recorded: try again when it is complete");
  return grpc::Status::OK;
}

grpc::ServerUnaryReactor* TraceServiceImpl::Record(grpc::CallbackServerContext* context,
                                                   const proto::TraceRecordRequest* request,
                                                   proto::TraceRecordReply* reply) {
  grpc::Status refusal = rpc::RequireDeadline(*context, "Record");
  const auto call = HeldCall::Make(&mu_, [this] {
    mu_.AssertHeld();
    DropAbandonedLocked();
  });
  absl::MutexLock lock(&mu_);
  const auto limit =
      std::chrono::milliseconds(std::clamp<int64_t>(request->limit_ms(), 0, kMaxLimit.count() + 1));
  if (refusal.ok()) refusal = BeginLocked(request->steps(), limit, {call, reply}, "");
  if (!refusal.ok()) call->Answer(refusal);
  return call.get();
}

grpc::Status TraceServiceImpl::BeginLocked(int64_t steps, Duration limit,
                                           Held<proto::TraceRecordReply> asked, std::string mail) {
  const grpc::Status refusal = CheckRequest(steps, limit);
  if (!refusal.ok()) return refusal;
  TraceRequest request{options_.tasks, options_.independent, static_cast<int>(steps), limit};
  active_.emplace(Active{next_id_++,
                         limit,
                         TraceRecording(request, muster::Clock::now()),
                         std::move(asked),
                         std::move(mail),
                         {},
                         false});
  for (auto& [task, held] : waiting_)
    if (held.open() && Announce(task, held.reply)) held.call->Answer(grpc::Status::OK);
  changed_.SignalAll();
  return grpc::Status::OK;
}

void TraceServiceImpl::DropAbandonedLocked() {
  if (!active_ || active_->asked.call == nullptr || active_->asked.open() || active_->writing)
    return;
  LogInfo("the trace ends: no client waits for it any more");
  for (auto& [task, held] : active_->aligning)
    if (held.open()) held.call->Answer(grpc::Status::OK);
  active_.reset();
  changed_.SignalAll();
}

grpc::ServerUnaryReactor* TraceServiceImpl::Read(grpc::CallbackServerContext* context,
                                                 const proto::TraceReadRequest* request,
                                                 proto::TraceReadReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  grpc::Status refusal = rpc::RequireDeadline(*context, "Read");
  if (refusal.ok()) {
    absl::MutexLock lock(&mu_);
    const std::string& text = finished_.text;
    if (request->id() != finished_.id || request->offset() < 0 ||
        request->offset() > static_cast<int64_t>(text.size())) {
      refusal = grpc::Status(grpc::StatusCode::NOT_FOUND, "the chief has made another trace since");
    } else {
      reply->set_piece(text.substr(static_cast<size_t>(request->offset()), kPiece));
    }
  }
  reactor->Finish(refusal);
  return reactor;
}

void TraceServiceImpl::Close(Duration limit) {
  const MonotonicTime until = muster::Clock::now() + limit;
  absl::MutexLock lock(&mu_);
  closed_ = true;
  for (auto& [task, held] : waiting_)
    if (held.open()) held.call->Answer(Unavailable("the job ends"));
  while (active_)
    if (changed_.WaitUntil(&mu_, until)) break;
  if (!active_) return;
  for (auto& [task, held] : active_->aligning)
    if (held.open()) held.call->Answer(Unavailable("the job ends"));
  if (active_->asked.open())
    active_->asked.call->Answer(Unavailable("the job ended before the trace was complete"));
}

// ---- The service's thread

void TraceServiceImpl::Run() {
  absl::MutexLock lock(&mu_);
  MonotonicTime look = muster::Clock::now() + kLook;
  while (!exiting_) {
    const MonotonicTime now = muster::Clock::now();
    const bool mail = !options_.model_dir.empty() && !closed_;
    // Looks also during a trace, so that a second request is refused at once.
    if (mail && now >= look) {
      LookLocked();
      look = muster::Clock::now() + kLook;
      continue;
    }
    MonotonicTime until = mail ? look : MonotonicTime::max();
    if (active_) {
      AnswerAlignedLocked();
      if (active_->recording.IsComplete(now)) {
        FinishLocked();
        continue;
      }
      until = std::min(until, active_->recording.NextDeadline(now));
    }
    changed_.WaitUntil(&mu_, until);
  }
}

void TraceServiceImpl::LookLocked() {
  mu_.Unlock();
  TraceMailbox mailbox(options_.files, folder_);
  std::optional<TraceMailbox::Request> request;
  // A chief that another one has replaced leaves the request to that one.
  if (mailbox.HasRequest() && (!options_.fence || options_.fence().ok())) request = mailbox.Take();
  mu_.Lock();
  if (!request || exiting_) return;
  const grpc::Status begun = BeginLocked(
      request->steps, FromSeconds(std::clamp(request->limit_seconds, 0.0, 1e6)), {}, request->id);
  if (begun.ok()) return;
  mu_.Unlock();
  // The same exit code as for who calls Record.
  const ExitCode code = ExitCodeOf(rpc::FromGrpc(begun, ""));
  const absl::Status answered = mailbox.Answer(
      request->id, {{"error", begun.error_message()}, {"exit_code", static_cast<int>(code)}});
  if (!answered.ok()) LogWarning("{}", Message(answered));
  mu_.Lock();
}

void TraceServiceImpl::FinishLocked() {
  active_->writing = true;  // Nothing more is taken.
  for (auto& [task, held] : active_->aligning)
    if (held.open()) held.call->Answer(grpc::Status::OK);
  const std::vector<TracedTask> tasks = active_->recording.Delivered();
  const std::vector<std::string> missing = active_->recording.Missing();
  const std::string mail = active_->mail;
  mu_.Unlock();
  int64_t first = 0, last = 0;
  for (const TracedTask& task : tasks) {
    if (task.first_step > 0 && (first == 0 || task.first_step < first)) first = task.first_step;
    last = std::max(last, task.last_step);
  }
  std::string text, path;
  if (!tasks.empty()) {
    text = TraceText(tasks, {.run_id = options_.run_id(), .missing = missing});
    const auto written = options_.model_dir.empty() ? "" : Write(first, text);
    if (!written.ok()) LogWarning("the trace is not kept: {}", Message(written.status()));
    path = written.value_or("");
    LogInfo("recorded a trace of steps {} to {} of {} task{}{}", first, last, tasks.size(),
            tasks.size() == 1 ? "" : "s", path.empty() ? "" : " in " + path);
  }
  for (const std::string& line : missing) LogWarning("the trace is incomplete: {}", line);
  proto::TraceRecordReply reply;
  reply.set_size(static_cast<int64_t>(text.size()));
  reply.set_path(path);
  reply.set_first_step(first);
  reply.set_last_step(last);
  for (const TracedTask& task : tasks) reply.add_tasks(task.task);
  for (const std::string& line : missing) reply.add_missing(line);
  if (!mail.empty()) AnswerMail(mail, reply);
  mu_.Lock();
  finished_ = {active_->id, std::move(text)};
  reply.set_id(active_->id);
  if (active_->asked.open()) {
    *active_->asked.reply = reply;
    active_->asked.call->Answer(grpc::Status::OK);
  }
  active_.reset();
  changed_.SignalAll();
}

void TraceServiceImpl::AnswerMail(const std::string& id,
                                  const proto::TraceRecordReply& reply) const {
  const Json answer = {
      {"file", reply.path().empty() ? "" : checkpoint::BaseName(reply.path())},
      {"first_step", reply.first_step()},
      {"last_step", reply.last_step()},
      {"tasks", std::vector<std::string>(reply.tasks().begin(), reply.tasks().end())},
      {"missing", std::vector<std::string>(reply.missing().begin(), reply.missing().end())}};
  const absl::Status answered = TraceMailbox(options_.files, folder_).Answer(id, answer);
  if (!answered.ok()) LogWarning("{}", Message(answered));
}

absl::StatusOr<std::string> TraceServiceImpl::Write(int64_t step, const std::string& text) const {
  if (options_.fence) MUSTER_RETURN_IF_ERROR(options_.fence());
  checkpoint::FileSystem& files = *options_.files;
  MUSTER_RETURN_IF_ERROR(checkpoint::MakeDirectories(files, folder_));
  const std::string path = JoinPath(folder_, TraceFile(step));
  MUSTER_ASSIGN_OR_RETURN(auto file, files.Create(path + kPart));
  absl::Status status = file->Append(text);
  if (status.ok()) status = file->Close();
  if (status.ok()) status = files.Rename(path + kPart, path);
  if (!status.ok()) {
    (void)files.Remove(path + kPart);
    return status;
  }
  if (const absl::Status pruned = Prune(TraceFile(step)); !pruned.ok())
    LogWarning("an old trace could not be deleted: {}", Message(pruned));
  return path;
}

// Removes the oldest traces except `newest`, and what a killed chief or command left.
absl::Status TraceServiceImpl::Prune(const std::string& newest) const {
  checkpoint::FileSystem& files = *options_.files;
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(folder_));
  const auto now = WrittenAt(JoinPath(folder_, newest));  // By the clock of the file system.
  std::vector<std::pair<std::filesystem::file_time_type, std::string>> traces;
  for (const std::string& name : names) {
    const std::string path = JoinPath(folder_, name);
    const bool part = name.ends_with(kPart);
    if (name.starts_with(kTracePrefix) && !part) {
      if (name != newest) traces.emplace_back(WrittenAt(path), name);
    } else if (name.starts_with(kTracePrefix) ||
               ((part || name.starts_with(kTraceAnswerPrefix)) && WrittenAt(path) + kMail < now)) {
      (void)files.Remove(path);
    }
  }
  std::sort(traces.rbegin(), traces.rend());
  for (size_t i = static_cast<size_t>(std::max(options_.keep, 1)) - 1; i < traces.size(); ++i)
    MUSTER_RETURN_IF_ERROR(files.Remove(JoinPath(folder_, traces[i].second)));
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<TraceService> TraceService::Make(TraceServiceOptions options) {
  return std::make_unique<TraceServiceImpl>(std::move(options));
}

}  // namespace muster::chief
