// Reads the rows of an embedding table from a checkpoint. The tensors are "<table>.keys" int64 [n],
// "<table>.rows" float32 [n, width], "<table>.<slot>" float32 [n, ...] for each slot of the rule,
// and "<table>.step" int64, the number of updates. The rows may be split over several sources. This
// code does not need LibTorch.
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
  // Finds a table. If `slots` is false, ForEach gives slots their initial values. The error says
  // which tensor is missing or does not match: "\"users.keys\" is not in it".
  static absl::StatusOr<TableRows> Find(const checkpoint::RowSources& sources,
                                        const std::string& table,
                                        const push_pull::EmbeddingTable::Options& options,
                                        bool slots);

  int64_t rows() const;
  int64_t updates() const { return updates_; }  // 0 without slots.
  // Returns the names of the tensors that belong to the table.
  const std::vector<std::string>& names() const { return names_; }
  // Calls `take` with blocks of rows and their slots, [keys][row elements], as
  // EmbeddingTable::Restore expects them. Stops at the first error of `take`.
  using Take =
      std::function<absl::Status(std::span<const uint64_t> keys, std::span<const float> rows)>;
  absl::Status ForEach(const Take& take) const;

 private:
  struct Part {  // The part of one source.
    std::shared_ptr<const checkpoint::RowSource> source;
    int64_t rows = 0;
    size_t keys = 0;
    // Index of each column's tensor in the source. -1 for a column with initial values.
    std::vector<int> columns;
  };
  absl::Status AddPart(const std::shared_ptr<const checkpoint::RowSource>& source,
                       const std::string& table, bool slots);
  absl::Status ReadBlock(const Part& part, int64_t first, std::span<uint64_t> keys,
                         std::vector<float>* column, std::span<float> rows) const;

  std::vector<push_pull::RowColumn> columns_;
  std::vector<float> initial_row_;  // A row with initial values, including its slots.
  std::vector<std::string> names_;
  std::vector<Part> parts_;
  int64_t updates_ = 0;
};

}  // namespace muster
