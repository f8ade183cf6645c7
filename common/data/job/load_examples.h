// Loads a batch for the pipelines. Internal to this folder.
#pragma once

#include "common/data/pipeline.h"

namespace muster::data {

// Loads examples [begin, end) of the dataset into `loaded` and prepares the batch. If `options`
// says so, damaged examples are left out and their errors are listed.
absl::Status LoadInto(const Dataset& dataset, Slice slice, const Context& context,
                      const PipelineOptions& options, LoadedBatch* loaded);

}  // namespace muster::data
