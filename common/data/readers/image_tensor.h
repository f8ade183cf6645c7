// Converts the bytes of a picture to a tensor of the job's shape. Internal to common/data.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/data/job/formats.h"
#include "common/data/job/job_data.h"
#include "muster/data.h"

namespace muster::data {

// Returns uint8 [channels, height, width], with the channels of a pixel adjacent in memory. Resizes
// as torchvision's Resize (bilinear, antialias=True) on uint8 tensors, and crops as its CenterCrop.
// Thread-safe. Errors are DataErrors that name the picture.
absl::StatusOr<at::Tensor> DecodeToTensor(std::string_view bytes, const std::string& name,
                                          const ImageOptions& options);

// Decodes bytes by a column's `decode`: a picture, or consecutive values of a type (a single value
// has shape []). Errors contain `name`.
absl::StatusOr<at::Tensor> DecodeBytes(std::string_view bytes, const std::string& name,
                                       const std::string& decode, const ImageOptions& options);

// Returns the first example of a split's dataset, or the first readable one where damaged ones are
// skipped.
absl::StatusOr<Example> FirstExample(const Dataset& dataset, const DataSplit& split);

// Base class of datasets that read example by example. A subclass defines size() and Get(), whose
// components have the types and shapes of columns(). Batches are stacked, and an example of another
// shape is a DataError.
class ReadDataset : public Dataset {
 public:
  const std::vector<Column>& columns() const { return columns_; }
  // Returns the dataset with the columns of its FirstExample, which all other examples must match.
  // Returns a DataError where there is none. Transforms pictures as the split says. REQUIRES: the
  // dataset has examples.
  static absl::StatusOr<OpenSplit> Open(std::shared_ptr<ReadDataset> dataset,
                                        const DataSplit& split, const std::string& folder);
  absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                 const Context& context) const override;

  // Names an example for messages, such as "'cats/1.jpg'".
  virtual std::string NameOf(int64_t index) const = 0;

 protected:
  // Writes an example into its rows of a batch. An example of another shape is a DataError. The
  // default copies the result of Get.
  virtual absl::Status GetInto(int64_t index, const Context& context, Example* rows) const;
  // Returns OK where component c of example `index` matches its column.
  absl::Status CheckAlike(int64_t index, size_t c, const at::Tensor& value) const;

  std::vector<Column> columns_;
};

// Copies a value into a dense tensor of its type and shape.
void CopyInto(const at::Tensor& value, const at::Tensor& row);

}  // namespace muster::data
