#include "store/s3/sigv4.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <time.h>

#include <algorithm>

#include "base/text.h"
#include "deltawire/digest.h"

namespace deltawire::s3 {
namespace {

constexpr char kAlgorithm[] = "AWS4-HMAC-SHA256";

std::string hmac(std::string_view key, std::string_view text) {
  std::string mac(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), int(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(),
       reinterpret_cast<unsigned char*>(mac.data()), &size);
  mac.resize(size);
  return mac;
}

// Ends cut off, runs of spaces made one.
std::string single_spaced(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out.push_back(c);
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace

std::string sha256_hex(std::string_view text) {
  return digest_of(DigestKind::kSha256, text_bytes(text)).hex();
}

std::string canonical_query(const Pairs& query) {
  Pairs encoded;
  for (const auto& [name, value] : query) {
    encoded.emplace_back(percent_encode(name, false), percent_encode(value, false));
  }
  std::sort(encoded.begin(), encoded.end());
  std::string out;
  for (const auto& [name, value] : encoded) {
    if (!out.empty()) out.push_back('&');
    out.append(name).append("=").append(value);
  }
  return out;
}

std::string authorization(const RequestToSign& request, const SigningScope& scope,
                          const Credentials& credentials) {
  Pairs headers;
  for (const auto& [name, value] : request.headers) {
    headers.emplace_back(lower_case(name), single_spaced(value));
  }
  std::sort(headers.begin(), headers.end());
  std::string canonical_headers, names;
  for (const auto& [name, value] : headers) {
    canonical_headers.append(name).append(":").append(value).append("\n");
    names.append(names.empty() ? "" : ";").append(name);
  }

  std::string canonical(request.method);
  canonical.append("\n").append(request.path).append("\n").append(request.query).append("\n");
  canonical.append(canonical_headers).append("\n").append(names).append("\n");
  canonical.append(request.payload_sha256);

  const std::string date = scope.time.substr(0, 8);
  const std::string place = date + "/" + scope.region + "/" + scope.service + "/aws4_request";
  const std::string to_sign =
      std::string(kAlgorithm) + "\n" + scope.time + "\n" + place + "\n" + sha256_hex(canonical);
  const std::string of_date = hmac("AWS4" + credentials.secret_key, date);
  const std::string key = hmac(hmac(hmac(of_date, scope.region), scope.service), "aws4_request");
  return std::string(kAlgorithm) + " Credential=" + credentials.access_key + "/" + place +
         ", SignedHeaders=" + names + ", Signature=" + to_hex(hmac(key, to_sign));
}

}  // namespace deltawire::s3
