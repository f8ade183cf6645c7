#include "evaluator/heartbeat.h"

#include "common/rpc/retry.h"

namespace muster::evaluator {

Heartbeat::Heartbeat(ChiefLink* link, std::function<void(const proto::JobEnd&)> on_end)
    : link_(link), on_end_(std::move(on_end)), thread_([this] { Run(); }) {}

Heartbeat::~Heartbeat() {
  link_->Stop();
  {
    absl::MutexLock lock(&mu_);
    exiting_ = true;
  }
  thread_.join();
}

void Heartbeat::Begin(int64_t step) {
  absl::MutexLock lock(&mu_);
  active_ = true;
  ++round_;
  unknown_ = false;
  report_.Clear();
  report_.set_step(step);
}

void Heartbeat::Progress(int64_t batches_done, int64_t batches_total) {
  absl::MutexLock lock(&mu_);
  report_.set_batches_done(batches_done);
  report_.set_batches_total(batches_total);
}

void Heartbeat::Pause() {
  absl::MutexLock lock(&mu_);
  active_ = false;
}

bool Heartbeat::futile() const {
  absl::MutexLock lock(&mu_);
  return unknown_ || end_.has_value();
}

std::optional<proto::JobEnd> Heartbeat::end() const {
  absl::MutexLock lock(&mu_);
  return end_;
}

void Heartbeat::Take(uint64_t round, const proto::EvaluationReply& reply) {
  bool news = false;
  {
    absl::MutexLock lock(&mu_);
    if (!reply.known() && round == round_) unknown_ = true;
    if (reply.has_end() && !end_) {
      end_ = reply.end();
      news = true;
    }
  }
  if (news) on_end_(reply.end());
}

void Heartbeat::Run() {
  rpc::Backoff backoff;
  while (true) {
    proto::EvaluationReport report;
    uint64_t round = 0;
    {
      absl::MutexLock lock(&mu_);
      // Once the chief has reported that the work is not needed, no more heartbeats are sent.
      const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return exiting_ || (active_ && !unknown_ && !end_);
      };
      mu_.Await(absl::Condition(&due));
      if (exiting_) return;
      report = report_;
      round = round_;
    }
    proto::EvaluationReply reply;
    if (link_->SendHeartbeat(report, &reply).ok()) {
      backoff.Reset();
      Take(round, reply);
    } else {
      link_->Sleep(backoff.Next());
      if (link_->stopped()) return;
    }
  }
}

}  // namespace muster::evaluator
