// Data sets. A Dataset has a size and returns example i. Any thread may read any example at any
// time, in any order. The example does not depend on the number of threads, processes or restarts.
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
// the first dimension of each tensor is the batch.
using Example = std::vector<at::Tensor>;
using Batch = std::vector<at::Tensor>;

// A component of the job's own data (docs/data.md).
struct Column {
  std::string name;  // "x", "y", or a name from the job.
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> shape;  // The shape of one example.
  // For labels of an image folder: the names of the classes, in the order of the labels.
  std::vector<std::string> classes = {};
};

// The values that an example may depend on, in addition to its index. Augmentation is seeded by
// (seed, epoch, index).
struct Context {
  uint64_t seed = 0;
  int64_t epoch = 0;
};

class Dataset;
using DatasetPtr = std::shared_ptr<const Dataset>;

// A source of examples by number. Immutable. Thread-safe. Damaged data is a DataError.
class Dataset {
 public:
  static constexpr int64_t kUnknownSize = -1;
  virtual ~Dataset() = default;

  // Returns the number of examples, or kUnknownSize. The size may be unknown only for the training
  // split and for named data sets of the program. Other splits of unknown size are an error.
  virtual int64_t size() const = 0;
  // REQUIRES: 0 <= index < size(). If the size is unknown, returns kOutOfRange for an index past
  // the last example.
  virtual absl::StatusOr<Example> Get(int64_t index, const Context& context) const = 0;
  // Returns the examples of `indices` as a batch. The default implementation stacks the results of
  // Get. In-memory datasets gather all rows in one operation. If `indices` is empty, each tensor
  // has first dimension 0, and the other dimensions and the type of an example.
  virtual absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                         const Context& context) const;
  // Returns the number of existing examples in [begin, end). The loop calls this to find the end of
  // a dataset of unknown size. The default implementation calls size(), or Get if the size is
  // unknown.
  virtual absl::StatusOr<int64_t> Available(int64_t begin, int64_t end,
                                            const Context& context) const;
};

// The following functions read or create datasets. They read and check each file in full when they
// are called. A missing, truncated or damaged file is a DataError that names the file. FromTensors
// returns a DataError if the components' first dimensions differ.
absl::StatusOr<DatasetPtr> FromTensors(std::vector<at::Tensor> components);
// Reads numpy's .npy format, versions 1 to 3, in C or Fortran order. The type is one of f2, f4, f8,
// i1, i2, i4, i8, u1 and b1, little-endian.
absl::StatusOr<at::Tensor> ReadNpy(const std::string& path);
// Reads an IDX file, gzip or plain. All element types of the format are supported.
absl::StatusOr<at::Tensor> ReadIdx(const std::string& path);
// Returns {image, label} from two IDX files with the same number of examples. Labels must have one
// dimension. The tensors have the types of the files.
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
// How to reopen a stream when training continues in the middle of the stream, after a restart or
// after the loss of a member.
enum class Reopen {
  kAtExample,  // `open` starts the stream at example number `first`.
  // `open` starts the stream at example 0. Examples before `first` are read and dropped.
  kFromStart,
  // The stream cannot repeat examples. The next example that arrives counts as `first`.
  kAsItComes,
  kNever,  // Training that would continue in the middle of the stream is an error.
};
// Opens a stream. context.epoch is the number of the pass over the stream. `first` is the number of
// the first example to return, and is above 0 only for kAtExample. Each process reads the whole
// stream, once for all of its replicas.
using OpenStream =
    std::function<absl::StatusOr<std::unique_ptr<Stream>>(const Context& context, int64_t first)>;
DatasetPtr FromStream(OpenStream open, Reopen reopen = Reopen::kFromStart);

// The following functions transform datasets, and have the names of tf.data. Negative counts behave
// as in tf.data: Take(-1) keeps all examples, Skip(-1) keeps none, and Repeat(-1) repeats forever
// and has unknown size. Shuffle and Cache require a known size. REQUIRES: `input` is not null, and
// batch_size is positive. Otherwise they throw std::invalid_argument.
//
// The caller owns the tensors that Get and GetBatch return. Writing to these tensors never changes
// the dataset.
//
// An exception of a MapFunction is a ProgramError.
using MapFunction = std::function<Example(Example, const Context&, int64_t index)>;
DatasetPtr Map(DatasetPtr input, MapFunction function);
// Like Map, but the function converts whole batches, such as uint8 to float / 255. Each row of the
// result must depend only on the same row of the input and on its index. Batches may have any size,
// including 0. An exception of the function is a ProgramError.
using BatchFunction =
    std::function<Batch(Batch, const Context&, const std::vector<int64_t>& indices)>;
DatasetPtr MapBatch(DatasetPtr input, BatchFunction function);
// Concatenates the components. The result is as long as the shortest input.
absl::StatusOr<DatasetPtr> Zip(std::vector<DatasetPtr> inputs);
DatasetPtr Take(DatasetPtr input, int64_t count);
DatasetPtr Skip(DatasetPtr input, int64_t count);
// In repetition r of epoch e, the input receives the epoch number e * times + r. The input is
// therefore shuffled and augmented differently in each repetition.
DatasetPtr Repeat(DatasetPtr input, int64_t times);
// Permutes the whole dataset, with a different permutation in each epoch. If
// reshuffle_each_iteration is false, every epoch has the same permutation. The order is a function
// of (seed, salt, epoch, index) and takes no memory.
DatasetPtr Shuffle(DatasetPtr input, uint64_t salt = 0, bool reshuffle_each_iteration = true);
DatasetPtr BatchExamples(DatasetPtr input, int64_t batch_size, bool drop_remainder = false);
// Caches examples in memory. An example is stored when it is first read. The input must not depend
// on the epoch.
DatasetPtr Cache(DatasetPtr input);
// Caches examples on disk, in a file in `folder` with room for every example. An example is stored
// when it is first read. All processes of the host and later runs share the file. All examples must
// have the same shapes and types. The size, the shapes, the types and `stamp` select the file.
// `stamp` must describe everything else that the examples depend on, such as settings, and names
// and times of files. A change that `stamp` does not cover is not detected. Returns a
// ConfigurationError if the folder is not writable, or if the disk has too little space for all
// examples.
absl::StatusOr<DatasetPtr> Cache(DatasetPtr input, const std::string& folder,
                                 const std::string& stamp = "");

// Returns OK, or a ConfigurationError if the size is unknown. `name` is the user's name of the
// dataset ("train").
absl::Status CheckSized(const Dataset& dataset, const std::string& name);

}  // namespace muster::data
