// Decodes the bytes of files to tensors. Also has the base class of datasets that read files. A
// split is the training, validation or test data of a job. Internal to common/data.
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

// Decodes a picture to uint8 [channels, height, width]. The channels of a pixel are adjacent in
// memory. Resizes like torchvision's Resize (bilinear, antialias=True) on uint8 tensors, and crops
// like torchvision's CenterCrop. Thread-safe. An error is a DataError that names the picture.
absl::StatusOr<at::Tensor> DecodeToTensor(std::string_view bytes, const std::string& name,
                                          const ImageOptions& options);

// Decodes bytes as a picture, or as consecutive values of a type. `decode` is DataColumn::decode. A
// single value has shape []. Error messages contain `name`.
absl::StatusOr<at::Tensor> DecodeBytes(std::string_view bytes, const std::string& name,
                                       const std::string& decode, const ImageOptions& options);

// Returns the first example of a split's dataset. If the split skips damaged examples, returns the
// first readable example.
absl::StatusOr<Example> FirstExample(const Dataset& dataset, const DataSplit& split);

// The base class of datasets that read example by example. A subclass defines size() and Get().
// Each example must have the types and shapes of columns(). GetBatch returns a DataError for an
// example with another type or shape.
class ReadDataset : public Dataset {
 public:
  const std::vector<Column>& columns() const { return columns_; }
  // Gives the dataset's columns the types and shapes of its FirstExample. All other examples must
  // have these types and shapes. Applies the split's transforms to pictures. Returns a DataError if
  // no example is readable. REQUIRES: size() is above 0.
  static absl::StatusOr<OpenSplit> Open(std::shared_ptr<ReadDataset> dataset,
                                        const DataSplit& split, const std::string& folder);
  absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                 const Context& context) const override;

  // Returns the name of an example for messages, such as "'cats/1.jpg'".
  virtual std::string NameOf(int64_t index) const = 0;

 protected:
  // Writes an example into `rows`. rows[c] is a view of the example's row in component c of a
  // batch. Returns a DataError if the example has another type or shape. The default implementation
  // copies the result of Get.
  virtual absl::Status GetInto(int64_t index, const Context& context, Example* rows) const;
  // Returns a DataError if component c of example `index` does not match its column.
  absl::Status CheckAlike(int64_t index, size_t c, const at::Tensor& value) const;

  std::vector<Column> columns_;
};

// Copies `value` into `row`, a dense tensor of the same type and shape.
void CopyInto(const at::Tensor& value, const at::Tensor& row);

}  // namespace muster::data
