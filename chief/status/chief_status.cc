#include "chief/status/chief_status.h"

#include <utility>

#include "chief/coordinator/admission/convert.h"
#include "common/base/logging.h"
#include "common/job/program_path.h"
#include "common/rpc/host.h"
#include "common/web/access.h"

namespace muster::chief {
namespace {

// Returns the program's name for people.
std::string ProgramText(const Json& program) {
  const Json portable = PortableProgram(program);
  return portable.is_string() ? portable.get<std::string>() : Dump(portable);
}

}  // namespace

ChiefStatus::ChiefStatus(const ClusterConfig& cluster, const Job& job)
    : cluster_(cluster),
      job_(job),
      watch_({ProgramText(job.program),
              job.strategy ? std::string(StrategyName(*job.strategy)) : "", job.model_dir}) {}

void ChiefStatus::Follow(CoordinatorOptions* options) {
  options->on_event = [this](const proto::RunEvent& event) { watch_.OnEvent(event); };
  options->describe = [this](proto::StatusReply* reply) { watch_.Describe(reply); };
}

absl::Status ChiefStatus::Bind() {
  if (job_.status.port == 0) return absl::OkStatus();
  web::HttpOptions options = web::OptionsFor(cluster_, job_, static_cast<int>(job_.status.port));
  // With a key, every reader needs it, even on this host, because the host may have other users.
  options.identity = cluster_.identity;
  auto page = StatusPage::Bind(std::move(options));
  if (!page.ok()) return Annotate(page.status(), "status.port: ");
  page_ = *std::move(page);
  return absl::OkStatus();
}

void ChiefStatus::Open(Coordinator* coordinator, OwnState own) {
  if (page_ == nullptr) return;
  PageFeed::Source source = [this, own = std::move(own)] { return Alone(own); };
  if (coordinator != nullptr) source = [coordinator] { return coordinator->Describe(); };
  page_->Start(std::move(source), watch_);
  LogInfo("status page: {}/", page_->url());
}

proto::StatusReply ChiefStatus::Alone(const OwnState& own) {
  proto::StatusReply reply = own();
  {
    absl::MutexLock lock(&mu_);
    reply.set_stage(verdict_ ? "ending" : "running");
    if (verdict_) *reply.mutable_verdict() = *verdict_;
  }
  reply.set_uptime_seconds(Seconds(Clock::now() - started_));
  const rpc::HostIdentity host = rpc::ThisHost();
  watch_.Describe(&reply);
  for (proto::MemberStatus& process : *reply.mutable_members()) {
    process.set_task("local");
    process.set_joined(true);
    process.set_connected(true);
    process.set_host(host.name);
    process.set_pid(host.pid);
    process.set_devices(job_.devices);
    process.set_step(reply.progress().step());
  }
  return reply;
}

void ChiefStatus::WriteFile(const FencedFiles& files) const {
  Json status = {{"chief", Json()}, {"address", Json()}, {"page", Json()}};
  if (const auto chief = cluster_.chief()) {
    status["chief"] = chief->ToString();
    status["address"] = cluster_.cluster.AddressOf(*chief).ToString();
  }
  if (page_ != nullptr) status["page"] = page_->url() + "/";
  const absl::Status written = files.Write(job_.model_dir + "/status.json", status);
  if (!written.ok()) LogDebug("{}", Message(written));
}

void ChiefStatus::ShowEnd(const Verdict& verdict) {
  {
    absl::MutexLock lock(&mu_);
    verdict_ = VerdictToProto(verdict);
  }
  if (page_ != nullptr) page_->ShowEnd();
}

}  // namespace muster::chief
