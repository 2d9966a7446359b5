#include "sync/publisher/bodies.h"

#include <algorithm>
#include <cstring>

#include "base/file.h"

namespace deltawire {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

}  // namespace

SegmentBody::SegmentBody(const std::vector<Bytes>& segments) {
  for (const Bytes bytes : segments) {
    if (bytes.empty()) continue;
    segments_.push_back({size_, bytes});
    size_ += bytes.size();
  }
}

Status SegmentBody::read(uint64_t offset, MutableBytes out) const {
  auto at = std::upper_bound(segments_.begin(), segments_.end(), offset,
                             [](uint64_t value, const Segment& s) { return value < s.begin; });
  while (!out.empty()) {
    const Segment& segment = *--at;
    const uint64_t skip = offset - segment.begin;
    const size_t count = size_t(std::min<uint64_t>(segment.bytes.size() - skip, out.size()));
    std::memcpy(out.data(), segment.bytes.data() + skip, count);
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
