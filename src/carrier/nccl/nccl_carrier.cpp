#include <cstring>
#include <optional>

#include "base/guard.h"
#include "carrier/nccl/communicator.h"
#include "carrier/nccl/rounds.h"
#include "carrier/nccl/staging.h"
#include "carrier/ranks.h"
#include "deltawire/carrier_nccl.h"
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/memory.h"

namespace deltawire {
namespace nccl {
namespace {

constexpr uint64_t kLeastShare = uint64_t{64} << 10;
constexpr unsigned kCopyThreads = 8;  // of bytes in host memory

// Streams of one group: to the device, between ranks, back to the host.
struct Streams {
  cuda::OwnedStream up, traffic, down;
};

class NcclCarrier final : public Carrier {
 public:
  NcclCarrier(const Library& library, const NcclOptions& options, int device,
              Communicator communicator, Streams streams, std::array<Bucket, 2> buckets)
      : library_(library),
        rank_(options.rank),
        size_(options.size),
        device_(device),
        bucket_bytes_(std::max(options.bucket_bytes, kLeastShare)),
        streams_(std::move(streams)),
        buckets_(std::move(buckets)),
        communicator_(std::move(communicator)) {}

  ~NcclCarrier() override {
    const cuda::UseDevice use(device_);
    communicator_.reset();
  }

  std::string name() const override { return "nccl"; }
  unsigned rank() const noexcept override { return rank_; }
  unsigned size() const noexcept override { return size_; }
  Memory memory() const noexcept override { return Memory::kCuda; }
  std::vector<unsigned> lost() const override { return lost_; }
  void abort() noexcept override { aborted_.store(true); }

  Status exchange(std::span<const ToRank> to, std::span<const FromRank> from,
                  double timeout_seconds) override {
    for (const ToRank& one : to) DW_RETURN_IF_ERROR(check_rank(one.rank, size_));
    for (const FromRank& one : from) DW_RETURN_IF_ERROR(check_rank(one.rank, size_));
    return call("exchange", timeout_seconds, [&] {
      return exchange_rounds(to, from, std::max(bucket_bytes_ / size_, kLeastShare));
    });
  }

  Status broadcast(unsigned root, std::span<uint8_t> bytes, double timeout_seconds) override {
    DW_RETURN_IF_ERROR(check_rank(root, size_));
    return call("broadcast of rank " + std::to_string(root), timeout_seconds,
                [&] { return broadcast_rounds(root, bytes, bucket_bytes_); });
  }

 private:
  template <class MakeRounds>
  Status call(const std::string& what, double timeout_seconds, const MakeRounds& make_rounds) {
    if (!failure_.ok()) return failure_;
    const cuda::UseDevice use(device_);
    Polling polling(timeout_seconds, aborted_);
    std::vector<Round> rounds;
    num_done_ = 0;
    Status status = guard_memory("exchange", [&] {
      rounds = make_rounds();
      return run(rounds, &polling);
    });
    if (status.ok()) return status;
    give_up();
    if (status.code() == Code::kUnavailable) status = name_late(rounds, std::move(status));
    status = std::move(status).at("nccl, rank " + std::to_string(rank_) + ", " + what);
    failure_ = unavailable("the group has failed before: " + status.message());
    return status;
  }

  Status run(const std::vector<Round>& rounds, Polling* polling) {
    for (size_t i = 0; i < rounds.size(); ++i) {
      if (polling->aborted()) return cancelled("the group was aborted");
      Bucket& bucket = buckets_[i % 2];
      DW_RETURN_IF_ERROR(finish(bucket, polling));
      DW_RETURN_IF_ERROR(
          bucket.begin(rounds[i], rank_, &pool_, streams_.up.get(), streams_.traffic.get()));
      DW_RETURN_IF_ERROR(enqueue(rounds[i], bucket, polling));
      DW_RETURN_IF_ERROR(bucket.end(streams_.traffic.get(), streams_.down.get()));
    }
    for (size_t i = 0; i < 2; ++i) {  // in order
      DW_RETURN_IF_ERROR(finish(buckets_[(rounds.size() + i) % 2], polling));
    }
    return {};
  }

  // Gives a round to NCCL.
  Status enqueue(const Round& round, const Bucket& bucket, Polling* polling) {
    ncclResult_t first = library_.group_start();
    for (size_t i = 0; i < round.size() && good(first); ++i) {
      const Message& message = round[i];
      uint8_t* const place = bucket.place(i);
      const size_t count = message.bytes.size();
      const int peer = int(message.peer);
      const ncclComm_t handle = communicator_->get();
      const cuda::Stream stream = streams_.traffic.get();
      switch (message.kind) {
        case Message::Kind::kSend:
          first = library_.send(place, count, ncclUint8, peer, handle, stream);
          break;
        case Message::Kind::kReceive:
          first = library_.receive(place, count, ncclUint8, peer, handle, stream);
          break;
        case Message::Kind::kBroadcast:
          first = library_.broadcast(place, place, count, ncclUint8, peer, handle, stream);
          break;
      }
    }
    const ncclResult_t ended = library_.group_end();
    return communicator_->settle(good(first) ? ended : first, "NCCL", polling);
  }
  static bool good(ncclResult_t result) {
    return result == ncclSuccess || result == ncclInProgress;
  }

  // Waits until the bucket's round is done, and takes out what came.
  Status finish(Bucket& bucket, Polling* polling) {
    if (!bucket.is_busy()) return {};
    polling->moved();
    while (true) {
      DW_ASSIGN_OR_RETURN(const bool passed, bucket.passed());
      if (passed) break;
      DW_RETURN_IF_ERROR(communicator_->check("NCCL"));
      if (polling->aborted()) return cancelled("the group was aborted");
      if (polling->late()) {
        return unavailable("not done " + after_seconds(polling->timeout_seconds()));
      }
      polling->rest();
    }
    bucket.drain(&pool_);
    ++num_done_;
    return {};
  }

  // NCCL does not tell who is late: it is one of those that are not done with.
  Status name_late(const std::vector<Round>& rounds, Status status) {
    std::vector<unsigned> ranks;
    for (size_t i = num_done_; i < rounds.size(); ++i) {
      for (const Message& message : rounds[i]) {
        for (unsigned rank = 0; rank < size_; ++rank) {
          const bool takes_part = message.kind == Message::Kind::kBroadcast || rank == message.peer;
          if (takes_part && rank != rank_) ranks.push_back(rank);
        }
      }
    }
    sort_unique(&ranks);
    if (ranks.empty()) return status;
    if (ranks.size() == 1) lost_ = ranks;
    return std::move(status).at((ranks.size() == 1 ? "waiting for " : "waiting for one of ") +
                                ranks_text(ranks));
  }

  // Nothing of the caller's is touched any more when this is over.
  void give_up() noexcept {
    constexpr double kMostSeconds = 5;
    communicator_->abort();
    const std::atomic<bool> never{false};
    Polling polling(kMostSeconds, never);
    while (cudaStreamQuery(streams_.traffic.get()) == cudaErrorNotReady && !polling.late()) {
      polling.rest();
    }
    (void)cudaGetLastError();
  }

  const Library& library_;
  const unsigned rank_, size_;
  const int device_;
  const uint64_t bucket_bytes_;
  ThreadPool pool_{kCopyThreads};
  Streams streams_;
  std::array<Bucket, 2> buckets_;
  std::optional<Communicator> communicator_;  // ends first: memory is freed when nothing runs
  std::atomic<bool> aborted_{false};
  size_t num_done_ = 0;  // rounds of the last call
  std::vector<unsigned> lost_;
  Status failure_;
};

Result<Streams> make_streams() {
  DW_ASSIGN_OR_RETURN(cuda::OwnedStream up, cuda::OwnedStream::create());
  DW_ASSIGN_OR_RETURN(cuda::OwnedStream traffic, cuda::OwnedStream::create());
  DW_ASSIGN_OR_RETURN(cuda::OwnedStream down, cuda::OwnedStream::create());
  return Streams{std::move(up), std::move(traffic), std::move(down)};
}

Status check_options(const NcclOptions& options) {
  if (options.id.size() != sizeof(ncclUniqueId)) {
    return invalid_argument("NCCL: an id has " + std::to_string(sizeof(ncclUniqueId)) +
                            " bytes, got " + std::to_string(options.id.size()));
  }
  return check_rank(options.rank, options.size);
}

}  // namespace
}  // namespace nccl

Result<std::string> nccl_unique_id() {
  DW_ASSIGN_OR_RETURN(const nccl::Library* const library, nccl::library());
  DW_RETURN_IF_ERROR(cuda::check_device());
  ncclUniqueId id;
  if (const ncclResult_t result = library->get_unique_id(&id); result != ncclSuccess) {
    return nccl::failure(*library, result, "ncclGetUniqueId");
  }
  return std::string(id.internal, sizeof(id.internal));
}

Result<std::unique_ptr<Carrier>> make_nccl_carrier(const NcclOptions& options) {
  DW_RETURN_IF_ERROR(nccl::check_options(options));
  DW_ASSIGN_OR_RETURN(const nccl::Library* const library, nccl::library());
  DW_RETURN_IF_ERROR(cuda::check_device());
  DW_ASSIGN_OR_RETURN(const int in_use, cuda::current_device());
  const int device = options.device < 0 ? in_use : options.device;
  const cuda::UseDevice use(device);
  DW_ASSIGN_OR_RETURN(nccl::Streams streams, nccl::make_streams());
  DW_ASSIGN_OR_RETURN(nccl::Bucket first, nccl::Bucket::create());
  DW_ASSIGN_OR_RETURN(nccl::Bucket second, nccl::Bucket::create());
  ncclUniqueId id;
  std::memcpy(id.internal, options.id.data(), sizeof(id.internal));
  const std::atomic<bool> never{false};
  Polling polling(options.timeout_seconds, never);
  auto communicator =
      nccl::Communicator::create(*library, id, options.rank, options.size, &polling);
  if (!communicator.ok()) {
    return std::move(communicator).status().at("nccl, rank " + std::to_string(options.rank));
  }
  return std::unique_ptr<Carrier>(std::make_unique<nccl::NcclCarrier>(
      *library, options, device, std::move(*communicator), std::move(streams),
      std::array<nccl::Bucket, 2>{std::move(first), std::move(second)}));
}

}  // namespace deltawire
