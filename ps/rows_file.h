// The rows of all tables of one shard as a safetensors file, which is produced piece by piece. Each
// table has these tensors:
// - "<table>.keys", int64 [n];
// - "<table>.rows", float32 [n, width];
// - "<table>.<column>" for each slot of the rule and each column used for eviction;
// - "<table>.step", int64, the largest number of updates of a chunk.
//
// The rows in the file are frozen, so the server continues to apply updates while the file is read.
// A Reader is not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/safetensors.h"
#include "muster/status.h"
#include "ps/shard_store.h"

namespace muster::ps {

class RowsFile {
 public:
  struct Table {
    std::string name;
    std::vector<push_pull::RowColumn> columns;
    std::vector<ShardStore::FrozenRows> chunks;
  };
  static absl::StatusOr<std::shared_ptr<const RowsFile>> Make(std::vector<Table> tables);

  int64_t bytes() const { return plan_.bytes; }
  // Produces the file from its beginning, in pieces of about 1 MB.
  class Reader {
   public:
    explicit Reader(std::shared_ptr<const RowsFile> file) : file_(std::move(file)) {}
    // Sets `*piece` to the next piece. Returns false at the end of the file.
    bool Next(std::string* piece);

   private:
    bool NextOfTensor(std::string* piece);

    const std::shared_ptr<const RowsFile> file_;
    bool begun_ = false;  // The head of the file was returned.
    // The position of the next piece.
    size_t tensor_ = 0;  // Index in plan_'s order.
    size_t chunk_ = 0;   // Chunk of the tensor's table.
    int64_t row_ = 0;    // Row of the chunk.
    std::vector<uint64_t> keys_;
    std::vector<float> values_;
  };

 private:
  // The content of one tensor. `column` is an index in Table::columns, -1 for the keys, or the
  // number of columns for the step.
  struct Source {
    size_t table = 0;
    int column = 0;
  };

  std::vector<Table> tables_;
  std::vector<checkpoint::TensorInfo> tensors_;
  std::vector<Source> sources_;  // The source of each entry of tensors_.
  checkpoint::SafetensorsPlan plan_;
};

}  // namespace muster::ps
