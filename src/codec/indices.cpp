// indices: absolute positions, then values, as TRL's int32 + bf16. The easiest to read elsewhere.
//
//   payload = count:leb128 | count x position:i32le or i64le | count x value
//
// Empty when nothing changed. Positions are i64 in arrays of more than 2^31 - 1 elements.
#include <algorithm>
#include <cstring>
#include <string>

#include "base/guard.h"
#include "codec/builtin.h"
#include "codec/change_blocks.h"
#include "codec/changes.h"
#include "codec/checks.h"
#include "codec/elements.h"
#include "codec/indices_body.h"
#include "codec/leb128.h"

namespace deltawire {
namespace {

struct IndicesView {
  uint64_t num_elements = 0;
  uint64_t count = 0;
  const uint8_t* positions = nullptr;
  const uint8_t* values = nullptr;
};

// Positions are read as unsigned, so that a negative one is merely out of range.
template <class Position>
Status check_block(const IndicesView& view, size_t begin, size_t end) {
  const auto position = [&](size_t i) {
    return uint64_t{load_le<Position>(view.positions + i * sizeof(Position))};
  };
  uint64_t lowest = begin == 0 ? 0 : position(begin - 1) + 1;
  for (size_t i = begin; i < end; ++i) {
    if (position(i) < lowest || position(i) >= view.num_elements) {
      return bad_payload("position of change " + std::to_string(i),
                         std::to_string(lowest) + " to below " + std::to_string(view.num_elements),
                         position(i));
    }
    lowest = position(i) + 1;
  }
  return {};
}

// Calls body(Position{}, begin, end) for each block of changes.
template <class Body>
Status for_each_block(const IndicesView& view, ThreadPool* pool, const Body& body) {
  return parallel_try("decoding", pool, num_change_blocks(view.count),
                      [&](size_t block, unsigned) -> Status {
                        const auto [begin, end] = change_block(block, view.count);
                        if (position_width(view.num_elements) == 4)
                          return body(uint32_t{}, begin, end);
                        return body(uint64_t{}, begin, end);
                      });
}

// Checks the whole payload: whoever holds a view may write without looking.
Result<IndicesView> open_payload(Layout layout, Bytes payload, size_t array_bytes,
                                 ThreadPool* pool) {
  DW_RETURN_IF_ERROR(check_array(layout, array_bytes));
  IndicesView view;
  view.num_elements = array_bytes / layout.width;
  if (payload.empty()) return view;
  DW_RETURN_IF_ERROR(take_leb128("change count", &payload, &view.count));
  if (view.count == 0 || view.count > view.num_elements) {
    return bad_payload("change count", "1 to " + std::to_string(view.num_elements), view.count);
  }
  const uint64_t width = position_width(view.num_elements);
  const uint64_t record = width + layout.width;
  if (payload.size() / record != view.count || payload.size() % record != 0) {
    return bad_payload("size of positions and values", view.count * record, payload.size());
  }
  view.positions = payload.data();
  view.values = payload.data() + view.count * width;
  DW_RETURN_IF_ERROR(
      for_each_block(view, pool, [&]<class Position>(Position, size_t begin, size_t end) {
        return check_block<Position>(view, begin, end);
      }));
  return view;
}

std::vector<uint8_t> write_payload(unsigned width, uint64_t num_elements, uint64_t count,
                                   std::vector<ChunkChanges> chunks, ThreadPool* pool) {
  std::vector<uint8_t> payload;
  put_leb128(count, &payload);
  const size_t position_bytes = position_width(num_elements);
  const size_t positions_at = payload.size();
  const size_t values_at = positions_at + count * position_bytes;
  payload.resize(values_at + count * width);

  std::vector<uint64_t> starts(chunks.size());
  for (size_t i = 0, start = 0; i < chunks.size(); ++i) {
    starts[i] = start;
    start += chunks[i].positions.size();
  }
  parallel_for(pool, chunks.size(), [&](size_t i, unsigned) {
    const ChunkChanges chunk = std::move(chunks[i]);  // its memory goes back when it is copied
    if (chunk.positions.empty()) return;
    uint8_t* out = payload.data() + positions_at + starts[i] * position_bytes;
    for (const uint32_t position : chunk.positions) {
      const uint64_t absolute = chunk.base + position;
      if (position_bytes == 4) {
        store_le(out, uint32_t(absolute));
      } else {
        store_le(out, absolute);
      }
      out += position_bytes;
    }
    std::memcpy(payload.data() + values_at + starts[i] * width, chunk.values.data(),
                chunk.values.size());
  });
  return payload;
}

class IndicesCodec final : public Codec {
 public:
  CodecId id() const noexcept override { return CodecId::kIndices; }
  std::string_view name() const noexcept override { return "indices"; }

  Result<Encoded> encode(Layout layout, Bytes old_bytes, Bytes new_bytes,
                         ThreadPool* pool) const override {
    DW_RETURN_IF_ERROR(check_arrays(layout, old_bytes, new_bytes));
    DW_ASSIGN_OR_RETURN(std::vector<ChunkChanges> chunks,
                        collect_chunks(layout.width, old_bytes, new_bytes, pool));
    Encoded encoded;
    encoded.num_changed = count_changes(chunks);
    if (encoded.num_changed == 0) return encoded;
    encoded.payload = write_payload(layout.width, new_bytes.size() / layout.width,
                                    encoded.num_changed, std::move(chunks), pool);
    return encoded;
  }

  Status apply(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool) const override {
    DW_ASSIGN_OR_RETURN(const IndicesView view, open_payload(layout, payload, data.size(), pool));
    return for_each_block(view, pool, [&]<class Position>(Position, size_t begin, size_t end) {
      return with_element(layout.width, [&]<class Element>(Element) -> Status {
        for (size_t i = begin; i < end; ++i) {
          const size_t position = load_le<Position>(view.positions + i * sizeof(Position));
          store_le(data.data() + position * sizeof(Element),
                   load_le<Element>(view.values + i * sizeof(Element)));
        }
        return {};
      });
    });
  }

  Result<Changes> decode(Layout layout, Bytes payload, Bytes old_bytes,
                         ThreadPool* pool) const override {
    DW_ASSIGN_OR_RETURN(const IndicesView view,
                        open_payload(layout, payload, old_bytes.size(), pool));
    Changes changes;
    changes.positions.resize(view.count);
    changes.values.assign(view.values, view.values + view.count * layout.width);
    DW_RETURN_IF_ERROR(for_each_block(
        view, pool, [&]<class Position>(Position, size_t begin, size_t end) -> Status {
          for (size_t i = begin; i < end; ++i) {
            changes.positions[i] = load_le<Position>(view.positions + i * sizeof(Position));
          }
          return {};
        }));
    return changes;
  }
};

}  // namespace

const Codec& indices_codec() noexcept {
  static const IndicesCodec codec;
  return codec;
}

}  // namespace deltawire
