#include "chief/coordinator/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "chief/coordinator/coordinator_impl.h"
#include "common/base/logging.h"
#include "common/rpc/host.h"

namespace muster::chief {
namespace {

Session::Message Pulse(bool stop_requested) {
  proto::CoordinatorMessage message;
  message.mutable_pulse()->set_stop_requested(stop_requested);
  return Session::Encode(message);
}

}  // namespace

CoordinatorImpl::CoordinatorImpl(CoordinatorOptions options)
    : options_(std::move(options)),
      pulse_(Pulse(false)),
      stop_pulse_(Pulse(true)),
      state_(options_),
      actions_(state_),
      registration_(state_, actions_),
      identity_writer_(options_.record_identity, [this](IdentityWriter::Result result) {
        absl::MutexLock lock(&mu_);
        // A failed write is retried at the next tick.
        if (result.status.ok()) state_.Wake();
        finished_write_ = std::move(result);
      }) {}

absl::Status CoordinatorImpl::Listen() {
  std::vector<grpc::Service*> services = options_.services;
  services.push_back(this);
  rpc::ServerOptions server = options_.server;
  server.peers = std::max(server.peers, static_cast<int>(options_.members.size()));
  MUSTER_ASSIGN_OR_RETURN(server_, rpc::Server::Start(server, services));
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

CoordinatorImpl::~CoordinatorImpl() {
  {
    absl::MutexLock lock(&mu_);
    exiting_ = true;
    state_.Wake();
    state_.ended.SignalAll();
    for (MemberSlot& slot : state_.slots)
      if (slot.session) slot.session->Close();
    for (auto& [session, since] : greeting_) session->Close();
  }
  if (thread_.joinable()) thread_.join();
  if (server_) server_->Shutdown(std::chrono::milliseconds(200));
}

Verdict CoordinatorImpl::Wait() {
  absl::MutexLock lock(&mu_);
  while (!state_.closed && !exiting_) state_.ended.Wait(&mu_);
  return state_.job.verdict;
}

Verdict CoordinatorImpl::WaitForEnd() {
  absl::MutexLock lock(&mu_);
  while (state_.job.stage != JobStage::kEnding && !exiting_) state_.ended.Wait(&mu_);
  return state_.job.verdict;
}

void CoordinatorImpl::End(Verdict verdict) {
  absl::MutexLock lock(&mu_);
  actions_.End(state_.clock.Now(), std::move(verdict), -1);
  state_.Wake();
}

void CoordinatorImpl::EndFinished(const std::string& message) {
  absl::MutexLock lock(&mu_);
  if (state_.job.stage != JobStage::kEnding) {
    state_.job.tell_all = true;
    if (options_.own_member >= 0)
      state_.job.members[options_.own_member].report.acknowledged = true;
  }
  actions_.End(state_.clock.Now(), {ExitCode::kDone, "", "", -1, Phase::kEnding, message}, -1);
  state_.Wake();
}

void CoordinatorImpl::EndAfterLastStep() {
  absl::MutexLock lock(&mu_);
  state_.job.all_steps_done = true;
}

void CoordinatorImpl::RequestStop() {
  absl::MutexLock lock(&mu_);
  actions_.Stop();
}

// ---- decisions ----

void CoordinatorImpl::Run() {
  {
    // Time spent waiting for the port does not count as a suspension of the process.
    absl::MutexLock lock(&mu_);
    state_.job.started = state_.job.stage_since = state_.clock.Now();
    state_.clock.TakePause();
    actions_.BeginRoster();
  }
  while (true) {
    ProbeBroken();
    absl::MutexLock lock(&mu_);
    if (exiting_ || state_.closed) return;
    state_.event = false;
    const PausingTime now = state_.clock.Now();
    if (const Duration pause = state_.clock.TakePause(); pause != Duration::zero())
      LogWarning("the coordinator stalled for {:.1f} s: all deadlines move by that time",
                 Seconds(pause));
    state_.CheckDeaths(now);
    state_.job.last_refusal = server_->last_refusal();
    if (const auto result = std::exchange(finished_write_, std::nullopt)) OnWrittenLocked(*result);
    // Repeats, so that members that were lost together are dropped together.
    Decision decision;
    do {
      decision = state_.policy->Decide(now, state_.job);
      to_form_ = decision.action == Action::kForm &&
                 (!state_.IdentityRecorded() || !registration_.adopting().empty());
      if (!to_form_) actions_.Act(now, decision);
    } while (decision.action == Action::kDrop || decision.action == Action::kAbortGeneration);
    RecordIdentityLocked(now);
    EndWithoutHelloLocked(now);
    actions_.SendMissingMembers(now);
    const bool idle = to_form_ || decision.action == Action::kWait;
    if (idle && !state_.event && !exiting_) state_.wake.WaitFor(&mu_, options_.tick);
  }
}

void CoordinatorImpl::OnWrittenLocked(const IdentityWriter::Result& result) {
  if (result.status.ok()) {
    state_.recorded_identity.emplace(result.run_id, result.term);
    first_try_at_.reset();
  } else if (result.status != last_write_) {
    LogWarning("run {} is not on the disk yet: {}", result.run_id, Message(result.status));
  }
  last_write_ = result.status;
  if (result.run_id == registration_.adopting())
    registration_.Adopted(result.run_id, result.status);
}

void CoordinatorImpl::RecordIdentityLocked(PausingTime now) {
  const std::string& adopting = registration_.adopting();
  if (state_.job.stage == JobStage::kEnding || (adopting.empty() && !to_form_)) return;
  // A member that was turned away reconnects within a second. After a longer gap, the first failure
  // no longer counts.
  constexpr Duration kForgotten = std::chrono::seconds(10);
  if (!first_try_at_ || now - write_needed_at_ > kForgotten) first_try_at_ = now;
  write_needed_at_ = now;
  identity_writer_.Start(adopting.empty() ? state_.admission.run_id : adopting,
                         state_.admission.term);
  if (now - *first_try_at_ < options_.decision.join) return;
  actions_.End(now,
               {ExitCode::kRetryable, "", "", -1, Phase::kStarting,
                fmt::format("no generation could be formed within {:g} s (timeouts.join): {}",
                            Seconds(options_.decision.join),
                            last_write_.ok() ? "the disk of model_dir does not answer"
                                             : std::string(Message(last_write_)))},
               -1);
}

// Asks the hosts of broken sessions whether the processes still exist, all in parallel and at most
// once per tick. Called without mu_, because it waits briefly for the network.
void CoordinatorImpl::ProbeBroken() {
  constexpr size_t kMax = 256;  // Limit of open descriptors.
  constexpr Duration kAnswer = std::chrono::milliseconds(50);
  if (Clock::now() < next_probe_) return;
  std::vector<std::pair<int, uint64_t>> broken;  // Member, incarnation.
  std::vector<std::string> addresses;
  {
    absl::MutexLock lock(&mu_);
    for (int i = 0; i < static_cast<int>(state_.slots.size()); ++i) {
      const MemberInfo& m = state_.job.members[i];
      if (!m.process.joined || m.process.connected || m.process.gone || m.report.acknowledged)
        continue;
      if (broken.size() == kMax) break;
      broken.emplace_back(i, m.process.incarnation);
      addresses.push_back(state_.slots[i].hello.data_address());
    }
  }
  if (broken.empty()) return;
  const std::vector<rpc::PortState> states = rpc::ProbePorts(addresses, kAnswer);
  next_probe_ = Clock::now() + options_.tick;
  absl::MutexLock lock(&mu_);
  for (size_t i = 0; i < broken.size(); ++i) {
    MemberInfo& m = state_.job.members[broken[i].first];
    if (states[i] == rpc::PortState::kRefused && m.process.joined && !m.process.connected &&
        m.process.incarnation == broken[i].second)
      m.process.gone = true;
  }
}

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(CoordinatorOptions options) {
  auto coordinator = std::make_unique<CoordinatorImpl>(std::move(options));
  MUSTER_RETURN_IF_ERROR(coordinator->Listen());
  return coordinator;
}

}  // namespace muster::chief
