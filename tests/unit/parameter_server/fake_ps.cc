#include "tests/unit/parameter_server/fake_ps.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/unit/parameter_server/fake_state.h"

namespace muster::chief::testing {

FakePs::FakePs(int task, int) : task_(task) {
  auto server = rpc::Server::Start({.address = "127.0.0.1:0"}, {this});
  EXPECT_TRUE(server.ok()) << Message(server.status());
  server_ = *std::move(server);
}

std::string FakePs::address() const { return fmt::format("127.0.0.1:{}", server_->port()); }

void FakePs::Replace() {
  absl::MutexLock lock(&mu_);
  created_ = false;
  shards_.clear();
  cuts_.clear();
  view_.Clear();
  workers_.clear();
  record_.clear();
  synced_.clear();
}

grpc::Status FakePs::Known() const {
  if (created_) return grpc::Status::OK;
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, "this came before Create");
}

bool FakePs::IsPrimary(uint64_t view, int shard) const {
  return created_ && view_.number() == view && shard < view_.shards_size() &&
         view_.shards(shard).primary() == task_ && shards_.contains(shard);
}

bool FakePs::Push(uint64_t view, int shard, std::pair<uint64_t, int64_t> key, double examples) {
  absl::MutexLock lock(&mu_);
  if (!IsPrimary(view, shard)) return false;
  if (shards_[shard].seen.insert(key).second) shards_[shard].value += examples;
  return true;
}

double FakePs::value(int shard) const {
  absl::MutexLock lock(&mu_);
  const auto found = shards_.find(shard);
  return found == shards_.end() ? -1 : found->second.value;
}

bool FakePs::serves(int shard) const {
  absl::MutexLock lock(&mu_);
  return IsPrimary(view_.number(), shard);
}

bool FakePs::Copy(int shard, const FakePs& from) {
  static absl::Mutex one_at_a_time(absl::kConstInit);
  absl::MutexLock order(&one_at_a_time);
  Shard copy;
  {
    absl::MutexLock lock(&from.mu_);
    const auto found = from.shards_.find(shard);
    if (found == from.shards_.end()) return false;
    copy = found->second;
  }
  absl::MutexLock lock(&mu_);
  if (!created_) return false;
  shards_[shard] = copy;
  return true;
}

void FakePs::SetSynced(std::vector<int> shards) {
  absl::MutexLock lock(&mu_);
  synced_ = std::move(shards);
}

void FakePs::SetWaiting(std::map<int, double> shards) {
  absl::MutexLock lock(&mu_);
  waiting_ = std::move(shards);
}

std::map<int, uint64_t> FakePs::workers() const {
  absl::MutexLock lock(&mu_);
  return workers_;
}

std::string FakePs::digest() const {
  absl::MutexLock lock(&mu_);
  return digest_;
}

std::string FakePs::record() const {
  absl::MutexLock lock(&mu_);
  return record_;
}

void FakePs::FailReads(int count) {
  absl::MutexLock lock(&mu_);
  failing_reads_ = count;
}

void FakePs::LoseViewAnswers(bool lose) {
  absl::MutexLock lock(&mu_);
  lose_view_answers_ = lose;
}

proto::View FakePs::view() const {
  absl::MutexLock lock(&mu_);
  return view_;
}

void FakePs::HoldReads(bool hold) {
  absl::MutexLock lock(&mu_);
  hold_reads_ = hold;
}

void FakePs::OnCut(std::function<void()> on_cut) {
  absl::MutexLock lock(&mu_);
  on_cut_ = std::move(on_cut);
}

int FakePs::reads() const {
  absl::MutexLock lock(&mu_);
  return reads_;
}

grpc::Status FakePs::Create(grpc::ServerContext*, const proto::CreateRequest* request,
                            proto::CreateReply* reply) {
  absl::MutexLock lock(&mu_);
  EXPECT_EQ(request->task(), task_);
  EXPECT_GE(request->epoch(), term_);
  term_ = request->epoch();
  digest_ = request->digest();
  created_ = true;
  reply->set_record(record_);
  reply->set_view(view_.number());
  for (const auto& [shard, state] : shards_) reply->add_serving(shard);
  return grpc::Status::OK;
}

grpc::Status FakePs::SetView(grpc::ServerContext*, const proto::SetViewRequest* request,
                             proto::SetViewReply*) {
  absl::MutexLock lock(&mu_);
  if (!created_) return Known();
  EXPECT_GE(request->view().number(), view_.number());
  if (request->view().number() != view_.number())
    synced_.clear();
  else if (request->view().SerializeAsString() != view_.SerializeAsString())
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "there are two different views");
  view_ = request->view();
  if (lose_view_answers_) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "connection reset");
  return grpc::Status::OK;
}

grpc::Status FakePs::SetWorkers(grpc::ServerContext*, const proto::SetWorkersRequest* request,
                                proto::SetWorkersReply*) {
  absl::MutexLock lock(&mu_);
  if (!created_) return Known();
  workers_ = {request->incarnations().begin(), request->incarnations().end()};
  return grpc::Status::OK;
}

grpc::Status FakePs::Fill(grpc::ServerContext*, grpc::ServerReader<proto::FillRequest>* reader,
                          proto::FillReply*) {
  proto::FillRequest request;
  while (reader->Read(&request)) {
    absl::MutexLock lock(&mu_);
    if (!created_) return Known();
    Shard& shard = shards_[request.chunk().shard()];
    shard = Shard();
    shard.value = ValueOf(request.chunk().parameters());
  }
  return grpc::Status::OK;
}

grpc::Status FakePs::Cut(grpc::ServerContext*, const proto::CutRequest* request,
                         proto::CutReply* reply) {
  absl::ReleasableMutexLock lock(&mu_);
  if (!created_) return Known();
  for (const auto& [shard, state] : shards_) {
    if (!IsPrimary(view_.number(), shard)) continue;
    cuts_[request->name()][shard] = state;
    reply->add_shards(shard);
  }
  const std::function<void()> on_cut = on_cut_;
  lock.Release();
  if (on_cut) on_cut();
  return grpc::Status::OK;
}

grpc::Status FakePs::Read(grpc::ServerContext* context, const proto::ReadRequest* request,
                          grpc::ServerWriter<proto::ChunkContent>* writer) {
  proto::ChunkContent content;
  {
    absl::MutexLock lock(&mu_);
    ++reads_;
    while (hold_reads_ && !context->IsCancelled())
      mu_.AwaitWithTimeout(absl::Condition(
                               +[](bool* hold) { return !*hold; }, &hold_reads_),
                           absl::Milliseconds(20));
    if (failing_reads_ > 0) {
      --failing_reads_;
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the copy is gone");
    }
    const auto cut = cuts_.find(request->name());
    if (cut == cuts_.end() || !cut->second.contains(request->shard()))
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "no such copy");
    const Shard& shard = cut->second.at(request->shard());
    content.set_shard(request->shard());
    content.set_parameters(ValueBytes(shard.value));
  }
  writer->Write(content);
  return grpc::Status::OK;
}

grpc::Status FakePs::Drop(grpc::ServerContext*, const proto::DropRequest* request,
                          proto::DropReply*) {
  absl::MutexLock lock(&mu_);
  cuts_.erase(request->name());
  return grpc::Status::OK;
}

grpc::Status FakePs::Beat(grpc::ServerContext*, const proto::BeatRequest* request,
                          proto::BeatReply* reply) {
  absl::MutexLock lock(&mu_);
  if (!created_) return Known();
  if (!request->record().empty()) record_ = request->record();
  reply->set_view(view_.number());
  for (const int shard : synced_) reply->add_synced(shard);
  reply->mutable_waiting()->insert(waiting_.begin(), waiting_.end());
  return grpc::Status::OK;
}

}  // namespace muster::chief::testing
