// What a trainer rank sent before its last version: lists that lead back, one version at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"

namespace deltawire::shard {

// What turns a part of the snapshot into what it was one version before.
struct Undo {
  std::vector<uint32_t> positions;  // of elements; none: all of them
  std::vector<uint8_t> values;

  uint64_t size_bytes() const noexcept { return positions.size() * 4 + values.size(); }
};

// Codecs need the very weights that a receiver holds. One that missed versions holds older ones:
// they are made again from the snapshot and these lists. Bounded; the oldest version goes first.
class History {
 public:
  static constexpr size_t kMostVersions = 16;

  // The version that the snapshot leaves behind while it is advanced.
  class Step {
   public:
    Step(uint64_t state, size_t num_parts, uint64_t most_bytes)
        : state_(state), most_bytes_(most_bytes), undo_(num_parts) {}
    // How a part leads back. From several threads, each with parts of its own.
    void note(size_t part, unsigned width, Bytes now, Bytes before);

   private:
    friend class History;
    bool is_too_large() const noexcept { return bytes_ > most_bytes_; }
    uint64_t state_ = 0, most_bytes_ = 0;
    std::atomic<uint64_t> bytes_ = 0;
    std::vector<std::optional<Undo>> undo_;  // by part
  };

  void set_most_bytes(uint64_t bytes) noexcept { most_bytes_ = bytes; }
  uint64_t most_bytes() const noexcept { return most_bytes_; }
  void add(Step* step);
  void clear() noexcept;

  // States that can be made again, the newest first.
  std::vector<uint64_t> states() const;
  // Whether a part was something else in that state than it is in the snapshot.
  bool differs(size_t part, uint64_t state) const;
  // Turns the snapshot's contents of a part into those of that state.
  void go_back(size_t part, uint64_t state, unsigned width, MutableBytes contents) const;

 private:
  struct Kept {
    uint64_t state = 0, bytes = 0;
    std::unordered_map<size_t, Undo> undo;  // by part
  };
  uint64_t most_bytes_ = 0, bytes_ = 0;
  std::deque<Kept> kept_;  // the newest first
};

}  // namespace deltawire::shard
