// A fake ps task for tests of the Director: a server of proto::ParameterServer that keeps a number
// for each shard.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/server/server.h"
#include "proto/parameter_server.grpc.pb.h"

namespace muster::chief::testing {

// A fake ps task. Replace simulates a new process of the task, without state.
class FakePs final : public proto::ParameterServer::Service {
 public:
  FakePs(int task, int servers);
  std::string address() const;
  void Replace();

  // Applies a worker's push. A key (incarnation, sequence) counts once. Returns false if this task
  // is not the shard's primary in this view.
  bool Push(uint64_t view, int shard, std::pair<uint64_t, int64_t> key, double examples);
  double value(int shard) const;  // -1: the task does not hold the shard.
  // Returns whether this task is the shard's primary.
  bool serves(int shard) const;
  // Copies the primary's state of a shard to this backup. Returns false if one of the two processes
  // was replaced.
  bool Copy(int shard, const FakePs& from);
  // Sets BeatReply.synced.
  void SetSynced(std::vector<int> shards);
  // Sets BeatReply.waiting: by shard, for how many seconds a push has waited for the backup.
  void SetWaiting(std::map<int, double> shards);
  std::map<int, uint64_t> workers() const;
  std::string record() const;
  std::string digest() const;  // The digest in the last call of Create.
  // The next `count` calls of Read fail, as if the process had been replaced.
  void FailReads(int count);
  // While `lose` is true, SetView takes effect but returns an error.
  void LoseViewAnswers(bool lose);
  proto::View view() const;
  // While `hold` is true, calls of Read block.
  void HoldReads(bool hold);
  int reads() const;                         // The number of calls of Read.
  void OnCut(std::function<void()> on_cut);  // Cut calls this function.

  grpc::Status Create(grpc::ServerContext*, const proto::CreateRequest*,
                      proto::CreateReply*) override;
  grpc::Status SetView(grpc::ServerContext*, const proto::SetViewRequest*,
                       proto::SetViewReply*) override;
  grpc::Status SetWorkers(grpc::ServerContext*, const proto::SetWorkersRequest*,
                          proto::SetWorkersReply*) override;
  grpc::Status Fill(grpc::ServerContext*, grpc::ServerReader<proto::FillRequest>*,
                    proto::FillReply*) override;
  grpc::Status Cut(grpc::ServerContext*, const proto::CutRequest*, proto::CutReply*) override;
  grpc::Status Read(grpc::ServerContext*, const proto::ReadRequest*,
                    grpc::ServerWriter<proto::ChunkContent>*) override;
  grpc::Status Drop(grpc::ServerContext*, const proto::DropRequest*, proto::DropReply*) override;
  grpc::Status Beat(grpc::ServerContext*, const proto::BeatRequest*, proto::BeatReply*) override;

 private:
  struct Shard {
    double value = 0;
    std::set<std::pair<uint64_t, int64_t>> seen;
  };
  grpc::Status Known() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsPrimary(uint64_t view, int shard) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int task_;
  mutable absl::Mutex mu_;
  bool created_ ABSL_GUARDED_BY(mu_) = false;
  std::map<int, Shard> shards_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::map<int, Shard>> cuts_ ABSL_GUARDED_BY(mu_);
  proto::View view_ ABSL_GUARDED_BY(mu_);
  uint32_t term_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int, uint64_t> workers_ ABSL_GUARDED_BY(mu_);
  std::string record_ ABSL_GUARDED_BY(mu_), digest_ ABSL_GUARDED_BY(mu_);
  std::vector<int> synced_ ABSL_GUARDED_BY(mu_);
  std::map<int, double> waiting_ ABSL_GUARDED_BY(mu_);
  std::function<void()> on_cut_ ABSL_GUARDED_BY(mu_);
  int reads_ ABSL_GUARDED_BY(mu_) = 0, failing_reads_ ABSL_GUARDED_BY(mu_) = 0;
  bool hold_reads_ ABSL_GUARDED_BY(mu_) = false, lose_view_answers_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace muster::chief::testing
