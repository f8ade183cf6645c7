#include "ps/service.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/logging.h"
#include "common/base/peer_text.h"
#include "common/cluster/chief_epoch.h"
#include "common/push_pull/variable_messages.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "proto/parameter_server.grpc.pb.h"
#include "ps/messages.h"
#include "ps/shard_host.h"

namespace muster {
namespace {

using HostPtr = std::shared_ptr<ps::ShardHost>;
using Cut = std::map<int, ps::ShardCut>;  // by shard

constexpr Duration kBeat = std::chrono::seconds(1);  // of the chief, while all is well
constexpr size_t kMostNameBytes = 256;
constexpr size_t kMostRunBytes = 64;

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(Message(status)));
}
grpc::Status Refusal(grpc::StatusCode code, const std::string& why) {
  return grpc::Status(code, why);
}

class PsServiceImpl final : public PsService, public proto::ParameterServer::Service {
 public:
  explicit PsServiceImpl(PsServiceOptions options) : options_(options), bulk_(options.bulk) {}
  ~PsServiceImpl() override { Stop(); }

  grpc::Service* service() override { return this; }
  PsStatus status() const override {
    const HostPtr host = this->host();
    return host != nullptr ? host->status() : PsStatus();
  }
  void Stop() override {
    HostPtr host;
    {
      absl::MutexLock lock(&mu_);
      stopped_ = true;
      host = host_;
    }
    if (host != nullptr) host->Stop();
  }

  // proto::ParameterServer
  grpc::Status Create(grpc::ServerContext* context, const proto::CreateRequest* request,
                      proto::CreateReply* reply) override;
  grpc::Status SetView(grpc::ServerContext* context, const proto::SetViewRequest* request,
                       proto::SetViewReply* reply) override;
  grpc::Status SetWorkers(grpc::ServerContext* context, const proto::SetWorkersRequest* request,
                          proto::SetWorkersReply* reply) override;
  grpc::Status Fill(grpc::ServerContext* context, grpc::ServerReader<proto::FillRequest>* reader,
                    proto::FillReply* reply) override;
  grpc::Status Cut(grpc::ServerContext* context, const proto::CutRequest* request,
                   proto::CutReply* reply) override;
  grpc::Status Read(grpc::ServerContext* context, const proto::ReadRequest* request,
                    grpc::ServerWriter<proto::ChunkContent>* writer) override;
  grpc::Status ReadRows(grpc::ServerContext* context, const proto::ReadRequest* request,
                        grpc::ServerWriter<proto::RowsPiece>* writer) override;
  grpc::Status PullRows(grpc::ServerContext* context, const proto::PullRowsRequest* request,
                        proto::PullRowsReply* reply) override;
  grpc::Status Drop(grpc::ServerContext* context, const proto::DropRequest* request,
                    proto::DropReply* reply) override;
  grpc::Status Beat(grpc::ServerContext* context, const proto::BeatRequest* request,
                    proto::BeatReply* reply) override;

 private:
  using CutPtr = std::shared_ptr<const muster::Cut>;

  HostPtr host() const {
    absl::MutexLock lock(&mu_);
    return host_;
  }
  // Whether the caller is the chief of now; `host` where it has created this server (else null
  // means that this was called).
  grpc::Status Enter(const grpc::ServerContext& context, const char* method, uint32_t epoch,
                     HostPtr* host);
  // A copy of that name of that shard.
  grpc::Status FindCut(const proto::ReadRequest& request, CutPtr* cut) const;
  grpc::Status CheckSame(const proto::CreateRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const PsServiceOptions options_;
  BulkCalls bulk_;
  mutable absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  // The first that was seen, and the highest.
  uint32_t first_epoch_ ABSL_GUARDED_BY(mu_) = 0, epoch_ ABSL_GUARDED_BY(mu_) = 0;
  proto::CreateRequest created_ ABSL_GUARDED_BY(mu_);
  HostPtr host_ ABSL_GUARDED_BY(mu_);
  std::string record_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, CutPtr> cuts_ ABSL_GUARDED_BY(mu_);
};

grpc::Status PsServiceImpl::Enter(const grpc::ServerContext& context, const char* method,
                                  uint32_t epoch, HostPtr* host) {
  if (const grpc::Status refusal = rpc::RequireDeadline(context, method); !refusal.ok())
    return refusal;
  absl::MutexLock lock(&mu_);
  if (stopped_) return Refusal(grpc::StatusCode::UNAVAILABLE, "this parameter server is ending");
  if (epoch < epoch_)
    return Refusal(grpc::StatusCode::FAILED_PRECONDITION,
                   fmt::format("{} came from a chief of epoch {}, and one of epoch {} was here: it "
                               "is superseded",
                               method, epoch, epoch_));
  // From the first one on: many small steps are a jump too.
  if (!IsPlausibleEpoch(epoch, first_epoch_))
    return Refusal(grpc::StatusCode::INVALID_ARGUMENT,
                   fmt::format("{} came from a chief of epoch {}, and one of epoch {} was here: no "
                               "run has had so many chiefs",
                               method, epoch, epoch_));
  if (epoch_ == 0) first_epoch_ = epoch;
  if (epoch > epoch_) cuts_.clear();  // a chief that is gone will not drop its own
  epoch_ = epoch;
  if (host == nullptr) return grpc::Status::OK;
  *host = host_;
  if (*host != nullptr) {
    (*host)->HeardChief();
    return grpc::Status::OK;
  }
  // The chief takes it for the process before, until its session tells of this one.
  return Refusal(grpc::StatusCode::UNAVAILABLE,
                 fmt::format("{} came before Create: this process holds nothing", method));
}

// ---- Create

grpc::Status PsServiceImpl::CheckSame(const proto::CreateRequest& request) {
  if (request.digest() != created_.digest()) {
    const std::string difference =
        FirstDifference(SpecsOf(created_.variables()), SpecsOf(request.variables()));
    return Refusal(
        grpc::StatusCode::INVALID_ARGUMENT,
        fmt::format("this parameter server holds other variables of run {}: {}", request.run_id(),
                    difference.empty() ? "they are divided in another way" : difference));
  }
  if (request.optimizers_size() != created_.optimizers_size())
    return Refusal(
        grpc::StatusCode::INVALID_ARGUMENT,
        fmt::format("this parameter server has {} optimizers of run {}, not {}",
                    created_.optimizers_size(), request.run_id(), request.optimizers_size()));
  for (int i = 0; i < request.optimizers_size(); ++i)
    if (request.optimizers(i) != created_.optimizers(i))
      return Refusal(grpc::StatusCode::INVALID_ARGUMENT,
                     fmt::format("this parameter server has another optimizer {} in run {}", i,
                                 request.run_id()));
  return grpc::Status::OK;
}

grpc::Status PsServiceImpl::Create(grpc::ServerContext* context,
                                   const proto::CreateRequest* request, proto::CreateReply* reply) {
  if (const grpc::Status refusal = Enter(*context, "Create", request->epoch(), nullptr);
      !refusal.ok())
    return refusal;
  if (request->run_id().empty() || request->run_id().size() > kMostRunBytes)
    return Refusal(grpc::StatusCode::INVALID_ARGUMENT,
                   fmt::format("a run id has 1 to {} bytes", kMostRunBytes));
  const absl::StatusOr<ps::ShardSpec> spec = ps::SpecOf(*request, options_.task);
  if (!spec.ok()) return ToGrpc(spec.status());
  HostPtr old;
  {
    absl::MutexLock lock(&mu_);
    if (host_ != nullptr && created_.run_id() != request->run_id()) {
      LogInfo("what this parameter server holds of run {} is forgotten: the chief's is {}",
              created_.run_id(), PeerText(request->run_id()));
      old = std::exchange(host_, nullptr);
      record_.clear();
      cuts_.clear();
    }
    if (host_ == nullptr) {
      created_ = *request;
      host_ = ps::ShardHost::Make(*spec, options_);
    } else if (const grpc::Status refusal = CheckSame(*request); !refusal.ok()) {
      return refusal;
    }
    reply->set_record(record_);
    reply->set_view(host_->view());
    reply->set_newest_lease(host_->newest_lease());
    for (const int shard : host_->serving()) reply->add_serving(shard);
  }
  if (old != nullptr) old->Stop();
  return grpc::Status::OK;
}

// ---- levels

grpc::Status PsServiceImpl::SetView(grpc::ServerContext* context,
                                    const proto::SetViewRequest* request, proto::SetViewReply*) {
  HostPtr host;
  if (const grpc::Status refusal = Enter(*context, "SetView", request->epoch(), &host);
      !refusal.ok())
    return refusal;
  const absl::StatusOr<ps::PsView> view =
      ps::ViewOf(request->view(), static_cast<int>(host->spec().layout.chunks.size()));
  return ToGrpc(view.ok() ? host->SetView(*view) : view.status());
}

grpc::Status PsServiceImpl::SetWorkers(grpc::ServerContext* context,
                                       const proto::SetWorkersRequest* request,
                                       proto::SetWorkersReply*) {
  HostPtr host;
  if (const grpc::Status refusal = Enter(*context, "SetWorkers", request->epoch(), &host);
      !refusal.ok())
    return refusal;
  host->SetWorkers({request->epoch(), request->version()},
                   {request->incarnations().begin(), request->incarnations().end()});
  return grpc::Status::OK;
}

grpc::Status PsServiceImpl::Beat(grpc::ServerContext* context, const proto::BeatRequest* request,
                                 proto::BeatReply* reply) {
  HostPtr host;
  if (const grpc::Status refusal = Enter(*context, "Beat", request->epoch(), &host); !refusal.ok())
    return refusal;
  if (!request->record().empty()) {
    absl::MutexLock lock(&mu_);
    // Not after a newer chief's that came in between.
    if (request->epoch() == epoch_) record_ = request->record();
  }
  const PsStatus status = host->status();
  reply->set_view(status.view);
  for (const int shard : host->serving()) reply->add_serving(shard);
  for (const int shard : host->synced(reply->mutable_trouble())) reply->add_synced(shard);
  for (const auto& [shard, since] : host->waiting())
    (*reply->mutable_waiting())[shard] = Seconds(since);
  reply->set_updates(status.updates);
  for (const auto& [table, statistics] : host->tables()) {
    proto::TableCounts& counts = *reply->add_tables();
    counts.set_variable(table);
    counts.set_rows(statistics.rows);
    counts.set_bytes(statistics.bytes);
    counts.set_lookups(statistics.lookups);
    counts.set_hits(statistics.hits);
    counts.set_evictions(statistics.evictions);
    counts.set_refused(statistics.refused);
  }
  return grpc::Status::OK;
}

// ---- state

grpc::Status PsServiceImpl::Fill(grpc::ServerContext* context,
                                 grpc::ServerReader<proto::FillRequest>* reader,
                                 proto::FillReply* reply) {
  proto::FillRequest request;
  HostPtr host;
  // Chunks of tables of which rows have come, and the last ones have not. Rows of several chunks
  // may come in turn.
  std::set<std::pair<int, int>> open;
  ps::ContentJoiner joiner;
  BulkCalls::Call call(&bulk_, context, "Fill");
  if (!call.admitted().ok()) return call.admitted();
  while (reader->Read(&request)) {
    HostPtr now;
    if (const grpc::Status refusal = Enter(*context, "Fill", request.epoch(), &now); !refusal.ok())
      return refusal;
    if (host != nullptr && host != now)
      return Refusal(grpc::StatusCode::FAILED_PRECONDITION,
                     "another run has begun since Fill brought its first chunk");
    host = std::move(now);
    const auto joined = joiner.Add(request.chunk(), host->spec());
    if (!joined.ok()) return ToGrpc(joined.status());
    if (!*joined) {
      open.insert({request.chunk().shard(), request.chunk().chunk()});
      call.Passed();
      continue;
    }
    const proto::ChunkContent& content = **joined;
    absl::StatusOr<ChunkState> state = ps::StateOf(content, host->spec());
    if (!state.ok()) return ToGrpc(state.status());
    const std::pair place(content.shard(), content.chunk());
    const bool rows = host->spec().layout.chunks[place.first][place.second].rows();
    const Piece piece{.first = open.insert(place).second || !rows, .last = !content.more()};
    if (piece.last) open.erase(place);
    const absl::Status status = host->Restore(place.first, place.second, *std::move(state), piece);
    if (!status.ok()) return ToGrpc(status);
    call.Passed();
  }
  if (context->IsCancelled()) return Refusal(grpc::StatusCode::CANCELLED, "Fill was given up");
  if (!open.empty()) {
    const auto [shard, chunk] = *open.begin();
    const bool rows = host->spec().layout.chunks[shard][chunk].rows();
    return Refusal(
        grpc::StatusCode::INVALID_ARGUMENT,
        fmt::format("shard {}, chunk {} lacks {}", shard, chunk, rows ? "rows" : "elements"));
  }
  if (host == nullptr)
    return Refusal(grpc::StatusCode::INVALID_ARGUMENT, "Fill brought no chunk at all");
  for (const int shard : host->serving()) reply->add_serving(shard);
  return grpc::Status::OK;
}

grpc::Status PsServiceImpl::Cut(grpc::ServerContext* context, const proto::CutRequest* request,
                                proto::CutReply* reply) {
  HostPtr host;
  if (const grpc::Status refusal = Enter(*context, "Cut", request->epoch(), &host); !refusal.ok())
    return refusal;
  if (request->name().empty() || request->name().size() > kMostNameBytes)
    return Refusal(grpc::StatusCode::INVALID_ARGUMENT,
                   fmt::format("a copy needs a name of 1 to {} bytes", kMostNameBytes));
  {
    absl::MutexLock lock(&mu_);
    // The chief makes one copy at a time. One that it could not drop would stay for ever, and its
    // memory is needed.
    cuts_.clear();
  }
  absl::StatusOr<muster::Cut> cut = host->CutPrimaries();
  if (!cut.ok()) return ToGrpc(cut.status());
  for (const auto& [shard, of_shard] : *cut) reply->add_shards(shard);
  absl::MutexLock lock(&mu_);
  cuts_[request->name()] = std::make_shared<const muster::Cut>(*std::move(cut));
  return grpc::Status::OK;
}

grpc::Status PsServiceImpl::FindCut(const proto::ReadRequest& request, CutPtr* cut) const {
  absl::MutexLock lock(&mu_);
  const auto found = cuts_.find(request.name());
  if (found == cuts_.end() || !found->second->contains(request.shard()))
    return Refusal(
        grpc::StatusCode::INVALID_ARGUMENT,
        fmt::format("there is no copy \"{}\" of shard {} here", request.name(), request.shard()));
  *cut = found->second;
  return grpc::Status::OK;
}

grpc::Status PsServiceImpl::Read(grpc::ServerContext* context, const proto::ReadRequest* request,
                                 grpc::ServerWriter<proto::ChunkContent>* writer) {
  HostPtr host;
  if (const grpc::Status refusal = Enter(*context, "Read", request->epoch(), &host); !refusal.ok())
    return refusal;
  CutPtr cut;
  if (const grpc::Status refusal = FindCut(*request, &cut); !refusal.ok()) return refusal;
  const ps::ShardCut& of_shard = cut->at(request->shard());
  BulkCalls::Call call(&bulk_, context, "Read");
  if (!call.admitted().ok()) return call.admitted();
  for (size_t c = 0; c < of_shard.chunks.size(); ++c) {
    if (of_shard.chunks[c] == nullptr) continue;
    const int chunk = static_cast<int>(c);
    const auto state = of_shard.store->Read(chunk, of_shard.chunks[c].get());
    if (!state.ok()) return ToGrpc(state.status());
    if (!writer->Write(ps::ContentOf(request->shard(), chunk, *state)))
      return Refusal(grpc::StatusCode::CANCELLED, "the reader has gone");
    call.Passed();
  }
  return grpc::Status::OK;
}

grpc::Status PsServiceImpl::ReadRows(grpc::ServerContext* context,
                                     const proto::ReadRequest* request,
                                     grpc::ServerWriter<proto::RowsPiece>* writer) {
  HostPtr host;
  if (const grpc::Status refusal = Enter(*context, "ReadRows", request->epoch(), &host);
      !refusal.ok())
    return refusal;
  CutPtr cut;
  if (const grpc::Status refusal = FindCut(*request, &cut); !refusal.ok()) return refusal;
  const auto& rows = cut->at(request->shard()).rows;
  if (rows == nullptr)
    return Refusal(grpc::StatusCode::INVALID_ARGUMENT,
                   fmt::format("shard {} holds no table", request->shard()));
  BulkCalls::Call call(&bulk_, context, "ReadRows");
  if (!call.admitted().ok()) return call.admitted();
  proto::RowsPiece piece;
  piece.set_bytes(rows->bytes());
  ps::RowsFile::Reader reader(rows);
  while (reader.Next(piece.mutable_data())) {
    if (!writer->Write(piece)) return Refusal(grpc::StatusCode::CANCELLED, "the reader has gone");
    call.Passed();
  }
  return grpc::Status::OK;
}

grpc::Status PsServiceImpl::PullRows(grpc::ServerContext* context,
                                     const proto::PullRowsRequest* request,
                                     proto::PullRowsReply* reply) {
  HostPtr host;
  if (const grpc::Status refusal = Enter(*context, "PullRows", request->epoch(), &host);
      !refusal.ok())
    return refusal;
  const std::vector<uint64_t> keys(request->keys().begin(), request->keys().end());
  const absl::StatusOr<std::vector<float>> rows = host->PullRows(request->variable(), keys);
  if (!rows.ok()) return ToGrpc(rows.status());
  reply->set_rows(rows->data(), rows->size() * sizeof(float));
  return grpc::Status::OK;
}

grpc::Status PsServiceImpl::Drop(grpc::ServerContext* context, const proto::DropRequest* request,
                                 proto::DropReply*) {
  HostPtr host;
  if (const grpc::Status refusal = Enter(*context, "Drop", request->epoch(), &host); !refusal.ok())
    return refusal;
  absl::MutexLock lock(&mu_);
  cuts_.erase(request->name());
  return grpc::Status::OK;
}

}  // namespace

Duration LongestChiefSilence(Duration heartbeat, Duration resume) {
  const Duration broken = rpc::kKeepaliveTimeout + resume - kBeat;
  return std::max(std::min(heartbeat * 3 / 4, broken), kBeat * 3 / 2);
}

std::unique_ptr<PsService> PsService::Make(PsServiceOptions options) {
  return std::make_unique<PsServiceImpl>(options);
}

}  // namespace muster
