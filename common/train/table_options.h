// What an embedding table of a program is: as the program declares it, with what the job's
// "embeddings" and "optimizer" put in the place of that. Internal to this folder.
#pragma once

#include <string>
#include <vector>

#include "common/push_pull/embedding_table.h"
#include "muster/builder.h"
#include "muster/json.h"

namespace muster {

// All but the seed. `optimizer`: the table's, whoever named it; `of_job`: the job's "embeddings". A
// ConfigurationError names the table and the key.
absl::StatusOr<EmbeddingTable::Options> TableOptions(const std::string& name,
                                                     const EmbeddingOptions& declared,
                                                     const Json& optimizer, const Json& of_job);
// Whether the job's "embeddings" names tables of the program alone.
absl::Status CheckTableNames(const Json& of_job, const std::vector<std::string>& tables);

}  // namespace muster
