#include "chief/shards/shard_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>

#include "common/base/wait.h"

namespace muster::chief {
namespace {

// A deadline that is never reached. gRPC requires one, but the time per piece is the real limit.
constexpr Duration kNoDeadline = std::chrono::hours(24 * 30);

// Splits a chunk that is not of a table into pieces if it is larger than `most` bytes
// (ChunkContent.more).
template <typename Send>
absl::Status ForEachPiece(const proto::ChunkContent& content, size_t most, const Send& send) {
  const size_t copies = 1 + static_cast<size_t>(content.slots_size());
  const size_t bytes = content.parameters().size();
  if (bytes * copies <= most) return send(content);
  const size_t step = std::max<size_t>(1, most / copies / sizeof(float)) * sizeof(float);
  for (size_t begin = 0; begin < bytes; begin += step) {
    proto::ChunkContent piece;
    piece.set_shard(content.shard());
    piece.set_chunk(content.chunk());
    piece.set_updates(content.updates());
    piece.set_parameters(content.parameters().substr(begin, step));
    for (const std::string& slot : content.slots()) piece.add_slots(slot.substr(begin, step));
    piece.set_more(begin + step < bytes);
    if (!piece.more()) *piece.mutable_last() = content.last();
    MUSTER_RETURN_IF_ERROR(send(piece));
  }
  return absl::OkStatus();
}

}  // namespace

// Registers a call, so that Cancel ends it.
class ShardClient::Call {
 public:
  Call(ShardClient* client, Duration timeout)
      : client_(client), context_(rpc::WithDeadline(timeout)) {
    absl::MutexLock lock(&client_->mu_);
    if (client_->cancelled_) context_->TryCancel();
    client_->calls_.insert(context_.get());
  }
  ~Call() {
    absl::MutexLock lock(&client_->mu_);
    client_->calls_.erase(context_.get());
  }
  grpc::ClientContext* context() { return context_.get(); }

 protected:
  ShardClient* const client_;

 private:
  const std::unique_ptr<grpc::ClientContext> context_;
};

// A call without a total limit. It is cancelled if one piece takes too long.
class ShardClient::BulkCall : public Call {
 public:
  BulkCall(ShardClient* client, const char* method)
      : Call(client, kNoDeadline), method_(method), watch_([this] { Watch(); }) {}
  ~BulkCall() {
    {
      absl::MutexLock lock(&mu_);
      done_ = true;
      changed_.SignalAll();
    }
    watch_.join();
  }
  // Runs `piece` with a timeout. Time between pieces does not count, because the caller may wait
  // for a disk or for other tasks.
  template <typename Piece>
  auto Pass(const Piece& piece) {
    Await(Clock::now());
    auto result = piece();
    Await(std::nullopt);
    return result;
  }
  absl::Status Result(const grpc::Status& status) {
    absl::MutexLock lock(&mu_);
    if (!silent_) return client_->Result(status, method_);
    return DeadlinePassed(fmt::format("{} of ps {} ({}): nothing passed for {:g} s", method_,
                                      client_->options_.task, client_->options_.address,
                                      Seconds(client_->options_.silence)));
  }

 private:
  void Await(std::optional<MonotonicTime> since) {
    absl::MutexLock lock(&mu_);
    since_ = since;
  }
  void Watch() {
    absl::MutexLock lock(&mu_);
    while (!done_) {
      const MonotonicTime until = since_.value_or(Clock::now()) + client_->options_.silence;
      if (Clock::now() >= until) {
        silent_ = true;
        context()->TryCancel();
        return;
      }
      changed_.WaitUntil(&mu_, until);
    }
  }

  const char* const method_;
  absl::Mutex mu_;
  CondVar changed_;
  std::optional<MonotonicTime> since_ ABSL_GUARDED_BY(mu_);  // Set while a piece is in progress.
  bool done_ ABSL_GUARDED_BY(mu_) = false, silent_ ABSL_GUARDED_BY(mu_) = false;
  std::thread watch_;  // Last member, because it uses all of the above.
};

class ShardClient::FillingImpl final : public Filling {
 public:
  explicit FillingImpl(ShardClient* client)
      : call_(client, "Fill"), writer_(client->stub_->Fill(call_.context(), &reply_)) {
    request_.set_epoch(client->options_.term());
  }
  ~FillingImpl() override {
    if (finished_) return;
    call_.context()->TryCancel();
    (void)writer_->Finish();
  }
  absl::Status Write(const proto::ChunkContent& chunk) override {
    // Rows are already split into pieces.
    if (chunk.more()) return Send(chunk);
    return ForEachPiece(chunk, rpc::kMaxPieceBytes,
                        [this](const proto::ChunkContent& piece) { return Send(piece); });
  }
  absl::Status Finish() override {
    if (!finished_) {
      finished_ = true;
      result_ = call_.Result(call_.Pass([this] {
        writer_->WritesDone();
        return writer_->Finish();
      }));
    }
    return result_;
  }

 private:
  absl::Status Send(const proto::ChunkContent& piece) {
    *request_.mutable_chunk() = piece;
    if (call_.Pass([this] { return writer_->Write(request_); })) return absl::OkStatus();
    return Finish();  // Returns the error.
  }

  BulkCall call_;
  proto::FillRequest request_;
  proto::FillReply reply_;
  const std::unique_ptr<grpc::ClientWriter<proto::FillRequest>> writer_;
  bool finished_ = false;
  absl::Status result_;
};

absl::StatusOr<std::unique_ptr<ShardClient>> ShardClient::Make(const Options& options) {
  rpc::ChannelOptions to = options.channel;
  to.server_task = fmt::format("ps:{}", options.task);
  MUSTER_ASSIGN_OR_RETURN(auto channel, rpc::MakeChannel(options.address, to));
  std::unique_ptr<ShardClient> client(new ShardClient(options));
  client->stub_ = proto::ParameterServer::NewStub(channel);
  return client;
}

absl::Status ShardClient::Result(const grpc::Status& status, const char* method) const {
  if (status.ok()) return absl::OkStatus();
  const std::string what = fmt::format("{} of ps {} ({})", method, options_.task, options_.address);
  if (status.error_code() == grpc::StatusCode::FAILED_PRECONDITION)
    return Superseded(fmt::format("{}: {}", what, status.error_message()));
  if (status.error_code() == grpc::StatusCode::CANCELLED)
    return PeerLost(fmt::format("{}: the task was lost meanwhile", what));
  return rpc::FromGrpc(status, what);
}

proto::ReadRequest ShardClient::MakeReadRequest(const std::string& name, int shard) const {
  proto::ReadRequest request;
  request.set_epoch(options_.term());
  request.set_name(name);
  request.set_shard(shard);
  return request;
}

absl::StatusOr<proto::CreateReply> ShardClient::Create(proto::CreateRequest request) {
  Call call(this, options_.call);
  request.set_epoch(options_.term());
  request.set_task(options_.task);
  proto::CreateReply reply;
  MUSTER_RETURN_IF_ERROR(Result(stub_->Create(call.context(), request, &reply), "Create"));
  return reply;
}

absl::Status ShardClient::SetView(const proto::View& view) {
  Call call(this, options_.call);
  proto::SetViewRequest request;
  request.set_epoch(options_.term());
  *request.mutable_view() = view;
  proto::SetViewReply reply;
  return Result(stub_->SetView(call.context(), request, &reply), "SetView");
}

absl::Status ShardClient::SetWorkers(uint64_t version, const std::map<int, uint64_t>& workers) {
  Call call(this, options_.call);
  proto::SetWorkersRequest request;
  request.set_epoch(options_.term());
  request.set_version(version);
  for (const auto& [worker, incarnation] : workers)
    (*request.mutable_incarnations())[worker] = incarnation;
  proto::SetWorkersReply reply;
  return Result(stub_->SetWorkers(call.context(), request, &reply), "SetWorkers");
}

std::unique_ptr<ShardClient::Filling> ShardClient::Fill() {
  return std::make_unique<FillingImpl>(this);
}

absl::StatusOr<std::vector<int>> ShardClient::Cut(const std::string& name) {
  absl::MutexLock lock(&copies_mu_);
  undropped_.clear();
  Call call(this, options_.cut);
  proto::CutRequest request;
  request.set_epoch(options_.term());
  request.set_name(name);
  proto::CutReply reply;
  const absl::Status cut = Result(stub_->Cut(call.context(), request, &reply), "Cut");
  if (MayRetry(cut)) undropped_ = name;  // The task may have made the copy.
  MUSTER_RETURN_IF_ERROR(cut);
  return std::vector<int>(reply.shards().begin(), reply.shards().end());
}

absl::Status ShardClient::Read(
    const std::string& name, int shard,
    const std::function<absl::Status(const proto::ChunkContent&)>& take) {
  BulkCall call(this, "Read");
  const auto reader = stub_->Read(call.context(), MakeReadRequest(name, shard));
  absl::Status taken;
  for (proto::ChunkContent chunk; taken.ok() && call.Pass([&] { return reader->Read(&chunk); });)
    taken = take(chunk);
  if (!taken.ok()) call.context()->TryCancel();
  const absl::Status result = call.Result(reader->Finish());
  return taken.ok() ? result : taken;
}

absl::Status ShardClient::ReadRows(const std::string& name, int shard,
                                   const std::function<absl::Status(std::string_view)>& take) {
  BulkCall call(this, "ReadRows");
  const auto reader = stub_->ReadRows(call.context(), MakeReadRequest(name, shard));
  absl::Status taken;
  int64_t bytes = 0, expected = 0;
  for (proto::RowsPiece piece; taken.ok() && call.Pass([&] { return reader->Read(&piece); });) {
    taken = take(piece.data());
    bytes += static_cast<int64_t>(piece.data().size());
    expected = piece.bytes();
  }
  if (!taken.ok()) call.context()->TryCancel();
  const absl::Status result = call.Result(reader->Finish());
  MUSTER_RETURN_IF_ERROR(taken);
  MUSTER_RETURN_IF_ERROR(result);
  if (bytes == expected) return absl::OkStatus();
  return PeerLost(fmt::format("ps {} sent {} of {} bytes of the rows of shard {}", options_.task,
                              bytes, expected, shard));
}

absl::Status ShardClient::PullRows(int variable, std::span<const uint64_t> keys,
                                   std::span<float> rows) {
  Call call(this, options_.call);
  proto::PullRowsRequest request;
  request.set_epoch(options_.term());
  request.set_variable(variable);
  request.mutable_keys()->Add(keys.begin(), keys.end());
  proto::PullRowsReply reply;
  MUSTER_RETURN_IF_ERROR(Result(stub_->PullRows(call.context(), request, &reply), "PullRows"));
  if (reply.rows().size() != rows.size_bytes())
    return PeerLost(fmt::format("ps {} sent {} bytes of rows, not {}", options_.task,
                                reply.rows().size(), rows.size_bytes()));
  std::memcpy(rows.data(), reply.rows().data(), rows.size_bytes());
  return absl::OkStatus();
}

absl::Status ShardClient::Drop(const std::string& name) {
  absl::MutexLock lock(&copies_mu_);
  return DropLocked(name);
}

absl::Status ShardClient::DropLocked(const std::string& name) {
  Call call(this, options_.call);
  proto::DropRequest request;
  request.set_epoch(options_.term());
  request.set_name(name);
  proto::DropReply reply;
  const absl::Status dropped = Result(stub_->Drop(call.context(), request, &reply), "Drop");
  undropped_ = MayRetry(dropped) ? name : "";
  return dropped;
}

absl::StatusOr<proto::BeatReply> ShardClient::Beat(const std::string& record) {
  Call call(this, options_.call);
  proto::BeatRequest request;
  request.set_epoch(options_.term());
  request.set_record(record);
  proto::BeatReply reply;
  MUSTER_RETURN_IF_ERROR(Result(stub_->Beat(call.context(), request, &reply), "Beat"));
  // Does not wait for a cut in progress, because that would delay the next Beat.
  if (copies_mu_.TryLock()) {
    if (!undropped_.empty()) (void)DropLocked(std::string(undropped_));
    copies_mu_.Unlock();
  }
  return reply;
}

void ShardClient::Cancel() {
  absl::MutexLock lock(&mu_);
  cancelled_ = true;
  for (grpc::ClientContext* call : calls_) call->TryCancel();
}

void ShardClient::Allow() {
  absl::MutexLock lock(&mu_);
  cancelled_ = false;
}

}  // namespace muster::chief
