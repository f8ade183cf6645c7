// The first message of a data connection (the hello) and the reply to it (the answer). These
// functions encode and decode them, without I/O. Numbers are little-endian. docs/collective.md
// describes the protocol.
//
//   hello, 88 bytes: magic "MUSTERDC" | u32 version | u32 length (88) | u64 generation | u32 from |
//                    u32 to | u32 channel | u32 ticket length | 32 bytes ticket, zero-padded |
//                    16 bytes reserved, zero
//   answer, 16 bytes: u32 magic "MDCA" | u32 verdict | u64 generation of the hello, or 0 if the
//                     hello was not read
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "muster/status.h"

namespace muster::transport {

inline constexpr uint32_t kProtocolVersion = 1;
inline constexpr size_t kHelloBytes = 88, kAnswerBytes = 16, kHelloPrefixBytes = 16;
inline constexpr size_t kMaxTicketBytes = 32;

struct Hello {
  uint64_t generation = 0;
  int from = 0, to = 0;  // Ranks, or other numbers that both sides know.
  uint32_t channel = 0;  // Distinguishes several connections from `from` to `to`.
  std::string ticket;    // The secret of the generation, 1 to 32 bytes.
};

enum class HelloResult : uint32_t {
  kAccepted = 0,
  kOtherVersion,
  kPastGeneration,
  kWrongTicket,
  kNotExpected,  // Wrong `to`, too many connections, or a generation that is too far ahead.
  kBusy,         // Too many early connections.
  kNeedsTls,     // The client does not use TLS, but the server does. The reply is unencrypted.
  kStranger,     // The client's certificate is refused. Sent before the hello was read.
};
std::string_view HelloResultText(HelloResult verdict);

std::array<std::byte, kHelloBytes> EncodeHello(const Hello& hello);
// Checks the first 16 bytes of a hello: magic, version and length.
absl::Status CheckHelloPrefix(std::span<const std::byte, kHelloPrefixBytes> bytes);
absl::StatusOr<Hello> DecodeHello(std::span<const std::byte, kHelloBytes> bytes);

std::array<std::byte, kAnswerBytes> EncodeAnswer(HelloResult verdict, uint64_t generation);
// `generation` is that of the hello. Returns an error if the answer is for another generation.
absl::StatusOr<HelloResult> DecodeAnswer(std::span<const std::byte, kAnswerBytes> bytes,
                                         uint64_t generation);

// Compares two tickets. The time does not depend on the position of the first difference.
bool SameTicket(std::string_view a, std::string_view b);

}  // namespace muster::transport
