#include "ps/state_streams.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>

#include "common/rpc/guarded.h"
#include "common/rpc/server/server.h"
#include "ps/messages.h"

namespace muster::ps {
namespace {

// The content that one call of Fill brings.
class Filling {
 public:
  grpc::Status Take(const HostPtr& host, const proto::ChunkContent& chunk);
  grpc::Status End(proto::FillReply* reply) const;

 private:
  HostPtr host_;
  // Chunks of which pieces have arrived, but not the last piece. Pieces of several chunks may
  // alternate.
  std::set<std::pair<int, int>> open_;
  ContentJoiner joiner_;
};

grpc::Status Filling::Take(const HostPtr& host, const proto::ChunkContent& chunk) {
  if (host_ != nullptr && host_ != host)
    return Refusal(grpc::StatusCode::FAILED_PRECONDITION,
                   "another run has begun since Fill brought its first chunk");
  host_ = host;
  const auto joined = joiner_.Add(chunk, host->spec());
  if (!joined.ok()) return ToGrpc(joined.status());
  if (!*joined) {
    open_.insert({chunk.shard(), chunk.chunk()});
    return grpc::Status::OK;
  }
  const proto::ChunkContent& content = **joined;
  absl::StatusOr<ChunkState> state = StateOf(content, host->spec());
  if (!state.ok()) return ToGrpc(state.status());
  const std::pair place(content.shard(), content.chunk());
  const bool rows = host->spec().layout.chunks[place.first][place.second].rows();
  const Piece piece{.first = open_.insert(place).second || !rows, .last = !content.more()};
  if (piece.last) open_.erase(place);
  return ToGrpc(host->Restore(place.first, place.second, *std::move(state), piece));
}

grpc::Status Filling::End(proto::FillReply* reply) const {
  if (!open_.empty()) {
    const auto [shard, chunk] = *open_.begin();
    const bool rows = host_->spec().layout.chunks[shard][chunk].rows();
    return Refusal(
        grpc::StatusCode::INVALID_ARGUMENT,
        fmt::format("shard {}, chunk {} lacks {}", shard, chunk, rows ? "rows" : "elements"));
  }
  if (host_ == nullptr)
    return Refusal(grpc::StatusCode::INVALID_ARGUMENT, "Fill brought no chunk at all");
  for (const int shard : host_->serving()) reply->add_serving(shard);
  return grpc::Status::OK;
}

class FillStream final : public grpc::ServerReadReactor<proto::FillRequest> {
 public:
  FillStream(StreamHost* service, grpc::CallbackServerContext* context, proto::FillReply* reply)
      : service_(service),
        context_(context),
        reply_(reply),
        call_(&service->bulk(), context, "Fill") {
    grpc::Status refusal = rpc::RequireDeadline(*context, "Fill");
    if (refusal.ok()) refusal = call_.Admit();
    refusal.ok() ? StartRead(&request_) : Finish(refusal);
  }
  void OnReadDone(bool ok) override {
    const bool taken = service_->RunPiece(
        [this, ok] { ok ? Take() : End(rpc::Guarded([this] { return Result(); })); });
    if (!taken) End(Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, ""));
  }
  void OnDone() override { delete this; }

 private:
  void End(const grpc::Status& status) {
    call_.Done();
    Finish(status);
  }
  void Take() {
    const grpc::Status taken = rpc::Guarded([this] {
      HostPtr host;
      const grpc::Status refusal = service_->Enter(*context_, "Fill", request_.epoch(), &host);
      return refusal.ok() ? filling_.Take(host, request_.chunk()) : refusal;
    });
    if (!taken.ok()) return End(taken);
    call_.Passed();
    StartRead(&request_);
  }
  grpc::Status Result() {
    if (context_->IsCancelled()) return Refusal(grpc::StatusCode::CANCELLED, "Fill was given up");
    return filling_.End(reply_);
  }

  StreamHost* const service_;
  grpc::CallbackServerContext* const context_;
  proto::FillReply* const reply_;
  rpc::BulkCalls::Call call_;
  proto::FillRequest request_;
  Filling filling_;
};

// Sends a copy, one message after the other.
template <typename Message>
class CutStream : public grpc::ServerWriteReactor<Message> {
 public:
  CutStream(StreamHost* service, grpc::CallbackServerContext* context, const char* method,
            const proto::ReadRequest* request)
      : request_(*request),
        service_(service),
        context_(context),
        method_(method),
        call_(&service->bulk(), context, method) {}

  CutStream* Begin() {
    const grpc::Status full = service_->RunCall([this] {
      const grpc::Status refusal = rpc::Guarded([this] { return Admit(); });
      refusal.ok() ? RunNext() : End(refusal);
    });
    if (!full.ok()) End(full);
    return this;
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return End(Refusal(grpc::StatusCode::CANCELLED, "the reader has gone"));
    call_.Passed();
    RunNext();
  }
  void OnDone() override { delete this; }

 protected:
  virtual grpc::Status Open(const ShardCut& cut) = 0;
  // Makes the next message. Sets `*more` to false at the end.
  virtual grpc::Status Next(const ShardCut& cut, Message* message, bool* more) = 0;

  const proto::ReadRequest request_;

 private:
  void End(const grpc::Status& status) {
    call_.Done();
    this->Finish(status);
  }
  grpc::Status Admit() {
    HostPtr host;
    grpc::Status refusal = service_->Enter(*context_, method_, request_.epoch(), &host);
    if (refusal.ok()) refusal = service_->FindCut(request_, &cut_);
    if (refusal.ok()) refusal = Open(cut_->at(request_.shard()));
    return refusal.ok() ? call_.Admit() : refusal;
  }
  void RunNext() {
    const bool taken = service_->RunPiece([this] {
      bool more = true;
      const grpc::Status status =
          rpc::Guarded([&] { return Next(cut_->at(request_.shard()), &message_, &more); });
      status.ok() && more ? this->StartWrite(&message_) : End(status);
    });
    if (!taken) End(Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, ""));
  }

  StreamHost* const service_;
  grpc::CallbackServerContext* const context_;
  const char* const method_;
  rpc::BulkCalls::Call call_;
  CutPtr cut_;
  Message message_;
};

class ReadStream final : public CutStream<proto::ChunkContent> {
 public:
  using CutStream::CutStream;

 private:
  grpc::Status Open(const ShardCut&) override { return grpc::Status::OK; }
  grpc::Status Next(const ShardCut& cut, proto::ChunkContent* message, bool* more) override {
    while (next_ < cut.chunks.size() && cut.chunks[next_] == nullptr) ++next_;
    *more = next_ < cut.chunks.size();
    if (!*more) return grpc::Status::OK;
    const int chunk = static_cast<int>(next_++);
    const auto state = cut.store->Read(chunk, cut.chunks[chunk].get());
    if (!state.ok()) return ToGrpc(state.status());
    *message = ContentOf(request_.shard(), chunk, *state);
    return grpc::Status::OK;
  }

  size_t next_ = 0;
};

class ReadRowsStream final : public CutStream<proto::RowsPiece> {
 public:
  using CutStream::CutStream;

 private:
  grpc::Status Open(const ShardCut& cut) override {
    if (cut.rows == nullptr)
      return Refusal(grpc::StatusCode::INVALID_ARGUMENT,
                     fmt::format("shard {} holds no table", request_.shard()));
    reader_.emplace(cut.rows);
    return grpc::Status::OK;
  }
  grpc::Status Next(const ShardCut& cut, proto::RowsPiece* message, bool* more) override {
    message->set_bytes(cut.rows->bytes());
    *more = reader_->Next(message->mutable_data());
    return grpc::Status::OK;
  }

  std::optional<RowsFile::Reader> reader_;
};

}  // namespace

grpc::ServerReadReactor<proto::FillRequest>* OpenFill(StreamHost* service,
                                                      grpc::CallbackServerContext* context,
                                                      proto::FillReply* reply) {
  return new FillStream(service, context, reply);
}

grpc::ServerWriteReactor<proto::ChunkContent>* OpenRead(StreamHost* service,
                                                        grpc::CallbackServerContext* context,
                                                        const proto::ReadRequest* request) {
  return (new ReadStream(service, context, "Read", request))->Begin();
}

grpc::ServerWriteReactor<proto::RowsPiece>* OpenReadRows(StreamHost* service,
                                                         grpc::CallbackServerContext* context,
                                                         const proto::ReadRequest* request) {
  return (new ReadRowsStream(service, context, "ReadRows", request))->Begin();
}

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(Message(status)));
}

grpc::Status Refusal(grpc::StatusCode code, const std::string& why) {
  return grpc::Status(code, why);
}

}  // namespace muster::ps
