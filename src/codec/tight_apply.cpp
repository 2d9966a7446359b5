// Payloads of `tight` against old weights: in place, in parts of an array, or as absolute changes.
#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <span>

#include "base/guard.h"
#include "codec/changes.h"
#include "codec/elements.h"
#include "codec/tight_decode.h"
#include "codec/tight_payload.h"
#include "digest/parallel.h"
#include "kernels/kernels.h"

namespace deltawire::tight {
namespace {

// Tiles that lie side by side, decoded together by one thread.
using OpenTiles = std::array<OpenBlock, kMaxScanTiles>;

// A group of tiles and the old elements of it: from `data` on, rows `stride` elements apart.
struct Span {
  TileGroup tiles;
  const uint8_t* data;
  size_t stride;
};

class Decoder {
 public:
  static Result<Decoder> of(Layout layout, Bytes payload, size_t n) {
    DW_ASSIGN_OR_RETURN(Payload split, split_payload(layout, payload, n));
    return Decoder(layout, std::move(split), n);
  }

  const Tiling& tiling() const { return tiling_; }
  bool changes(size_t tile) const { return !blocks_[tile].empty(); }

  // A whole array, in runs of neighbours.
  template <class Done>
  Status run(const uint8_t* data, ThreadPool* pool, const Done& done) const {
    const TileGroups groups(tiling_, pool, decoded_together(tiling_));
    return parallel_try("decoding", pool, groups.num_runs(), [&](size_t run, unsigned) {
      std::vector<Span> spans;
      for (size_t i = groups.begin(run); i < groups.end(run); ++i) {
        const TileGroup group = groups.group(i);
        spans.push_back({group, data + tiling_[group.first].begin * width_, tiling_.stride()});
      }
      return decode(spans, done);
    });
  }

  // Calls done(span, tiles) for each of the spans, decoded.
  template <class Done>
  Status decode(std::span<const Span> spans, const Done& done) const {
    Run<Done> run{*this, spans, done, thread_scratch<std::array<OpenTiles, 3>>()};
    return tiling_.tiled() ? run.side_by_side() : run.one_by_one();
  }

 private:
  Decoder(Layout layout, Payload split, size_t n)
      : width_(layout.width),
        blocks_(std::move(split.blocks)),
        tiling_(split.model.tiles, layout, n) {
    coder_->build(split.model, layout.width);
  }

  template <class Done>
  struct Run {
    const Decoder& decoder;
    const std::span<const Span> spans;
    const Done& done;
    std::array<OpenTiles, 3>& tiles;  // of a span, the one before and the next

    // A block of elements in order fits the cache: it is better done with at once.
    Status one_by_one() {
      for (size_t i = 0; i < spans.size(); ++i) {
        const Stripes stripes = stripes_of(i);
        Prefetcher ahead = prefetcher(i, stripes[0]);
        DW_RETURN_IF_ERROR(open(i, 0, &ahead));
        const size_t scanned = unchanged(i) ? 0 : stripes.size();
        for (size_t s = 0; s < scanned; ++s) locate(i, stripes[s]);
        if (i + 1 < spans.size()) ahead = prefetcher(i + 1, stripes_of(i + 1)[0]);
        DW_RETURN_IF_ERROR(finish(i, 0, &ahead));
      }
      return {};
    }

    // While a span is scanned, the one before gets its new values and the gaps of the next are
    // read.
    Status side_by_side() {
      Prefetcher none;
      Status opened;  // of a span that is not its turn yet: the first failure is the one to tell
      for (size_t tile = 0; tile < count(0); ++tile) DW_RETURN_IF_ERROR(open(0, tile, &none));
      for (size_t i = 0; i < spans.size(); ++i) {
        const Stripes stripes = stripes_of(i);
        const size_t to_finish = i > 0 ? count(i - 1) : 0;
        Spread spread(to_finish + (i + 1 < spans.size() ? count(i + 1) : 0), stripes.size());
        const auto unit = [&](Prefetcher* ahead) -> Status {
          const size_t number = spread.next_unit();
          if (number < to_finish) return finish(i - 1, number, ahead);
          if (opened.ok()) opened = open(i + 1, number - to_finish, ahead);
          return {};
        };
        const size_t scanned = unchanged(i) ? 0 : stripes.size();
        for (size_t s = 0; s < scanned; ++s) {
          for (Prefetcher ahead = prefetcher(i, stripes[s]); spread.due(s);) {
            DW_RETURN_IF_ERROR(unit(&ahead));
          }
          locate(i, stripes[s]);
        }
        while (spread.due(stripes.size())) DW_RETURN_IF_ERROR(unit(&none));
        if (i + 1 < spans.size() && opened.ok()) continue;
        for (size_t tile = 0; tile < count(i); ++tile) {
          DW_RETURN_IF_ERROR(finish(i, tile, &none));
        }
        return opened;
      }
      return {};
    }

   private:
    size_t count(size_t i) const { return spans[i].tiles.count; }
    size_t number(size_t i, size_t tile) const { return spans[i].tiles.first + tile; }
    const DecodeOps& ops() const { return decode_ops(decoder.width_); }
    Stripes stripes_of(size_t i) const {
      return Stripes(decoder.tiling_, spans[i].tiles, spans[i].stride);
    }

    Prefetcher prefetcher(size_t i, const Stripe& stripe) const {
      const size_t width = decoder.width_;
      return Prefetcher(spans[i].data + stripe.offset * width, stripe.rows_left,
                        stripe.columns_left * width, spans[i].stride * width);
    }

    Status open(size_t i, size_t tile, Prefetcher* ahead) {
      const size_t block = number(i, tile);
      return ops()
          .open(*decoder.coder_, decoder.blocks_[block], decoder.tiling_[block].size(), ahead,
                &tiles[i % 3][tile])
          .at("block " + std::to_string(block));
    }

    bool unchanged(size_t i) const {
      return std::all_of(tiles[i % 3].begin(), tiles[i % 3].begin() + count(i),
                         [](const OpenBlock& block) { return block.count == 0; });
    }

    void locate(size_t i, const Stripe& stripe) {
      const Span& span = spans[i];
      const size_t width = decoder.width_;
      ops().locate(*decoder.coder_,
                   {span.data + stripe.offset * width, ptrdiff_t(span.stride * width)},
                   stripe.shape, uint32_t(stripe.offset), uint32_t(span.stride),
                   &thread_scratch<LocateScratch>(), tiles[i % 3].data());
    }

    Status finish(size_t i, size_t tile, Prefetcher* ahead) {
      DW_RETURN_IF_ERROR(ops()
                             .finish(*decoder.coder_, ahead, &tiles[i % 3][tile])
                             .at("block " + std::to_string(number(i, tile))));
      if (tile + 1 == count(i)) done(spans[i], tiles[i % 3]);
      return {};
    }
  };

  const size_t width_;
  std::unique_ptr<Coder> coder_ = std::make_unique<Coder>();
  std::vector<Bytes> blocks_;
  Tiling tiling_;
};

// New values to where the old ones are.
void write(const Tiling& tiling, size_t width, const Span& span, const OpenTiles& tiles) {
  const size_t begin = tiling[span.tiles.first].begin;
  for (size_t i = 0; i < span.tiles.count; ++i) {
    const size_t at = (tiling[span.tiles.first + i].begin - begin) * width;
    kernels().scatter[width_index(width)](const_cast<uint8_t*>(span.data) + at,
                                          tiles[i].positions.data(), tiles[i].values.data(),
                                          tiles[i].count);
  }
}

// Of the bytes of a group of tiles.
Sums sums_of(const Tiling& tiling, TileGroup group, size_t width, Bytes data) {
  const Tile front = tiling[group.first], back = tiling[group.first + group.count - 1];
  const Stripe all{front.begin, 0, {front.rows, back.begin + back.columns - front.begin, 0}, 0, 0};
  Sums sums;
  for_each_piece(tiling, all, [&](size_t, size_t begin, size_t count) {
    sums.add(data.subspan(begin * width, count * width), begin * width);
  });
  return sums;
}

// The changes of a tile lie by class; a mark per element puts them in the order of the array.
// Positions count from the tile's first element in the array.
template <class T>
void put_in_order(const OpenBlock& block, const Tile& tile, uint32_t stride, ChunkChanges* out) {
  static thread_local std::vector<uint64_t> all_marks;
  static thread_local std::vector<T> all_values;
  const size_t num_words = (tile.size() + 63) / 64;
  all_marks.assign(num_words, 0);
  if (all_values.size() < tile.size()) all_values.resize(tile.size());
  out->base = tile.begin;
  out->positions.resize(block.count);
  out->values.resize(block.count * sizeof(T));
  // Plain pointers: what is written must not make the compiler look them up again.
  uint64_t* const marks = all_marks.data();
  T* const values = all_values.data();
  const uint32_t* const positions = block.positions.data();
  const uint8_t* const found = block.values.data();
  const uint32_t columns = uint32_t(tile.columns);
  for (uint32_t i = 0, count = block.count; i < count; ++i) {
    uint32_t position = positions[i];
    if (tile.rows > 1) position -= position / stride * (stride - columns);
    marks[position / 64] |= uint64_t{1} << position % 64;
    values[position] = load_le<T>(found + i * sizeof(T));
  }
  uint32_t* to = out->positions.data();
  uint8_t* value_to = out->values.data();
  for (size_t word = 0; word < num_words; ++word) {
    for (uint64_t left = marks[word]; left != 0; left &= left - 1) {
      const uint32_t position = uint32_t(word * 64) + uint32_t(std::countr_zero(left));
      *to++ = tile.rows > 1 ? position + position / columns * (stride - columns) : position;
      store_le(value_to, values[position]);
      value_to += sizeof(T);
    }
  }
}

// One list of the tiles side by side, row by row.
ChunkChanges merge_panel(std::span<ChunkChanges> tiles, size_t width, size_t rows,
                         uint32_t stride) {
  ChunkChanges out;
  out.base = tiles[0].base;
  size_t count = 0;
  for (const ChunkChanges& tile : tiles) count += tile.positions.size();
  out.positions.reserve(count);
  out.values.reserve(count * width);
  std::vector<size_t> next(tiles.size());
  for (size_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < tiles.size(); ++i) {
      const ChunkChanges& tile = tiles[i];
      const uint32_t first = uint32_t(tile.base - out.base);
      const size_t from = next[i];
      const uint64_t end = uint64_t(row + 1) * stride;
      while (next[i] < tile.positions.size() && tile.positions[next[i]] < end) {
        out.positions.push_back(first + tile.positions[next[i]++]);
      }
      out.values.insert(out.values.end(), tile.values.begin() + ptrdiff_t(from * width),
                        tile.values.begin() + ptrdiff_t(next[i] * width));
    }
  }
  return out;
}

template <class T>
Result<Changes> decode_blocks(Layout layout, Bytes payload, Bytes old_bytes, ThreadPool* pool,
                              SharedSums* sums) {
  DW_ASSIGN_OR_RETURN(const Decoder decoder,
                      Decoder::of(layout, payload, old_bytes.size() / sizeof(T)));
  const Tiling& tiling = decoder.tiling();
  const uint32_t stride = uint32_t(tiling.stride());
  std::vector<ChunkChanges> chunks(tiling.size());
  DW_RETURN_IF_ERROR(
      decoder.run(old_bytes.data(), pool, [&](const Span& span, const OpenTiles& tiles) {
        const TileGroup group = span.tiles;
        if (sums != nullptr) sums->add(sums_of(tiling, group, sizeof(T), old_bytes));
        for (size_t i = 0; i < group.count; ++i) {
          const size_t number = group.first + i;
          put_in_order<T>(tiles[i], tiling[number], stride, &chunks[number]);
        }
      }));
  if (const size_t per_panel = tiling.tiles_per_panel(); per_panel > 1) {
    std::vector<ChunkChanges> panels(tiling.num_panels());
    parallel_for(pool, panels.size(), [&](size_t i, unsigned) {
      const std::span<ChunkChanges> tiles(&chunks[i * per_panel], per_panel);
      panels[i] = merge_panel(tiles, sizeof(T), tiling[i * per_panel].rows, stride);
      for (ChunkChanges& tile : tiles) tile = {};
    });
    chunks = std::move(panels);
  }
  return join_chunks(sizeof(T), std::move(chunks), pool);
}

}  // namespace

Status apply_payload(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool,
                     Hasher* patched) {
  const size_t width = layout.width;
  DW_ASSIGN_OR_RETURN(const Decoder decoder, Decoder::of(layout, payload, data.size() / width));
  return decoder.run(data.data(), pool, [&](const Span& span, const OpenTiles& tiles) {
    write(decoder.tiling(), width, span, tiles);
    if (patched == nullptr) return;
    patched->update_at(sums_of(decoder.tiling(), span.tiles, width, data));
  });
}

Status apply_to_regions(Layout layout, size_t n, Bytes payload, const RegionSet& held,
                        const ReadOld& read_old, ThreadPool* pool) {
  const size_t width = layout.width;
  DW_ASSIGN_OR_RETURN(const Decoder decoder, Decoder::of(layout, payload, n));
  const Tiling& tiling = decoder.tiling();
  std::vector<Span> spans;
  std::deque<std::vector<uint8_t>> copies;  // of tiles that are not held as a whole
  const Region* last = nullptr;
  for (size_t i = 0; i < tiling.size(); ++i) {
    const Tile tile = tiling[i];
    const Region* const holder = decoder.changes(i) ? held.holder(tile) : nullptr;
    // Those side by side in one region go together.
    const bool joins = holder != nullptr && holder == last && i % tiling.tiles_per_panel() != 0 &&
                       spans.back().tiles.count < kMaxScanTiles;
    last = holder;
    if (joins) {
      ++spans.back().tiles.count;
    } else if (holder != nullptr) {
      spans.push_back({{i, 1}, held.at(*holder, tile), size_t(holder->stride) / width});
    } else if (decoder.changes(i) && held.touches(tile)) {
      copies.emplace_back(tile.size() * width);
      DW_RETURN_IF_ERROR(held.gather(tile, read_old, copies.back().data()));
      spans.push_back({{i, 1}, copies.back().data(), tile.columns});
    }
  }
  const size_t run = std::clamp<size_t>(spans.size() / (num_workers(pool) * 4), 1, 16);
  DW_RETURN_IF_ERROR(parallel_try(
      "decoding", pool, (spans.size() + run - 1) / run, [&](size_t i, unsigned) -> Status {
        const std::span<const Span> all(spans);
        return decoder.decode(
            all.subspan(i * run, std::min(run, spans.size() - i * run)),
            [&](const Span& span, const OpenTiles& tiles) { write(tiling, width, span, tiles); });
      }));
  auto copy = copies.begin();
  for (const Span& span : spans) {
    if (copy == copies.end() || span.data != copy->data()) continue;
    held.scatter(tiling[span.tiles.first], copy->data());
    ++copy;
  }
  return {};
}

Result<Changes> decode_payload(Layout layout, Bytes payload, Bytes old_bytes, ThreadPool* pool,
                               SharedSums* sums) {
  return with_element(layout.width, [&](auto element) {
    return decode_blocks<decltype(element)>(layout, payload, old_bytes, pool, sums);
  });
}

}  // namespace deltawire::tight
