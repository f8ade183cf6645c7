// The first bytes of a data connection, and the answer to them.
#include "common/transport/address.h"
#include "common/transport/listener/hello.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  using namespace transport;
  fuzz::Bytes bytes(data, size);
  const auto hello_bytes = bytes.Take<std::array<std::byte, kHelloBytes>>();
  (void)CheckHelloPrefix(std::span(hello_bytes).first<kHelloPrefixBytes>());
  const absl::StatusOr<Hello> hello = DecodeHello(hello_bytes);
  if (hello.ok()) {
    fuzz::Require(!hello->ticket.empty() && hello->ticket.size() <= kMaxTicketBytes, "a ticket");
    fuzz::Require(hello->from >= 0 && hello->to >= 0, "ranks");
    const absl::StatusOr<Hello> again = DecodeHello(EncodeHello(*hello));
    fuzz::Require(again.ok() && again->ticket == hello->ticket, "what was read can be sent");
  }
  const auto answer = bytes.Take<std::array<std::byte, kAnswerBytes>>();
  const auto verdict = DecodeAnswer(answer, bytes.Take<uint64_t>());
  if (verdict.ok()) (void)HelloResultText(*verdict);
  (void)ParseEndpoint(bytes.Rest());
  return 0;
}
