// From the bytes of a picture to a tensor of the shape that the job asks for. Internal to
// common/data.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/data/formats.h"
#include "common/data/job_data.h"
#include "muster/data.h"

namespace muster::data {

// uint8 [channels, height, width], in memory with the channels of a pixel side by side. Resized as
// torchvision's Resize (bilinear, antialias=True) on uint8 tensors and CenterCrop do it. Any
// thread. Errors are DataErrors that name the picture.
absl::StatusOr<at::Tensor> DecodeToTensor(std::string_view bytes, const std::string& name,
                                          const ImageOptions& options);

// What bytes hold by a column's `decode`: a picture, or values of a type one after another (one
// alone has shape []). Errors name `name`.
absl::StatusOr<at::Tensor> DecodeBytes(std::string_view bytes, const std::string& name,
                                       const std::string& decode, const ImageOptions& options);

// The first example of a split's dataset; where damaged ones are skipped, the first that can be
// read.
absl::StatusOr<Example> FirstExample(const Dataset& dataset, const DataSplit& split);

// How many examples there are, and what has to be done for one: Get(), whose components' types and
// shapes are `columns`. Batches are stacked, and an example of another shape is a DataError.
class ReadDataset : public Dataset {
 public:
  const std::vector<Column>& columns() const { return columns_; }
  // The dataset with the columns that its FirstExample has, so that all others must be like it. A
  // DataError where there is none. Pictures are transformed as the split says. REQUIRES: there are
  // examples.
  static absl::StatusOr<OpenSplit> Open(std::shared_ptr<ReadDataset> dataset,
                                        const DataSplit& split, const std::string& folder);
  absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                 const Context& context) const override;

  // What an example is, for messages: "'cats/1.jpg'".
  virtual std::string NameOf(int64_t index) const = 0;

 protected:
  // An example into its rows of a batch; an example of another shape is a DataError. The default
  // copies what Get gives.
  virtual absl::Status GetInto(int64_t index, const Context& context, Example* rows) const;
  // OK where value c of example `index` is like the column's.
  absl::Status CheckAlike(int64_t index, size_t c, const at::Tensor& value) const;

  std::vector<Column> columns_;
};

// Copies a value into a dense tensor of its type and shape.
void CopyInto(const at::Tensor& value, const at::Tensor& row);

}  // namespace muster::data
