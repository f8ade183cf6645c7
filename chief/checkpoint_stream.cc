#include "chief/checkpoint_stream.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace muster {
namespace {

constexpr int64_t kChunkBytes = 512 << 10;  // A message holds at most 1 MiB.

class Refusal final : public grpc::ServerWriteReactor<proto::FetchChunk> {
 public:
  explicit Refusal(const grpc::Status& why) { Finish(why); }
  void OnDone() override { delete this; }
};

class FileStream final : public grpc::ServerWriteReactor<proto::FetchChunk> {
 public:
  FileStream(std::unique_ptr<checkpoint::ReadableFile> file, std::shared_ptr<void> counted)
      : file_(std::move(file)), counted_(std::move(counted)) {
    Next();
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the reader is gone"));
    Next();
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    const int64_t size = std::min(kChunkBytes, file_->size() - offset_);
    if (size <= 0) return Finish(grpc::Status::OK);
    std::string* data = chunk_.mutable_data();
    data->resize(static_cast<size_t>(size));
    if (const absl::Status read = file_->ReadAt(offset_, data->size(), data->data()); !read.ok())
      return Finish(grpc::Status(grpc::StatusCode::DATA_LOSS, std::string(Message(read))));
    offset_ += size;
    StartWrite(&chunk_);
  }

  const std::unique_ptr<checkpoint::ReadableFile> file_;
  const std::shared_ptr<void> counted_;  // Held while the stream is open.
  int64_t offset_ = 0;
  proto::FetchChunk chunk_;
};

}  // namespace

grpc::ServerWriteReactor<proto::FetchChunk>* StreamFile(checkpoint::FileSystem& files,
                                                        const std::string& path,
                                                        std::shared_ptr<void> counted) {
  auto file = files.Open(path);
  if (!file.ok())
    return RefuseStream(
        grpc::Status(grpc::StatusCode::NOT_FOUND, std::string(Message(file.status()))));
  return new FileStream(*std::move(file), std::move(counted));
}

grpc::ServerWriteReactor<proto::FetchChunk>* RefuseStream(const grpc::Status& why) {
  return new Refusal(why);
}

}  // namespace muster
