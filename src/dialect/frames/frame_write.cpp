#include "dialect/frames/frame_write.h"

#include <algorithm>
#include <string>

#include "base/guard.h"
#include "codec/changes.h"
#include "dialect/frames/zero_runs.h"
#include "dialect/frames/zstd_frame.h"

namespace deltawire {
namespace {

// Up to here zstd's own search costs little, and its frames are smaller by their tables.
constexpr size_t kSmallArray = size_t{128} << 10;

Status check_one_size(Bytes old_bytes, Bytes new_bytes) {
  if (old_bytes.size() == new_bytes.size()) return {};
  return invalid_argument("old and new array: expected one size, got " +
                          std::to_string(old_bytes.size()) + " and " +
                          std::to_string(new_bytes.size()) + " bytes");
}

Result<ChangeFrame> write_small_frame(Bytes old_bytes, Bytes new_bytes, ChecksumKind checksum) {
  std::vector<uint8_t> content(new_bytes.size());
  std::ranges::transform(old_bytes, new_bytes, content.begin(),
                         [](uint8_t a, uint8_t b) { return uint8_t(a ^ b); });
  ChangeFrame made;
  DW_RETURN_IF_ERROR(ZstdCompressor().append(content, &made.frame));
  made.checksum = checksum_of(checksum, new_bytes);
  return made;
}

// Chunk by chunk on all threads. One thread hashes each chunk while it is in the cache; of several
// one hashes the array while the others compress.
class XorFrameWriter {
 public:
  XorFrameWriter(Bytes old_bytes, Bytes new_bytes, ChecksumKind checksum, ThreadPool* pool)
      : old_(old_bytes),
        new_(new_bytes),
        checksummer_(checksum),
        pool_(pool),
        chunks_((new_bytes.size() + kZeroRunsChunk - 1) / kZeroRunsChunk) {}

  Result<ChangeFrame> write() {
    std::vector<ZeroRuns> workers(num_workers(pool_));
    const size_t alone = workers.size() == 1 ? 0 : 1;  // a task of its own for the checksum
    DW_RETURN_IF_ERROR(parallel_try("encoding", pool_, chunks_.size() + alone,
                                    [&](size_t i, unsigned worker) -> Status {
                                      if (i < alone) {
                                        checksummer_.update(new_);
                                        return {};
                                      }
                                      if (alone == 0) checksummer_.update(part(new_, i));
                                      return compress(i - alone, &workers[worker]);
                                    }));
    return join();
  }

 private:
  static Bytes part(Bytes bytes, size_t chunk) {
    const size_t at = chunk * kZeroRunsChunk;
    return bytes.subspan(at, std::min(kZeroRunsChunk, bytes.size() - at));
  }

  Status compress(size_t chunk, ZeroRuns* runs) {
    std::vector<uint8_t> blocks;
    DW_RETURN_IF_ERROR(runs->append_blocks(part(old_, chunk), part(new_, chunk),
                                           chunk + 1 == chunks_.size(), &blocks));
    chunks_[chunk] = std::move(blocks);
    return {};
  }

  ChangeFrame join() {
    ChangeFrame made;
    size_t size = 32;
    for (const auto& blocks : chunks_) size += blocks.size();
    made.frame.reserve(size);
    append_frame_header(new_.size(), &made.frame);
    for (auto& blocks : chunks_) {
      made.frame.insert(made.frame.end(), blocks.begin(), blocks.end());
      std::vector<uint8_t>().swap(blocks);
    }
    made.checksum = checksummer_.finish();
    return made;
  }

  const Bytes old_, new_;
  Checksummer checksummer_;
  ThreadPool* const pool_;
  std::vector<std::vector<uint8_t>> chunks_;  // their blocks
};

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
  if (new_bytes.size() <= kSmallArray) return write_small_frame(old_bytes, new_bytes, checksum);
  return XorFrameWriter(old_bytes, new_bytes, checksum, pool).write();
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
  DW_RETURN_IF_ERROR(ZstdCompressor().append(list_content(chunks), &made.frame));
  made.checksum = checksum_of(checksum, new_bytes);
  return made;
}

}  // namespace deltawire
