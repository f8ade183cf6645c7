#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "common/base/json/utf8.h"
#include "common/cluster/protocol.h"
#include "common/membership/member.h"
#include "common/rpc/retry.h"
#include "proto/coordinator.grpc.pb.h"

namespace muster::membership {

absl::Status ReportFailureTo(const EarlyFailure& report, Duration timeout,
                             const std::function<bool()>& give_up, bool* try_again) {
  MUSTER_ASSIGN_OR_RETURN(auto channel, rpc::MakeChannel(report.chief_address, report.channel));
  const auto stub = proto::Coordinator::NewStub(channel);
  proto::FailureReport request;
  request.set_protocol(kControlProtocol);
  request.set_task(report.task);
  request.set_cluster_digest(report.cluster_digest);
  request.set_exit_code(static_cast<int>(ExitCodeOf(report.failure)));
  request.set_message(ValidUtf8(Message(report.failure)));
  request.set_host(rpc::ThisHost().name);
  request.set_step(report.step);
  request.set_phase(static_cast<uint32_t>(report.phase));
  request.set_incarnation(report.incarnation);

  const MonotonicTime end = Clock::now() + timeout;
  rpc::Backoff backoff(report.channel.retry, report.incarnation);
  while (true) {
    const Duration left = end - Clock::now();
    const auto context = rpc::WithDeadline(
        std::clamp<Duration>(left, std::chrono::milliseconds(100), std::chrono::seconds(2)));
    proto::FailureReply reply;
    const grpc::Status status = stub->ReportFailure(context.get(), request, &reply);
    if (status.ok() && reply.accepted()) return absl::OkStatus();
    if (status.ok()) {
      if (try_again != nullptr) *try_again = reply.try_again();
      return Superseded(reply.reason());
    }
    const Duration delay = backoff.Next();
    if (!rpc::IsUnreachable(status) || Clock::now() + delay >= end || (give_up && give_up()))
      return rpc::FromGrpc(status,
                           fmt::format("reporting to the chief at {}", report.chief_address));
    std::this_thread::sleep_for(delay);
  }
}

}  // namespace muster::membership
