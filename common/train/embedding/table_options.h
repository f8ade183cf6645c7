// The options of a program's embedding tables: the program's declaration, overridden by the job's
// "embeddings" and "optimizer". Internal to this folder.
#pragma once

#include <string>
#include <vector>

#include "common/push_pull/rows/embedding_table.h"
#include "muster/builder.h"
#include "muster/json.h"

namespace muster {

// Returns all options except the seed. `optimizer`: the table's, from the job or the program.
// `of_job`: the job's "embeddings". A ConfigurationError names the table and the key.
absl::StatusOr<EmbeddingTable::Options> TableOptions(const std::string& name,
                                                     const EmbeddingOptions& declared,
                                                     const Json& optimizer, const Json& of_job);
// Checks that the job's "embeddings" names only tables of the program.
absl::Status CheckTableNames(const Json& of_job, const std::vector<std::string>& tables);

}  // namespace muster
