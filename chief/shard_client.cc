#include "chief/shard_client.h"

#include <fmt/format.h>

namespace muster {

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

 private:
  ShardClient* const client_;
  const std::unique_ptr<grpc::ClientContext> context_;
};

absl::StatusOr<std::unique_ptr<ShardClient>> ShardClient::Make(const Options& options) {
  MUSTER_ASSIGN_OR_RETURN(auto channel, rpc::MakeChannel(options.address, options.channel));
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

absl::StatusOr<proto::CreateReply> ShardClient::Create(proto::CreateRequest request) {
  Call call(this, options_.call);
  request.set_epoch(options_.epoch());
  request.set_task(options_.task);
  proto::CreateReply reply;
  MUSTER_RETURN_IF_ERROR(Result(stub_->Create(call.context(), request, &reply), "Create"));
  return reply;
}

absl::Status ShardClient::SetView(const proto::View& view) {
  Call call(this, options_.call);
  proto::SetViewRequest request;
  request.set_epoch(options_.epoch());
  *request.mutable_view() = view;
  proto::SetViewReply reply;
  return Result(stub_->SetView(call.context(), request, &reply), "SetView");
}

absl::StatusOr<proto::SetWorkersReply> ShardClient::SetWorkers(
    uint64_t version, const std::map<int, uint64_t>& workers) {
  Call call(this, options_.call);
  proto::SetWorkersRequest request;
  request.set_epoch(options_.epoch());
  request.set_version(version);
  for (const auto& [worker, incarnation] : workers)
    (*request.mutable_incarnations())[worker] = incarnation;
  proto::SetWorkersReply reply;
  MUSTER_RETURN_IF_ERROR(Result(stub_->SetWorkers(call.context(), request, &reply), "SetWorkers"));
  return reply;
}

absl::Status ShardClient::Fill(const std::vector<proto::ChunkContent>& chunks) {
  Call call(this, options_.bulk);
  proto::FillReply reply;
  const auto writer = stub_->Fill(call.context(), &reply);
  proto::FillRequest request;
  request.set_epoch(options_.epoch());
  for (const proto::ChunkContent& chunk : chunks) {
    *request.mutable_chunk() = chunk;
    if (!writer->Write(request)) break;  // Finish says why
  }
  writer->WritesDone();
  return Result(writer->Finish(), "Fill");
}

absl::StatusOr<std::vector<int>> ShardClient::Cut(const std::string& name) {
  Call call(this, options_.bulk);
  proto::CutRequest request;
  request.set_epoch(options_.epoch());
  request.set_name(name);
  proto::CutReply reply;
  MUSTER_RETURN_IF_ERROR(Result(stub_->Cut(call.context(), request, &reply), "Cut"));
  return std::vector<int>(reply.shards().begin(), reply.shards().end());
}

absl::StatusOr<std::vector<proto::ChunkContent>> ShardClient::Read(const std::string& name,
                                                                   int shard) {
  Call call(this, options_.bulk);
  proto::ReadRequest request;
  request.set_epoch(options_.epoch());
  request.set_name(name);
  request.set_shard(shard);
  const auto reader = stub_->Read(call.context(), request);
  std::vector<proto::ChunkContent> chunks;
  for (proto::ChunkContent chunk; reader->Read(&chunk);) chunks.push_back(std::move(chunk));
  MUSTER_RETURN_IF_ERROR(Result(reader->Finish(), "Read"));
  return chunks;
}

absl::Status ShardClient::Drop(const std::string& name) {
  Call call(this, options_.call);
  proto::DropRequest request;
  request.set_epoch(options_.epoch());
  request.set_name(name);
  proto::DropReply reply;
  return Result(stub_->Drop(call.context(), request, &reply), "Drop");
}

absl::StatusOr<proto::BeatReply> ShardClient::Beat(const std::string& record) {
  Call call(this, options_.call);
  proto::BeatRequest request;
  request.set_epoch(options_.epoch());
  request.set_record(record);
  proto::BeatReply reply;
  MUSTER_RETURN_IF_ERROR(Result(stub_->Beat(call.context(), request, &reply), "Beat"));
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

}  // namespace muster
