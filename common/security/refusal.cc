#include "common/security/refusal.h"

#include <fmt/format.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

namespace muster::security {

std::string RefusedCertificateText(long verify_result) {
  const auto refused = [](std::string_view why) {
    return fmt::format("its certificate is refused: {}", why);
  };
  switch (verify_result) {
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return refused("another authority signed it (is it of another run's key?)");
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return refused("it has expired (or is the clock of one host wrong?)");
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return refused("it is not valid yet (or is the clock of one host wrong?)");
    default:
      return refused(X509_verify_cert_error_string(verify_result));
  }
}

std::string_view AlertText(int alert) {
  switch (alert) {
    case SSL_AD_BAD_RECORD_MAC:
    case SSL_AD_DECRYPTION_FAILED:
      return "the other side says that the data was changed on its way";
    case SSL_AD_UNKNOWN_CA:
      return "the other side refuses this process's certificate: another authority signed it (is "
             "this another run's key?)";
    case SSL_AD_CERTIFICATE_EXPIRED:
      return "the other side refuses this process's certificate: it has expired";
    case SSL_AD_CERTIFICATE_REQUIRED:
      return "the other side demands a certificate, and this process has shown none";
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_DECRYPT_ERROR:
      return "the other side refuses this process's certificate";
    case SSL_AD_PROTOCOL_VERSION:
      return "the other side does not use TLS 1.3, which this process demands: give both the same "
             "key or certificates";
    default:
      return "";
  }
}

std::string HandshakeText(bool sent, int alert, long verify_result) {
  if (sent && verify_result != X509_V_OK) return RefusedCertificateText(verify_result);
  if (sent && alert == SSL_AD_CERTIFICATE_REQUIRED) return "it shows no certificate";
  if (sent && alert == SSL_AD_PROTOCOL_VERSION) return "it does not speak TLS 1.3";
  const std::string_view text = sent ? "" : AlertText(alert);
  if (!text.empty()) return std::string(text);
  return fmt::format("{}: {}", sent ? "the TLS handshake failed" : "the other side ended it",
                     SSL_alert_desc_string_long(alert));
}

}  // namespace muster::security
