#include "tests/unit/parameter_server/fake_worker.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/rpc/channel.h"
#include "common/train/shown.h"

namespace muster::chief::testing {
namespace {

// Returns an image of one pixel and a distribution of one number.
proto::Shown ShownBy(int worker) {
  std::vector<std::string> left_out;
  const auto pixel = static_cast<uint8_t>(worker);
  return ToMessage({{"picture", 0, 1, 1, 1, 1, {pixel}}},
                   {{"numbers", 0, summary::DistributionOf({static_cast<double>(worker)})}},
                   &left_out);
}

// Sends a request with Leases.Tell in small pieces.
grpc::Status Tell(proto::Leases::Stub& stub, grpc::ClientContext* context,
                  proto::NextRequest request, proto::NextReply* reply) {
  constexpr size_t kPiece = 100;
  request.set_want(0);
  request.clear_start();
  const std::string all = request.SerializeAsString();
  const auto writer = stub.Tell(context, reply);
  proto::TellPiece piece;
  piece.set_bytes(static_cast<int64_t>(all.size()));
  for (size_t begin = 0; begin < all.size(); begin += kPiece) {
    piece.set_data(all.substr(begin, kPiece));
    if (!writer->Write(piece)) break;
  }
  writer->WritesDone();
  return writer->Finish();
}

bool Shows(const proto::NextRequest& request) {
  const auto shows = [](const auto& done) { return done.has_shown(); };
  return std::any_of(request.done().begin(), request.done().end(), shows) ||
         std::any_of(request.evaluated().begin(), request.evaluated().end(), shows);
}

}  // namespace

FakeWorker::FakeWorker(Options options) : options_(std::move(options)) {
  next_.mutable_worker()->set_worker(options_.index);
  next_.mutable_worker()->set_incarnation(options_.incarnation);
  next_.set_want(true);
  thread_ = std::thread([this] { Run(); });
}

void FakeWorker::Mute() {
  mute_ = true;
  Join();
}

void FakeWorker::Kill() {
  dead_ = true;
  Join();
}

void FakeWorker::Join() {
  if (thread_.joinable()) thread_.join();
}

void FakeWorker::Run() {
  while (!dead_ && !mute_) {
    Connect();
    if (introduce_) {  // A new chief needs all reports.
      next_.clear_done();
      for (const proto::BatchDone& done : history_) *next_.add_done() = done;
    }
    proto::NextReply reply;
    const grpc::Status status = Call(&reply);
    if (!status.ok()) {
      // The chief was lost, perhaps during the call.
      EXPECT_TRUE(status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                  status.error_code() == grpc::StatusCode::CANCELLED)
          << status.error_message();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      address_.clear();
      continue;
    }
    introduce_ = reply.has_introduce();
    next_.set_digest(introduce_ ? options_.ps[0]->digest() : "");
    if (!introduce_ && !Take(reply)) return;
  }
}

void FakeWorker::Connect() {
  const std::string address = options_.leases_address();
  if (stub_ != nullptr && address == address_) return;
  address_ = address;
  stub_ = proto::Leases::NewStub(*rpc::MakeChannel(address));
}

grpc::Status FakeWorker::Call(proto::NextReply* reply) {
  const auto context = rpc::WithDeadline(std::chrono::minutes(1));
  return Shows(next_) ? Tell(*stub_, context.get(), next_, reply)
                      : stub_->Next(context.get(), next_, reply);
}

bool FakeWorker::Take(const proto::NextReply& reply) {
  if (count_ < 0) {
    const auto begin = reply.buffers().find("net.count");
    count_ = begin == reply.buffers().end() ? 0 : std::stoi(begin->second);
  }
  next_.clear_buffers();
  next_.clear_done();
  next_.clear_evaluated();
  if (reply.has_done()) return false;
  if (reply.has_lost()) next_.clear_held();
  if (reply.has_start() || reply.has_lost()) {
    next_.clear_start();
    next_.set_want(true);
  }
  if (reply.has_lease() && reply.lease().training().wait()) {
    waiting_ = reply.lease();
    next_.clear_held();
    next_.add_held(waiting_.id());
    next_.set_start(waiting_.id());
    next_.set_want(false);
    return true;
  }
  Work(reply.has_start() ? waiting_ : reply.lease());
  return true;
}

void FakeWorker::Work(const proto::Lease& lease) {
  if (lease.has_evaluation()) Evaluate(lease);
  if (lease.has_training()) Train(lease);
}

void FakeWorker::Evaluate(const proto::Lease& lease) {
  proto::EvaluationDone& done = *next_.add_evaluated();
  done.set_lease(lease.id());
  auto examples = static_cast<double>(lease.end() - lease.begin());
  if (Damaged(static_cast<Split>(lease.evaluation().split()))) {
    done.mutable_left_out()->set_examples(lease.end() - lease.begin());
    examples = 0;
  }
  for (const double sum : {examples * 0.25, examples, examples}) done.add_sums(sum);
  if (lease.summary()) *done.mutable_shown() = ShownBy(options_.index);
  absl::MutexLock lock(&options_.done->mu);
  for (int64_t i = lease.begin(); i < lease.end(); ++i)
    ++options_.done->evaluated[lease.evaluation().split()].at(i);
}

void FakeWorker::Train(const proto::Lease& lease) {
  EXPECT_EQ(lease.global_batch_size(), options_.global_batch_size);
  std::this_thread::sleep_for(options_.batch_time);
  while (!dead_ && !mute_ && !options_.may_train())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  next_.clear_held();
  next_.add_held(lease.id());
  if (!PushAll(lease)) return;
  next_.clear_held();
  proto::BatchDone done;
  done.set_lease(lease.id());
  done.set_examples(lease.end() - lease.begin());
  if (Damaged(Split::kTrain)) {
    done.mutable_left_out()->set_examples(done.examples());
    done.set_examples(0);
  }
  done.set_loss(1);
  done.set_learning_rate(0.5);
  done.mutable_views()->Assign(views_.begin(), views_.end());
  done.set_staleness_max(2);
  done.set_staleness_mean(1);
  done.add_metric_sums(static_cast<double>(lease.end() - lease.begin()));
  if (lease.summary()) *done.mutable_shown() = ShownBy(options_.index);
  *next_.add_done() = done;
  (*next_.mutable_buffers())["net.count"] = fmt::format("{:08}", ++count_);
  next_.set_buffers_sequence(static_cast<uint64_t>(sequence_));
  history_.push_back(done);
  absl::MutexLock lock(&options_.done->mu);
  ++options_.done->batches[{lease.training().epoch(), lease.begin()}];
}

bool FakeWorker::PushAll(const proto::Lease& lease) {
  std::map<int, uint64_t> pushed;  // By shard: the view in which the push was acknowledged.
  ++sequence_;
  const auto examples = static_cast<double>(lease.end() - lease.begin());
  while (pushed.size() < options_.ps.size()) {
    if (dead_) return false;
    PushTo(examples, &pushed);
    if (pushed.size() == options_.ps.size()) break;
    if (!GetView(&pushed)) return false;
  }
  views_.assign(options_.ps.size(), 0);
  for (const auto& [shard, view] : pushed) views_[shard] = view;
  return true;
}

void FakeWorker::PushTo(double examples, std::map<int, uint64_t>* pushed) {
  for (int shard = 0; shard < view_.shards_size(); ++shard) {
    const proto::ShardPlace& place = view_.shards(shard);
    if (pushed->contains(shard) || place.primary() < 0) continue;
    FakePs& primary = *options_.ps[place.primary()];
    const uint64_t view = view_.number();
    if (!primary.Push(view, shard, {options_.incarnation, sequence_}, examples)) continue;
    // The push is acknowledged once the backup has it.
    if (place.backup() >= 0 && place.backup_in_sync() &&
        !options_.ps[place.backup()]->Copy(shard, primary))
      continue;
    (*pushed)[shard] = view;
  }
}

bool FakeWorker::GetView(std::map<int, uint64_t>* pushed) {
  proto::GetViewRequest request;
  *request.mutable_worker() = next_.worker();
  request.set_newer_than(view_.number());
  proto::GetViewReply reply;
  const auto context = rpc::WithDeadline(std::chrono::seconds(5));
  if (!stub_->GetView(context.get(), request, &reply).ok()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    // The chief may be a new one, with another address.
    stub_ = proto::Leases::NewStub(*rpc::MakeChannel(options_.leases_address()));
    return true;
  }
  if (reply.abandon()) return false;
  if (reply.view().number() == 0) return true;
  view_ = reply.view();
  // A shard that was restored has lost the push and needs it again.
  std::erase_if(*pushed, [&](const auto& shard) {
    return shard.second <= view_.shards(shard.first).restored();
  });
  return true;
}

}  // namespace muster::chief::testing
