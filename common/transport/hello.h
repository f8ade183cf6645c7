// The first bytes of a data connection, and the reply. Little-endian, fixed layout, described in
// docs/collective.md. Pure functions, no I/O.
//
//   hello, 88 bytes: magic "MUSTERDC" | u32 version | u32 length (88) | u64 generation | u32 from |
//                    u32 to | u32 channel | u32 ticket length | 32 bytes ticket, zero-padded |
//                    16 bytes reserved, zero
//   answer, 16 bytes: u32 magic "MDCA" | u32 verdict | u64 generation, 0 if it is unknown
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
  int from = 0, to = 0;  // Ranks, or other numbers on which both sides agree.
  uint32_t channel = 0;  // Distinguishes several connections between one pair.
  std::string ticket;    // Secret, 1 to 32 bytes.
};

enum class Verdict : uint32_t {
  kAccepted = 0,
  kOtherVersion,
  kPastGeneration,
  kWrongTicket,
  kNotExpected,  // Wrong ranks, or one connection too many.
  kBusy,         // Too many early connections.
  kNeedsTls,     // A plain hello although security is on; the reply is unencrypted.
  // The certificate names no task of this cluster. Sent before the hello.
  kStranger,
};
std::string_view VerdictText(Verdict verdict);

std::array<std::byte, kHelloBytes> EncodeHello(const Hello& hello);
// Checks magic, version and length, which are the first 16 bytes.
absl::Status CheckHelloPrefix(std::span<const std::byte, kHelloPrefixBytes> bytes);
absl::StatusOr<Hello> DecodeHello(std::span<const std::byte, kHelloBytes> bytes);

std::array<std::byte, kAnswerBytes> EncodeAnswer(Verdict verdict, uint64_t generation);
absl::StatusOr<Verdict> DecodeAnswer(std::span<const std::byte, kAnswerBytes> bytes,
                                     uint64_t generation);

// Takes the same time wherever they differ.
bool SameTicket(std::string_view a, std::string_view b);

}  // namespace muster::transport
