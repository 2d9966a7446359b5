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
  std::string
      last;  // the last name seen; pages must continue after it, or the listing would not end
  std::vector<ObjectInfo> found;

  Status take(const ListedObject& object) {
    if (!object.key.starts_with(store_prefix)) return corruption("the listing has another prefix");
    std::string name = object.key.substr(store_prefix.size());
    if (!name.starts_with(prefix)) return corruption("the listing has another prefix");
    if (name <= last) return corruption("the listing is not sorted by name");
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
  return client->send({.method = "PUT",
                       .key = key,
                       .headers = {{"if-none-match", "*"}},
                       .body = {&body, 0, body.size()},
                       .may_resend = false});
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
    DW_ASSIGN_OR_RETURN(const HttpAnswer answer,
                        client->send_ok({.query = query_of_page(listing, start_after, token)}));
    DW_ASSIGN_OR_RETURN(const ListAnswer page, parse_list(answer.text));
    for (const ListedObject& object : page.objects) DW_RETURN_IF_ERROR(listing.take(object));
    if (page.continuation_token.empty()) break;
    if (page.objects.empty()) return corruption("a page of the listing is empty");
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
  // A key without the right to delete leaves a few bytes.
  (void)client->send({.method = "DELETE", .key = key});
  return honoured;
}

// ---- multipart uploads

namespace {

Result<std::string> start(Client* client, const std::string& key) {
  DW_ASSIGN_OR_RETURN(const HttpAnswer answer,
                      client->send_ok({.method = "POST", .key = key, .query = {{"uploads", ""}}}));
  return parse_upload_id(answer.text);
}

// The ETag by which the final request names the piece.
Result<std::string> send_piece(Client* client, const std::string& key, const std::string& upload,
                               uint64_t number, const BodyRange& range,
                               const std::atomic<bool>* cancelled) {
  DW_ASSIGN_OR_RETURN(
      const HttpAnswer answer,
      client->send_ok({.method = "PUT",
                       .key = key,
                       .query = {{"partNumber", std::to_string(number)}, {"uploadId", upload}},
                       .body = range,
                       .moved_bytes = range.size,
                       .cancelled = cancelled}));
  std::string etag(answer.header("etag"));
  if (etag.empty()) return corruption("the server accepted a piece without returning an ETag");
  return etag;
}

Status complete(Client* client, const std::string& key, const std::string& upload,
                const std::vector<std::string>& etags, uint64_t size) {
  std::string xml = "<CompleteMultipartUpload>";
  for (size_t i = 0; i < etags.size(); ++i) {
    xml += "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>" +
           xml_escape(etags[i]) + "</ETag></Part>";
  }
  xml += "</CompleteMultipartUpload>";
  const MemoryBody body(xml);
  DW_ASSIGN_OR_RETURN(const HttpAnswer answer,
                      client->send_ok({.method = "POST",
                                       .key = key,
                                       .query = {{"uploadId", upload}},
                                       .body = {&body, 0, body.size()},
                                       .moved_bytes = size}));  // a server may copy pieces now
  if (is_completed(answer.text)) return {};
  if (!parse_error(answer.text).code.empty()) return client->failure(answer);
  return unavailable("the answer to the end of the upload cannot be read");
}

}  // namespace

Status upload_in_pieces(Client* client, Slots* slots, const std::string& key, const Body& body,
                        const Pieces& pieces, unsigned workers, const PieceRetries& retries) {
  DW_ASSIGN_OR_RETURN(const std::string upload, start(client, key));
  std::vector<std::string> etags(size_t(pieces.count()));
  const auto send = [&](uint64_t i, const std::atomic<bool>* cancelled) -> Status {
    const Slots::Slot slot(slots);
    if (*cancelled) return deltawire::cancelled("given up");
    const BodyRange range{&body, pieces.offset(i), pieces.length(i)};
    DW_ASSIGN_OR_RETURN(etags[size_t(i)], send_piece(client, key, upload, i + 1, range, cancelled));
    return {};
  };
  Status status = move_pieces(pieces, workers, retries, send);
  bool outcome_known = true;
  if (status.ok()) {
    status = complete(client, key, upload, etags, body.size());
    outcome_known = status.code() != Code::kUnavailable;
  }
  if (!status.ok() && outcome_known) {  // the failure that led here is the one to report
    (void)client->send({.method = "DELETE", .key = key, .query = {{"uploadId", upload}}});
  }
  return status;
}

}  // namespace deltawire::s3
