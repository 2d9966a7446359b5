#include "dialect/frames/frames.h"

#include <algorithm>
#include <memory>
#include <string>

#include "base/guard.h"
#include "codec/changes.h"
#include "codec/checks.h"
#include "dialect/frames/zstd_frame.h"

namespace deltawire {
namespace {

constexpr size_t kCountField = 4;
constexpr size_t kBytePosition = 4;
constexpr size_t kRecord = kBytePosition + 1;
// Bytes that are patched and then hashed at a time; they fit into the L1 cache.
constexpr size_t kPatchWindow = size_t{16} << 10;

void xor_window(const uint8_t* change, size_t size, uint8_t* data) noexcept {
  for (size_t i = 0; i < size; ++i) data[i] ^= change[i];
}

// Positions are checked when they are used, so each is read once.
class ByteList {
 public:
  ByteList(const uint8_t* content, size_t count, uint64_t array_bytes)
      : positions_(content + kCountField),
        values_(positions_ + count * kBytePosition),
        count_(count),
        array_bytes_(array_bytes) {}

  // Writes all changes below `end` into the array.
  Status write_until(uint64_t end, uint8_t* array) noexcept {
    for (; next_ < count_; ++next_) {
      const uint32_t position = load_le<uint32_t>(positions_ + next_ * kBytePosition);
      if (position >= end && position < array_bytes_) return {};
      if (position < lowest_ || position >= array_bytes_) return bad_position(position);
      array[position] = values_[next_];
      lowest_ = uint64_t{position} + 1;
    }
    return {};
  }

 private:
  Status bad_position(uint32_t position) const {
    return bad_payload("position of change " + std::to_string(next_),
                       std::to_string(lowest_) + " to below " + std::to_string(array_bytes_),
                       uint64_t{position});
  }

  const uint8_t* positions_;
  const uint8_t* values_;
  size_t count_;
  uint64_t array_bytes_;
  size_t next_ = 0;
  uint64_t lowest_ = 0;
};

Status check_list(uint64_t content_bytes, uint64_t array_bytes) {
  const uint64_t count = content_bytes < kCountField ? 0 : (content_bytes - kCountField) / kRecord;
  if (content_bytes == kCountField + count * kRecord && count <= array_bytes) return {};
  return bad_payload("zstd content size",
                     "4 + 5 for each of at most " + std::to_string(array_bytes) + " changes",
                     content_bytes);
}

Status read_all(ZstdStream* zstd, MutableBytes content) {
  for (size_t at = 0;;) {
    DW_ASSIGN_OR_RETURN(const Bytes piece, zstd->next());
    if (piece.empty()) {
      return at == content.size() ? Status() : bad_payload("zstd content", content.size(), at);
    }
    if (piece.size() > content.size() - at) {
      return bad_payload("zstd content", content.size(), at + piece.size());
    }
    std::copy(piece.begin(), piece.end(), content.begin() + ptrdiff_t(at));
    at += piece.size();
  }
}

}  // namespace

Status patch_xor_frame(Bytes frame, MutableBytes data, ZstdStream* zstd, Checksummer* checksummer) {
  DW_RETURN_IF_ERROR(zstd->begin(frame, data.size()));
  if (zstd->content_bytes().value_or(data.size()) != data.size()) {
    return bad_payload("zstd content size", data.size(), *zstd->content_bytes());
  }
  for (size_t at = 0;;) {
    DW_ASSIGN_OR_RETURN(const Bytes piece, zstd->next());
    if (piece.empty()) {
      return at == data.size() ? Status() : bad_payload("zstd content size", data.size(), at);
    }
    for (size_t from = 0; from < piece.size(); from += kPatchWindow) {
      const MutableBytes window =
          data.subspan(at + from, std::min(kPatchWindow, piece.size() - from));
      xor_window(piece.data() + from, window.size(), window.data());
      if (checksummer != nullptr) checksummer->update(window);
    }
    at += piece.size();
  }
}

Status patch_overwrite_frame(Bytes frame, MutableBytes data, ZstdStream* zstd,
                             Checksummer* checksummer) {
  DW_RETURN_IF_ERROR(zstd->begin(frame, kCountField + kRecord * uint64_t{data.size()}));
  if (!zstd->content_bytes()) return bad_payload("zstd content size", "a number", "none");
  const uint64_t content_bytes = *zstd->content_bytes();
  DW_RETURN_IF_ERROR(check_list(content_bytes, data.size()));
  const auto content = std::make_unique_for_overwrite<uint8_t[]>(content_bytes);
  DW_RETURN_IF_ERROR(read_all(zstd, {content.get(), content_bytes}));
  const size_t count = (content_bytes - kCountField) / kRecord;
  if (const uint32_t stated = load_le<uint32_t>(content.get()); stated != count) {
    return bad_payload("change count", count, stated);
  }
  ByteList list(content.get(), count, data.size());
  for (size_t at = 0; at < data.size();) {
    const size_t size = std::min(kPatchWindow, data.size() - at);
    DW_RETURN_IF_ERROR(list.write_until(at + size, data.data()));
    if (checksummer != nullptr) checksummer->update(data.subspan(at, size));
    at += size;
  }
  return {};
}

namespace {

Status check_one_size(Bytes old_bytes, Bytes new_bytes) {
  if (old_bytes.size() == new_bytes.size()) return {};
  return invalid_argument("old and new array: expected one size, got " +
                          std::to_string(old_bytes.size()) + " and " +
                          std::to_string(new_bytes.size()) + " bytes");
}

std::vector<uint8_t> list_content(const std::vector<ChunkChanges>& chunks) {
  const uint64_t count = count_changes(chunks);
  std::vector<uint8_t> content(4 + 5 * count);
  store_le(content.data(), uint32_t(count));
  uint8_t* position = content.data() + 4;
  uint8_t* value = position + 4 * count;
  for (const ChunkChanges& chunk : chunks) {
    for (const uint32_t offset : chunk.positions) {
      store_le(position, uint32_t(chunk.base + offset));
      position += 4;
    }
    value = std::ranges::copy(chunk.values, value).out;
  }
  return content;
}

}  // namespace

Result<ChangeFrame> write_xor_frame(Bytes old_bytes, Bytes new_bytes, ChecksumKind checksum,
                                    ThreadPool* pool) {
  DW_RETURN_IF_ERROR(check_one_size(old_bytes, new_bytes));
  ChangeFrame made;
  DW_RETURN_IF_ERROR(parallel_try("encoding", pool, 2, [&](size_t i, unsigned) -> Status {
    if (i == 1) {
      made.checksum = checksum_of(checksum, new_bytes);
      return {};
    }
    std::vector<uint8_t> content(new_bytes.size());
    std::ranges::transform(old_bytes, new_bytes, content.begin(),
                           [](uint8_t a, uint8_t b) { return uint8_t(a ^ b); });
    return append_zstd_frame(content, &made.frame);
  }));
  return made;
}

Result<ChangeFrame> write_overwrite_frame(Bytes old_bytes, Bytes new_bytes, ChecksumKind checksum,
                                          ThreadPool* pool) {
  DW_RETURN_IF_ERROR(check_one_size(old_bytes, new_bytes));
  if (new_bytes.size() > max_overwrite_bytes()) {
    return invalid_argument("positions of 32 bits do not reach over " +
                            std::to_string(new_bytes.size()) + " bytes");
  }
  DW_ASSIGN_OR_RETURN(const auto chunks, collect_chunks(1, old_bytes, new_bytes, pool));
  ChangeFrame made;
  DW_RETURN_IF_ERROR(append_zstd_frame(list_content(chunks), &made.frame));
  made.checksum = checksum_of(checksum, new_bytes);
  return made;
}

}  // namespace deltawire
