#include "replica/journal_redo.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "base/file.h"
#include "base/sync_point.h"
#include "codec/changes.h"
#include "codec/codec.h"
#include "codec/gaps.h"
#include "digest/parallel.h"
#include "format/layout.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr uint64_t kPartBytes = uint64_t{8}
                                << 20;  // of payloads; a larger payload gets a part of its own

// Cuts a tensor along the first dimension that can be cut. A small tensor stays whole.
std::vector<Box> slabs_of(DType dtype, const Shape& shape, uint64_t size_bytes,
                          uint64_t slab_bytes) {
  const auto cut = std::find_if(shape.begin(), shape.end(), [](uint64_t n) { return n > 1; });
  if (size_bytes <= slab_bytes || cut == shape.end()) return {Box{}};
  const size_t dimension = size_t(cut - shape.begin());
  const uint64_t row_bytes = std::max<uint64_t>(1, size_bytes / *cut);
  // A multiple of 8, so that cuts in packed elements fall between bytes.
  const uint64_t rows = std::max<uint64_t>(8, slab_bytes / row_bytes / 8 * 8);
  std::vector<Box> slabs;
  for (uint64_t begin = 0; begin < *cut; begin += rows) {
    Box box{Shape(shape.size(), 0), shape};
    box.offset[dimension] = begin;
    box.extent[dimension] = std::min(rows, *cut - begin);
    if (!check_box(box, dtype, shape).ok()) return {Box{}};
    slabs.push_back(std::move(box));
  }
  return slabs;
}

// Uses gaps unless the array itself is smaller.
Result<Encoded> encode_redo(Layout layout, Bytes before, Bytes after, ThreadPool* pool,
                            CodecId* codec) {
  const uint64_t num_changed =
      count_different(layout.width, before.data(), after.data(), after.size() / layout.width);
  constexpr uint64_t kGapBytes = 2;  // at least
  *codec = num_changed * (kGapBytes + layout.width) < after.size() ? CodecId::kGaps : CodecId::kRaw;
  if (num_changed == 0) return Encoded{};
  return find_codec(*codec)->encode(layout, before, after, pool);
}

Status write_part(const std::filesystem::path& path, const DeltaInfo& info,
                  const std::vector<RedoEntry>& entries) {
  std::vector<EntryRecord> records;
  uint64_t bytes = 0;
  for (const RedoEntry& redo : entries) {
    records.push_back(
        {redo.entry, redo.payload.size(), digest_of(DigestKind::kXxh3_128, redo.payload)});
    bytes += redo.payload.size();
  }
  DW_ASSIGN_OR_RETURN(const std::string header, serialise_part_header(info, records));
  DW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  DW_RETURN_IF_ERROR(file.allocate(header.size() + bytes));
  DW_RETURN_IF_ERROR(
      file.write_at(0, {reinterpret_cast<const uint8_t*>(header.data()), header.size()}));
  uint64_t at = header.size();
  for (const RedoEntry& redo : entries) {
    DW_RETURN_IF_ERROR(file.write_at(at, redo.payload));
    at += redo.payload.size();
  }
  DW_SYNC_POINT("replica: redo part written");
  DW_RETURN_IF_ERROR(file.commit());
  DW_SYNC_POINT("replica: redo part on disk");
  return {};
}

RedoEntry entry_of(const TensorView& tensor, Box box) {
  RedoEntry redo;
  redo.entry.tensor = tensor.name;
  redo.entry.dtype = tensor.dtype;
  redo.entry.shape = tensor.shape;
  redo.entry.box = std::move(box);
  return redo;
}

}  // namespace

Result<ByteRange> slab_range(const DeltaEntry& entry) {
  DW_ASSIGN_OR_RETURN(const uint64_t whole, tensor_size_bytes(entry.dtype, entry.shape));
  if (entry.box.whole()) return ByteRange{0, whole};
  const Shape &offset = entry.box.offset, &extent = entry.box.extent;
  size_t d = 0;
  while (d < entry.shape.size() && extent[d] == 1) ++d;
  uint64_t first = 0;  // in elements
  for (size_t i = 0; i < entry.shape.size(); ++i) {
    if (i > d && (offset[i] != 0 || extent[i] != entry.shape[i])) {
      return corruption("tensor " + quote(entry.tensor) + ": box " + box_to_string(entry.box) +
                        " is not a range of bytes");
    }
    first = first * entry.shape[i] + offset[i];
  }
  return ByteRange{first * dtype_bits(entry.dtype) / 8, entry.box_bytes()};
}

Status make_redo_entries(const TensorView& before, Bytes after, uint64_t slab_bytes,
                         ThreadPool* pool, const std::function<Status(RedoEntry)>& take) {
  const Layout layout = layout_of(before.dtype);
  for (Box& box : slabs_of(before.dtype, before.shape, after.size(), slab_bytes)) {
    RedoEntry redo = entry_of(before, std::move(box));
    DeltaEntry& entry = redo.entry;
    DW_ASSIGN_OR_RETURN(const ByteRange range, slab_range(entry));
    const Bytes from = before.bytes.subspan(range.offset, range.size);
    const Bytes to = after.subspan(range.offset, range.size);
    DW_ASSIGN_OR_RETURN(Encoded encoded, encode_redo(layout, from, to, pool, &entry.codec));
    if (encoded.num_changed == 0) continue;
    entry.num_changed = encoded.num_changed;
    redo.payload = std::move(encoded.payload);
    entry.old_digest = sum128_of(from, pool);
    entry.new_digest = sum128_of(to, pool);
    DW_RETURN_IF_ERROR(take(std::move(redo)));
  }
  return {};
}

Status make_redo_of_changes(const TensorView& before, const Changes& changes,
                            const BothDigests& digests, uint64_t slab_bytes, ThreadPool* pool,
                            const std::function<Status(RedoEntry)>& take) {
  const unsigned width = layout_of(before.dtype).width;
  size_t next = 0;  // index of the next change
  // Only payloads must stay small. Digests of the whole tensor are already known.
  const uint64_t list_bytes = changes.positions.size() * (sizeof(uint64_t) + width);
  const uint64_t size_bytes = list_bytes <= slab_bytes ? 0 : before.bytes.size();
  for (Box& box : slabs_of(before.dtype, before.shape, size_bytes, slab_bytes)) {
    RedoEntry redo = entry_of(before, std::move(box));
    DeltaEntry& entry = redo.entry;
    DW_ASSIGN_OR_RETURN(const ByteRange range, slab_range(entry));
    const uint64_t first = range.offset / width, end = first + range.size / width;
    const size_t begin = next;
    while (next < changes.positions.size() && changes.positions[next] < end) ++next;
    if (next == begin) continue;
    std::span<const uint64_t> positions(&changes.positions[begin], next - begin);
    std::vector<uint64_t> moved;  // relative to the beginning of the slab
    if (first != 0) {
      moved.assign(positions.begin(), positions.end());
      for (uint64_t& position : moved) position -= first;
      positions = moved;
    }
    const Bytes values = Bytes(changes.values).subspan(begin * width, positions.size() * width);
    entry.codec = CodecId::kGaps;
    entry.num_changed = positions.size();
    redo.payload = gaps_payload(width, positions, values);
    const Bytes own = before.bytes.subspan(range.offset, range.size);
    const BothDigests both = entry.box.whole() ? digests
                                               : digests_around(sums_of(own, 0, pool), width, own,
                                                                {positions, values}, pool);
    entry.old_digest = both.before;
    entry.new_digest = both.after;
    DW_RETURN_IF_ERROR(take(std::move(redo)));
  }
  return {};
}

RedoWriter::RedoWriter(std::filesystem::path folder, DeltaInfo info, uint64_t memory_bytes)
    : folder_(std::move(folder)),
      info_(std::move(info)),
      part_bytes_(std::min(kPartBytes, memory_bytes)),
      queue_("writing", 1, memory_bytes, PublishClock(), {}) {}

Status RedoWriter::add(RedoEntry entry) {
  if (!pending_.empty() && pending_bytes_ + entry.payload.size() > part_bytes_) {
    DW_RETURN_IF_ERROR(close_part());
  }
  pending_bytes_ += entry.payload.size();
  num_changed_ += entry.entry.num_changed;
  pending_.push_back(std::move(entry));
  return {};
}

Status RedoWriter::close_part() {
  char name[32];
  std::snprintf(name, sizeof name, "redo-%05zu.safetensors", names_.size());
  names_.emplace_back(name);
  const uint64_t bytes = std::exchange(pending_bytes_, 0);
  auto entries = std::make_shared<std::vector<RedoEntry>>(std::exchange(pending_, {}));
  return queue_.push(
      bytes, [this, entries, path = folder_ / name] { return write_part(path, info_, *entries); });
}

Result<std::vector<std::string>> RedoWriter::finish() {
  if (!pending_.empty()) DW_RETURN_IF_ERROR(close_part());
  DW_RETURN_IF_ERROR(queue_.finish());
  return names_;
}

}  // namespace deltawire
