// Encodes the change of a tensor and applies it: one of our codecs, or a peer's format.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "codec/codec.h"
#include "deltawire/digest.h"
#include "deltawire/status.h"
#include "lab/bench/data.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace deltawire::cli {

// The encoded change of one tensor. An unchanged tensor is neither sent nor applied.
struct Wire {
  bool changed = false;
  std::vector<uint8_t> payload;
  CodecId codec = CodecId::kRaw;  // ours only
  Digest digest;                  // of the new tensor, where the pipeline carries one
};

// Buffers that a thread reuses between tensors, as a long-lived publisher or replica would.
class Scratch {
 public:
  Scratch() = default;
  Scratch(Scratch&&) = default;

  // `which` of two buffers, of at least `size` bytes; what is in it is undefined.
  uint8_t* buffer(size_t which, size_t size);
  ZSTD_CCtx_s* compressor();
  ZSTD_DCtx_s* decompressor();

 private:
  struct Free {
    void operator()(ZSTD_CCtx_s* context) const noexcept;
    void operator()(ZSTD_DCtx_s* context) const noexcept;
  };
  struct Buffer {
    std::unique_ptr<uint8_t[]> bytes;
    size_t size = 0;
  };
  Buffer buffers_[2];
  std::unique_ptr<ZSTD_CCtx_s, Free> compressor_;
  std::unique_ptr<ZSTD_DCtx_s, Free> decompressor_;
};

// Where a tensor is worked on: the pool to use inside of it, or null, and the thread's scratch.
struct Worker {
  ThreadPool* inner = nullptr;
  Scratch* scratch = nullptr;  // for peers
};

// Stateless; called from many threads at once.
class Pipeline {
 public:
  Pipeline(std::string name, bool peer) : name_(std::move(name)), peer_(peer) {}
  virtual ~Pipeline() = default;

  const std::string& name() const noexcept { return name_; }
  // Peers give each tensor to one thread, which has scratch; ours works in the waves of sync.
  bool peer() const noexcept { return peer_; }

  virtual Status publish(const BenchTensor& tensor, Worker worker, Wire* wire) const = 0;
  virtual Status apply(const BenchTensor& tensor, const Wire& wire, Worker worker) const = 0;

 private:
  const std::string name_;
  const bool peer_;
};

using Pipelines = std::vector<std::unique_ptr<const Pipeline>>;

// `auto` and every codec, without digests; what TRL and slime do; and what
// compares with the last one: `tight` with a digest of each new tensor, checked by apply.
Pipelines all_pipelines();

inline constexpr const char* kDigestedTightName = "deltawire";
inline constexpr const char* kSlimeName = "slime";

}  // namespace deltawire::cli
