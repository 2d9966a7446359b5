#include "device/lanes.h"

#include <algorithm>
#include <array>

#include "base/guard.h"
#include "codec/cuda/device_parts.h"

namespace deltawire::cuda {
namespace {

constexpr uint64_t kMostLanes = 6;
// including its stage; a lane with less is not worthwhile
constexpr uint64_t kLaneScratch = uint64_t{32} << 20;
constexpr uint64_t kCopyBytes = uint64_t{4} << 20;  // two copies of this size are in progress

uint64_t size_bytes(const DevicePair& pair) { return pair.num_elements * pair.layout.width; }
uint64_t whole_pages(uint64_t num_bytes) { return num_bytes / 4096 * 4096; }

// Arrays of a single block are not staged, because `tight` encodes them on the host.
bool is_staged(const DevicePair& pair) { return tiling_of(pair).size() > 1; }

// Adjacent pairs that are processed together.
struct PairGroup {
  size_t first = 0;
  uint64_t stage_bytes = 0;  // of all that is staged
  std::span<const DevicePair> pairs;
};

std::vector<PairGroup> make_groups(std::span<const DevicePair> pairs, uint64_t most_bytes) {
  std::vector<PairGroup> groups;
  for (size_t begin = 0; begin < pairs.size();) {
    size_t end = begin;
    uint64_t bytes = 0, stage_bytes = 0;
    do {
      bytes += carved_bytes(size_bytes(pairs[end]));
      if (is_staged(pairs[end])) stage_bytes += carved_bytes(size_bytes(pairs[end]));
      ++end;
    } while (end < pairs.size() && bytes + carved_bytes(size_bytes(pairs[end])) <= most_bytes);
    groups.push_back({begin, stage_bytes, pairs.subspan(begin, end - begin)});
    begin = end;
  }
  return groups;
}

std::string place_of(const PairGroup& group) {
  const size_t last = group.first + group.pairs.size() - 1;
  return last == group.first
             ? "array " + std::to_string(last)
             : "arrays " + std::to_string(group.first) + " to " + std::to_string(last);
}

}  // namespace

LaneSizes lane_sizes(uint64_t scratch_bytes, unsigned threads) noexcept {
  LaneSizes sizes{};
  // Lanes mostly wait, so even a single core benefits from two.
  const uint64_t most = std::clamp<uint64_t>(threads / 2, 2, kMostLanes);
  sizes.num_lanes = size_t(std::clamp<uint64_t>(scratch_bytes / kLaneScratch, 1, most));
  sizes.stage = whole_pages(scratch_bytes / 4 * 3);
  sizes.work = whole_pages((scratch_bytes - sizes.stage - scratch_bytes / 32) / sizes.num_lanes);
  sizes.group = whole_pages(sizes.stage / sizes.num_lanes);
  sizes.large = sizes.num_lanes == 1 ? sizes.stage : whole_pages(sizes.stage / 2);
  return sizes;
}

// What a lane keeps between calls.
struct Lanes::Strand {
  Strand(unsigned threads, OwnedStream work_stream, std::array<OwnedStream, 2> copy_streams)
      : pool(threads), work(std::move(work_stream)), copies(std::move(copy_streams)) {}

  static Result<std::unique_ptr<Strand>> make(unsigned threads) {
    DW_ASSIGN_OR_RETURN(OwnedStream work, OwnedStream::create());
    DW_ASSIGN_OR_RETURN(OwnedStream one, OwnedStream::create());
    DW_ASSIGN_OR_RETURN(OwnedStream other, OwnedStream::create());
    return std::make_unique<Strand>(threads, std::move(work),
                                    std::array<OwnedStream, 2>{std::move(one), std::move(other)});
  }

  // Waits until no work is in progress.
  void settle() const {
    for (const OwnedStream& copying : copies) (void)wait(copying.get());
    workspace.settle(work.get());
  }

  ThreadPool pool;
  OwnedStream work;
  std::array<OwnedStream, 2> copies;
  Workspace workspace;
};

class Lanes::Call {
 public:
  Call(const LaneSizes& sizes, uint8_t* memory, const Encode& encode)
      : sizes_(sizes), memory_(memory), encode_(encode), stage_({memory, sizes.stage}) {}

  Status run(const PairGroup& group, Strand& strand, size_t number) {
    Status status = try_run(group, strand, number);
    strand.workspace.borrow({});
    // Frees what an array needed beyond its share.
    strand.workspace.limit(Workspace::kSlots, 0);
    strand.workspace.limit(Workspace::kTables, sizes_.work);
    return status;
  }

 private:
  Status try_run(const PairGroup& group, Strand& strand, size_t number) {
    if (group.stage_bytes <= sizes_.large) {
      Status status = run_staged(group, strand, number);
      if (status.code() != Code::kOutOfMemory) return status;
    }
    // An array that is too large or has too many changes. At most two at a time.
    const SharedScratch::Part part = stage_.take(sizes_.large);
    strand.workspace.borrow(part.memory());
    const Lane lane{&strand.workspace, &strand.pool, part.memory().size(), false};
    return settled(strand,
                   [&] { return encode_(lane, group.first, group.pairs, strand.work.get()); });
  }

  // After a failure waits for running work, so that memory can be released.
  template <class Body>
  static Status settled(const Strand& strand, const Body& body) {
    Status status = guard_memory("work on a GPU", body);
    if (!status.ok()) strand.settle();
    return status;
  }

  Status run_staged(const PairGroup& group, Strand& strand, size_t number) {
    uint8_t* const work = memory_ + sizes_.stage + number * sizes_.work;
    strand.workspace.borrow({work, sizes_.work});
    std::vector<DevicePair> pairs(group.pairs.begin(), group.pairs.end());
    const SharedScratch::Part part = stage_.try_take(group.stage_bytes);
    return settled(strand, [&]() -> Status {
      if (part.has_room()) DW_RETURN_IF_ERROR(bring(pairs, part.memory().data(), strand));
      const Lane lane{&strand.workspace, &strand.pool, sizes_.work, true};
      return encode_(lane, group.first, pairs, strand.work.get());
    });
  }

  // Copies old arrays to the stage. One lane at a time and at most two pieces ahead, because later
  // transfers to the device wait for earlier ones.
  Status bring(std::span<DevicePair> pairs, uint8_t* to, const Strand& strand) {
    {
      const std::lock_guard lock(bus_);
      unsigned turn = 0;
      uint64_t asked_for = 0;  // in this turn
      for (DevicePair& pair : pairs) {
        if (!is_staged(pair)) continue;
        const uint64_t size = size_bytes(pair);
        const auto* const from = static_cast<const uint8_t*>(pair.old_data);
        for (uint64_t at = 0; at < size;) {
          if (asked_for >= kCopyBytes) {
            ++turn;
            asked_for = 0;
            DW_RETURN_IF_ERROR(wait(strand.copies[turn % 2].get()));
          }
          const uint64_t piece = std::min(kCopyBytes - asked_for, size - at);
          DW_RETURN_IF_ERROR(copy(to + at, from + at, piece, strand.copies[turn % 2].get()));
          asked_for += piece;
          at += piece;
        }
        pair.old_data = to;
        to += carved_bytes(size);
      }
    }
    for (const OwnedStream& copying : strand.copies) DW_RETURN_IF_ERROR(wait(copying.get()));
    return {};
  }

  const LaneSizes& sizes_;
  uint8_t* const memory_;
  const Encode& encode_;
  SharedScratch stage_;
  std::mutex bus_;
};

Lanes::Lanes(int device, uint64_t scratch_bytes, unsigned threads)
    : device_(device),
      sizes_(lane_sizes(scratch_bytes, threads)),
      pool_(unsigned(sizes_.num_lanes)),
      threads_(std::max<unsigned>(1, threads / unsigned(sizes_.num_lanes))) {}
Lanes::~Lanes() = default;

uint64_t Lanes::device_bytes() const noexcept {
  uint64_t sum = 0;
  for (const std::unique_ptr<Strand>& strand : strands_) sum += strand->workspace.device_bytes();
  return sum;
}

Status Lanes::for_each_group(std::span<const DevicePair> pairs, uint8_t* memory, Stream stream,
                             const Encode& encode) {
  const std::vector<PairGroup> groups = make_groups(pairs, sizes_.group);
  while (strands_.size() < pool_.num_workers()) {
    DW_ASSIGN_OR_RETURN(std::unique_ptr<Strand> strand, Strand::make(threads_));
    strands_.push_back(std::move(strand));
  }
  for (const std::unique_ptr<Strand>& strand : strands_) {
    DW_RETURN_IF_ERROR(order_after(strand->work.get(), stream));
  }
  Call call(sizes_, memory, encode);
  // Groups start in order, so groups before a failed one have started and report their own
  // failures.
  return parallel_try("work on a GPU", &pool_, groups.size(), [&](size_t g, unsigned worker) {
    const UseDevice use(device_);
    return call.run(groups[g], *strands_[worker], worker).at(place_of(groups[g]));
  });
}

}  // namespace deltawire::cuda
