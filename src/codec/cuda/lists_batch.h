// Some arrays of a call, from their differences to lists on the device: those of `gaps`, or for
// `adaptive` gaps, new values and old ones, of which the host makes payloads.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "codec/codec.h"
#include "codec/cuda/device_codec.h"
#include "codec/cuda/device_parts.h"
#include "kernels/cuda/lists.h"

namespace deltawire::cuda {

// A payload of `gaps`, taken apart as far as the host does it.
struct ListsPayload {
  unsigned gap_bytes = 0;
  uint64_t count = 0;  // of changes
  Bytes body;          // all gaps, then all values

  Bytes gaps() const { return body.first(count * gap_bytes); }

  // What goes to the device to be checked, or to be written too, and the room that it takes there.
  Bytes sent(bool write) const { return write ? body : gaps(); }
  uint64_t room(bool write) const { return (sent(write).size() + 15) / 16 * 16; }
};

// Corruption unless the head makes sense and the body has the size that it says. Gaps are not
// looked at.
Result<ListsPayload> open_lists(unsigned width, uint64_t num_elements, Bytes payload);

struct ListsPass {
  std::span<const DevicePair> pairs;
  CodecId codec;
  const DeviceOptions& options;
  Stream stream;
  unsigned width() const { return pairs[0].layout.width; }
};

// Where an array's lists are, of those of a batch.
struct ListsBody {
  uint64_t begin, end;
  uint64_t size() const { return end - begin; }
};

// How many changes of arrays with so much beside them `num_bytes` of device memory have room for.
uint64_t most_changes(CodecId codec, unsigned width, uint64_t table_bytes, uint64_t num_bytes);
// What comes with the changes of an array.
uint64_t lists_table_bytes(const DevicePair& pair);

// start(), count(), write(), in this order.
class ListsBatch {
 public:
  // With room for `capacity` changes.
  ListsBatch(const ListsPass& pass, uint64_t capacity);

  size_t device_bytes() const noexcept { return device_bytes_; }
  static size_t host_bytes(size_t num_arrays) noexcept;

  // Finds the differences. In memory of these sizes, that of the host pinned. Does not wait.
  Status start(uint8_t* device, uint8_t* host);
  // Waits for what there is. After it: how many changes, and whether there was room for them.
  Status count();
  uint64_t needed() const noexcept { return needed_; }
  bool had_room() const noexcept { return needed_ <= capacity_; }
  // What the lists take, and whether they fit the memory of start(): positions may take more than
  // thought.
  uint64_t list_bytes() const noexcept { return bodies_.back().end; }
  bool lists_fit() const noexcept { return list_bytes() <= room_; }
  // To `lists` on the device, or if it is null to the memory of start(). Does not wait.
  Status write(uint8_t* lists);

  const ListsPass& pass() const noexcept { return pass_; }
  const uint8_t* lists() const noexcept { return lists_; }
  const std::vector<ListsBody>& bodies() const noexcept { return bodies_; }
  // What stands before the lists, as payloads (nothing in `adaptive`), and the rest of what is
  // known.
  std::vector<DeviceEncoded> take_heads();

 private:
  using NewSums = std::array<uint64_t, 2>;  // lanes of sum128 of a new array

  // All that a batch has on the device.
  struct Memory {
    uint8_t* batch = nullptr;
    DiffOutput changes{};
    TilePlace* tiles = nullptr;
    ArrayChanges* of_arrays = nullptr;
    ListPlace* places = nullptr;
    uint8_t* lists = nullptr;
  };
  // What is fetched of it.
  struct Counts {
    uint64_t* total = nullptr;
    ArrayChanges* of_arrays = nullptr;
    NewSums* sums = nullptr;
    size_t lay_out(Carve carve, size_t num_arrays);
  };
  struct Head {
    std::vector<uint8_t> bytes;
    unsigned gap_bytes = 0;
  };

  size_t lay_out(uint8_t* at);
  Head make_head(const ArrayChanges& changes) const;

  ListsPass pass_;
  uint64_t capacity_, num_tiles_ = 0, room_ = 0, needed_ = 0;
  size_t device_bytes_ = 0;
  std::vector<PairArray> arrays_;
  Memory memory_;
  Counts counts_;
  std::optional<PairBatch> batch_;
  std::vector<Head> heads_;
  std::vector<ListsBody> bodies_;
  uint8_t* lists_ = nullptr;
};

}  // namespace deltawire::cuda
