#include <algorithm>
#include <atomic>

#include "base/guard.h"
#include "carrier/mpi/mpi_carrier.h"
#include "carrier/mpi/runtime.h"
#include "carrier/mpi/transfers.h"
#include "carrier/polling.h"
#include "carrier/ranks.h"

namespace deltawire {
namespace mpi {
namespace {

constexpr uint64_t kLeastSlice = uint64_t{64} << 10, kMostSlice = uint64_t{1} << 30;

class MpiCarrier final : public Carrier {
 public:
  MpiCarrier(Group group, uint64_t bucket_bytes)
      : group_(std::move(group)),
        // A call may have two slices under way with every rank; of a broadcast with three.
        exchange_slice_(
            std::clamp(bucket_bytes / (2 * uint64_t{group_.size()}), kLeastSlice, kMostSlice)),
        broadcast_slice_(std::clamp(bucket_bytes / 4, kLeastSlice, kMostSlice)) {}

  std::string name() const override { return "mpi"; }
  unsigned rank() const noexcept override { return group_.rank; }
  unsigned size() const noexcept override { return group_.size(); }
  std::vector<unsigned> lost() const override { return lost_; }
  void abort() noexcept override { aborted_.store(true); }

  Status exchange(std::span<const ToRank> to, std::span<const FromRank> from,
                  double timeout_seconds) override {
    for (const ToRank& one : to) DW_RETURN_IF_ERROR(check_rank(one.rank, size()));
    for (const FromRank& one : from) DW_RETURN_IF_ERROR(check_rank(one.rank, size()));
    bool leaves_out = false;  // ranks that were lost before
    Status status = call(exchange_slice_, timeout_seconds, [&](Transfers& transfers) {
      for (const FromRank& one : from) {
        is_lost(one.rank) ? void(leaves_out = true) : transfers.receive(one.rank, one.bytes);
      }
      for (const ToRank& one : to) {
        is_lost(one.rank) ? void(leaves_out = true) : transfers.send(one.rank, one.bytes);
      }
    });
    if (status.ok() && leaves_out) status = unavailable(ranks_text(lost_) + ": lost before");
    return std::move(status).at(place("exchange"));
  }

  Status broadcast(unsigned root, std::span<uint8_t> bytes, double timeout_seconds) override {
    DW_RETURN_IF_ERROR(check_rank(root, size()));
    const std::string where = place("broadcast of rank " + std::to_string(root));
    if (!lost_.empty()) return unavailable(ranks_text(lost_) + ": lost before").at(where);
    Status status = call(broadcast_slice_, timeout_seconds,
                         [&](Transfers& transfers) { transfers.broadcast(root, bytes); });
    if (!status.ok()) failure_ = unavailable("the group has failed before: " + status.message());
    return std::move(status).at(where);
  }

 private:
  std::string place(const std::string& what) const {
    return "mpi, rank " + std::to_string(group_.rank) + ", " + what;
  }
  bool is_lost(unsigned rank) const { return std::binary_search(lost_.begin(), lost_.end(), rank); }

  template <class Fill>
  Status call(uint64_t slice_bytes, double timeout_seconds, const Fill& fill) {
    if (!failure_.ok()) return failure_;
    if (has_ended()) return unavailable("MPI has ended in this process");
    DW_RETURN_IF_ERROR(check_thread());
    Polling polling(timeout_seconds, aborted_);
    Transfers transfers(group_, slice_bytes);
    Status status = guard_memory("exchange", [&] {
      fill(transfers);
      return transfers.run(&polling);
    });
    if (status.ok()) return status;
    leave_unfinished();
    group_.communicator->keep();
    if (status.code() == Code::kCancelled) failure_ = status;
    const std::vector<unsigned> late = transfers.unfinished();
    if (late.empty()) return status;
    lost_.insert(lost_.end(), late.begin(), late.end());
    sort_unique(&lost_);
    return std::move(status).at("waiting for " + ranks_text(late));
  }

  const Group group_;
  const uint64_t exchange_slice_, broadcast_slice_;
  std::atomic<bool> aborted_{false};
  std::vector<unsigned> lost_;
  Status failure_;
};

}  // namespace

std::unique_ptr<Carrier> make_carrier(Group group, uint64_t bucket_bytes) {
  return std::make_unique<MpiCarrier>(std::move(group), bucket_bytes);
}

Result<std::shared_ptr<Communicator>> open_communicator(const MpiOptions& options) {
  DW_RETURN_IF_ERROR(begin());
  DW_RETURN_IF_ERROR(check_thread());
  const MPI_Comm given =
      options.communicator ? MPI_Comm_f2c(MPI_Fint(*options.communicator)) : MPI_COMM_WORLD;
  if (given == MPI_COMM_NULL) {
    return invalid_argument("MPI: number " + std::to_string(options.communicator.value_or(0)) +
                            " is no communicator that this process is in");
  }
  int size = 0;
  MPI_Comm_size(given, &size);
  if (options.size != 0 && options.size != unsigned(size)) {
    return invalid_argument("MPI: expected " + std::to_string(options.size) +
                            " ranks, the communicator has " + std::to_string(size) +
                            "; mpirun -n says how many there are");
  }
  return Communicator::copy_of(given, options.timeout_seconds);
}

}  // namespace mpi

Result<std::unique_ptr<Carrier>> make_mpi_carrier(const MpiOptions& options) {
  DW_ASSIGN_OR_RETURN(auto communicator, mpi::open_communicator(options));
  mpi::Group group{.communicator = communicator, .rank = communicator->rank()};
  for (unsigned rank = 0; rank < communicator->size(); ++rank) group.members.push_back(int(rank));
  return mpi::make_carrier(std::move(group), options.bucket_bytes);
}

}  // namespace deltawire
