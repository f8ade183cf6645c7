// Brings the rows of embedding tables from a checkpoint to the servers that are to hold them, block
// by block, so that this process needs the memory for none of them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "chief/shard_client.h"
#include "common/checkpoint/row_source.h"
#include "common/push_pull/embedding_table.h"
#include "common/push_pull/layout.h"

namespace muster {

// A table as servers hold it.
struct ServedTable {
  int variable = 0;  // Chunk::table
  std::string name;
  EmbeddingTable::Options options;
};

class RowFiller {
 public:
  // `fillings`, by shard: where its rows go; none: nobody wants them now. All outlive this object.
  using Fillings = std::map<int, std::vector<ShardClient::Filling*>>;
  RowFiller(const Layout& layout, const Fillings& fillings)
      : layout_(layout), fillings_(fillings) {}

  // Every chunk of the table, of these shards; without sources they have no rows. One thread.
  absl::Status Fill(const ServedTable& table, const checkpoint::RowSources& sources);

 private:
  struct Coming {  // rows of a chunk that have not left
    int chunk = 0;
    std::vector<uint64_t> keys;
    std::vector<float> rows;  // with their slots
  };
  absl::Status Send(int shard, Coming* coming, bool last);

  const Layout& layout_;
  const Fillings& fillings_;
  std::vector<RowColumn> columns_;
  int64_t elements_ = 0;  // of a row with its slots
  int64_t updates_ = 0;
  std::map<int, std::vector<Coming>> coming_;  // by shard, by the table's chunk there
};

}  // namespace muster
