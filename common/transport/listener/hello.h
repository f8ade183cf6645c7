// Encodes and decodes the first message of a data connection (the hello) and the reply to the hello
// (the answer). Does no I/O. Numbers are little-endian. docs/collective.md describes the protocol.
//
// Each data connection belongs to a generation: a period of training with fixed members. Each
// generation has a secret, the ticket, and a number that is higher than the numbers of earlier
// generations. With parameter servers, the number is the number of a view. A view is the chief's
// assignment of shards to servers. A shard is the part of the variables that one server holds.
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
  int from = 0, to = 0;  // Ranks. In a view: indices of a worker (see kReplicaFrom) and a shard.
  uint32_t channel = 0;  // Distinguishes connections with the same `from` and `to`.
  std::string ticket;    // The secret of the generation, 1 to 32 bytes.
};

enum class HelloResult : uint32_t {
  kAccepted = 0,
  kOtherVersion,
  kPastGeneration,
  kWrongTicket,
  // Wrong `to`, too many connections with the same `from` and `channel`, or a generation that is
  // too far above the admitted generations.
  kNotExpected,
  kBusy,      // Too many connections wait for generations that the server does not know yet.
  kNeedsTls,  // Only the server uses TLS. The answer is unencrypted.
  kCertificateRefused,  // The server refuses the client's certificate, and reads no hello.
};
std::string_view HelloResultText(HelloResult verdict);

std::array<std::byte, kHelloBytes> EncodeHello(const Hello& hello);
// Checks the first 16 bytes of a hello: magic, version and length.
absl::Status CheckHelloPrefix(std::span<const std::byte, kHelloPrefixBytes> bytes);
absl::StatusOr<Hello> DecodeHello(std::span<const std::byte, kHelloBytes> bytes);

std::array<std::byte, kAnswerBytes> EncodeAnswer(HelloResult verdict, uint64_t generation);
// `generation` is Hello::generation. Returns an error if the answer is for another generation.
absl::StatusOr<HelloResult> DecodeAnswer(std::span<const std::byte, kAnswerBytes> bytes,
                                         uint64_t generation);

// Returns whether two tickets are equal. Takes constant time: the duration of the call does not
// depend on the contents of the tickets.
bool SameTicket(std::string_view a, std::string_view b);

}  // namespace muster::transport
