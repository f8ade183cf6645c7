#include "ps/service.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/logging.h"
#include "common/base/peer_text.h"
#include "common/cluster/chief_term.h"
#include "common/push_pull/variable_messages.h"
#include "common/rpc/channel.h"
#include "common/rpc/guarded.h"
#include "common/rpc/server/server.h"
#include "common/rpc/server/worker_pool.h"
#include "proto/parameter_server.grpc.pb.h"
#include "ps/messages.h"
#include "ps/shard_host.h"
#include "ps/state_streams.h"

namespace muster::ps {
namespace {

constexpr Duration kBeat = std::chrono::seconds(1);  // The interval of the chief's calls of Beat.
constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxRunBytes = 64;

// More than two, because only Cut and SetView may block other calls for long.
constexpr int kCallThreads = 4;
constexpr int kMaxCalls = 64;  // The maximum number of calls that wait for a thread.
// One thread per admitted stream, so that no stream waits for the backup of another stream.
constexpr int kPieceThreads = 8;
constexpr char kEnding[] = "this parameter server is ending";

class PsServiceImpl final : public PsService,
                            public proto::ParameterServer::CallbackService,
                            private StreamHost {
 public:
  explicit PsServiceImpl(PsServiceOptions options)
      : options_(options), bulk_(options.bulk, kEnding) {}
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
    if (host != nullptr) host->Stop();  // Ends the calls that streams wait for.
    bulk_.Stop();
  }

  // ---- proto::ParameterServer
  grpc::ServerUnaryReactor* Create(grpc::CallbackServerContext* context,
                                   const proto::CreateRequest* request,
                                   proto::CreateReply* reply) override {
    return Run(context, request, reply, &PsServiceImpl::DoCreate);
  }
  grpc::ServerUnaryReactor* SetView(grpc::CallbackServerContext* context,
                                    const proto::SetViewRequest* request,
                                    proto::SetViewReply* reply) override {
    return Run(context, request, reply, &PsServiceImpl::DoSetView);
  }
  grpc::ServerUnaryReactor* SetWorkers(grpc::CallbackServerContext* context,
                                       const proto::SetWorkersRequest* request,
                                       proto::SetWorkersReply* reply) override {
    return Run(context, request, reply, &PsServiceImpl::DoSetWorkers);
  }
  grpc::ServerReadReactor<proto::FillRequest>* Fill(grpc::CallbackServerContext* context,
                                                    proto::FillReply* reply) override {
    return OpenFill(this, context, reply);
  }
  grpc::ServerUnaryReactor* Cut(grpc::CallbackServerContext* context,
                                const proto::CutRequest* request, proto::CutReply* reply) override {
    return Run(context, request, reply, &PsServiceImpl::DoCut);
  }
  grpc::ServerWriteReactor<proto::ChunkContent>* Read(grpc::CallbackServerContext* context,
                                                      const proto::ReadRequest* request) override {
    return OpenRead(this, context, request);
  }
  grpc::ServerWriteReactor<proto::RowsPiece>* ReadRows(grpc::CallbackServerContext* context,
                                                       const proto::ReadRequest* request) override {
    return OpenReadRows(this, context, request);
  }
  grpc::ServerUnaryReactor* PullRows(grpc::CallbackServerContext* context,
                                     const proto::PullRowsRequest* request,
                                     proto::PullRowsReply* reply) override {
    return Run(context, request, reply, &PsServiceImpl::DoPullRows);
  }
  grpc::ServerUnaryReactor* Drop(grpc::CallbackServerContext* context,
                                 const proto::DropRequest* request,
                                 proto::DropReply* reply) override {
    return Run(context, request, reply, &PsServiceImpl::DoDrop);
  }
  grpc::ServerUnaryReactor* Beat(grpc::CallbackServerContext* context,
                                 const proto::BeatRequest* request,
                                 proto::BeatReply* reply) override {
    return Run(context, request, reply, &PsServiceImpl::DoBeat);
  }

 private:
  using Context = grpc::CallbackServerContext;

  // Runs a call on a thread of calls_, not on one of gRPC's few threads. Calls wait for locks of
  // shards, which other calls hold during their work. A call that the chief has cancelled before it
  // starts is not carried out.
  template <typename Request, typename Reply>
  grpc::ServerUnaryReactor* Run(Context* context, const Request* request, Reply* reply,
                                grpc::Status (PsServiceImpl::*method)(const Context&,
                                                                      const Request&, Reply*)) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const grpc::Status full = RunCall([=, this] {
      reactor->Finish(context->IsCancelled() ? grpc::Status::CANCELLED : rpc::Guarded([&] {
        return (this->*method)(*context, *request, reply);
      }));
    });
    if (!full.ok()) reactor->Finish(full);
    return reactor;
  }
  grpc::Status DoCreate(const Context& context, const proto::CreateRequest& request,
                        proto::CreateReply* reply);
  grpc::Status DoSetView(const Context& context, const proto::SetViewRequest& request,
                         proto::SetViewReply* reply);
  grpc::Status DoSetWorkers(const Context& context, const proto::SetWorkersRequest& request,
                            proto::SetWorkersReply* reply);
  grpc::Status DoCut(const Context& context, const proto::CutRequest& request,
                     proto::CutReply* reply);
  grpc::Status DoPullRows(const Context& context, const proto::PullRowsRequest& request,
                          proto::PullRowsReply* reply);
  grpc::Status DoDrop(const Context& context, const proto::DropRequest& request,
                      proto::DropReply* reply);
  grpc::Status DoBeat(const Context& context, const proto::BeatRequest& request,
                      proto::BeatReply* reply);

  // ---- StreamHost. With a null `host`, Enter also accepts calls before Create.
  grpc::Status Enter(const Context& context, const char* method, uint32_t term,
                     HostPtr* host) override;
  grpc::Status FindCut(const proto::ReadRequest& request, CutPtr* cut) const override;
  grpc::Status RunCall(std::function<void()> work) override;
  bool RunPiece(std::function<void()> work) override { return pieces_.Run(std::move(work)); }
  rpc::BulkCalls& bulk() override { return bulk_; }

  HostPtr host() const {
    absl::MutexLock lock(&mu_);
    return host_;
  }
  grpc::Status CheckSame(const proto::CreateRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const PsServiceOptions options_;
  mutable absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  // The first term of a chief that was seen, and the highest.
  uint32_t first_term_ ABSL_GUARDED_BY(mu_) = 0, term_ ABSL_GUARDED_BY(mu_) = 0;
  proto::CreateRequest created_ ABSL_GUARDED_BY(mu_);
  HostPtr host_ ABSL_GUARDED_BY(mu_);
  std::string record_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, CutPtr> cuts_ ABSL_GUARDED_BY(mu_);

  rpc::BulkCalls bulk_;
  // Declared last, because their threads use all members above. There are two pools: a piece that
  // waits for a backup may need a new view, which is a call.
  rpc::WorkerPool calls_{kCallThreads, kMaxCalls}, pieces_{kPieceThreads};
};

grpc::Status PsServiceImpl::RunCall(std::function<void()> work) {
  if (calls_.Run(std::move(work))) return grpc::Status::OK;
  return Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED,
                 fmt::format("{} calls wait here, and are the most", kMaxCalls));
}

grpc::Status PsServiceImpl::Enter(const Context& context, const char* method, uint32_t term,
                                  HostPtr* host) {
  if (const grpc::Status refusal = rpc::RequireDeadline(context, method); !refusal.ok())
    return refusal;
  absl::MutexLock lock(&mu_);
  if (stopped_) return Refusal(grpc::StatusCode::UNAVAILABLE, kEnding);
  if (term < term_)
    return Refusal(grpc::StatusCode::FAILED_PRECONDITION,
                   fmt::format("{} came from a chief of epoch {}, and one of epoch {} was here: it "
                               "is superseded",
                               method, term, term_));
  // Compares with the first term, so that many small steps cannot exceed the limit.
  if (!IsPlausibleTerm(term, first_term_))
    return Refusal(grpc::StatusCode::INVALID_ARGUMENT,
                   fmt::format("{} came from a chief of epoch {}, and one of epoch {} was here: no "
                               "run has had so many chiefs",
                               method, term, term_));
  if (term_ == 0) first_term_ = term;
  if (term > term_) cuts_.clear();  // A lost chief cannot drop its own copies.
  term_ = term;
  if (host == nullptr) return grpc::Status::OK;
  *host = host_;
  if (*host != nullptr) {
    (*host)->OnChiefContact();
    return grpc::Status::OK;
  }
  // The chief does not know of this new process until the process joins.
  return Refusal(grpc::StatusCode::UNAVAILABLE,
                 fmt::format("{} came before Create: this process holds nothing", method));
}

// ---- Create

grpc::Status PsServiceImpl::CheckSame(const proto::CreateRequest& request) {
  if (request.digest() != created_.digest()) {
    const std::string difference = push_pull::FirstDifference(
        push_pull::SpecsOf(created_.variables()), push_pull::SpecsOf(request.variables()));
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

grpc::Status PsServiceImpl::DoCreate(const Context& context, const proto::CreateRequest& request,
                                     proto::CreateReply* reply) {
  if (const grpc::Status refusal = Enter(context, "Create", request.epoch(), nullptr);
      !refusal.ok())
    return refusal;
  if (request.run_id().empty() || request.run_id().size() > kMaxRunBytes)
    return Refusal(grpc::StatusCode::INVALID_ARGUMENT,
                   fmt::format("a run id has 1 to {} bytes", kMaxRunBytes));
  const absl::StatusOr<ShardSpec> spec = SpecOf(request, options_.task);
  if (!spec.ok()) return ToGrpc(spec.status());
  HostPtr old;
  {
    absl::MutexLock lock(&mu_);
    if (host_ != nullptr && created_.run_id() != request.run_id()) {
      LogInfo("dropped the shards of run {}: the chief's run is {}", created_.run_id(),
              SanitizePeerText(request.run_id()));
      old = std::exchange(host_, nullptr);
      record_.clear();
      cuts_.clear();
    }
    if (host_ == nullptr) {
      created_ = request;
      host_ = ShardHost::Make(*spec, options_);
    } else if (const grpc::Status refusal = CheckSame(request); !refusal.ok()) {
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

// ---- SetView, SetWorkers, Beat

grpc::Status PsServiceImpl::DoSetView(const Context& context, const proto::SetViewRequest& request,
                                      proto::SetViewReply*) {
  HostPtr host;
  if (const grpc::Status refusal = Enter(context, "SetView", request.epoch(), &host); !refusal.ok())
    return refusal;
  const absl::StatusOr<PsView> view =
      ViewOf(request.view(), static_cast<int>(host->spec().layout.chunks.size()));
  return ToGrpc(view.ok() ? host->SetView(*view) : view.status());
}

grpc::Status PsServiceImpl::DoSetWorkers(const Context& context,
                                         const proto::SetWorkersRequest& request,
                                         proto::SetWorkersReply*) {
  HostPtr host;
  if (const grpc::Status refusal = Enter(context, "SetWorkers", request.epoch(), &host);
      !refusal.ok())
    return refusal;
  host->SetWorkers({request.epoch(), request.version()},
                   {request.incarnations().begin(), request.incarnations().end()});
  return grpc::Status::OK;
}

grpc::Status PsServiceImpl::DoBeat(const Context& context, const proto::BeatRequest& request,
                                   proto::BeatReply* reply) {
  HostPtr host;
  if (const grpc::Status refusal = Enter(context, "Beat", request.epoch(), &host); !refusal.ok())
    return refusal;
  if (!request.record().empty()) {
    absl::MutexLock lock(&mu_);
    // A newer chief may have called meanwhile, and its record must not be replaced.
    if (request.epoch() == term_) record_ = request.record();
  }
  const PsStatus status = host->status();
  reply->set_view(status.view);
  for (const int shard : host->serving()) reply->add_serving(shard);
  for (const int shard : host->synced(reply->mutable_backup_error())) reply->add_synced(shard);
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

// ---- Copies and rows

grpc::Status PsServiceImpl::DoCut(const Context& context, const proto::CutRequest& request,
                                  proto::CutReply* reply) {
  HostPtr host;
  if (const grpc::Status refusal = Enter(context, "Cut", request.epoch(), &host); !refusal.ok())
    return refusal;
  if (request.name().empty() || request.name().size() > kMaxNameBytes)
    return Refusal(grpc::StatusCode::INVALID_ARGUMENT,
                   fmt::format("a copy needs a name of 1 to {} bytes", kMaxNameBytes));
  {
    absl::MutexLock lock(&mu_);
    // The chief needs one copy at a time. A copy that it could not drop would occupy memory for
    // ever.
    cuts_.clear();
  }
  absl::StatusOr<std::map<int, ShardCut>> cut = host->CutPrimaries();
  if (!cut.ok()) return ToGrpc(cut.status());
  for (const auto& [shard, of_shard] : *cut) reply->add_shards(shard);
  absl::MutexLock lock(&mu_);
  cuts_[request.name()] = std::make_shared<const std::map<int, ShardCut>>(*std::move(cut));
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

grpc::Status PsServiceImpl::DoPullRows(const Context& context,
                                       const proto::PullRowsRequest& request,
                                       proto::PullRowsReply* reply) {
  HostPtr host;
  if (const grpc::Status refusal = Enter(context, "PullRows", request.epoch(), &host);
      !refusal.ok())
    return refusal;
  const std::vector<uint64_t> keys(request.keys().begin(), request.keys().end());
  const absl::StatusOr<std::vector<float>> rows = host->PullRows(request.variable(), keys);
  if (!rows.ok()) return ToGrpc(rows.status());
  reply->set_rows(rows->data(), rows->size() * sizeof(float));
  return grpc::Status::OK;
}

grpc::Status PsServiceImpl::DoDrop(const Context& context, const proto::DropRequest& request,
                                   proto::DropReply*) {
  HostPtr host;
  if (const grpc::Status refusal = Enter(context, "Drop", request.epoch(), &host); !refusal.ok())
    return refusal;
  absl::MutexLock lock(&mu_);
  cuts_.erase(request.name());
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

}  // namespace muster::ps
