#include "evaluator/chief_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "common/base/logging.h"
#include "common/cluster/protocol.h"
#include "common/rpc/host.h"

namespace muster::evaluator {
namespace {

// Timeout of a call. It is well above the time for which the chief holds a call.
constexpr Duration kCall = std::chrono::seconds(5);
constexpr Duration kLeave = std::chrono::seconds(1);
constexpr Duration kProbe = std::chrono::seconds(1);
constexpr Duration kLine = std::chrono::seconds(10);

uint64_t RandomNumber() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device() | 1;  // Never 0.
}

}  // namespace

ChiefLink::ChiefLink(ChiefLinkOptions options) : options_(std::move(options)) {
  const rpc::HostIdentity host = rpc::ThisHost();
  identity_.set_protocol(kControlProtocol);
  identity_.set_task(options_.task);
  identity_.set_incarnation(RandomNumber());
  identity_.set_cluster_digest(options_.cluster_digest);
  identity_.set_host(host.name);
  identity_.set_pid(host.pid);
}

absl::StatusOr<std::unique_ptr<ChiefLink>> ChiefLink::Make(ChiefLinkOptions options) {
  std::unique_ptr<ChiefLink> link(new ChiefLink(std::move(options)));
  MUSTER_ASSIGN_OR_RETURN(link->channel_, rpc::RenewableChannel::Make(link->options_.chief_address,
                                                                      link->options_.channel));
  return link;
}

void ChiefLink::Stop() {
  absl::MutexLock lock(&mu_);
  stopped_ = true;
  changed_.SignalAll();
  for (grpc::ClientContext* call : calls_) call->TryCancel();
}

bool ChiefLink::stopped() const {
  absl::MutexLock lock(&mu_);
  return stopped_;
}

void ChiefLink::Sleep(Duration duration) const {
  absl::MutexLock lock(&mu_);
  const MonotonicTime until = Clock::now() + duration;
  while (!stopped_)
    if (changed_.WaitUntil(&mu_, until)) return;
}

grpc::Status ChiefLink::Once(Duration timeout,
                             const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  const auto context = rpc::WithDeadline(timeout);
  {
    absl::MutexLock lock(&mu_);
    if (stopped_) return grpc::Status(grpc::StatusCode::CANCELLED, "stopped");
    calls_.insert(context.get());
  }
  const grpc::Status status = call(context.get());
  absl::MutexLock lock(&mu_);
  calls_.erase(context.get());
  return status;
}

std::string ChiefLink::WhyFinished() const {
  if (!options_.finished) return "";
  // If the host does not answer, the chief may still be running.
  return rpc::ProbeNamedPort(options_.chief_address, kProbe) == rpc::PortState::kRefused
             ? options_.finished()
             : "";
}

absl::Status ChiefLink::RetryUntilAnswered(const std::function<grpc::Status()>& call) {
  const std::string chief =
      fmt::format("the chief {} ({})", options_.chief_task, options_.chief_address);
  const MonotonicTime start = Clock::now();
  MonotonicTime next_line = start + kLine, next_look = start + options_.look;
  rpc::Backoff backoff(options_.channel.retry, identity_.incarnation());
  while (true) {
    const grpc::Status status = call();
    if (status.ok()) return absl::OkStatus();
    if (stopped()) return Preempted("stopped as asked; training is not concerned");
    if (!rpc::IsUnreachable(status)) return rpc::FromGrpc(status, chief);
    const MonotonicTime now = Clock::now();
    if (now >= next_look) {
      if (const std::string why = WhyFinished(); !why.empty()) return absl::AlreadyExistsError(why);
      next_look = now + options_.look;
    }
    if (now - start >= options_.patience)
      return PeerLost(fmt::format("cannot reach {}: {} (tried for {:.3g} s)", chief,
                                  channel_->Why(status), Seconds(now - start)));
    if (now >= next_line) {
      LogInfo("this task waits for {}: {}", chief, channel_->Why(status));
      next_line = now + kLine;
    }
    Sleep(std::min(backoff.Next(), start + options_.patience - now));
    channel_->Renew();
  }
}

absl::StatusOr<proto::NextCheckpointReply> ChiefLink::NextCheckpoint(int64_t after_step,
                                                                     bool want_job) {
  proto::NextCheckpointRequest request;
  *request.mutable_evaluator() = identity_;
  request.set_after_step(after_step);
  request.set_want_job(want_job);
  proto::NextCheckpointReply reply;
  MUSTER_RETURN_IF_ERROR(RetryUntilAnswered([&] {
    return Once(kCall, [&](grpc::ClientContext* context) {
      return stub()->Next(context, request, &reply);
    });
  }));
  return reply;
}

grpc::Status ChiefLink::SendHeartbeat(const proto::EvaluationReport& report,
                                      proto::EvaluationReply* reply) {
  proto::EvaluationReport request = report;
  *request.mutable_evaluator() = identity_;
  return Once(
      kCall, [&](grpc::ClientContext* context) { return stub()->Report(context, request, reply); });
}

absl::StatusOr<proto::EvaluationReply> ChiefLink::SendReport(
    const proto::EvaluationReport& report) {
  proto::EvaluationReply reply;
  MUSTER_RETURN_IF_ERROR(RetryUntilAnswered([&] { return SendHeartbeat(report, &reply); }));
  return reply;
}

void ChiefLink::NotifyLeaving(const std::string& reason) {
  proto::EvaluationReport request;
  *request.mutable_evaluator() = identity_;
  request.set_step(-1);
  request.set_leaving(reason);
  proto::EvaluationReply reply;
  const auto context = rpc::WithDeadline(kLeave);
  const grpc::Status status = stub()->Report(context.get(), request, &reply);
  if (!status.ok()) LogDebug("could not notify the chief: {}", rpc::WhyUnreachable(status));
}

absl::Status ChiefLink::Fetch(int64_t step, const std::string& file,
                              const std::function<absl::Status(const std::string& data)>& on_data) {
  proto::FetchRequest request;
  request.set_protocol(kControlProtocol);
  request.set_step(step);
  request.set_file(file);
  absl::Status taken;
  const grpc::Status status = Once(options_.fetch, [&](grpc::ClientContext* context) {
    const auto reader = stub()->Fetch(context, request);
    proto::FetchChunk chunk;
    while (taken.ok() && reader->Read(&chunk)) taken = on_data(chunk.data());
    if (!taken.ok()) context->TryCancel();
    return reader->Finish();
  });
  if (!taken.ok()) return taken;
  if (stopped()) return Preempted("stopped as asked; training is not concerned");
  if (status.ok()) return absl::OkStatus();
  return rpc::FromGrpc(status, fmt::format("fetching {} of step {}", file, step));
}

}  // namespace muster::evaluator
