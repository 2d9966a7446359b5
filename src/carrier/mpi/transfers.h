// The messages of one call. Spans of one rank are one stream of bytes, cut into slices wherever
// spans end, so thousands of small ones are few messages. Slices lie in memory of our own: MPI may
// go on with one whose call is over, because requests that were started cannot all be taken back.
#pragma once

#include <mpi.h>

#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "carrier/mpi/group.h"
#include "carrier/polling.h"
#include "deltawire/status.h"

namespace deltawire::mpi {

class Transfers {
 public:
  // All ranks name the same `slice_bytes`.
  Transfers(const Group& group, uint64_t slice_bytes) : group_(group), slice_bytes_(slice_bytes) {}
  ~Transfers() { bury(); }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // Nothing is sent before run(), and the spans must stay until it is over.
  void send(unsigned to, std::span<const uint8_t> bytes);
  void receive(unsigned from, std::span<uint8_t> bytes);
  // Down a tree with two branches at each rank; a slice goes on as soon as it has come. MPI_Ibcast
  // would do, but knows no group without a call that all wait in, and cannot be taken back.
  void broadcast(unsigned root, std::span<uint8_t> bytes);

  // Until all is done, or as much of it as can be: a rank that fails is given up, and the others go
  // on. Fails when there was one, or time is over; unfinished() are the ranks then.
  Status run(Polling* polling);
  // Those that are to blame: not one that waits for a third.
  std::vector<unsigned> unfinished() const;

 private:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  enum class Kind : uint8_t { kSend, kReceive };
  // All that goes one way between us and another rank.
  struct Lane {
    Kind kind = Kind::kSend;
    unsigned peer = 0;
    size_t after = kNone;     // a lane whose bytes these are: they go out when they have come
    bool is_to_blame = true;  // the peer, if nothing comes
    std::vector<std::span<uint8_t>> spans = {};
    uint64_t num_bytes = 0;
    uint64_t started = 0;  // bytes whose slices were begun
    bool failed = false;
  };
  // One slice under way; its request has the same index.
  struct Slot {
    size_t lane = 0;
    uint64_t offset = 0;  // in the lane's stream
    int num_bytes = 0;
    std::shared_ptr<uint8_t[]> bytes;
  };

  Lane& lane_of(Kind kind, unsigned peer);
  void add(Lane* lane, std::span<uint8_t> bytes);
  uint64_t arrived(size_t lane) const;
  Status open_slots();
  void start_idle();
  Status start(size_t slot);
  Status take(size_t slot, const MPI_Status& status);
  Status step(const Polling& polling, int* num_done);
  void give_up(size_t lane, Status why);
  void bury() noexcept;

  const Group& group_;
  const uint64_t slice_bytes_;
  std::vector<Lane> lanes_;
  std::vector<Slot> slots_;
  std::vector<MPI_Request> requests_;
  std::vector<int> done_;  // room for what MPI_Testsome says
  std::vector<MPI_Status> statuses_;
  Status failure_;  // of the first lane that was given up
};

}  // namespace deltawire::mpi
