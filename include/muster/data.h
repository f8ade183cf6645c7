// Data sets. A Dataset has a size and returns the example with a given index. Any thread may read
// any example at any time, in any order. An example does not depend on the number of threads,
// processes or restarts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "muster/status.h"

namespace muster::data {

// An example, or a batch of examples, is a list of components, such as {image, label}. In a batch,
// the first dimension of each tensor is the number of examples.
using Example = std::vector<at::Tensor>;
using Batch = std::vector<at::Tensor>;

// A component of the data that the job file describes under the key "data" (docs/data.md).
struct Column {
  std::string name;  // "x", "y", or a name from the job file.
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> shape;  // The shape of one example.
  // For labels of an image folder: the names of the classes, in the order of the labels.
  std::vector<std::string> classes = {};
};

// The values that an example may depend on, in addition to its index. The random numbers of
// augmentation depend only on the seed, the epoch and the index.
struct Context {
  uint64_t seed = 0;
  int64_t epoch = 0;
};

class Dataset;
using DatasetPtr = std::shared_ptr<const Dataset>;

// A source of examples with indices from 0. Immutable. Thread-safe. Get and GetBatch return a
// DataError (muster/status.h) for damaged data.
class Dataset {
 public:
  static constexpr int64_t kUnknownSize = -1;
  virtual ~Dataset() = default;

  // Returns the number of examples, or kUnknownSize. Only the training split and named data sets
  // (Builder::dataset) may have an unknown size. An unknown size of another split is an error.
  virtual int64_t size() const = 0;
  // REQUIRES: 0 <= index < size(). If the size is unknown, `index` may be any number from 0, and
  // the function returns absl::OutOfRangeError for an index past the last example.
  virtual absl::StatusOr<Example> Get(int64_t index, const Context& context) const = 0;
  // Returns the examples of `indices` as a batch. The default implementation stacks the results of
  // Get. If `indices` is empty, the first dimension of each tensor is 0. The other dimensions and
  // the type are those of an example.
  virtual absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                         const Context& context) const;
  // Returns the number of indices in [begin, end) that have an example. The training loop calls
  // this function to find the end of a dataset of unknown size. The default implementation computes
  // the number from size(). If the size is unknown, the default implementation calls Get.
  virtual absl::StatusOr<int64_t> Available(int64_t begin, int64_t end,
                                            const Context& context) const;
};

// The following functions, up to FromFunction, read or create datasets. Each call reads and checks
// its files in full. A missing, truncated or damaged file is a DataError that names the file.
// FromTensors returns a DataError if the components' first dimensions differ.
absl::StatusOr<DatasetPtr> FromTensors(std::vector<at::Tensor> components);
// Reads numpy's .npy format, versions 1 to 3, in C or Fortran order. The file's dtype is one of f2,
// f4, f8, i1, i2, i4, i8, u1 and b1, little-endian.
absl::StatusOr<at::Tensor> ReadNpy(const std::string& path);
// Reads an IDX file (the format of MNIST), with or without gzip compression. Supports all element
// types of the format.
absl::StatusOr<at::Tensor> ReadIdx(const std::string& path);
// Returns a dataset of {image, label} from two IDX files with the same number of examples. The file
// of labels must have one dimension. The tensors have the element types of the files.
absl::StatusOr<DatasetPtr> LoadIdxPair(const std::string& images, const std::string& labels);
DatasetPtr FromFunction(int64_t size,
                        std::function<absl::StatusOr<Example>(int64_t index, const Context&)> get);

// A sequence of examples of unknown length. Not thread-safe.
class Stream {
 public:
  virtual ~Stream() = default;
  // Returns the next example, or absl::OutOfRangeError at the end.
  virtual absl::StatusOr<Example> Next() = 0;
};
// How to reopen a stream when training continues in the middle of the stream. This happens after a
// restart, and after the loss of a training process.
enum class Reopen {
  kAtExample,  // `open` starts the stream at example number `first`.
  // `open` starts the stream at example 0. Examples before `first` are read and dropped.
  kFromStart,
  // The stream cannot repeat examples. The first example of the reopened stream counts as number
  // `first`.
  kAsItComes,
  kNever,  // Continuing in the middle of the stream is an error.
};
// Opens a stream. context.epoch counts the passes over the stream, from 0. `first` is the number of
// the first example to return. `first` is above 0 only for Reopen::kAtExample. Each process reads
// the whole stream once, for all of its replicas (devices).
using OpenStream =
    std::function<absl::StatusOr<std::unique_ptr<Stream>>(const Context& context, int64_t first)>;
DatasetPtr FromStream(OpenStream open, Reopen reopen = Reopen::kFromStart);

// The following functions transform datasets, and have the names of tf.data. Negative counts behave
// as in tf.data: Take(-1) keeps all examples, Skip(-1) keeps none, and Repeat(-1) repeats forever
// and has unknown size. Shuffle and Cache require a known size. The functions throw
// std::invalid_argument if `input` is null or batch_size is not positive.
//
// The caller owns the tensors that Get and GetBatch return. Writing to these tensors never changes
// the dataset.
//
// If a MapFunction throws an exception, Get returns a ProgramError (muster/status.h).
using MapFunction = std::function<Example(Example, const Context&, int64_t index)>;
DatasetPtr Map(DatasetPtr input, MapFunction function);
// Like Map, but the function converts whole batches, for example from uint8 to float / 255. Each
// row of the result must depend only on the same row of the input and on that row's index. Batches
// may have any size, including 0.
using BatchFunction =
    std::function<Batch(Batch, const Context&, const std::vector<int64_t>& indices)>;
DatasetPtr MapBatch(DatasetPtr input, BatchFunction function);
// Each example of the resulting dataset has the components of all inputs, in order. The resulting
// dataset is as long as the shortest input.
absl::StatusOr<DatasetPtr> Zip(std::vector<DatasetPtr> inputs);
DatasetPtr Take(DatasetPtr input, int64_t count);
DatasetPtr Skip(DatasetPtr input, int64_t count);
// Repetition r (from 0) of epoch e reads the input with the epoch number e * times + r. Each
// repetition is therefore shuffled and augmented differently.
DatasetPtr Repeat(DatasetPtr input, int64_t times);
// Permutes the whole dataset, with a different permutation in each epoch. If
// reshuffle_each_iteration is false, every epoch has the same permutation. The position of an
// example is computed from the seed, `salt`, the epoch and the index, so Shuffle stores no table of
// positions.
DatasetPtr Shuffle(DatasetPtr input, uint64_t salt = 0, bool reshuffle_each_iteration = true);
DatasetPtr BatchExamples(DatasetPtr input, int64_t batch_size, bool drop_remainder = false);
// Caches examples in memory. The first read of an example stores the example. The examples of the
// input must not depend on the epoch.
DatasetPtr Cache(DatasetPtr input);
// Caches examples on disk, in one file in `folder`. The file has room for every example. The first
// read of an example stores the example. All processes of the host and later runs share the file.
// All examples must have the same shapes and types. The name of the file depends on the size, the
// shapes, the types and `stamp`. `stamp` must describe everything else that affects the examples,
// such as settings, and the names and modification times of files. If a setting or file changes and
// `stamp` does not change, the cache returns outdated examples. Returns a ConfigurationError if
// the folder is not writable, or if the disk has too little space for all examples.
//
absl::StatusOr<DatasetPtr> Cache(DatasetPtr input, const std::string& folder,
                                 const std::string& stamp = "");

// Returns a ConfigurationError if the size is unknown. `name` is the name of the dataset in the
// message, such as "train".
absl::Status CheckSized(const Dataset& dataset, const std::string& name);

}  // namespace muster::data
