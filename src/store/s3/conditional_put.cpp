#include "store/s3/conditional_put.h"
#include "base/hex.h"

namespace deltawire::s3 {
namespace {

Result<HttpAnswer> put(Client* client, const std::string& key) {
  static constexpr std::string_view kText = "deltawire asks whether If-None-Match is honoured\n";
  const MemoryBody body(kText);
  Request request;
  request.method = "PUT";
  request.key = key;
  request.headers = {{"if-none-match", "*"}};
  request.body = {&body, 0, body.size()};
  request.may_resend = false;
  return client->send(request);
}

// Swift: 501 NotImplemented. Others: 400 with a code that says the same.
bool is_refused_as_unknown(const HttpAnswer& answer) {
  const std::string code = parse_error(answer.text).code;
  return answer.status == 501 || code == "NotImplemented" ||
         (answer.status == 400 && (code == "InvalidArgument" || code == "InvalidRequest"));
}

Result<bool> second_is_refused(Client* client, const std::string& key) {
  DW_ASSIGN_OR_RETURN(const HttpAnswer second, put(client, key));
  if (second.status == 412 || second.status == 409) return true;
  if (second.ok()) return false;
  return client->failure(second);
}

}  // namespace

Result<bool> has_conditional_put(Client* client, const std::string& prefix) {
  const std::string key = prefix + (".probe-" + random_hex(32));
  DW_ASSIGN_OR_RETURN(const HttpAnswer first, put(client, key));
  if (is_refused_as_unknown(first)) return false;
  if (!first.ok()) return client->failure(first);
  Result<bool> honoured = second_is_refused(client, key);
  Request remove;
  remove.method = "DELETE";
  remove.key = key;
  static_cast<void>(client->send(remove));  // a key that may not remove leaves a few bytes
  return honoured;
}

}  // namespace deltawire::s3
