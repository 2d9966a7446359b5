#include "codec/frames.h"

#include <algorithm>
#include <string>

#include "base/guard.h"
#include "codec/checks.h"
#include "codec/leb128.h"
#include "codec/zstd_frame.h"

namespace deltawire {
namespace {

size_t chunk_size(size_t array_bytes, size_t index) {
  return std::min(kFrameArrayBytes, array_bytes - index * kFrameArrayBytes);
}

std::string frame_name(size_t index) { return "frame " + std::to_string(index); }

struct Frame {
  Bytes bytes;  // empty: the chunk did not change
  uint64_t content_bytes = 0;
};

Result<std::vector<Frame>> read_directory(Bytes payload, size_t array_bytes) {
  std::vector<uint64_t> lengths(num_frame_chunks(array_bytes));
  for (size_t i = 0; i < lengths.size(); ++i) {
    DW_RETURN_IF_ERROR(take_leb128("length of " + frame_name(i), &payload, &lengths[i]));
  }
  std::vector<Frame> frames(lengths.size());
  bool any = false;
  for (size_t i = 0; i < frames.size(); ++i) {
    if (lengths[i] > payload.size()) {
      return bad_payload("length of " + frame_name(i), "at most " + std::to_string(payload.size()),
                         lengths[i]);
    }
    frames[i].bytes = payload.first(lengths[i]);
    payload = payload.subspan(lengths[i]);
    any |= lengths[i] != 0;
  }
  if (!payload.empty()) return bad_payload("bytes after the last frame", 0, payload.size());
  if (!any) return bad_payload("frames", "at least 1", uint64_t{0});
  return frames;
}

}  // namespace

Result<Encoded> encode_frames(Bytes old_bytes, Bytes new_bytes, ThreadPool* pool,
                              const MakeContent& make) {
  struct Worker {
    ZstdCompressor zstd;
    std::vector<uint8_t> content;
    std::vector<uint8_t> frame;
  };
  std::vector<Worker> workers(num_workers(pool));
  std::vector<std::vector<uint8_t>> frames(num_frame_chunks(new_bytes.size()));
  std::vector<uint64_t> counts(frames.size());
  DW_RETURN_IF_ERROR(
      parallel_try("encoding", pool, frames.size(), [&](size_t i, unsigned w) -> Status {
        Worker& worker = workers[w];
        const size_t offset = i * kFrameArrayBytes;
        const size_t size = chunk_size(new_bytes.size(), i);
        counts[i] =
            make(old_bytes.subspan(offset, size), new_bytes.subspan(offset, size), &worker.content);
        if (counts[i] == 0) return {};
        worker.frame.clear();
        DW_RETURN_IF_ERROR(worker.zstd.append(worker.content, &worker.frame));
        frames[i].assign(worker.frame.begin(), worker.frame.end());
        return {};
      }));
  Encoded encoded;
  size_t size = 0;
  for (size_t i = 0; i < frames.size(); ++i) {
    encoded.num_changed += counts[i];
    size += frames[i].size() + kMaxLeb128Bytes;
  }
  if (encoded.num_changed == 0) return encoded;
  encoded.payload.reserve(size);
  for (const auto& frame : frames) put_leb128(frame.size(), &encoded.payload);
  for (auto& frame : frames) {
    encoded.payload.insert(encoded.payload.end(), frame.begin(), frame.end());
    std::vector<uint8_t>().swap(frame);
  }
  return encoded;
}

Status decode_frames(Bytes payload, size_t array_bytes, ThreadPool* pool,
                     const CheckContentSize& check, const UseContent& use) {
  if (payload.empty()) return {};
  DW_ASSIGN_OR_RETURN(std::vector<Frame> frames, read_directory(payload, array_bytes));
  for (size_t i = 0; i < frames.size(); ++i) {
    if (frames[i].bytes.empty()) continue;
    auto content_bytes = zstd_content_size(frames[i].bytes);
    if (!content_bytes.ok()) return std::move(content_bytes).status().at(frame_name(i));
    frames[i].content_bytes = *content_bytes;
    Status status = check(chunk_size(array_bytes, i), *content_bytes);
    if (!status.ok()) return std::move(status).at(frame_name(i));
  }
  struct Worker {
    ZstdDecompressor zstd;
    std::vector<uint8_t> content;
  };
  std::vector<Worker> workers(num_workers(pool));
  return parallel_try("decoding", pool, frames.size(), [&](size_t i, unsigned w) -> Status {
    const Frame& frame = frames[i];
    if (frame.bytes.empty()) return {};
    std::vector<uint8_t>& buffer = workers[w].content;
    if (buffer.size() < frame.content_bytes) buffer.resize(frame.content_bytes);
    const MutableBytes content = MutableBytes(buffer).first(frame.content_bytes);
    Status status = workers[w].zstd.decompress(frame.bytes, content);
    if (status.ok()) {
      status = use(i, i * kFrameArrayBytes, chunk_size(array_bytes, i), content);
    }
    return status.ok() ? std::move(status) : std::move(status).at(frame_name(i));
  });
}

}  // namespace deltawire
