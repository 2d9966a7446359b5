#include "store/s3/upload.h"

#include <vector>

namespace deltawire::s3 {
namespace {

Result<std::string> start(Client* client, const std::string& key) {
  Request request;
  request.method = "POST";
  request.key = key;
  request.query = {{"uploads", ""}};
  DW_ASSIGN_OR_RETURN(const HttpAnswer answer, client->send_ok(request));
  return parse_upload_id(answer.text);
}

// The ETag by which the final request names the piece.
Result<std::string> send_piece(Client* client, const std::string& key, const std::string& upload,
                               uint64_t number, const BodyRange& range,
                               const std::atomic<bool>* cancelled) {
  Request request;
  request.method = "PUT";
  request.key = key;
  request.query = {{"partNumber", std::to_string(number)}, {"uploadId", upload}};
  request.body = range;
  request.moved_bytes = range.size;
  request.cancelled = cancelled;
  DW_ASSIGN_OR_RETURN(const HttpAnswer answer, client->send_ok(request));
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
  Request request;
  request.method = "POST";
  request.key = key;
  request.query = {{"uploadId", upload}};
  request.body = {&body, 0, body.size()};
  request.moved_bytes = size;  // a server may copy the pieces now
  DW_ASSIGN_OR_RETURN(const HttpAnswer answer, client->send_ok(request));
  if (is_completed(answer.text)) return {};
  if (!parse_error(answer.text).code.empty()) return client->failure(answer);
  return unavailable("the answer to the end of the upload cannot be read");
}

void abort(Client* client, const std::string& key, const std::string& upload) {
  Request request;
  request.method = "DELETE";
  request.key = key;
  request.query = {{"uploadId", upload}};
  static_cast<void>(client->send(request));  // the failure that led here is the one to report
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
  if (!status.ok() && outcome_known) abort(client, key, upload);
  return status;
}

}  // namespace deltawire::s3
