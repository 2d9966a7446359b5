#include "dialect/frames/zero_runs.h"

#define ZSTD_STATIC_LINKING_ONLY  // for compression of sequences that we find
#define ZSTD_DISABLE_DEPRECATE_WARNINGS
#include <zstd.h>

#include <algorithm>
#include <string>

#include "kernels/kernels.h"

namespace deltawire {
namespace {

constexpr size_t kBlock = ZSTD_BLOCKSIZE_MAX;
constexpr unsigned kWindowLog = 17;
static_assert(size_t{1} << kWindowLog == kBlock);
// A run's first zero is a literal, and matches have at least three bytes; shorter ones do not pay.
constexpr size_t kLeastRun = 5;

// RFC 8878, 3.1.1.
constexpr size_t kBlockHeader = 3;
constexpr uint32_t kLastBlock = 1;
constexpr uint32_t kRleBlock = 1;

uint32_t block_header(const uint8_t* p) { return p[0] | p[1] << 8 | uint32_t{p[2]} << 16; }

struct Parameter {
  ZSTD_cParameter name;
  int value;
};
// Tables of a search that never runs are kept small: they are cleared for each chunk.
constexpr Parameter kParameters[] = {{ZSTD_c_compressionLevel, 1},
                                     {ZSTD_c_windowLog, int(kWindowLog)},
                                     {ZSTD_c_hashLog, 6},
                                     {ZSTD_c_chainLog, 6},
                                     {ZSTD_c_blockDelimiters, ZSTD_sf_explicitBlockDelimiters}};

}  // namespace

struct ZeroRuns::Impl {
  ZSTD_CCtx* zstd = nullptr;
  // All zero but for what changed, and that only while a chunk is compressed.
  std::vector<uint8_t> content = std::vector<uint8_t>(kZeroRunsChunk);
  std::vector<uint8_t> frame = std::vector<uint8_t>(ZSTD_compressBound(kZeroRunsChunk) + 64);
  std::vector<ZSTD_Sequence> sequences;
  std::vector<uint16_t> positions = std::vector<uint16_t>(kSegmentElements + kStripElements);

  ~Impl() { ZSTD_freeCCtx(zstd); }

  Status start() {
    if (zstd != nullptr) return {};
    zstd = ZSTD_createCCtx();
    if (zstd == nullptr) return out_of_memory("zstd context");
    for (const Parameter& parameter : kParameters) {
      DW_RETURN_IF_ERROR(check(ZSTD_CCtx_setParameter(zstd, parameter.name, parameter.value)));
    }
    return {};
  }

  static Status check(size_t result) {
    if (ZSTD_isError(result) == 0) return {};
    return internal_error(std::string("zstd compression: ") + ZSTD_getErrorName(result));
  }

  void add_sequence(size_t literals, size_t match) {
    sequences.push_back({match == 0 ? 0U : 1U, unsigned(literals), unsigned(match), 0});
  }

  // Writes what changed into the content of the block that begins at `at`, and its sequences.
  void describe_block(const uint8_t* before, const uint8_t* after, size_t size, uint8_t* block) {
    size_t literals_from = 0, zeros_from = 0;
    const auto end_run = [&](size_t end) {
      if (end - zeros_from < kLeastRun) return;
      add_sequence(zeros_from + 1 - literals_from, end - zeros_from - 1);
      literals_from = end;
    };
    const auto add_byte = [&](size_t position) {
      block[position] = before[position] ^ after[position];
      if (block[position] == 0) return;
      end_run(position);
      zeros_from = position + 1;
    };
    // Two bytes at a time: half as much to look at, and changes mostly come in pairs.
    for (size_t at = 0; at < size; at += 2 * kSegmentElements) {
      const size_t n = std::min(kSegmentElements, (size - at) / 2);
      const size_t count = kernels().diff[1](before + at, after + at, n, positions.data());
      for (size_t i = 0; i < count; ++i) {
        add_byte(at + 2 * size_t{positions[i]});
        add_byte(at + 2 * size_t{positions[i]} + 1);
      }
    }
    if (size % 2 != 0) add_byte(size - 1);
    end_run(size);
    add_sequence(size - literals_from, 0);  // the block's end
  }

  // Takes the blocks out of `frame`.
  void take_blocks(size_t frame_bytes, bool last, std::vector<uint8_t>* out) const {
    const size_t begin = ZSTD_frameHeaderSize(frame.data(), frame_bytes);
    const size_t to = out->size();
    out->insert(out->end(), frame.begin() + ptrdiff_t(begin),
                frame.begin() + ptrdiff_t(frame_bytes));
    if (last) return;
    for (uint8_t* p = out->data() + to;;) {
      const uint32_t header = block_header(p);
      if ((header & kLastBlock) != 0) {
        *p &= uint8_t(~kLastBlock);
        return;
      }
      p += kBlockHeader + ((header >> 1 & 3) == kRleBlock ? 1 : header >> 3);
    }
  }
};

ZeroRuns::ZeroRuns() : impl_(std::make_unique<Impl>()) {}
ZeroRuns::~ZeroRuns() = default;
ZeroRuns::ZeroRuns(ZeroRuns&&) noexcept = default;

Status ZeroRuns::append_blocks(Bytes old_bytes, Bytes new_bytes, bool last,
                               std::vector<uint8_t>* out) {
  DW_RETURN_IF_ERROR(impl_->start());
  impl_->sequences.clear();
  const size_t size = new_bytes.size();
  for (size_t at = 0; at < size; at += kBlock) {
    impl_->describe_block(old_bytes.data() + at, new_bytes.data() + at, std::min(kBlock, size - at),
                          impl_->content.data() + at);
  }
  const size_t frame_bytes = ZSTD_compressSequences(
      impl_->zstd, impl_->frame.data(), impl_->frame.size(), impl_->sequences.data(),
      impl_->sequences.size(), impl_->content.data(), size);
  std::fill_n(impl_->content.begin(), size, uint8_t{0});
  DW_RETURN_IF_ERROR(Impl::check(frame_bytes));
  impl_->take_blocks(frame_bytes, last, out);
  return {};
}

void append_frame_header(uint64_t content_bytes, std::vector<uint8_t>* out) {
  uint8_t header[16];
  store_le(header, uint32_t{ZSTD_MAGICNUMBER});
  header[4] = 3 << 6;  // the content's size has 8 bytes; a window, no checksum, no dictionary
  header[5] = uint8_t((kWindowLog - 10) << 3);
  store_le(header + 6, content_bytes);
  out->insert(out->end(), header, header + 14);
}

}  // namespace deltawire
