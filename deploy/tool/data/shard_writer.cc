#include "deploy/tool/data/shard_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/files/record.h"

namespace muster {
namespace {

constexpr char kUnfinished[] = ".tmp";
constexpr size_t kPending = 1 << 20;

absl::Status CannotWrite(const std::string& path, const absl::Status& why) {
  return ConfigurationError(fmt::format("cannot write {}: {}", path, Message(why)));
}

}  // namespace

ShardWriter::ShardWriter(std::string output, int shards, int64_t records, Compression compression)
    : output_(std::move(output)), shards_(shards), records_(records), compression_(compression) {}

ShardWriter::~ShardWriter() {
  if (file_ != nullptr && compression_ != Compression::kNone) deflateEnd(&stream_);
  file_.reset();
  checkpoint::FileSystem& files = checkpoint::PosixFileSystem();
  for (int shard = finished_; shard <= std::min(shard_, shards_ - 1); ++shard)
    (void)files.Remove(NameOf(shard) + kUnfinished);
}

std::string ShardWriter::NameOf(int shard) const {
  return shards_ == 1 ? output_ : fmt::format("{}-{:05}-of-{:05}", output_, shard, shards_);
}

absl::Status ShardWriter::BeginShard() {
  shard_end_ += records_ / shards_ + (shard_ < records_ % shards_ ? 1 : 0);
  const std::string path = NameOf(shard_) + kUnfinished;
  auto file = checkpoint::PosixFileSystem().Create(path);
  if (!file.ok()) return CannotWrite(path, file.status());
  if (compression_ != Compression::kNone) {
    stream_ = {};
    const int window = MAX_WBITS + (compression_ == Compression::kGzip ? 16 : 0);
    if (deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) !=
        Z_OK) {
      return ConfigurationError("not enough memory for zlib");
    }
  }
  file_ = *std::move(file);
  return absl::OkStatus();
}

absl::Status ShardWriter::Put(std::string_view bytes, bool last) {
  absl::Status written;
  if (compression_ == Compression::kNone) {
    written = file_->Append(bytes);
  } else {
    std::string packed(256 << 10, '\0');
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(packed.data());
      stream_.avail_out = static_cast<uInt>(packed.size());
      deflate(&stream_, last ? Z_FINISH : Z_NO_FLUSH);
      written.Update(file_->Append({packed.data(), packed.size() - stream_.avail_out}));
    } while (written.ok() && stream_.avail_out == 0);
  }
  return written.ok() ? written : CannotWrite(NameOf(shard_) + kUnfinished, written);
}

absl::Status ShardWriter::Write(std::string_view record) {
  if (file_ == nullptr) MUSTER_RETURN_IF_ERROR(BeginShard());
  AppendRecord(record, &pending_);
  ++written_;
  if (written_ == shard_end_) return EndShard();
  if (pending_.size() < kPending) return absl::OkStatus();
  const absl::Status put = Put(pending_, false);
  pending_.clear();
  return put;
}

absl::Status ShardWriter::EndShard() {
  absl::Status ended = Put(pending_, true);
  pending_.clear();
  if (compression_ != Compression::kNone) deflateEnd(&stream_);
  if (ended.ok()) {
    absl::Status kept = file_->Sync();
    if (kept.ok()) kept = file_->Close();
    if (!kept.ok()) ended = CannotWrite(NameOf(shard_) + kUnfinished, kept);
  }
  file_.reset();
  MUSTER_RETURN_IF_ERROR(ended);
  ++shard_;
  return absl::OkStatus();
}

absl::Status ShardWriter::Finish() {
  for (; finished_ < shards_; ++finished_) {
    const std::string name = NameOf(finished_);
    const absl::Status renamed = checkpoint::PosixFileSystem().Rename(name + kUnfinished, name);
    if (!renamed.ok()) return CannotWrite(name, renamed);
  }
  return absl::OkStatus();
}

}  // namespace muster
