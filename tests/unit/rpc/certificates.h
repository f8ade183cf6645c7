// A certificate for 127.0.0.1 that signs itself, and its key, as PEM files; for tests.
#pragma once

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/rpc/credentials.h"

namespace muster::rpc {

class TestCertificates {
 public:
  TestCertificates() {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    X509_set_version(certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME* name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("test"), -1, -1, 0);
    X509_set_issuer_name(certificate, name);
    for (const auto& [kind, value] :
         {std::pair<int, const char*>{NID_basic_constraints, "critical,CA:TRUE"},
          {NID_subject_alt_name, "IP:127.0.0.1"}}) {
      X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value);
      X509_add_ext(certificate, extension, -1);
      X509_EXTENSION_free(extension);
    }
    EXPECT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
    Write("/certificate.pem", [&](FILE* file) { return PEM_write_X509(file, certificate); });
    Write("/key.pem", [&](FILE* file) {
      return PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
    });
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  ~TestCertificates() {
    for (const char* name : {"/certificate.pem", "/key.pem"}) unlink((folder_ + name).c_str());
    rmdir(folder_.c_str());
  }

  TlsFiles files() const {
    return {true, folder_ + "/certificate.pem", folder_ + "/key.pem", folder_ + "/certificate.pem"};
  }

 private:
  template <typename Function>
  void Write(const char* name, Function write) {
    FILE* file = fopen((folder_ + name).c_str(), "w");
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(write(file), 1);
    fclose(file);
  }

  std::string folder_ = "/tmp/muster-certificates-XXXXXX";
};

}  // namespace muster::rpc
