// A store that forwards all calls to another store. Tests derive from it to change single calls
// between a server and its store.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ps/shard_store.h"

namespace muster::ps {

class ForwardingStore : public ShardStore {
 public:
  explicit ForwardingStore(std::unique_ptr<ShardStore> store) : store_(std::move(store)) {}

  absl::Status Fill(int chunk, std::span<const float> parameters) override {
    return store_->Fill(chunk, parameters);
  }
  absl::Status Restore(int chunk, ChunkState state, Piece piece) override {
    return store_->Restore(chunk, std::move(state), piece);
  }
  bool serving() const override { return store_->serving(); }
  absl::StatusOr<ChunkState> Copy(int chunk) const override { return store_->Copy(chunk); }
  absl::StatusOr<FrozenRows> Freeze(int chunk) const override { return store_->Freeze(chunk); }
  absl::StatusOr<std::shared_ptr<FrozenChunk>> FreezeDense(int chunk) const override {
    return store_->FreezeDense(chunk);
  }
  absl::StatusOr<ChunkState> Read(int chunk, FrozenChunk* frozen) const override {
    return store_->Read(chunk, frozen);
  }
  std::vector<push_pull::RowColumn> columns(int chunk) const override {
    return store_->columns(chunk);
  }
  void Admit(int worker, uint64_t incarnation) override { store_->Admit(worker, incarnation); }
  void Expel(int worker) override { store_->Expel(worker); }
  absl::StatusOr<push_pull::Pushed> Apply(int chunk, const push_pull::ChunkPush& push,
                                          std::span<float> out) override {
    return store_->Apply(chunk, push, out);
  }
  absl::StatusOr<push_pull::Pushed> Replay(int chunk, const push_pull::ChunkPush& push,
                                           int64_t number) override {
    return store_->Replay(chunk, push, number);
  }
  absl::Status Await(int chunk) override { return store_->Await(chunk); }
  absl::StatusOr<int64_t> Pull(int chunk, std::span<float> out) const override {
    return store_->Pull(chunk, out);
  }
  absl::StatusOr<int64_t> PullRows(int chunk, std::span<const uint64_t> keys,
                                   std::span<float> rows) const override {
    return store_->PullRows(chunk, keys, rows);
  }
  ChunkVersion chunk_version(int chunk) const override { return store_->chunk_version(chunk); }
  int64_t applied() const override { return store_->applied(); }
  std::map<int, push_pull::TableStatistics> tables() const override { return store_->tables(); }

 private:
  const std::unique_ptr<ShardStore> store_;
};

}  // namespace muster::ps
