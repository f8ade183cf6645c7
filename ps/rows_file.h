// The rows of all tables of one shard, as a safetensors file that is told piece by piece: by
// table "<table>.keys" (int64 [n]), "<table>.rows" (float32 [n, width]), "<table>.<slot>" for each
// of the rule's slots, and "<table>.step" (int64, the largest number of updates of a chunk).
//
// Of rows that were frozen: servers go on while it is told. One thread at a time.
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
    std::vector<RowColumn> columns;
    std::vector<ShardStore::FrozenRows> chunks;
  };
  static absl::StatusOr<std::shared_ptr<const RowsFile>> Make(std::vector<Table> tables);

  int64_t bytes() const { return plan_.bytes; }
  // From its beginning, in pieces of about a megabyte.
  class Reader {
   public:
    explicit Reader(std::shared_ptr<const RowsFile> file) : file_(std::move(file)) {}
    // False: that was all.
    bool Next(std::string* piece);

   private:
    bool NextOfTensor(std::string* piece);

    const std::shared_ptr<const RowsFile> file_;
    bool begun_ = false;
    // Of the plan's order; then in that tensor.
    size_t tensor_ = 0;
    size_t chunk_ = 0;
    int64_t row_ = 0;
    std::vector<uint64_t> keys_;
    std::vector<float> values_;
  };

 private:
  // One tensor: a table's keys (-1), a column, or its step (the number of columns).
  struct Source {
    size_t table = 0;
    int column = 0;
  };

  std::vector<Table> tables_;
  std::vector<checkpoint::TensorInfo> tensors_;
  std::vector<Source> sources_;  // likewise
  checkpoint::SafetensorsPlan plan_;
};

}  // namespace muster::ps
