// Parameter-server services in one process, for tests, with real listeners and gRPC servers on
// ports that the kernel picks. TestPs has the chief's calls, and TestWorker those of a worker.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/push_pull/options.h"
#include "common/push_pull/variable_messages.h"
#include "common/rpc/channel.h"
#include "common/rpc/retry.h"
#include "common/rpc/server/server.h"
#include "proto/parameter_server.grpc.pb.h"
#include "ps/messages.h"
#include "ps/service.h"
#include "tests/unit/ps/blocking_push_pull.h"

namespace muster::ps {

inline MonotonicTime In(Duration limit) { return Clock::now() + limit; }
inline constexpr Duration kLong = std::chrono::seconds(30);
inline constexpr uint64_t kLife = 77;  // a worker's incarnation

// A job with the variables "w" and "b" and one optimizer.
struct TestJob {
  std::vector<push_pull::VariableSpec> variables = {{"w", {40, 10}, 0}, {"b", {10}, 0}};
  std::string optimizer = R"("sgd")";
  std::string parameter_server =
      R"({"chunk_bytes": 256, "partitioner": {"name": "fixed", "parts": 2}})";
  std::string run = "run-1";
  int servers = 2;

  push_pull::LayoutOptions layout_options() const {
    const auto options = push_pull::ParseParameterServer(*ParseJson(parameter_server, "test"));
    return {servers, options->partitioner, options->chunk_bytes};
  }
  push_pull::Layout layout() const { return push_pull::MakeLayout(variables, layout_options()); }
  std::string digest() const { return push_pull::DigestOf(variables, layout_options()); }

  proto::CreateRequest Create(int task) const {
    proto::CreateRequest request;
    request.set_epoch(1);
    request.set_run_id(run);
    *request.mutable_variables() = push_pull::ToMessages(variables);
    request.add_optimizers(optimizer);
    request.set_parameter_server(parameter_server);
    request.set_servers(servers);
    request.set_task(task);
    request.set_digest(digest());
    return request;
  }
};

// The service of one ps task, and the chief's calls to it.
class TestPs {
 public:
  // `security` applies to data connections. Null: none.
  explicit TestPs(PsServiceOptions options,
                  std::shared_ptr<security::StreamSecurity> security = nullptr) {
    auto listener = transport::DataListener::Create(
        {.bind_address = "127.0.0.1", .security = std::move(security)});
    EXPECT_TRUE(listener.ok());
    listener_ = *std::move(listener);
    options.listener = listener_.get();
    service = PsService::Make(options);
    auto server = rpc::Server::Start({.address = "127.0.0.1:0"}, {service->service()});
    EXPECT_TRUE(server.ok());
    server_ = *std::move(server);
    stub_ = proto::ParameterServer::NewStub(*rpc::MakeChannel(rpc_address()));
  }
  ~TestPs() {
    service->Stop();
    server_.reset();
  }
  std::string address() const { return listener_->address(); }
  std::string rpc_address() const { return fmt::format("127.0.0.1:{}", server_->port()); }
  transport::DataListener& listener() { return *listener_; }

  template <typename Request, typename Reply>
  using Method = grpc::Status (proto::ParameterServer::Stub::*)(grpc::ClientContext*,
                                                                const Request&, Reply*);
  // Calls the method and returns its reply.
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(Method<Request, Reply> method, const Request& request) {
    Reply reply;
    const auto context = rpc::WithDeadline(kLong);
    const grpc::Status status = (stub_.get()->*method)(context.get(), request, &reply);
    if (status.ok()) return reply;
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }
  absl::StatusOr<proto::CreateReply> Create(const proto::CreateRequest& request) {
    return Call(&proto::ParameterServer::Stub::Create, request);
  }
  absl::Status SetView(const proto::View& view, uint32_t term = 1) {
    proto::SetViewRequest request;
    request.set_epoch(term);
    *request.mutable_view() = view;
    return Call(&proto::ParameterServer::Stub::SetView, request).status();
  }
  absl::StatusOr<proto::SetWorkersReply> SetWorkers(const std::map<int, uint64_t>& workers,
                                                    uint64_t version, uint32_t term = 1) {
    proto::SetWorkersRequest request;
    request.set_epoch(term);
    request.set_version(version);
    request.mutable_incarnations()->insert(workers.begin(), workers.end());
    return Call(&proto::ParameterServer::Stub::SetWorkers, request);
  }
  absl::StatusOr<proto::FillReply> Fill(const std::vector<proto::ChunkContent>& chunks,
                                        uint32_t term = 1) {
    proto::FillReply reply;
    const auto context = rpc::WithDeadline(kLong);
    const auto writer = stub_->Fill(context.get(), &reply);
    for (const proto::ChunkContent& chunk : chunks) {
      proto::FillRequest request;
      request.set_epoch(term);
      *request.mutable_chunk() = chunk;
      if (!writer->Write(request)) break;
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    if (status.ok()) return reply;
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }
  absl::StatusOr<proto::CutReply> Cut(const std::string& name, uint32_t term = 1) {
    proto::CutRequest request;
    request.set_epoch(term);
    request.set_name(name);
    return Call(&proto::ParameterServer::Stub::Cut, request);
  }
  absl::StatusOr<std::vector<proto::ChunkContent>> Read(const std::string& name, int shard,
                                                        uint32_t term = 1) {
    proto::ReadRequest request;
    request.set_epoch(term);
    request.set_name(name);
    request.set_shard(shard);
    const auto context = rpc::WithDeadline(kLong);
    const auto reader = stub_->Read(context.get(), request);
    std::vector<proto::ChunkContent> chunks;
    proto::ChunkContent chunk;
    while (reader->Read(&chunk)) chunks.push_back(chunk);
    const grpc::Status status = reader->Finish();
    if (status.ok()) return chunks;
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }
  // Returns the safetensors file of the shard's rows. Sets bytes_of_rows.
  absl::StatusOr<std::string> ReadRows(const std::string& name, int shard) {
    proto::ReadRequest request;
    request.set_epoch(1);
    request.set_name(name);
    request.set_shard(shard);
    const auto context = rpc::WithDeadline(kLong);
    const auto reader = stub_->ReadRows(context.get(), request);
    std::string file;
    for (proto::RowsPiece piece; reader->Read(&piece);) {
      file += piece.data();
      bytes_of_rows = piece.bytes();
    }
    const grpc::Status status = reader->Finish();
    if (status.ok()) return file;
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }
  int64_t bytes_of_rows = 0;  // RowsPiece.bytes of the last ReadRows.
  absl::Status Drop(const std::string& name) {
    proto::DropRequest request;
    request.set_epoch(1);
    request.set_name(name);
    return Call(&proto::ParameterServer::Stub::Drop, request).status();
  }
  absl::StatusOr<proto::BeatReply> Beat(const std::string& record = "", uint32_t term = 1) {
    proto::BeatRequest request;
    request.set_epoch(term);
    request.set_record(record);
    return Call(&proto::ParameterServer::Stub::Beat, request);
  }
  proto::ParameterServer::Stub& stub() { return *stub_; }

 private:
  std::unique_ptr<transport::DataListener> listener_;

 public:
  std::unique_ptr<PsService> service;

 private:
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<proto::ParameterServer::Stub> stub_;
};

// One worker's connections to the primaries of a view.
class TestWorker {
 public:
  TestWorker(int worker, uint64_t incarnation, const TestJob& job,
             std::shared_ptr<security::StreamSecurity> security = nullptr)
      : worker_(worker), incarnation_(incarnation), job_(job), layout_(job.layout()) {
    listener_ = *transport::DataListener::Create(
        {.bind_address = "127.0.0.1", .security = std::move(security)});
  }
  // Later calls of Open name this worker, which may differ from the one in the hello.
  void SpeakFor(int worker) { speaks_for_ = worker; }
  void Abort() { abort_.Set(); }

  absl::Status Connect(const proto::View& view) {
    connections_.clear();
    for (const proto::ShardPlace& place : view.shards()) {
      auto connection = Dial(view, place);
      if (!connection.ok()) return connection.status();
      connections_[place.shard()] = *std::move(connection);
      MUSTER_RETURN_IF_ERROR(Open(place.shard(), std::stoull(job_.digest(), nullptr, 16)));
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<transport::DataConnection>> Dial(const proto::View& view,
                                                                  const proto::ShardPlace& place) {
    const auto dialing = listener_->Dial({place.primary_address(),
                                          {view.number(), worker_, place.shard(), 0, view.ticket()},
                                          In(kLong)});
    for (uint64_t seen = 0;; listener_->WaitForChange(&seen, std::chrono::milliseconds(20))) {
      if (auto result = dialing->TakeResult()) return *std::move(result);
      if (abort_.is_set()) return Superseded("the test is over");
    }
  }
  absl::Status Open(int shard, uint64_t digest) {
    return push_pull::OpenConnection(*connections_[shard], speaks_for_, incarnation_, digest,
                                     In(kLong), abort_);
  }
  // Returns the server's answer to Open: OK or its error.
  absl::Status Hear(int shard) {
    return push_pull::Answer(*connections_[shard], In(kLong), abort_).status();
  }
  // Pushes the chunks that are not `done`.
  absl::Status Push(int shard, uint64_t sequence, std::vector<push_pull::ChunkTransfer>& transfers,
                    int64_t lease = 0) {
    return push_pull::PushPull(*connections_[shard],
                               {.sequence = sequence, .learning_rate = 1, .lease = lease},
                               transfers, In(kLong), abort_);
  }
  // Returns transfers of all chunks of a shard. Every element of the gradient is `gradient`. This
  // object owns the memory.
  std::vector<push_pull::ChunkTransfer> Transfers(int shard, float gradient) {
    gradients_[shard].assign(layout_.elements[shard], gradient);
    parameters_[shard].assign(layout_.elements[shard], -1);
    std::vector<push_pull::ChunkTransfer> transfers;
    for (const push_pull::Chunk& chunk : layout_.chunks[shard])
      transfers.push_back({static_cast<int>(transfers.size()),
                           std::span(gradients_[shard]).subspan(chunk.begin, chunk.elements()),
                           std::span(parameters_[shard]).subspan(chunk.begin, chunk.elements())});
    return transfers;
  }
  absl::StatusOr<std::vector<float>> Pull(int shard) {
    std::vector<push_pull::ChunkTransfer> transfers = Transfers(shard, 0);
    for (push_pull::ChunkTransfer& t : transfers) t.gradient = {};
    MUSTER_RETURN_IF_ERROR(Push(shard, 0, transfers));
    return parameters_[shard];
  }

 private:
  const int worker_;
  int speaks_for_ = worker_;
  const uint64_t incarnation_;
  const TestJob job_;
  const push_pull::Layout layout_;
  std::unique_ptr<transport::DataListener> listener_;
  transport::AbortSignal abort_;
  std::map<int, std::unique_ptr<transport::DataConnection>> connections_;
  std::map<int, std::vector<float>> gradients_, parameters_;
};

// Returns the content of all chunks of a shard. Every parameter has this value.
inline std::vector<proto::ChunkContent> Content(const TestJob& job, int shard, float value) {
  std::vector<proto::ChunkContent> contents;
  const push_pull::Layout layout = job.layout();
  for (const push_pull::Chunk& chunk : layout.chunks[shard]) {
    ChunkState state;
    state.parameters.assign(chunk.elements(), value);
    contents.push_back(ContentOf(shard, static_cast<int>(contents.size()), state));
  }
  return contents;
}

}  // namespace muster::ps
