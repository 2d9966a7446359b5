#include "carrier/nccl/staging.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/check.cuh"

namespace deltawire::nccl {
namespace {

constexpr uint64_t kAlignment = 512;  // NCCL is fastest with whole ones

uint64_t room_for(uint64_t num_bytes) {
  return (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Status grow(cuda::Buffer* buffer, cuda::Place place, uint64_t num_bytes) {
  if (buffer->size() >= num_bytes) return {};
  *buffer = cuda::Buffer();  // both at once would be too many
  DW_ASSIGN_OR_RETURN(*buffer, cuda::Buffer::allocate(place, num_bytes));
  return {};
}

// memcpy by several threads: one alone is slower than the bus.
class HostCopies {
 public:
  void add(uint8_t* to, const uint8_t* from, uint64_t num_bytes) {
    for (uint64_t at = 0; at < num_bytes; at += kPiece) {
      pieces_.push_back({to + at, from + at, std::min(kPiece, num_bytes - at)});
    }
  }
  void run(ThreadPool* pool) const {
    parallel_for(pool, pieces_.size(), [this](size_t i, unsigned) {
      std::memcpy(pieces_[i].to, pieces_[i].from, pieces_[i].num_bytes);
    });
  }

 private:
  static constexpr uint64_t kPiece = uint64_t{1} << 20;
  struct Piece {
    uint8_t* to;
    const uint8_t* from;
    uint64_t num_bytes;
  };
  std::vector<Piece> pieces_;
};

}  // namespace

Result<Event> Event::create() {
  cudaEvent_t event = nullptr;
  DW_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return Event(event);
}

Event::~Event() {
  if (event_ != nullptr) (void)cudaEventDestroy(event_);
}

Status Event::record(cuda::Stream stream) {
  DW_CUDA(cudaEventRecord(event_, stream));
  return {};
}

Status Event::let_wait(cuda::Stream stream) const {
  DW_CUDA(cudaStreamWaitEvent(stream, event_));
  return {};
}

Result<bool> Event::passed() const {
  const cudaError_t error = cudaEventQuery(event_);
  if (error == cudaErrorNotReady) return false;
  DW_CUDA(error);
  return true;
}

Result<Bucket> Bucket::create() {
  DW_ASSIGN_OR_RETURN(Event filled, Event::create());
  DW_ASSIGN_OR_RETURN(Event moved, Event::create());
  DW_ASSIGN_OR_RETURN(Event emptied, Event::create());
  return Bucket(std::move(filled), std::move(moved), std::move(emptied));
}

bool Bucket::comes_in(const Message& message) const {
  return message.kind == Message::Kind::kReceive ||
         (message.kind == Message::Kind::kBroadcast && message.peer != rank_);
}

Status Bucket::begin(const Round& round, unsigned rank, ThreadPool* pool, cuda::Stream up,
                     cuda::Stream traffic) {
  rank_ = rank;
  std::vector<bool> is_there;
  uint64_t num_bytes = 0;
  for (const Message& message : round) {
    is_there.push_back(cuda::device_of(message.bytes.data()).has_value());
    if (!is_there.back()) num_bytes += room_for(message.bytes.size());
  }
  DW_RETURN_IF_ERROR(grow(&pinned_, cuda::Place::kPinned, num_bytes));
  DW_RETURN_IF_ERROR(grow(&device_, cuda::Place::kDevice, num_bytes));
  places_.assign(round.size(), nullptr);
  staged_.assign(round.size(), nullptr);
  HostCopies copies;
  uint64_t offset = 0;
  for (size_t i = 0; i < round.size(); ++i) {
    const std::span<uint8_t> bytes = round[i].bytes;
    places_[i] = bytes.data();
    if (is_there[i]) continue;
    places_[i] = device_.data() + offset;
    staged_[i] = pinned_.data() + offset;
    offset += room_for(bytes.size());
    if (!comes_in(round[i])) copies.add(staged_[i], bytes.data(), bytes.size());
  }
  copies.run(pool);
  for (size_t i = 0; i < round.size(); ++i) {
    if (staged_[i] == nullptr || comes_in(round[i])) continue;
    DW_RETURN_IF_ERROR(cuda::copy(places_[i], staged_[i], round[i].bytes.size(), up));
  }
  round_ = &round;
  DW_RETURN_IF_ERROR(filled_.record(up));
  return filled_.let_wait(traffic);
}

Status Bucket::end(cuda::Stream traffic, cuda::Stream down) {
  DW_RETURN_IF_ERROR(moved_.record(traffic));
  DW_RETURN_IF_ERROR(moved_.let_wait(down));
  for (size_t i = 0; i < round_->size(); ++i) {
    const Message& message = (*round_)[i];
    if (staged_[i] == nullptr || !comes_in(message)) continue;
    DW_RETURN_IF_ERROR(cuda::copy(staged_[i], places_[i], message.bytes.size(), down));
  }
  return emptied_.record(down);
}

void Bucket::drain(ThreadPool* pool) {
  HostCopies copies;
  for (size_t i = 0; i < round_->size(); ++i) {
    const Message& message = (*round_)[i];
    if (staged_[i] == nullptr || !comes_in(message)) continue;
    copies.add(message.bytes.data(), staged_[i], message.bytes.size());
  }
  copies.run(pool);
  round_ = nullptr;
}

}  // namespace deltawire::nccl
