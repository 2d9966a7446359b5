// overwrite-zstd: positions and new values of each 4 MiB of the array in a zstd frame. In the style
// of slime's `overwrite`, but positions count elements, not bytes. frames.h has the layout;
//
//   content = count:u32le (at least 1) | count x position:u32le, from the chunk's start
//           | count x value
#include <string>

#include "codec/builtin.h"
#include "codec/changes.h"
#include "codec/checks.h"
#include "codec/elements.h"
#include "codec/frames.h"

namespace deltawire {
namespace {

constexpr size_t kCountBytes = 4;
constexpr size_t kPositionBytes = 4;

struct OverwriteView {
  size_t count = 0;
  const uint8_t* positions = nullptr;
  const uint8_t* values = nullptr;

  uint32_t position(size_t i) const { return load_le<uint32_t>(positions + i * kPositionBytes); }
};

Status check_list_size(unsigned width, size_t chunk_bytes, uint64_t content_bytes) {
  const uint64_t record = kPositionBytes + width;
  const uint64_t most = kCountBytes + chunk_bytes / width * record;
  if (content_bytes < kCountBytes + record || content_bytes > most ||
      (content_bytes - kCountBytes) % record != 0) {
    return bad_payload("zstd content size",
                       std::to_string(kCountBytes) + " + a multiple of " + std::to_string(record) +
                           " and at most " + std::to_string(most),
                       content_bytes);
  }
  return {};
}

// The size has passed check_list_size().
Result<OverwriteView> open_content(unsigned width, size_t chunk_bytes, Bytes content) {
  OverwriteView view;
  view.count = (content.size() - kCountBytes) / (kPositionBytes + width);
  const uint32_t stated = load_le<uint32_t>(content.data());
  if (stated != view.count) return bad_payload("change count", view.count, stated);
  view.positions = content.data() + kCountBytes;
  view.values = view.positions + view.count * kPositionBytes;
  const uint64_t num_elements = chunk_bytes / width;
  uint64_t lowest = 0;
  for (size_t i = 0; i < view.count; ++i) {
    const uint64_t position = view.position(i);
    if (position < lowest || position >= num_elements) {
      return bad_payload("position of change " + std::to_string(i),
                         std::to_string(lowest) + " to below " + std::to_string(num_elements),
                         position);
    }
    lowest = position + 1;
  }
  return view;
}

class OverwriteZstdCodec final : public Codec {
 public:
  CodecId id() const noexcept override { return CodecId::kOverwriteZstd; }
  std::string_view name() const noexcept override { return "overwrite-zstd"; }

  Result<Encoded> encode(Layout layout, Bytes old_bytes, Bytes new_bytes,
                         ThreadPool* pool) const override {
    DW_RETURN_IF_ERROR(check_arrays(layout, old_bytes, new_bytes));
    const auto make = [&](Bytes before, Bytes after, std::vector<uint8_t>* content) {
      ChunkChanges chunk;
      collect_chunk(layout.width, before, after, &chunk);
      const size_t count = chunk.positions.size();
      if (count == 0) return uint64_t{0};
      content->resize(kCountBytes + count * kPositionBytes + chunk.values.size());
      uint8_t* out = content->data();
      store_le(out, uint32_t(count));
      std::memcpy(out + kCountBytes, chunk.positions.data(), count * kPositionBytes);
      std::memcpy(out + kCountBytes + count * kPositionBytes, chunk.values.data(),
                  chunk.values.size());
      return uint64_t{count};
    };
    return encode_frames(old_bytes, new_bytes, pool, make);
  }

  Status apply(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool) const override {
    DW_RETURN_IF_ERROR(check_array(layout, data.size()));
    const auto use = [&](size_t, size_t offset, size_t size, Bytes content) -> Status {
      DW_ASSIGN_OR_RETURN(const OverwriteView view, open_content(layout.width, size, content));
      uint8_t* chunk = data.data() + offset;
      with_element(layout.width, [&]<class Element>(Element) {
        for (size_t i = 0; i < view.count; ++i) {
          store_le(chunk + view.position(i) * sizeof(Element),
                   load_le<Element>(view.values + i * sizeof(Element)));
        }
      });
      return {};
    };
    return decode_frames(payload, data.size(), pool, size_check(layout), use);
  }

  Result<Changes> decode(Layout layout, Bytes payload, Bytes old_bytes,
                         ThreadPool* pool) const override {
    DW_RETURN_IF_ERROR(check_array(layout, old_bytes.size()));
    std::vector<ChunkChanges> chunks(num_frame_chunks(old_bytes.size()));
    const auto use = [&](size_t index, size_t offset, size_t size, Bytes content) -> Status {
      DW_ASSIGN_OR_RETURN(const OverwriteView view, open_content(layout.width, size, content));
      ChunkChanges& chunk = chunks[index];
      chunk.base = offset / layout.width;
      chunk.positions.resize(view.count);
      std::memcpy(chunk.positions.data(), view.positions, view.count * kPositionBytes);
      chunk.values.assign(view.values, view.values + view.count * layout.width);
      return {};
    };
    DW_RETURN_IF_ERROR(decode_frames(payload, old_bytes.size(), pool, size_check(layout), use));
    return join_chunks(layout.width, std::move(chunks), pool);
  }

 private:
  static CheckContentSize size_check(Layout layout) {
    return [width = layout.width](size_t chunk_bytes, uint64_t content_bytes) {
      return check_list_size(width, chunk_bytes, content_bytes);
    };
  }
};

}  // namespace

const Codec& overwrite_zstd_codec() noexcept {
  static const OverwriteZstdCodec codec;
  return codec;
}

}  // namespace deltawire
