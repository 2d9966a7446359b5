#include "carrier/mpi/transfers.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/allocate.h"
#include "carrier/mpi/runtime.h"
#include "carrier/ranks.h"

namespace deltawire::mpi {
namespace {

// Of each lane: while one slice travels, the next is copied.
constexpr unsigned kWindow = 2;
// Calls visit(bytes of a span, offset in the slice) for `num_bytes` bytes of the stream.
template <class Visit>
void walk(std::span<const std::span<uint8_t>> spans, uint64_t offset, uint64_t num_bytes,
          const Visit& visit) {
  uint64_t done = 0;
  for (const std::span<uint8_t>& span : spans) {
    if (offset >= span.size()) {
      offset -= span.size();
      continue;
    }
    const uint64_t piece = std::min<uint64_t>(span.size() - offset, num_bytes - done);
    visit(span.data() + offset, piece, done);
    done += piece;
    offset = 0;
    if (done == num_bytes) return;
  }
}

// Memory that MPI may still write to or read from, for ever. Of each group that failed at most what
// one call has under way.
void keep_for_ever(std::vector<std::shared_ptr<uint8_t[]>> buffers) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<uint8_t[]>>;
  const std::lock_guard lock(mutex);
  for (auto& buffer : buffers) kept->push_back(std::move(buffer));
}

}  // namespace

Transfers::Lane& Transfers::lane_of(Kind kind, unsigned peer) {
  for (Lane& lane : lanes_) {
    if (lane.kind == kind && lane.peer == peer) return lane;
  }
  return lanes_.emplace_back(Lane{.kind = kind, .peer = peer});
}

void Transfers::add(Lane* lane, std::span<uint8_t> bytes) {
  lane->spans.push_back(bytes);
  lane->num_bytes += bytes.size();
}

void Transfers::send(unsigned to, std::span<const uint8_t> bytes) {
  // Spans of lanes that go out are only read.
  if (!bytes.empty()) {
    add(&lane_of(Kind::kSend, to), {const_cast<uint8_t*>(bytes.data()), bytes.size()});
  }
}

void Transfers::receive(unsigned from, std::span<uint8_t> bytes) {
  if (!bytes.empty()) add(&lane_of(Kind::kReceive, from), bytes);
}

void Transfers::broadcast(unsigned root, std::span<uint8_t> bytes) {
  if (bytes.empty()) return;
  const unsigned size = group_.size(), place = (group_.rank + size - root) % size;
  const bool is_root = place == 0;
  if (!is_root) {
    const unsigned above = (place - 1) / 2;
    receive((above + root) % size, bytes);
    lanes_.back().is_to_blame = above == 0;
  }
  for (const unsigned below : {2 * place + 1, 2 * place + 2}) {
    if (below >= size) continue;
    send((below + root) % size, bytes);
    if (!is_root) lanes_.back().after = 0;
  }
}

// Bytes of a lane that have come without a gap.
uint64_t Transfers::arrived(size_t lane) const {
  uint64_t first_missing = lanes_[lane].started;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].lane == lane && requests_[i] != MPI_REQUEST_NULL) {
      first_missing = std::min(first_missing, slots_[i].offset);
    }
  }
  return lanes_[lane].failed ? 0 : first_missing;
}

Status Transfers::open_slots() {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const uint64_t num_bytes = lanes_[i].num_bytes;
    const uint64_t slices = (num_bytes + slice_bytes_ - 1) / slice_bytes_;
    for (uint64_t slot = 0; slot < std::min<uint64_t>(kWindow, slices); ++slot) {
      DW_ASSIGN_OR_RETURN(auto bytes, allocate_bytes(std::min(slice_bytes_, num_bytes)));
      slots_.push_back({.lane = i, .bytes = std::move(bytes)});
    }
  }
  requests_.assign(slots_.size(), MPI_REQUEST_NULL);
  return {};
}

// Begins what can be begun.
void Transfers::start_idle() {
  for (size_t index = 0; index < slots_.size(); ++index) {
    const size_t lane = slots_[index].lane;
    if (requests_[index] != MPI_REQUEST_NULL || lanes_[lane].failed) continue;
    if (Status status = start(index); !status.ok()) give_up(lane, std::move(status));
  }
}

Status Transfers::start(size_t index) {
  Slot& slot = slots_[index];
  Lane& lane = lanes_[slot.lane];
  if (lane.started == lane.num_bytes) return {};
  const uint64_t size = std::min(slice_bytes_, lane.num_bytes - lane.started);
  if (lane.after != kNone && arrived(lane.after) < lane.started + size) return {};
  slot.offset = lane.started;
  slot.num_bytes = int(size);
  lane.started += size;
  const int peer = group_.members[lane.peer];
  const MPI_Comm communicator = group_.communicator->get();
  int error = MPI_SUCCESS;
  if (lane.kind == Kind::kReceive) {
    error = MPI_Irecv(slot.bytes.get(), slot.num_bytes, MPI_BYTE, peer, group_.tag, communicator,
                      &requests_[index]);
  } else {
    walk(lane.spans, slot.offset, size, [&](const uint8_t* from, uint64_t piece, uint64_t at) {
      std::memcpy(slot.bytes.get() + at, from, piece);
    });
    error = MPI_Isend(slot.bytes.get(), slot.num_bytes, MPI_BYTE, peer, group_.tag, communicator,
                      &requests_[index]);
  }
  if (error == MPI_SUCCESS) return {};
  return failure(error, "rank " + std::to_string(lane.peer));
}

// A slice is done.
Status Transfers::take(size_t index, const MPI_Status& status) {
  const Slot& slot = slots_[index];
  const Lane& lane = lanes_[slot.lane];
  if (lane.kind == Kind::kSend) return {};
  int came = 0;
  MPI_Get_count(&status, MPI_BYTE, &came);
  if (came != slot.num_bytes) {
    return corruption("rank " + std::to_string(lane.peer) + " sent " + std::to_string(came) +
                      " bytes where " + std::to_string(slot.num_bytes) + " were expected");
  }
  walk(lane.spans, slot.offset, uint64_t(slot.num_bytes),
       [&](uint8_t* to, uint64_t size, uint64_t at) {
         std::memcpy(to, slot.bytes.get() + at, size);
       });
  return {};
}

void Transfers::give_up(size_t lane, Status why) {
  lanes_[lane].failed = true;
  if (failure_.ok()) failure_ = std::move(why);
}

// Looks once at what has been done, and begins what comes next. Fails when nothing is left to be
// asked for.
Status Transfers::step(const Polling& polling, int* num_done) {
  const int error = MPI_Testsome(int(requests_.size()), requests_.data(), num_done, done_.data(),
                                 statuses_.data());
  if (*num_done == MPI_UNDEFINED) return {};
  if (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS) return failure(error, "MPI_Testsome");
  for (int i = 0; i < *num_done; ++i) {
    const auto index = size_t(done_[size_t(i)]);
    const size_t lane = slots_[index].lane;
    const MPI_Status& told = statuses_[size_t(i)];
    Status status;
    if (error == MPI_ERR_IN_STATUS && told.MPI_ERROR != MPI_SUCCESS) {
      status = failure(told.MPI_ERROR, "rank " + std::to_string(lanes_[lane].peer));
    } else {
      status = take(index, told);
    }
    if (!status.ok()) give_up(lane, std::move(status));
  }
  if (*num_done > 0) start_idle();
  if (*num_done == 0 && polling.aborted()) return cancelled("the group was aborted");
  if (*num_done == 0 && polling.late()) {
    return unavailable("not done " + after_seconds(polling.timeout_seconds()));
  }
  return {};
}

Status Transfers::run(Polling* polling) {
  DW_RETURN_IF_ERROR(open_slots());
  done_.resize(slots_.size());
  statuses_.resize(slots_.size());
  start_idle();
  while (true) {
    int num_done = 0;
    DW_RETURN_IF_ERROR(step(*polling, &num_done));
    if (num_done == MPI_UNDEFINED) return failure_;  // nothing is under way any more
    num_done > 0 ? polling->moved() : polling->rest();
  }
}

std::vector<unsigned> Transfers::unfinished() const {
  std::vector<unsigned> ranks;
  for (size_t i = 0; i < requests_.size(); ++i) {
    const Lane& lane = lanes_[slots_[i].lane];
    const bool is_done = !lane.failed && requests_[i] == MPI_REQUEST_NULL;
    if (!is_done && lane.is_to_blame) ranks.push_back(lane.peer);
  }
  sort_unique(&ranks);
  return ranks;
}

// Receives are taken back; a send cannot be.
void Transfers::bury() noexcept {
  std::vector<std::shared_ptr<uint8_t[]>> buffers;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    if (lanes_[slots_[i].lane].kind == Kind::kReceive) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
    buffers.push_back(std::move(slots_[i].bytes));
  }
  if (!buffers.empty()) keep_for_ever(std::move(buffers));
}

}  // namespace deltawire::mpi
