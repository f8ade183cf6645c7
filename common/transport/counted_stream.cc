#include "common/transport/counted_stream.h"

#include <utility>

namespace muster::transport {
namespace {

class CountedStream final : public ByteStream {
 public:
  CountedStream(std::unique_ptr<ByteStream> stream, std::shared_ptr<Traffic> traffic)
      : to_(std::move(stream)), traffic_(std::move(traffic)) {}

  absl::StatusOr<size_t> Read(std::span<const iovec> into) override {
    absl::StatusOr<size_t> bytes = to_->Read(into);
    if (bytes.ok()) traffic_->received.fetch_add(*bytes, std::memory_order_relaxed);
    return bytes;
  }
  absl::StatusOr<size_t> Write(std::span<const iovec> from) override {
    absl::StatusOr<size_t> bytes = to_->Write(from);
    if (bytes.ok()) traffic_->sent.fetch_add(*bytes, std::memory_order_relaxed);
    return bytes;
  }
  short PollEvents(bool want_read, bool want_write) const override {
    return to_->PollEvents(want_read, want_write);
  }
  bool Buffered() const override { return to_->Buffered(); }
  int fd() const override { return to_->fd(); }
  std::optional<Duration> Unacknowledged() const override { return to_->Unacknowledged(); }
  void Shutdown() override { to_->Shutdown(); }

 private:
  const std::unique_ptr<ByteStream> to_;
  const std::shared_ptr<Traffic> traffic_;
};

}  // namespace

std::unique_ptr<ByteStream> CountBytes(std::unique_ptr<ByteStream> stream,
                                       std::shared_ptr<Traffic> traffic) {
  return std::make_unique<CountedStream>(std::move(stream), std::move(traffic));
}

}  // namespace muster::transport
