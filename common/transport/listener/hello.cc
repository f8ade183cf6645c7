#include "common/transport/listener/hello.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace muster::transport {
namespace {

static_assert(std::endian::native == std::endian::little, "data connections are little-endian");

constexpr char kMagic[] = "MUSTERDC";
constexpr uint32_t kAnswerMagic = 0x4143444d;  // "MDCA"

struct WireHello {
  char magic[8];
  uint32_t version, length;
  uint64_t generation;
  uint32_t from, to, channel, ticket_length;
  char ticket[kMaxTicketBytes];
  char reserved[16];
};
static_assert(sizeof(WireHello) == kHelloBytes);

struct WireAnswer {
  uint32_t magic, verdict;
  uint64_t generation;
};
static_assert(sizeof(WireAnswer) == kAnswerBytes);

template <typename Wire, size_t N>
std::array<std::byte, N> Bytes(const Wire& wire) {
  std::array<std::byte, N> bytes;
  std::memcpy(bytes.data(), &wire, N);
  return bytes;
}

}  // namespace

std::string_view HelloResultText(HelloResult verdict) {
  switch (verdict) {
    case HelloResult::kAccepted:
      return "accepted";
    case HelloResult::kOtherVersion:
      return "it speaks another version of the data protocol";
    case HelloResult::kPastGeneration:
      return "it has left this generation";
    case HelloResult::kWrongTicket:
      return "it has another ticket for this generation";
    case HelloResult::kNotExpected:
      return "it does not expect this connection";
    case HelloResult::kBusy:
      return "it holds too many connections that wait for a generation";
    case HelloResult::kNeedsTls:
      return "it demands TLS, which this process does not use: give both the same key or "
             "certificates";
    case HelloResult::kCertificateRefused:
      return "it does not know the task that this process's certificate names";
  }
  return "it gave an unknown reason";
}

std::array<std::byte, kHelloBytes> EncodeHello(const Hello& hello) {
  WireHello wire{};
  std::memcpy(wire.magic, kMagic, 8);
  wire.version = kProtocolVersion;
  wire.length = kHelloBytes;
  wire.generation = hello.generation;
  wire.from = static_cast<uint32_t>(hello.from);
  wire.to = static_cast<uint32_t>(hello.to);
  wire.channel = hello.channel;
  wire.ticket_length = static_cast<uint32_t>(std::min(hello.ticket.size(), kMaxTicketBytes));
  std::memcpy(wire.ticket, hello.ticket.data(), wire.ticket_length);
  return Bytes<WireHello, kHelloBytes>(wire);
}

absl::Status CheckHelloPrefix(std::span<const std::byte, kHelloPrefixBytes> bytes) {
  WireHello wire{};
  std::memcpy(&wire, bytes.data(), kHelloPrefixBytes);
  if (std::memcmp(wire.magic, kMagic, 8) != 0) {
    return DataError("it does not speak the data protocol");
  }
  if (wire.version != kProtocolVersion) {
    return ConfigurationError(fmt::format("it speaks version {} of the data protocol, not {}",
                                          wire.version, kProtocolVersion));
  }
  if (wire.length != kHelloBytes) {
    return DataError(fmt::format("its hello has {} bytes, not {}", wire.length, kHelloBytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<Hello> DecodeHello(std::span<const std::byte, kHelloBytes> bytes) {
  MUSTER_RETURN_IF_ERROR(CheckHelloPrefix(bytes.first<kHelloPrefixBytes>()));
  WireHello wire;
  std::memcpy(&wire, bytes.data(), kHelloBytes);
  if (wire.ticket_length < 1 || wire.ticket_length > kMaxTicketBytes || wire.from > INT32_MAX ||
      wire.to > INT32_MAX) {
    return DataError("its hello is damaged");
  }
  Hello hello;
  hello.generation = wire.generation;
  hello.from = static_cast<int>(wire.from);
  hello.to = static_cast<int>(wire.to);
  hello.channel = wire.channel;
  hello.ticket.assign(wire.ticket, wire.ticket_length);
  return hello;
}

std::array<std::byte, kAnswerBytes> EncodeAnswer(HelloResult verdict, uint64_t generation) {
  return Bytes<WireAnswer, kAnswerBytes>(
      {kAnswerMagic, static_cast<uint32_t>(verdict), generation});
}

absl::StatusOr<HelloResult> DecodeAnswer(std::span<const std::byte, kAnswerBytes> bytes,
                                         uint64_t generation) {
  WireAnswer wire;
  std::memcpy(&wire, bytes.data(), kAnswerBytes);
  const auto verdict = static_cast<HelloResult>(wire.verdict);
  const bool early = verdict == HelloResult::kOtherVersion || verdict == HelloResult::kNeedsTls ||
                     verdict == HelloResult::kCertificateRefused;
  if (wire.magic != kAnswerMagic || wire.generation != (early ? 0 : generation)) {
    return DataError("it does not speak the data protocol");
  }
  return verdict;
}

bool SameTicket(std::string_view a, std::string_view b) {
  unsigned char differs = a.size() != b.size();
  for (size_t i = 0; i < kMaxTicketBytes; ++i) {
    differs |= static_cast<unsigned char>((i < a.size() ? a[i] : 0) ^ (i < b.size() ? b[i] : 0));
  }
  return differs == 0;
}

}  // namespace muster::transport
