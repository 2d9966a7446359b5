#include "store/steady_body.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace deltawire {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{128} << 10;

std::atomic<uint64_t> g_next_id{1};

// Chunks that a thread is in the middle of: readers that take small pieces, or go through several
// boxes of a tensor side by side, must not read a chunk anew for each.
struct CachedChunk {
  uint64_t body = 0, chunk = 0, used = 0;
  std::vector<uint8_t> bytes;
};
thread_local std::array<CachedChunk, 4> t_cache;
thread_local uint64_t t_clock = 0;

}  // namespace

SteadyBody::SteadyBody(std::shared_ptr<const Body> inner, std::string what)
    : inner_(std::move(inner)), what_(std::move(what)), id_(g_next_id++) {
  const size_t chunks = size_t((inner_->size() + kChunkBytes - 1) / kChunkBytes);
  prints_.resize(chunks);
  known_.resize(chunks);
}

Status SteadyBody::read_chunk(uint64_t chunk, MutableBytes out) const {
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

Result<Bytes> SteadyBody::cached_chunk(uint64_t chunk) const {
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

Status SteadyBody::read(uint64_t offset, MutableBytes out) const {
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

}  // namespace deltawire
