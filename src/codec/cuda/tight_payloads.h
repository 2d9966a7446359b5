// Blocks of `tight` that come from a device, in any order, become payloads. Bytes wait in pinned
// memory and are copied once, to where they stay, as soon as their array is complete: while the
// device goes on.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "codec/cuda/device_codec.h"
#include "codec/cuda/workspace.h"
#include "codec/tight_model.h"
#include "kernels/cuda/tight_encode.h"

namespace deltawire::cuda {

struct BlockName {
  uint32_t array, number;
};

class TightPayloads {
 public:
  // `models` must outlive this.
  TightPayloads(std::span<const DevicePair> pairs, const std::vector<tight::Model>& models,
                const DeviceOptions& options);

  // Pinned memory for the bytes of some blocks. They must be there before add().
  Result<uint8_t*> make_piece(size_t num_bytes);
  // A block that begins at `offset` of the last piece.
  void add(const BlockName& name, uint64_t offset, const TightEncodeResult& result);

  // Writes the payloads of all arrays that have become complete.
  void write_complete();
  // After all blocks have been added and written.
  std::vector<DeviceEncoded> take() { return std::move(out_); }

 private:
  struct Block {
    size_t piece = 0;
    uint64_t offset = 0;
    uint32_t num_bytes = 0, num_changed = 0;
  };
  struct Array {
    std::vector<Block> blocks;
    size_t num_missing = 0;
    uint64_t size_bytes = 0;
    std::array<uint64_t, 2> sums{};  // of the new array, where they are asked for
  };
  struct Piece {
    const uint8_t* bytes = nullptr;
    size_t size = 0, pinned = 0;
    size_t num_waiting = 0;          // blocks that are not part of a payload yet
    std::unique_ptr<uint8_t[]> own;  // where the bytes are when they have had to make room
  };

  void make_room();
  DeviceEncoded write(size_t array) const;

  const std::vector<tight::Model>& models_;
  Workspace& workspace_;
  ThreadPool* const pool_;
  const uint8_t width_;
  const bool new_digests_;
  SpareVectors* const spare_;
  std::vector<Array> arrays_;
  std::vector<size_t> complete_;
  std::vector<Piece> pieces_;
  std::vector<size_t> free_;   // pinned pieces
  std::deque<size_t> in_use_;  // pieces with pinned memory, the oldest first
  std::vector<DeviceEncoded> out_;
};

}  // namespace deltawire::cuda
