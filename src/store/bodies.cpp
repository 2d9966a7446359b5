#include "store/bodies.h"

#include <algorithm>
#include <cstring>

namespace deltawire {
namespace {

constexpr uint64_t kBodyPieceBytes = uint64_t{1} << 20;

class FileBody final : public Body {
 public:
  explicit FileBody(std::shared_ptr<MappedFile> file)
      : file_(std::move(file)), body_(file_->bytes()) {}
  uint64_t size() const noexcept override { return body_.size(); }
  Status read(uint64_t offset, MutableBytes out) const override {
    DW_RETURN_IF_ERROR(body_.read(offset, out));
    return file_->check_whole();
  }

 private:
  const std::shared_ptr<MappedFile> file_;
  const MemoryBody body_;
};

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

std::shared_ptr<const Body> OwnedBody::of(std::string text) {
  const auto owner = std::make_shared<const std::string>(std::move(text));
  const Bytes bytes{reinterpret_cast<const uint8_t*>(owner->data()), owner->size()};
  return std::make_shared<OwnedBody>(owner, bytes);
}

std::shared_ptr<const Body> file_body(std::shared_ptr<MappedFile> file) {
  return std::make_shared<FileBody>(std::move(file));
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
  return digest_of_body(DigestKind::kSha256, body_);
}

Result<Digest> digest_of_body(DigestKind kind, const Body& body) {
  Hasher hasher(kind);
  std::vector<uint8_t> piece;
  for (uint64_t at = 0; at < body.size(); at += piece.size()) {
    piece.resize(size_t(std::min(kBodyPieceBytes, body.size() - at)));
    DW_RETURN_IF_ERROR(body.read(at, piece));
    hasher.update(piece);
  }
  return hasher.finish();
}

Result<std::string> text_of_body(const Body& body) {
  std::string text(size_t(body.size()), '\0');
  DW_RETURN_IF_ERROR(body.read(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  return text;
}

Result<bool> holds_body(Store& store, std::string_view name, const Body& body) {
  DW_ASSIGN_OR_RETURN(const ObjectInfo info, store.stat(name));
  if (info.size_bytes != body.size()) return false;
  DW_ASSIGN_OR_RETURN(const std::string stored, store.get(name, body.size()));
  DW_ASSIGN_OR_RETURN(const std::string ours, text_of_body(body));
  return stored == ours;
}

}  // namespace deltawire
