// A Dataset has a size and gives example i. It is a function, not a stream: any thread may ask for
// any example at any time and gets the same answer, whatever the number of threads, processes or
// restarts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "muster/status.h"

namespace muster::data {

// One example, or a batch of them (then each tensor has the batch as its first dimension): the
// components in order, such as {image, label}.
using Example = std::vector<at::Tensor>;
using Batch = std::vector<at::Tensor>;

// A component of the job's own data (docs/data.md), by its name there.
struct Column {
  std::string name;  // "x", "y", or as the job names it
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> shape;  // of one example
  // Of labels of an image folder: the names of the classes, label 0 first.
  std::vector<std::string> classes = {};
};

// What an example may depend on besides its index. Augmentation is seeded by (seed, epoch, index).
struct Context {
  uint64_t seed = 0;
  int64_t epoch = 0;
};

class Dataset;
using DatasetPtr = std::shared_ptr<const Dataset>;

// Immutable; all methods may be called from any thread. Errors in data (a damaged record) are
// DataError statuses.
class Dataset {
 public:
  static constexpr int64_t kUnknownSize = -1;
  virtual ~Dataset() = default;

  // Number of examples; kUnknownSize for one that cannot tell: the training split, and a data set
  // of the program's own, may be such a one; the other splits are refused, in one sentence.
  virtual int64_t size() const = 0;
  // REQUIRES: 0 <= index < size(). Of unknown size: kOutOfRange from the end on.
  virtual absl::StatusOr<Example> Get(int64_t index, const Context& context) const = 0;
  // The examples of `indices`, stacked. The default stacks Get's; in-memory datasets gather at
  // once. `indices` may be empty: then each tensor has first dimension 0 and the example's shape
  // and dtype.
  virtual absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                         const Context& context) const;
  // How many of the examples [begin, end) there are: how the loop finds the end of a dataset of
  // unknown size. The default asks size(), or Get.
  virtual absl::StatusOr<int64_t> Available(int64_t begin, int64_t end,
                                            const Context& context) const;
};

// Sources. Files are read and checked whole at once: missing, truncated and damaged ones are
// DataErrors that name the file.
absl::StatusOr<DatasetPtr> FromTensors(
    std::vector<at::Tensor> components);  // equal first dimensions
// numpy's .npy, versions 1 to 3, C or Fortran order; f2 f4 f8 i1 i2 i4 i8 u1 b1, little-endian.
absl::StatusOr<at::Tensor> ReadNpy(const std::string& path);
absl::StatusOr<at::Tensor> ReadIdx(
    const std::string& path);  // gzip or plain, any of the format's types
// {image, label} from two IDX files with the same number of examples; the labels have one
// dimension. Types as in the files.
absl::StatusOr<DatasetPtr> LoadIdxPair(const std::string& images, const std::string& labels);
DatasetPtr FromFunction(int64_t size,
                        std::function<absl::StatusOr<Example>(int64_t index, const Context&)> get);

// Examples one after another, of which the end alone tells how many there are. For one thread at a
// time.
class Stream {
 public:
  virtual ~Stream() = default;
  // The next one; absl::OutOfRangeError at the end.
  virtual absl::StatusOr<Example> Next() = 0;
};
// How a stream can be read again, where training goes on in the middle of it: after a restart, and
// after a member was lost.
enum class Reopen {
  kAtExample,  // `open` gives the examples from number `first` on
  kFromStart,  // the same examples again from its start: those before `first` are read and dropped
  kAsItComes,  // never the same ones again: whatever comes next is taken for example `first`
  kNever,      // going on in the middle of it is refused
};
// `open` is called with what the stream depends on (context.epoch: the pass over it) and the number
// of the first example that is wanted, which is above 0 for kAtExample alone. A process reads a
// stream once for all of its replicas, each process all of it.
using OpenStream =
    std::function<absl::StatusOr<std::unique_ptr<Stream>>(const Context& context, int64_t first)>;
DatasetPtr FromStream(OpenStream open, Reopen reopen = Reopen::kFromStart);

// Transformations, as tf.data names them, negative counts included (Take(-1): all, Skip(-1): none
// left, Repeat(-1): for ever, which is of unknown size). Shuffle and Cache need a known size.
// REQUIRES: input is not null, batch_size is positive; otherwise std::invalid_argument.
//
// Get and GetBatch give tensors of their own: writing to them never changes the dataset.
using MapFunction =
    std::function<Example(Example, const Context&, int64_t index)>;  // may throw: a program error
DatasetPtr Map(DatasetPtr input, MapFunction function);
// The same for a function of whole batches, such as uint8 -> float / 255. Each row of its result
// depends on that row (and its index) alone, for batches of any size, 0 included. May throw.
using BatchFunction =
    std::function<Batch(Batch, const Context&, const std::vector<int64_t>& indices)>;
DatasetPtr MapBatch(DatasetPtr input, BatchFunction function);
absl::StatusOr<DatasetPtr> Zip(
    std::vector<DatasetPtr> inputs);  // components in sequence; as long as the shortest
DatasetPtr Take(DatasetPtr input, int64_t count);
DatasetPtr Skip(DatasetPtr input, int64_t count);
// What lies below sees repetition r of epoch e as epoch e * times + r, so that it is shuffled and
// augmented anew.
DatasetPtr Repeat(DatasetPtr input, int64_t times);
// A permutation of the whole dataset, another one each epoch (and one only where
// reshuffle_each_iteration is false). A function of (seed, salt, epoch, index): it takes no memory.
DatasetPtr Shuffle(DatasetPtr input, uint64_t salt = 0, bool reshuffle_each_iteration = true);
DatasetPtr BatchExamples(DatasetPtr input, int64_t batch_size, bool drop_remainder = false);
DatasetPtr Cache(DatasetPtr input);  // in memory, filled on first touch; what lies below must not
                                     // depend on the epoch
// On disk: in a file in `folder` with room for every example, which keeps each from its first use
// on, for all processes of the host and for later runs. The examples must have one shape and type.
// The file is another one where the size, the shapes or the types are others, or `stamp`, which
// has to say what else the examples depend on (names and times of files, settings): what it
// leaves out is taken for the same. A ConfigurationError where the folder cannot be written, or
// the disk has not enough room for all.
absl::StatusOr<DatasetPtr> Cache(DatasetPtr input, const std::string& folder,
                                 const std::string& stamp = "");

// OK, or the ConfigurationError that refuses a dataset of unknown size. `name` is what the user
// knows it by ("train").
absl::Status CheckSized(const Dataset& dataset, const std::string& name);

}  // namespace muster::data
