#include "chief/evaluation/checkpoint_stream.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/rpc/guarded.h"

namespace muster::chief {
namespace {

constexpr int64_t kChunkBytes = 512 << 10;  // A message holds at most 1 MiB.

class Refusal final : public grpc::ServerWriteReactor<proto::FetchChunk> {
 public:
  explicit Refusal(const grpc::Status& why) { Finish(why); }
  void OnDone() override { delete this; }
};

class FileStream final : public grpc::ServerWriteReactor<proto::FetchChunk> {
 public:
  FileStream(checkpoint::FileSystem& files, std::string path, rpc::WorkerPool* disk,
             rpc::BulkCalls* calls, grpc::CallbackServerContext* context)
      : files_(files), path_(std::move(path)), disk_(disk), call_(calls, context, "Fetch") {}

  FileStream* Begin() {
    const grpc::Status full = call_.Admit();
    full.ok() ? Next() : End(full);
    return this;
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return End(grpc::Status(grpc::StatusCode::CANCELLED, "the reader is gone"));
    call_.Passed();
    Next();
  }
  void OnDone() override { delete this; }

 private:
  void End(const grpc::Status& status) {
    call_.Done();
    Finish(status);
  }
  // Each stream has at most one read queued, and BulkCalls limits the number of streams.
  void Next() {
    const bool taken = disk_->Run([this] {
      bool more = false;
      const grpc::Status read = rpc::Guarded([&] { return Read(&more); });
      read.ok() && more ? StartWrite(&chunk_) : End(read);
    });
    if (!taken) End(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, ""));
  }
  grpc::Status Read(bool* more) {
    if (file_ == nullptr) {
      auto file = files_.Open(path_);
      if (!file.ok())
        return grpc::Status(grpc::StatusCode::NOT_FOUND, std::string(Message(file.status())));
      file_ = *std::move(file);
    }
    const int64_t size = std::min(kChunkBytes, file_->size() - offset_);
    *more = size > 0;
    if (!*more) return grpc::Status::OK;
    std::string* data = chunk_.mutable_data();
    data->resize(static_cast<size_t>(size));
    if (const absl::Status read = file_->ReadAt(offset_, data->size(), data->data()); !read.ok())
      return grpc::Status(grpc::StatusCode::DATA_LOSS, std::string(Message(read)));
    offset_ += size;
    return grpc::Status::OK;
  }

  checkpoint::FileSystem& files_;
  const std::string path_;
  rpc::WorkerPool* const disk_;
  rpc::BulkCalls::Call call_;
  std::unique_ptr<checkpoint::ReadableFile> file_;
  int64_t offset_ = 0;
  proto::FetchChunk chunk_;
};

}  // namespace

grpc::ServerWriteReactor<proto::FetchChunk>* CheckpointStreams::Open(
    grpc::CallbackServerContext* context, const std::string& path) {
  return (new FileStream(files_, path, &disk_, &calls_, context))->Begin();
}

grpc::ServerWriteReactor<proto::FetchChunk>* RefuseStream(const grpc::Status& why) {
  return new Refusal(why);
}

}  // namespace muster::chief
