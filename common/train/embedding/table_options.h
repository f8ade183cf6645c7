// Computes the options of a program's embedding tables. The job's "embeddings" and "optimizer"
// override the program's declaration. Internal to common/train.
#pragma once

#include <string>
#include <vector>

#include "common/push_pull/rows/embedding_table.h"
#include "muster/builder.h"
#include "muster/json.h"

namespace muster {

// Returns the options of table `name`, without the seed. `optimizer` is the optimizer of the table,
// from the job or the program. `of_job` is the job's "embeddings". Returns a ConfigurationError
// with the table and the key if a value is wrong.
absl::StatusOr<push_pull::EmbeddingTable::Options> TableOptions(const std::string& name,
                                                                const EmbeddingOptions& declared,
                                                                const Json& optimizer,
                                                                const Json& of_job);
// Returns an error if the job's "embeddings" names a table that the program does not declare.
absl::Status CheckTableNames(const Json& of_job, const std::vector<std::string>& tables);

}  // namespace muster
