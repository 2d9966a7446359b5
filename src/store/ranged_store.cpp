#include "store/ranged_store.h"

#include "base/bytes.h"
#include "http/http_client.h"

namespace deltawire {

Status RangedStore::at(std::string_view name, Status status) const {
  return std::move(status).at(url() + ": object " + std::string(name));
}

Result<ObjectInfo> RangedStore::stat(std::string_view name) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  const Result<HttpAnswer> answer = head(name);
  if (!answer.ok()) return at(name, answer.status());
  const Result<uint64_t> size = content_length(*answer);
  if (!size.ok()) return at(name, size.status());
  return ObjectInfo{std::string(name), *size, parse_http_date(answer->header("last-modified"))};
}

Status RangedStore::read(std::string_view name, uint64_t offset, std::span<uint8_t> out) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  uint64_t end;
  if (!checked_add(offset, out.size(), &end) || end > uint64_t(INT64_MAX)) {
    return at(name, corruption("the object ends before byte " + std::to_string(offset)));
  }
  if (!out.empty()) {
    SpanSink sink(out);
    return fetch(name, offset, out.size(), kAnySize, &sink);
  }
  DW_ASSIGN_OR_RETURN(const ObjectInfo info, stat(name));
  if (offset <= info.size_bytes) return {};
  return at(name, corruption("the object ends at byte " + std::to_string(info.size_bytes) +
                             ", expected " + std::to_string(offset)));
}

Status RangedStore::download(std::string_view name, uint64_t size_bytes, Sink* sink) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  if (size_bytes > 0) return fetch(name, 0, size_bytes, size_bytes, sink);
  DW_ASSIGN_OR_RETURN(const ObjectInfo info, stat(name));  // an empty object has no range
  if (info.size_bytes == 0) return {};
  return at(name, corruption("expected 0 bytes, got " + std::to_string(info.size_bytes)));
}

Status RangedStore::fetch(std::string_view name, uint64_t offset, uint64_t size,
                          uint64_t object_size, Sink* sink) {
  const Pieces pieces =
      Pieces::cut(size, connections_, kMinDownloadPiece, piece_bytes_, ~uint64_t{0});
  return at(name, download_in_pieces(source_of(name), &slots_, offset, pieces, object_size,
                                     connections_, retries_, sink));
}

}  // namespace deltawire
