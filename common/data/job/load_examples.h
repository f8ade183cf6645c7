// Loads a batch for the pipelines of pipeline.h. Internal to common/data.
#pragma once

#include "common/data/pipeline.h"

namespace muster::data {

// Loads the examples of `slice` into *loaded, and then calls options.prepare. If
// options.skip_damaged is true, leaves out damaged examples and lists their errors in *loaded.
absl::Status LoadInto(const Dataset& dataset, Slice slice, const Context& context,
                      const PipelineOptions& options, LoadedBatch* loaded);

}  // namespace muster::data
