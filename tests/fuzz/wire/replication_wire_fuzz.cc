// Frames between two parameter servers, and the state of chunks that they carry.
#include "common/base/files/crc32c.h"
#include "ps/replication/replication_wire.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  fuzz::Bytes bytes(data, size);
  auto header = bytes.Take<transport::FrameHeader>();
  (void)ps::DecodeReplica(header);
  header.magic = transport::FrameHeader::kMagic;
  const uint32_t crc =
      Crc32c({reinterpret_cast<const char*>(&header), sizeof header - sizeof(uint32_t)});
  std::memcpy(header.body + sizeof header.body - sizeof crc, &crc, sizeof crc);
  (void)ps::DecodeReplica(header);
  const auto head = bytes.Take<ps::UpdateHead>();
  const auto width = bytes.Take<uint16_t>();
  // Aligned, like received frames.
  const std::string_view rest = bytes.Rest();
  std::vector<uint64_t> aligned(rest.size() / sizeof(uint64_t) + 1);
  std::memcpy(aligned.data(), rest.data(), rest.size());
  const std::span<const char> payload(reinterpret_cast<const char*>(aligned.data()), rest.size());
  std::vector<float> memory;
  const auto gradient = ps::GradientOf(head, width, payload, &memory);
  if (gradient.ok()) {
    float sum = 0;
    for (const float number : *gradient) sum += number;
    (void)sum;
  }
  const auto state = ps::DecodeState(payload);
  if (state.ok()) {
    size_t numbers = state->parameters.size();
    for (const auto& slot : state->slots) numbers += slot.size();
    fuzz::Require(numbers * sizeof(float) <= payload.size(), "state is no larger than its frame");
    const std::string sent = ps::EncodeState(*state);
    const auto again = ps::DecodeState(sent);
    fuzz::Require(again.ok() && ps::EncodeState(*again) == sent, "what was read can be sent");
  }
  (void)ps::DecodeVersions(payload);
  return 0;
}
