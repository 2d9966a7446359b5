// Class scans of tiles side by side: an index for the segment of each, ranks from positions and
// positions from ranks. Included once per target by simd.cpp, inside HWY_NAMESPACE.

template <class T>
inline const T* row_of(const ScanRows& rows, size_t row) {
  return reinterpret_cast<const T*>(static_cast<const uint8_t*>(rows.data) +
                                    ptrdiff_t(row) * rows.stride);
}

// Bytes from what is read to what to ask for: at the end of a row, or where rows are short, that is
// in a row below.
class RowPrefetch {
 public:
  RowPrefetch(const ScanRows& rows, const ScanShape& shape, size_t width)
      : row_bytes_(ptrdiff_t(shape.columns * width)), next_row_(kPrefetchBytes) {
    if (shape.rows == 1) return;
    next_row_ = row_bytes_ < kPrefetchBytes ? rows.stride * (kPrefetchBytes / row_bytes_)
                                            : rows.stride - row_bytes_ + kPrefetchBytes;
  }
  // From `offset` bytes behind the begin of a row.
  ptrdiff_t distance(size_t offset) const {
    return ptrdiff_t(offset) + kPrefetchBytes < row_bytes_ ? kPrefetchBytes : next_row_;
  }

 private:
  ptrdiff_t row_bytes_, next_row_;
};

// Rows are read from front to end, as they lie in memory, with the segments of all tiles open.
template <class T>
void index(ScanRows data, ScanShape shape, const ClassSplit& split, SegmentIndex* out) noexcept {
  StripIndexer indexer(split);
  StripIndexer::State states[kMaxScanTiles];
  const RowPrefetch prefetch(data, shape, sizeof(T));
  for (size_t row = 0; row < shape.rows; ++row) {
    const T* p = row_of<T>(data, row);
    for (size_t tile = 0, at = 0; at < shape.columns; ++tile) {
      const size_t columns = shape.columns_of(tile), end = at + columns;
      const ptrdiff_t ahead = prefetch.distance(at * sizeof(T));
      size_t strip = row * ScanShape::strips(columns);
      indexer.open(out + tile, states + tile, strip);
      for (; at + kStripElements <= end; at += kStripElements) {
        prefetch_strip(p + at, ahead);
        indexer.add(p + at, strip++);
      }
      if (at < end) {
        indexer.add(TailStrip<T>(p + at, end - at).elements, strip++, low_bits(end - at));
        at = end;
      }
      indexer.close();
    }
  }
  for (size_t tile = 0; tile < shape.num_tiles(); ++tile) {
    indexer.open(out + tile, states + tile, 1);
    indexer.finish(shape.rows * ScanShape::strips(shape.columns_of(tile)));
  }
}

template <class T>
size_t index_diff(ScanRows a, ScanRows b, ScanShape shape, const ClassSplit& split,
                  SegmentIndex* out, uint16_t* positions) noexcept {
  RankIndexer indexer(split);
  RankIndexer::State state;
  indexer.open(out, &state, 0);
  uint16_t* to = positions;
  const size_t tile_strips = shape.first_strip(1);
  const RowPrefetch p_prefetch(a, shape, sizeof(T)), q_prefetch(b, shape, sizeof(T));
  for (size_t row = 0; row < shape.rows; ++row) {
    const T *p = row_of<T>(a, row), *q = row_of<T>(b, row);
    for (size_t tile = 0, at = 0; at < shape.columns; ++tile) {
      const size_t columns = shape.columns_of(tile), end = at + columns;
      const ptrdiff_t p_ahead = p_prefetch.distance(at * sizeof(T)),
                      q_ahead = q_prefetch.distance(at * sizeof(T));
      size_t strip = tile * tile_strips + row * ScanShape::strips(columns);
      for (; at + kStripElements <= end; at += kStripElements, ++strip) {
        prefetch_strip(p + at, p_ahead);
        prefetch_strip(q + at, q_ahead);
        indexer.add(p + at, strip);
        to = write_positions(diff_strip(p + at, q + at), strip * kStripElements, to);
      }
      if (at < end) {
        const TailStrip<T> x(p + at, end - at), y(q + at, end - at);
        indexer.add(x.elements, strip, low_bits(end - at));
        to = write_positions(diff_strip(x.elements, y.elements), strip * kStripElements, to);
        at = end;
      }
    }
  }
  indexer.finish_for_rank(shape.first_strip(shape.num_tiles()));
  return size_t(to - positions);
}

void counts_before(const SegmentIndex& index, ScanShape shape, ClassCounts* counts) noexcept {
  const size_t tiles = shape.num_tiles();
  for (size_t i = 0; i < tiles; ++i) {
    counts_before_strip(index, shape.first_strip(i), counts[i].data());
  }
  std::memcpy(counts + tiles, index.total, sizeof *counts);
}

void rank(const SegmentIndex& index, const ClassSplit& split, const uint16_t* positions,
          const uint8_t* classes, size_t count, uint16_t* ranks) noexcept {
  for (size_t i = 0; i < count; ++i) {
    ranks[i] = rank_of(index, split, classes[i], positions[i] / kStripElements,
                       positions[i] % kStripElements);
  }
}

// Finds the strip in two steps of sixteen compares each, without a branch. Targets are independent:
// in short loops, one for each step, the searches of many of them overlap.
void locate(const SegmentIndex& index, const ClassSplit& split, uint8_t class_id,
            const uint32_t* ranks, uint32_t base, size_t count, uint16_t* positions) noexcept {
  static_assert(kSegmentStrips == 256);
  const ClassMasks masks(index, split, class_id);
  const uint16_t* before = index.before[class_id];
  alignas(32) uint16_t every_16th[16];
  for (size_t i = 0; i < 16; ++i) every_16th[i] = before[16 * i];
  constexpr size_t kBatch = 64;
  uint16_t strips[kBatch];
  uint64_t members[kBatch];  // of the class, in the strip
  for (size_t begin = 0; begin < count; begin += kBatch) {
    const size_t size = count - begin < kBatch ? count - begin : kBatch;
    const uint32_t* const own = ranks + begin;
    for (size_t i = 0; i < size; ++i) {
      const uint16_t target = uint16_t(own[i] - base);
      const size_t coarse = 16 * size_t(count_not_above(every_16th, target) - 1);
      strips[i] = uint16_t(coarse + count_not_above(before + coarse, target) - 1);
    }
    for (size_t i = 0; i < size; ++i) members[i] = masks(strips[i]);
    for (size_t i = 0; i < size; ++i) {
      const uint32_t left = uint16_t(own[i] - base - before[strips[i]]);
      positions[begin + i] = uint16_t(strips[i] * kStripElements + select_bit(members[i], left));
    }
  }
}
