// The rows of all embedding tables of one shard as a safetensors file, which is produced piece by
// piece. A shard is the part of the variables that one parameter server holds. A shard consists of
// chunks. Each row of a table belongs to one chunk. A table with n rows has these tensors:
// - "<table>.keys", int64 [n];
// - "<table>.rows", float32 [n, width];
// - "<table>.<column>", one for each optimizer slot and for each column that eviction uses;
// - "<table>.step", int64 []: the highest update count among the table's chunks.
//
// The file contains the rows as they were when ShardStore::Freeze was called. The server may apply
// updates while the file is read. A Reader is not thread-safe.
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
    bool begun_ = false;  // True if the head of the file was returned.
    // The position of the next piece.
    size_t tensor_ = 0;  // Index in SafetensorsPlan::order.
    size_t chunk_ = 0;   // Index in Table::chunks.
    int64_t row_ = 0;    // Index of a row in the chunk.
    std::vector<uint64_t> keys_;
    std::vector<float> values_;
  };

 private:
  // The origin of one tensor's content. `table` is an index in tables_. `column` is an index in
  // Table::columns, with two exceptions: -1 for the tensor "keys", and the number of columns for
  // the tensor "step".
  struct Source {
    size_t table = 0;
    int column = 0;
  };

  std::vector<Table> tables_;
  std::vector<checkpoint::TensorInfo> tensors_;
  std::vector<Source> sources_;  // Indexed like tensors_.
  checkpoint::SafetensorsPlan plan_;
};

}  // namespace muster::ps
