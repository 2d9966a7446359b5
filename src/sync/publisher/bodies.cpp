#include "sync/publisher/bodies.h"

#include <algorithm>
#include <cstring>

#include "base/file.h"

namespace deltawire {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

}  // namespace

JoinedBody::JoinedBody(std::vector<std::shared_ptr<const Body>> bodies) {
  for (std::shared_ptr<const Body>& body : bodies) {
    if (body->size() == 0) continue;
    const uint64_t begin = size_;
    size_ += body->size();
    bodies_.push_back({begin, std::move(body)});
  }
}

Status JoinedBody::read(uint64_t offset, MutableBytes out) const {
  auto at = std::upper_bound(bodies_.begin(), bodies_.end(), offset,
                             [](uint64_t value, const Placed& one) { return value < one.begin; });
  while (!out.empty()) {
    const Placed& one = *--at;
    const uint64_t skip = offset - one.begin;
    const size_t count = size_t(std::min<uint64_t>(one.body->size() - skip, out.size()));
    DW_RETURN_IF_ERROR(one.body->read(skip, out.first(count)));
    out = out.subspan(count);
    offset += count;
    at += 2;
  }
  return {};
}

Result<std::shared_ptr<const Body>> file_body(const std::filesystem::path& path) {
  DW_ASSIGN_OR_RETURN(const std::shared_ptr<MappedFile> file, MappedFile::open(path));
  return std::shared_ptr<const Body>(std::make_shared<OwnedBody>(file, file->bytes()));
}

Status HashingBody::read(uint64_t offset, MutableBytes out) const {
  DW_RETURN_IF_ERROR(body_.read(offset, out));
  const std::lock_guard lock(mutex_);
  // A retry reads what was read before: only what is new counts.
  if (offset <= hashed_ && offset + out.size() > hashed_) {
    hasher_.update(Bytes(out).subspan(size_t(hashed_ - offset)));
    hashed_ = offset + out.size();
  }
  return {};
}

Result<Digest> HashingBody::sha256() {
  if (hashed_ == body_.size()) return hasher_.finish();
  return sha256_of(body_);
}

Result<Digest> sha256_of(const Body& body) {
  Hasher hasher(DigestKind::kSha256);
  std::vector<uint8_t> piece;
  for (uint64_t at = 0; at < body.size(); at += piece.size()) {
    piece.resize(size_t(std::min(kPieceBytes, body.size() - at)));
    DW_RETURN_IF_ERROR(body.read(at, piece));
    hasher.update(piece);
  }
  return hasher.finish();
}

}  // namespace deltawire
