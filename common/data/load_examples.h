// How pipelines load a batch. Internal to this folder.
#pragma once

#include "common/data/pipeline.h"

namespace muster::data {

// Examples [begin, end) of the dataset as *loaded's batch, prepared; by `options` without those
// that are damaged, and what is wrong with them.
absl::Status LoadInto(const Dataset& dataset, Slice slice, const Context& context,
                      const PipelineOptions& options, LoadedBatch* loaded);

}  // namespace muster::data
