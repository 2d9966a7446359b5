#include "store/s3/bucket.h"

#include "base/text.h"
#include "store/s3_store.h"

namespace deltawire::s3 {
namespace {

// What one listing has come to.
struct Listing {
  const std::string& store_prefix;
  std::string_view prefix;
  size_t limit;
  std::string last;  // the name it has come to; a page must lead on from it, or there is no end
  std::vector<ObjectInfo> found;

  Status take(const ListedObject& object) {
    if (!object.key.starts_with(store_prefix)) return corruption("a list of another prefix");
    std::string name = object.key.substr(store_prefix.size());
    if (!name.starts_with(prefix)) return corruption("a list of another prefix");
    if (name <= last) return corruption("a list that is not in the order of names");
    last = name;
    if (check_object_name(name).ok() && found.size() < limit) {
      found.push_back({std::move(name), object.size_bytes, object.modified});
    }
    return {};
  }
};

Pairs query_of_page(const Listing& listing, std::string_view start_after,
                    const std::string& token) {
  const size_t wanted = listing.limit - listing.found.size();
  Pairs query = {{"list-type", "2"},
                 {"max-keys", std::to_string(wanted)},
                 {"prefix", listing.store_prefix + std::string(listing.prefix)}};
  if (!token.empty()) {
    query.emplace_back("continuation-token", token);
  } else if (!start_after.empty()) {
    query.emplace_back("start-after", listing.store_prefix + std::string(start_after));
  }
  return query;
}

Result<HttpAnswer> put_if_absent(Client* client, const std::string& key) {
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
  DW_ASSIGN_OR_RETURN(const HttpAnswer second, put_if_absent(client, key));
  if (second.status == 412 || second.status == 409) return true;
  if (second.ok()) return false;
  return client->failure(second);
}

}  // namespace

Result<std::vector<ObjectInfo>> list_objects(Client* client, const std::string& store_prefix,
                                             std::string_view prefix, std::string_view start_after,
                                             size_t limit) {
  Listing listing{store_prefix, prefix, limit, std::string(start_after), {}};
  std::string token;
  while (listing.found.size() < limit) {
    Request request;
    request.query = query_of_page(listing, start_after, token);
    DW_ASSIGN_OR_RETURN(const HttpAnswer answer, client->send_ok(request));
    DW_ASSIGN_OR_RETURN(const ListAnswer page, parse_list(answer.text));
    for (const ListedObject& object : page.objects) DW_RETURN_IF_ERROR(listing.take(object));
    if (page.continuation_token.empty()) break;
    if (page.objects.empty()) return corruption("a page of a list without an object");
    token = page.continuation_token;
  }
  return std::move(listing.found);
}

Result<bool> has_conditional_put(Client* client, const std::string& prefix) {
  const std::string key = prefix + (".probe-" + random_hex(32));
  DW_ASSIGN_OR_RETURN(const HttpAnswer first, put_if_absent(client, key));
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
