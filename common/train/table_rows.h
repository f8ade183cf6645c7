// An embedding table as a checkpoint has it, wherever its rows are: "<table>.keys" int64 [n],
// "<table>.rows" float32 [n, width], "<table>.<slot>" float32 [n, ...] for each of the rule's
// slots, and "<table>.step" int64, the updates so far. Read a block at a time. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/checkpoint/row_source.h"
#include "common/push_pull/embedding_table.h"

namespace muster {

class TableRows {
 public:
  // With slots where `slots`; else these begin as the rule has them. An error is a sentence that
  // says what is not there, or does not fit: "\"users.keys\" is not in it".
  static absl::StatusOr<TableRows> Find(const checkpoint::RowSources& sources,
                                        const std::string& table,
                                        const EmbeddingTable::Options& options, bool slots);

  int64_t rows() const;
  int64_t updates() const { return updates_; }  // 0 without slots
  // What it is read from: names of tensors.
  const std::vector<std::string>& names() const { return names_; }
  // Every row with its slots, as EmbeddingTable::Restore takes it: rows [keys][row elements]. Ends
  // with the first error of `take`.
  using Take =
      std::function<absl::Status(std::span<const uint64_t> keys, std::span<const float> rows)>;
  absl::Status ForEach(const Take& take) const;

 private:
  struct Part {  // of one source
    std::shared_ptr<const checkpoint::RowSource> source;
    int64_t rows = 0;
    size_t keys = 0;
    std::vector<int> columns;  // tensors; -1: as new rows have it
  };
  absl::Status AddPart(const std::shared_ptr<const checkpoint::RowSource>& source,
                       const std::string& table, bool slots);
  absl::Status ReadBlock(const Part& part, int64_t first, std::span<uint64_t> keys,
                         std::vector<float>* column, std::span<float> rows) const;

  std::vector<RowColumn> columns_;
  std::vector<float> fresh_;  // a row of which nothing is known but its initial slots
  std::vector<std::string> names_;
  std::vector<Part> parts_;
  int64_t updates_ = 0;
};

}  // namespace muster
