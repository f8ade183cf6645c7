// Error messages for failed TLS handshakes of gRPC connections and data connections. Each message
// is one sentence. "It" in a message is the other side of the connection.
#pragma once

#include <string>
#include <string_view>

namespace muster::security {

// Returns why this side refuses the other side's certificate. `verify_result` is an X509_V_ERR_*
// from SSL_get_verify_result.
std::string RefusedCertificateText(long verify_result);
// Returns a sentence for an alert (SSL_AD_*) that the other side sent. Returns "" if there is no
// sentence for the alert.
std::string_view AlertText(int alert);
// Returns the reason of a failed handshake that ended with `alert`. `sent` is true if this side
// sent the alert, and false if this side received the alert. `verify_result` is the result of
// SSL_get_verify_result.
std::string HandshakeText(bool sent, int alert, long verify_result);

// The bytes of the fatal TLS alert "protocol version". A process without TLS sends these bytes to a
// TLS client, so that the client can log the reason.
inline constexpr unsigned char kNoTls[] = {0x15, 3, 3, 0, 2, 2, 70};

}  // namespace muster::security
