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

// uint8 [channels, height, width]. Resized as torchvision's Resize (bilinear, antialias=True) on
// uint8 tensors and CenterCrop do it. Any thread. Errors are DataErrors that name the picture.
absl::StatusOr<at::Tensor> DecodeToTensor(std::string_view bytes, const std::string& name,
                                          const ImageOptions& options);

// What bytes hold by a column's `decode`: a picture, or values of a type one after another (one
// alone has shape []). Errors name `name`.
absl::StatusOr<at::Tensor> DecodeBytes(std::string_view bytes, const std::string& name,
                                       const std::string& decode, const ImageOptions& options);

// The bytes of a file.
absl::StatusOr<std::string> ReadWhole(const std::string& path);

// How many examples there are, and what has to be done for one: Get(), whose components' types and
// shapes are `columns`. Batches are stacked, and an example of another shape is a DataError.
class ReadDataset : public Dataset {
 public:
  const std::vector<Column>& columns() const { return columns_; }
  // The dataset with the columns that its first example has, so that all others must be like it. A
  // DataError where it cannot be read. REQUIRES: there is one.
  static absl::StatusOr<OpenSplit> Open(std::shared_ptr<ReadDataset> dataset,
                                        const std::vector<DataColumn>& columns);
  absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                 const Context& context) const override;

 protected:
  std::vector<Column> columns_;
  // What an example is, for messages: "'cats/1.jpg'".
  virtual std::string NameOf(int64_t index) const = 0;
};

}  // namespace muster::data
