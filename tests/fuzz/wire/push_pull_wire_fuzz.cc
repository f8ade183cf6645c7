// Frames between workers and parameter servers: raw, and with the checksum that they would have.
#include "common/base/files/crc32c.h"
#include "common/push_pull/rows/packed_rows.h"
#include "common/push_pull/wire.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  fuzz::Bytes bytes(data, size);
  auto header = bytes.Take<transport::FrameHeader>();
  for (const bool checked : {false, true}) {
    if (checked) {
      header.magic = transport::FrameHeader::kMagic;
      const uint32_t crc =
          Crc32c({reinterpret_cast<const char*>(&header), sizeof header - sizeof(uint32_t)});
      std::memcpy(header.body + sizeof header.body - sizeof crc, &crc, sizeof crc);
    }
    (void)push_pull::DecodeOpen(header);
    (void)push_pull::DecodeWelcome(header);
    const auto request = push_pull::DecodeRequest(header);
    if (request.ok())
      fuzz::Require(request->parts <= header.payload_bytes / sizeof(push_pull::RequestPart),
                    "parts are in the payload");
    (void)push_pull::DecodeReply(header);  // a client compares it with what it asked for
    if (push_pull::IsError(header)) (void)push_pull::ErrorOf(header, std::string(bytes.Rest()));
  }
  const auto width = bytes.Take<int32_t>();
  std::vector<float> floats(bytes.Rest().size() / sizeof(float));
  if (!floats.empty())
    std::memcpy(floats.data(), bytes.Rest().data(), floats.size() * sizeof(float));
  if (width > 0) (void)push_pull::UnpackRows(floats, width);
  (void)push_pull::LayoutNumber(bytes.Rest());
  return 0;
}
