#include "codec/tiles.h"

#include <algorithm>

#include "codec/checks.h"
#include "codec/leb128.h"

namespace deltawire {
namespace {

// Less than a block is not worth being cut.
constexpr size_t kMinTiledElements = size_t{1} << tight::kBlockLog2;

size_t div_up(size_t a, size_t b) { return (a + b - 1) / b; }

}  // namespace

TileShape choose_tiles(Layout layout, size_t n) {
  TileShape shape;
  const size_t matrix = size_t(layout.rows) * layout.columns;
  if (matrix < kMinTiledElements || layout.rows < 2 || n % matrix != 0 ||
      layout.columns > kMaxTiledColumns || layout.columns < 2 << kMinTileColumnsLog2) {
    return shape;
  }
  for (uint32_t slices = 8; slices > 1; slices /= 2) {
    for (uint8_t log2 = kMaxTileColumnsLog2; log2 >= kMinTileColumnsLog2; --log2) {
      if (layout.columns % (slices << log2) == 0) {
        shape.columns_log2 = log2;
        return shape;
      }
    }
  }
  shape.columns_log2 = kMaxTileColumnsLog2;
  return shape;
}

bool tiles_fit(TileShape shape, Layout layout, size_t n) {
  if (!shape.tiled()) return true;
  const size_t matrix = size_t(layout.rows) * layout.columns;
  const uint64_t spanned = uint64_t{layout.columns} << (shape.block_log2 - shape.columns_log2);
  return matrix >= size_t{1} << tight::kMinBlockLog2 && n % matrix == 0 &&
         layout.columns <= kMaxTiledColumns && spanned <= uint64_t{1} << 32;
}

Tiling::Tiling(TileShape shape, Layout layout, size_t n) : shape_(shape), n_(n), columns_(n) {
  if (!tiled()) {
    num_tiles_ = div_up(n, size_t{1} << shape.block_log2);
    return;
  }
  rows_ = layout.rows;
  columns_ = layout.columns;
  per_panel_ = div_up(columns_, size_t{1} << shape.columns_log2);
  panels_per_matrix_ = div_up(rows_, size_t{1} << (shape.block_log2 - shape.columns_log2));
  num_tiles_ = n / (rows_ * columns_) * panels_per_matrix_ * per_panel_;
}

Tile Tiling::operator[](size_t i) const {
  if (!tiled()) {
    const size_t block = size_t{1} << shape_.block_log2, begin = i * block;
    return {begin, 1, std::min(block, n_ - begin)};
  }
  const size_t width = size_t{1} << shape_.columns_log2,
               height = (size_t{1} << shape_.block_log2) / width;
  const size_t panel = i / per_panel_, column = i % per_panel_ * width;
  const size_t matrix = panel / panels_per_matrix_, row = panel % panels_per_matrix_ * height;
  return {(matrix * rows_ + row) * columns_ + column, std::min(height, rows_ - row),
          std::min(width, columns_ - column)};
}

size_t decoded_together(const Tiling& tiling) {
  constexpr size_t kMaxTiles = 8, kFewColumns = 1024;
  return std::clamp<size_t>(kFewColumns / tiling[0].columns, 1, kMaxTiles);
}

TileGroups::TileGroups(const Tiling& tiling, const ThreadPool* pool, size_t most)
    : per_panel_(tiling.tiles_per_panel()) {
  const size_t share = std::max<size_t>(tiling.size() / (num_workers(pool) * 4), 1);
  tiles_ = std::min({share, per_panel_, most});
  groups_per_panel_ = div_up(per_panel_, tiles_);
  num_groups_ = tiling.num_panels() * groups_per_panel_;
  run_ = std::clamp<size_t>(share / tiles_, 1, 16);
}

TileGroup TileGroups::group(size_t i) const {
  const size_t first = i % groups_per_panel_ * tiles_;
  return {i / groups_per_panel_ * per_panel_ + first, std::min(tiles_, per_panel_ - first)};
}

Stripes::Stripes(const Tiling& tiling, TileGroup group, size_t stride, Segments segments)
    : tiled_(tiling.tiled()),
      array_stride_(tiling.stride()),
      stride_(stride),
      front_(tiling[group.first]) {
  const Tile back = tiling[group.first + group.count - 1];
  columns_ = back.begin + back.columns - front_.begin;
  const size_t strips = ScanShape::strips(segments == kEach ? front_.columns : columns_);
  step_ = tiled_ ? kSegmentStrips / strips : kSegmentElements;
  count_ = div_up(tiled_ ? front_.rows : columns_, step_);
}

Stripe Stripes::operator[](size_t i) const {
  const size_t at = i * step_;
  if (!tiled_) {
    const size_t left = columns_ - at;
    return {front_.begin + at, at, ScanShape::of_row(std::min(step_, left)), 1, left};
  }
  const size_t left = front_.rows - at;
  return {front_.begin + at * array_stride_,
          at * stride_,
          {std::min(step_, left), columns_, front_.columns},
          left,
          columns_};
}

void put_directory(const std::vector<std::vector<uint8_t>>& blocks, std::vector<uint8_t>* out) {
  size_t size = out->size() + blocks.size() * 3;
  for (const auto& block : blocks) size += block.size();
  out->reserve(size);
  for (const auto& block : blocks) put_leb128(block.size(), out);
  for (const auto& block : blocks) out->insert(out->end(), block.begin(), block.end());
}

Result<std::vector<uint64_t>> take_lengths(const char* what, size_t num_blocks, uint64_t size,
                                           Bytes* rest) {
  const std::string name = std::string(what) + " directory";
  if (size < num_blocks) {  // a length takes a byte at least
    return bad_payload(name + ": blocks", num_blocks, size);
  }
  const size_t before = rest->size();
  std::vector<uint64_t> lengths(num_blocks);
  uint64_t total = 0;
  for (uint64_t& length : lengths) {
    DW_RETURN_IF_ERROR(take_leb128(name, rest, &length));
    if (length > size - total) return bad_payload(name + ": block length", size - total, length);
    total += length;
  }
  const uint64_t left = size - (before - rest->size());
  if (total != left) return bad_payload(name + ": bytes of all blocks", left, total);
  if (total == 0) return bad_payload(std::string(what) + " payload", "at least one change", "none");
  return lengths;
}

Result<std::vector<Bytes>> take_directory(const char* what, Bytes rest, size_t num_blocks) {
  DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> lengths,
                      take_lengths(what, num_blocks, rest.size(), &rest));
  std::vector<Bytes> blocks;
  blocks.reserve(num_blocks);
  for (const uint64_t length : lengths) {
    blocks.push_back(rest.first(size_t(length)));
    rest = rest.subspan(size_t(length));
  }
  return blocks;
}

}  // namespace deltawire
