// The rows of all tables of one shard, as a safetensors file that is written piece by piece: by
// table "<table>.keys" (int64 [n]), "<table>.rows" (float32 [n, width]), "<table>.<slot>" for each
// of the rule's slots, and "<table>.step" (int64, the largest number of updates of a chunk).
//
// Of rows that were frozen: servers go on while it is written. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/checkpoint/safetensors.h"
#include "muster/status.h"
#include "ps/dense_store.h"

namespace muster::ps {

class RowsFile {
 public:
  struct Table {
    std::string name;
    std::vector<RowColumn> columns;
    std::vector<DenseStore::FrozenRows> chunks;
  };
  static absl::StatusOr<std::shared_ptr<const RowsFile>> Make(std::vector<Table> tables);

  int64_t bytes() const { return plan_.bytes; }
  // The whole file, in pieces of about a megabyte; ends with the first error of `append`.
  absl::Status Write(const std::function<absl::Status(std::string_view)>& append) const;

 private:
  // One tensor: a table's keys (-1), a column, or its step (the number of columns).
  struct Source {
    size_t table = 0;
    int column = 0;
  };
  absl::Status WriteTensor(const Source& source,
                           const std::function<absl::Status(std::string_view)>& append) const;

  std::vector<Table> tables_;
  std::vector<checkpoint::TensorInfo> tensors_;
  std::vector<Source> sources_;  // likewise
  checkpoint::SafetensorsPlan plan_;
};

}  // namespace muster::ps
