// Why the TLS handshake of a connection failed, in plain words: one sentence each, of control and
// data connections alike. "It" is the other side.
#pragma once

#include <string>
#include <string_view>

namespace muster::security {

// Of X509_V_ERR_*, which SSL_get_verify_result gives: the other side's certificate is refused here.
std::string RefusedCertificateText(long verify_result);
// Of SSL_AD_*: what the other side says of this one. "" where there is no more to it than its name.
std::string_view AlertText(int alert);
// What ended it: an alert, sent or received, and what was found out about the certificate.
std::string HandshakeText(bool sent, int alert, long verify_result);

// A fatal alert, "protocol version": what a client with TLS understands of a process without.
inline constexpr unsigned char kNoTls[] = {0x15, 3, 3, 0, 2, 2, 70};

}  // namespace muster::security
