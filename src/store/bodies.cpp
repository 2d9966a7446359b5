#include "store/bodies.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/text.h"

namespace deltawire {
namespace {

constexpr uint64_t kBodyPieceBytes = uint64_t{1} << 20;

constexpr uint64_t kChunkBytes = uint64_t{128} << 10;

std::atomic<uint64_t> g_next_id{1};

// Recently read chunks of a thread, so that readers of small pieces, or of several boxes of a
// tensor side by side, do not read a chunk again for each.
struct CachedChunk {
  uint64_t body = 0, chunk = 0, used = 0;
  std::vector<uint8_t> bytes;
};
thread_local std::array<CachedChunk, 4> t_cache;
thread_local uint64_t t_clock = 0;

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
  return std::make_shared<OwnedBody>(owner, text_bytes(*owner));
}

std::shared_ptr<const Body> file_body(std::shared_ptr<MappedFile> file) {
  return std::make_shared<FileBody>(std::move(file));
}

Status HashingBody::read(uint64_t offset, MutableBytes out) const {
  DW_RETURN_IF_ERROR(body_.read(offset, out));
  const std::lock_guard lock(mutex_);
  // A retry reads earlier bytes again; only new ones are hashed.
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

StableBody::StableBody(std::shared_ptr<const Body> inner, std::string what)
    : inner_(std::move(inner)), what_(std::move(what)), id_(g_next_id++) {
  const size_t chunks = size_t((inner_->size() + kChunkBytes - 1) / kChunkBytes);
  prints_.resize(chunks);
  known_.resize(chunks);
}

Status StableBody::read_chunk(uint64_t chunk, MutableBytes out) const {
  DW_RETURN_IF_ERROR(inner_->read(chunk * kChunkBytes, out));
  const Digest digest = digest_of(DigestKind::kSum128, out);
  Print print;
  std::memcpy(print.words, digest.bytes.data(), sizeof print.words);
  const std::lock_guard lock(mutex_);
  if (!known_[chunk]) {
    known_[chunk] = true;
    prints_[chunk] = print;
  }
  if (prints_[chunk] == print) return {};
  return io_error(what_ + ": changed while it was read; nothing was committed, publish " +
                  "again when nobody writes to it");
}

Result<Bytes> StableBody::cached_chunk(uint64_t chunk) const {
  CachedChunk* oldest = &t_cache[0];
  for (CachedChunk& cached : t_cache) {
    if (cached.body == id_ && cached.chunk == chunk) {
      cached.used = ++t_clock;
      return Bytes(cached.bytes);
    }
    if (cached.used < oldest->used) oldest = &cached;
  }
  oldest->body = 0;
  oldest->bytes.resize(size_t(std::min(kChunkBytes, size() - chunk * kChunkBytes)));
  DW_RETURN_IF_ERROR(read_chunk(chunk, oldest->bytes));
  oldest->body = id_;
  oldest->chunk = chunk;
  oldest->used = ++t_clock;
  return Bytes(oldest->bytes);
}

Status StableBody::read(uint64_t offset, MutableBytes out) const {
  while (!out.empty()) {
    const uint64_t chunk = offset / kChunkBytes, skip = offset % kChunkBytes;
    const uint64_t chunk_bytes = std::min(kChunkBytes, size() - chunk * kChunkBytes);
    const size_t count = size_t(std::min<uint64_t>(chunk_bytes - skip, out.size()));
    if (count == chunk_bytes) {
      DW_RETURN_IF_ERROR(read_chunk(chunk, out.first(count)));
    } else {
      DW_ASSIGN_OR_RETURN(const Bytes bytes, cached_chunk(chunk));
      std::memcpy(out.data(), bytes.data() + skip, count);
    }
    offset += count;
    out = out.subspan(count);
  }
  return {};
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

Status copy_body(const Body& body, Sink* sink) {
  constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
  std::vector<uint8_t> piece;
  for (uint64_t at = 0; at < body.size(); at += piece.size()) {
    piece.resize(size_t(std::min(kPieceBytes, body.size() - at)));
    DW_RETURN_IF_ERROR(body.read(at, piece));
    DW_RETURN_IF_ERROR(sink->write(at, piece));
  }
  return {};
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
