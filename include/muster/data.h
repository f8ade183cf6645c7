// Data sets. A Dataset has a size and returns example i. It is a function, not a stream: any thread
// may ask for any example at any time. The answer does not depend on the number of threads,
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

// One example, or a batch of examples, as components in order, such as {image, label}. In a batch
// the first dimension of each tensor is the batch.
using Example = std::vector<at::Tensor>;
using Batch = std::vector<at::Tensor>;

// A component of the job's own data (docs/data.md).
struct Column {
  std::string name;  // "x", "y", or the name that the job gives it.
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> shape;  // The shape of one example.
  // For labels of an image folder: the names of the classes, label 0 first.
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

// Immutable. Thread-safe. Damaged data is reported as a DataError.
class Dataset {
 public:
  static constexpr int64_t kUnknownSize = -1;
  virtual ~Dataset() = default;

  // Number of examples, or kUnknownSize. The size may be unknown only for the training split and
  // for named data sets of the program. Other splits of unknown size are refused.
  virtual int64_t size() const = 0;
  // REQUIRES: 0 <= index < size(). If the size is unknown, returns kOutOfRange for an index past
  // the last example.
  virtual absl::StatusOr<Example> Get(int64_t index, const Context& context) const = 0;
  // Returns the examples of `indices`, stacked. The default stacks the results of Get. In-memory
  // datasets gather all rows in one operation. If `indices` is empty, each tensor has first
  // dimension 0 and the shape and type of an example.
  virtual absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                         const Context& context) const;
  // Returns how many of the examples [begin, end) exist. The loop uses it to find the end of a
  // dataset of unknown size. The default uses size(), or Get.
  virtual absl::StatusOr<int64_t> Available(int64_t begin, int64_t end,
                                            const Context& context) const;
};

// Sources. Files are read and checked in full when the source is created. A missing, truncated or
// damaged file is a DataError that names the file.
// Returns a DataError if the components' first dimensions differ.
absl::StatusOr<DatasetPtr> FromTensors(std::vector<at::Tensor> components);
// Reads numpy's .npy, versions 1 to 3, C or Fortran order. Types: f2 f4 f8 i1 i2 i4 i8 u1 b1,
// little-endian.
absl::StatusOr<at::Tensor> ReadNpy(const std::string& path);
// Reads an IDX file, gzip or plain, of any of the format's types.
absl::StatusOr<at::Tensor> ReadIdx(const std::string& path);
// Returns {image, label} from two IDX files with the same number of examples. Labels have one
// dimension. Types are those of the files.
absl::StatusOr<DatasetPtr> LoadIdxPair(const std::string& images, const std::string& labels);
DatasetPtr FromFunction(int64_t size,
                        std::function<absl::StatusOr<Example>(int64_t index, const Context&)> get);

// A sequence of examples whose length is known only at its end. Not thread-safe.
class Stream {
 public:
  virtual ~Stream() = default;
  // Returns the next example, or absl::OutOfRangeError at the end.
  virtual absl::StatusOr<Example> Next() = 0;
};
// How a stream is reopened when training continues in the middle of it, after a restart or after
// the loss of a member.
enum class Reopen {
  kAtExample,  // `open` continues at example number `first`.
  kFromStart,  // The stream is opened from its start. Examples before `first` are read and dropped.
  kAsItComes,  // The stream cannot be repeated. Its next example is used as example `first`.
  kNever,      // Continuing in the middle of the stream is refused.
};
// Opens a stream. context.epoch is the number of the pass over it. `first` is the number of the
// first example wanted, and is above 0 only for kAtExample. Each process reads the whole stream,
// once for all of its replicas.
using OpenStream =
    std::function<absl::StatusOr<std::unique_ptr<Stream>>(const Context& context, int64_t first)>;
DatasetPtr FromStream(OpenStream open, Reopen reopen = Reopen::kFromStart);

// Transformations, named as in tf.data. Negative counts behave as in tf.data: Take(-1) keeps all
// examples, Skip(-1) keeps none, Repeat(-1) repeats forever and has unknown size. Shuffle and Cache
// require a known size. REQUIRES: input is not null, batch_size is positive. Otherwise throws
// std::invalid_argument.
//
// Get and GetBatch return tensors that the caller owns. Writing to them never changes the dataset.
//
// A MapFunction may throw, which is a program error.
using MapFunction = std::function<Example(Example, const Context&, int64_t index)>;
DatasetPtr Map(DatasetPtr input, MapFunction function);
// As Map, for a function of whole batches, such as uint8 -> float / 255. Each row of the result
// must depend only on the same row of the input and its index. Batches may have any size, including
// 0. The function may throw.
using BatchFunction =
    std::function<Batch(Batch, const Context&, const std::vector<int64_t>& indices)>;
DatasetPtr MapBatch(DatasetPtr input, BatchFunction function);
// Concatenates the components. The result is as long as the shortest input.
absl::StatusOr<DatasetPtr> Zip(std::vector<DatasetPtr> inputs);
DatasetPtr Take(DatasetPtr input, int64_t count);
DatasetPtr Skip(DatasetPtr input, int64_t count);
// In repetition r of epoch e the input sees epoch e * times + r. It is therefore shuffled and
// augmented differently in each repetition.
DatasetPtr Repeat(DatasetPtr input, int64_t times);
// Returns a permutation of the whole dataset, a different one in each epoch. If
// reshuffle_each_iteration is false, every epoch uses the same one. The order is a function of
// (seed, salt, epoch, index) and takes no memory.
DatasetPtr Shuffle(DatasetPtr input, uint64_t salt = 0, bool reshuffle_each_iteration = true);
DatasetPtr BatchExamples(DatasetPtr input, int64_t batch_size, bool drop_remainder = false);
// Caches in memory. Each example is stored at its first use. The input must not depend on the
// epoch.
DatasetPtr Cache(DatasetPtr input);
// Caches on disk, in a file in `folder` with room for every example. Each example is stored at its
// first use, for all processes of the host and for later runs. The examples must have one shape and
// type. The size, the shapes, the types and `stamp` select the file. `stamp` must describe
// everything else that the examples depend on, such as names and times of files, and settings. A
// change that `stamp` does not cover is not detected. Returns a ConfigurationError if the folder is
// not writable or the disk has not enough room for all examples.
absl::StatusOr<DatasetPtr> Cache(DatasetPtr input, const std::string& folder,
                                 const std::string& stamp = "");

// Returns OK, or a ConfigurationError if the size is unknown. `name` is the user's name of the
// dataset ("train").
absl::Status CheckSized(const Dataset& dataset, const std::string& name);

}  // namespace muster::data
