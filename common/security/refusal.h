// Reasons of failed TLS handshakes in plain words, one sentence each, for control and data
// connections. "It" is the other side.
#pragma once

#include <string>
#include <string_view>

namespace muster::security {

// Returns the text for X509_V_ERR_* from SSL_get_verify_result: this side refuses the other side's
// certificate.
std::string RefusedCertificateText(long verify_result);
// Returns the text for SSL_AD_*: what the other side says about this one. "" if the alert's name
// says everything.
std::string_view AlertText(int alert);
// Returns the reason of a failed handshake from an alert, sent or received, and the verification of
// the certificate.
std::string HandshakeText(bool sent, int alert, long verify_result);

// The fatal alert "protocol version". A TLS client understands it from a process without TLS.
inline constexpr unsigned char kNoTls[] = {0x15, 3, 3, 0, 2, 2, 70};

}  // namespace muster::security
