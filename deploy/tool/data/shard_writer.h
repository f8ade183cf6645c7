// ShardWriter writes records to one or several TFRecord files (shards). The files get their final
// names when all of them are complete.
#pragma once

#include <zlib.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/checkpoint/files/file_system.h"
#include "muster/status.h"

namespace muster {

enum class Compression { kNone, kGzip, kZlib };

// Not thread-safe. The destructor removes unfinished files.
class ShardWriter {
 public:
  // If `shards` is 1, the file is `output`. If `shards` is 3, the files are `output`-00000-of-00003
  // to `output`-00002-of-00003. `records` is the total number of records. The shards get equal
  // numbers of records, but each of the first shards may get one record more.
  ShardWriter(std::string output, int shards, int64_t records, Compression compression);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  absl::Status Write(std::string_view record);
  // Completes the files and renames them to their final names. REQUIRES: Write was called `records`
  // times.
  absl::Status Finish();

 private:
  std::string NameOf(int shard) const;
  absl::Status BeginShard();
  absl::Status EndShard();
  absl::Status Put(std::string_view bytes, bool last);

  const std::string output_;
  const int shards_;
  const int64_t records_;
  const Compression compression_;
  int shard_ = 0;          // The shard of the next record.
  int64_t written_ = 0;    // The number of records written to all shards.
  int64_t shard_end_ = 0;  // The value of written_ at which the open shard is full.
  std::unique_ptr<checkpoint::WritableFile> file_;
  z_stream stream_{};
  std::string pending_;
  int finished_ = 0;  // The number of shards that were renamed to their final names.
};

}  // namespace muster
