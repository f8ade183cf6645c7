// Reads the rows of an embedding table from a checkpoint. A slot is a value that the optimizer
// keeps for each row, such as a momentum. A checkpoint has these tensors for n rows:
//
//   "<table>.keys" int64 [n]
//   "<table>.rows" float32 [n, width]
//   "<table>.<slot>" float32 [n, ...] for each slot
//   "<table>.step" int64, the number of updates
//
// The rows of a table may be spread over several sources, such as one file for each parameter
// server. This code does not need LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/checkpoint/row_source.h"
#include "common/push_pull/rows/embedding_table.h"

namespace muster {

class TableRows {
 public:
  // Finds the tensors of a table. If `slots` is false, ForEach gives all slots their initial
  // values. The error says which tensor is missing or does not match `options`, for example
  // "\"users.keys\" is not in it".
  static absl::StatusOr<TableRows> Find(const checkpoint::RowSources& sources,
                                        const std::string& table,
                                        const push_pull::EmbeddingTable::Options& options,
                                        bool slots);

  // Returns the number of updates of the table. Returns 0 if `slots` was false in Find.
  int64_t updates() const { return updates_; }
  // Returns the names of the tensors that belong to the table.
  const std::vector<std::string>& names() const { return names_; }
  // Calls `take` with blocks of rows. A block is [keys][row elements], and each row includes its
  // slots, as EmbeddingTable::Restore expects. If `take` returns an error, stops and returns this
  // error.
  using Take =
      std::function<absl::Status(std::span<const uint64_t> keys, std::span<const float> rows)>;
  absl::Status ForEach(const Take& take) const;

 private:
  // The rows in one source.
  struct SourceRows {
    std::shared_ptr<const checkpoint::RowSource> source;
    int64_t rows = 0;
    size_t keys = 0;  // Index of the tensor "<table>.keys" in the source.
    // Indexed by column: the index of the column's tensor in the source. -1 for a column with
    // initial values.
    std::vector<int> columns;
  };
  absl::Status AddSource(const std::shared_ptr<const checkpoint::RowSource>& source,
                         const std::string& table, bool slots);
  absl::Status ReadBlock(const SourceRows& part, int64_t first, std::span<uint64_t> keys,
                         std::vector<float>* column, std::span<float> rows) const;

  std::vector<push_pull::RowColumn> columns_;
  std::vector<float> initial_row_;  // A row with initial values, including its slots.
  std::vector<std::string> names_;
  std::vector<SourceRows> sources_;
  int64_t updates_ = 0;
};

}  // namespace muster
