// Error messages for failed TLS handshakes, one sentence each. gRPC and data connections use them.
// "It" in a message is the other side.
#pragma once

#include <string>
#include <string_view>

namespace muster::security {

// Returns why this side refuses the other side's certificate. `verify_result` is an X509_V_ERR_*
// from SSL_get_verify_result.
std::string RefusedCertificateText(long verify_result);
// Returns the meaning of an alert (SSL_AD_*) that the other side sent. Returns "" if there is no
// better text than the alert's name.
std::string_view AlertText(int alert);
// Returns the reason of a failed handshake. `sent`: this side sent the alert, otherwise it received
// it. `verify_result` is the result of verifying the other side's certificate.
std::string HandshakeText(bool sent, int alert, long verify_result);

// The bytes of the fatal TLS alert "protocol version". A process without TLS sends them to a TLS
// client, which then knows the reason.
inline constexpr unsigned char kNoTls[] = {0x15, 3, 3, 0, 2, 2, 70};

}  // namespace muster::security
