#include "ps/replication/replication_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "common/base/files/crc32c.h"
#include "common/push_pull/narrow.h"

namespace muster::ps {
namespace {

using transport::FrameHeader;

constexpr uint32_t kVersion = 6;
enum Flags : uint32_t { kMore = 2, kChecksum = 4 };

struct Body {
  uint32_t version = kVersion, flags = 0;
  uint64_t layout = 0, taken = 0;
  uint32_t shard = 0, chunk = 0, payload_crc = 0;
  uint32_t reserved[2] = {};
  uint32_t crc = 0;  // Checksum of the header before it.
};
static_assert(sizeof(Body) == sizeof(FrameHeader::body));

uint32_t CrcOf(const FrameHeader& header) {
  return Crc32c({reinterpret_cast<const char*>(&header), sizeof header - sizeof(uint32_t)});
}

class Packer {
 public:
  template <typename T>
  void Put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <typename T>
  void Put(const std::vector<T>& values) {
    Put<uint64_t>(values.size());
    text_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

// Missing values read as zero. The end of reading reports them.
class Unpacker {
 public:
  explicit Unpacker(std::span<const char> bytes) : bytes_(bytes) {}
  template <typename T>
  T Get() {
    T value{};
    Copy(&value, sizeof value);
    return value;
  }
  template <typename T>
  std::vector<T> GetAll() {
    const auto count = Get<uint64_t>();
    if (count > bytes_.size() / sizeof(T)) {
      whole_ = false;
      return {};
    }
    std::vector<T> values(count);
    Copy(values.data(), count * sizeof(T));
    return values;
  }
  bool whole() const { return whole_; }
  bool done() const { return whole_ && bytes_.empty(); }

 private:
  void Copy(void* to, size_t size) {
    whole_ = whole_ && size <= bytes_.size();
    if (!whole_ || size == 0) return;
    std::memcpy(to, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
  }
  std::span<const char> bytes_;
  bool whole_ = true;
};

}  // namespace

absl::Status CheckPeer(const transport::ConnectionInfo& info) {
  const std::string task = info.from < kReplicaFrom
                               ? fmt::format("worker:{}", info.from)
                               : fmt::format("ps:{}", info.from - kReplicaFrom);
  if (info.peer.empty() || info.peer == task) return absl::OkStatus();
  return absl::PermissionDeniedError(fmt::format("{} may not come as {}", info.peer, task));
}

FrameHeader EncodeReplica(ReplicaKind kind, const ReplicaFrame& frame, uint64_t payload_bytes) {
  Body body;
  body.flags = (frame.checksum ? kChecksum : 0u) | (frame.more ? kMore : 0u);
  body.layout = frame.layout;
  body.shard = frame.shard;
  body.chunk = frame.chunk;
  body.taken = frame.taken;
  body.payload_crc = frame.payload_crc;
  FrameHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.payload_bytes = payload_bytes;
  std::memcpy(header.body, &body, sizeof body);
  body.crc = CrcOf(header);
  std::memcpy(header.body, &body, sizeof body);
  return header;
}

absl::StatusOr<std::pair<ReplicaKind, ReplicaFrame>> DecodeReplica(const FrameHeader& header) {
  Body body;
  std::memcpy(&body, header.body, sizeof body);
  if (header.magic != FrameHeader::kMagic || body.crc != CrcOf(header))
    return PeerLost("a frame between two parameter servers is damaged");
  if (header.kind < static_cast<uint16_t>(ReplicaKind::kOpen) ||
      header.kind > static_cast<uint16_t>(ReplicaKind::kAck))
    return ConfigurationError(
        fmt::format("a frame of kind {:#x} came between two parameter servers", header.kind));
  if (body.version != kVersion)
    return ConfigurationError(
        fmt::format("a parameter server speaks version {} of the protocol with backups, this one "
                    "{}: start all tasks from one version of Muster",
                    body.version, kVersion));
  ReplicaFrame frame;
  frame.checksum = (body.flags & kChecksum) != 0;
  frame.more = (body.flags & kMore) != 0;
  frame.layout = body.layout;
  frame.shard = body.shard;
  frame.chunk = body.chunk;
  frame.taken = body.taken;
  frame.payload_crc = body.payload_crc;
  return std::pair(static_cast<ReplicaKind>(header.kind), frame);
}

UpdateHead HeadOf(const push_pull::ChunkPush& push, int64_t number,
                  push_pull::Compression compression) {
  UpdateHead head;
  head.incarnation = push.key.incarnation;
  head.sequence = push.key.sequence;
  head.number = number;
  head.learning_rate = push.learning_rate;
  head.worker = static_cast<uint32_t>(push.key.worker);
  head.flags = (push.floor ? 1u : 0u) |
               (compression == push_pull::Compression::kBFloat16 ? 2u : 0u) |
               (compression == push_pull::Compression::kFloat16 ? 4u : 0u);
  return head;
}

absl::StatusOr<std::span<const float>> GradientOf(const UpdateHead& head, size_t width,
                                                  std::span<const char> bytes,
                                                  std::vector<float>* memory) {
  const bool narrow = (head.flags & 6) != 0;
  // Bytes of a row's key, and of a row or a single number.
  const size_t key = width == 0 ? 0 : sizeof(uint64_t);
  const size_t each = key + std::max<size_t>(1, width) * (narrow ? 2 : sizeof(float));
  if (bytes.size() % each != 0)
    return PeerLost(fmt::format("a gradient came in {} bytes", bytes.size()));
  if (!narrow)  // Aligned, as the payload and the head are.
    return std::span(reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float));
  const size_t keys = bytes.size() / each * key / sizeof(float);
  const size_t numbers = bytes.size() / each * std::max<size_t>(1, width);
  memory->resize(keys + numbers);
  if (keys > 0) std::memcpy(memory->data(), bytes.data(), keys * sizeof(float));
  push_pull::Widen(
      (head.flags & 2) != 0 ? push_pull::Compression::kBFloat16 : push_pull::Compression::kFloat16,
      reinterpret_cast<const uint16_t*>(bytes.data() + keys * sizeof(float)),
      std::span(*memory).subspan(keys));
  return std::span<const float>(*memory);
}

std::string EncodeState(const ChunkState& state) {
  Packer packer;
  packer.Put<uint32_t>(static_cast<uint32_t>(state.slots.size()));
  packer.Put<uint32_t>(static_cast<uint32_t>(state.last.size()));
  packer.Put<int64_t>(state.updates);
  for (const auto& [worker, last] : state.last) {
    packer.Put<int32_t>(worker);
    packer.Put<uint64_t>(last.incarnation);
    packer.Put<uint64_t>(last.sequence);
  }
  packer.Put(state.parameters);
  for (const std::vector<float>& slot : state.slots) packer.Put(slot);
  packer.Put(state.counted);
  return packer.Take();
}

absl::StatusOr<ChunkState> DecodeState(std::span<const char> payload) {
  Unpacker unpacker(payload);
  ChunkState state;
  const auto slots = unpacker.Get<uint32_t>(), workers = unpacker.Get<uint32_t>();
  state.updates = unpacker.Get<int64_t>();
  for (uint32_t i = 0; i < workers && unpacker.whole(); ++i) {
    ChunkState::Last& last = state.last[unpacker.Get<int32_t>()];
    last.incarnation = unpacker.Get<uint64_t>();
    last.sequence = unpacker.Get<uint64_t>();
  }
  state.parameters = unpacker.GetAll<float>();
  for (uint32_t i = 0; i < slots && unpacker.whole(); ++i)
    state.slots.push_back(unpacker.GetAll<float>());
  state.counted = unpacker.GetAll<uint64_t>();
  if (!unpacker.done())
    return PeerLost(
        fmt::format("a chunk's state came in {} bytes, which do not fit together", payload.size()));
  return state;
}

std::string EncodeVersions(const std::vector<ShardStore::ChunkVersion>& versions) {
  Packer packer;
  for (const ShardStore::ChunkVersion& s : versions) packer.Put<int64_t>(s.updates);
  return packer.Take();
}

absl::StatusOr<std::vector<ShardStore::ChunkVersion>> DecodeVersions(
    std::span<const char> payload) {
  Unpacker unpacker(payload);
  std::vector<ShardStore::ChunkVersion> versions(payload.size() / sizeof(int64_t));
  for (ShardStore::ChunkVersion& s : versions) s.updates = unpacker.Get<int64_t>();
  if (!unpacker.done()) return PeerLost("what a backup holds came in parts that do not fit");
  return versions;
}

}  // namespace muster::ps
