// Groups of some of a job's processes. Who enters says hello to rank 0, which then tells all where
// each is. Everything is asked for with a deadline: MPI's own ways to make a communicator of some
// processes wait for them for ever.
#include <charconv>
#include <mutex>

#include "base/allocate.h"
#include "carrier/backend.h"
#include "carrier/mpi/mpi_carrier.h"
#include "carrier/mpi/runtime.h"
#include "carrier/mpi/transfers.h"
#include "carrier/ranks.h"

namespace deltawire {
namespace mpi {
namespace {

constexpr uint64_t kTableSlice = 1 << 16;
constexpr int kFirstTag = 2, kNumTags = 32000;  // every MPI has so many

struct Ticket {
  int root = 0, tag = 0;  // of the job's processes the one that is rank 0
};

Result<Ticket> parse_ticket(const std::string& text, unsigned job_size) {
  Ticket ticket;
  const char* const end = text.data() + text.size();
  const auto [colon, error] = std::from_chars(text.data(), end, ticket.root);
  const bool has_tag = error == std::errc() && colon != end && *colon == ':' &&
                       std::from_chars(colon + 1, end, ticket.tag).ptr == end;
  if (!has_tag || ticket.root < 0 || unsigned(ticket.root) >= job_size || ticket.tag < kFirstTag ||
      ticket.tag >= kFirstTag + kNumTags) {
    return invalid_argument("mpi: \"" + text + "\" is no ticket of this job");
  }
  return ticket;
}

std::span<uint8_t> bytes_of(std::vector<int>& numbers) {
  return {reinterpret_cast<uint8_t*>(numbers.data()), numbers.size() * sizeof(int)};
}

// The next that says hello: its process, and the rank that it claims.
Status hear_hello(const Communicator& communicator, int tag, Polling* polling, int* process,
                  int* rank) {
  auto hello = std::make_unique<int>(-1);  // MPI may write to it after a wait that was too long
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Status told;
  if (const int error = MPI_Irecv(hello.get(), sizeof(int), MPI_BYTE, MPI_ANY_SOURCE, tag,
                                  communicator.get(), &request);
      error != MPI_SUCCESS) {
    return failure(error, "MPI_Irecv");
  }
  while (true) {
    int is_done = 0;
    const int error = MPI_Test(&request, &is_done, &told);
    if (error != MPI_SUCCESS) return failure(error, "MPI_Test");
    if (is_done) break;
    if (polling->aborted() || polling->late()) {
      MPI_Cancel(&request);
      MPI_Request_free(&request);
      (void)hello.release();
      leave_unfinished();
      if (polling->aborted()) return cancelled("asked to stop");
      return unavailable("not there " + after_seconds(polling->timeout_seconds()));
    }
    polling->rest();
  }
  *process = told.MPI_SOURCE;
  *rank = *hello;
  return {};
}

class MpiGathering final : public Gathering {
 public:
  MpiGathering(Group group, uint64_t bucket_bytes)
      : group_(std::move(group)), bucket_bytes_(bucket_bytes) {}

  std::string ticket() const override {
    return std::to_string(group_.members[0]) + ":" + std::to_string(group_.tag);
  }

  Result<std::unique_ptr<Carrier>> finish(double timeout_seconds) override {
    const std::atomic<bool> never{false};
    Polling polling(timeout_seconds, never);
    for (unsigned there = 1; there < group_.size(); ++there) {
      int process = -1, rank = -1;
      Status status = hear_hello(*group_.communicator, group_.tag, &polling, &process, &rank);
      if (!status.ok()) return std::move(status).at("mpi: " + ranks_text(missing()));
      if (rank < 1 || unsigned(rank) >= group_.size() || group_.members[size_t(rank)] >= 0) {
        return conflict("mpi: process " + std::to_string(process) + " enters as rank " +
                        std::to_string(rank) + ", which is another\'s or none");
      }
      group_.members[size_t(rank)] = process;
    }
    Transfers table(group_, kTableSlice);
    for (unsigned rank = 1; rank < group_.size(); ++rank)
      table.send(rank, bytes_of(group_.members));
    DW_RETURN_IF_ERROR(table.run(&polling));
    return make_carrier(std::move(group_), bucket_bytes_);
  }

 private:
  std::vector<unsigned> missing() const override {
    std::vector<unsigned> ranks;
    for (unsigned rank = 0; rank < group_.size(); ++rank) {
      if (group_.members[rank] < 0) ranks.push_back(rank);
    }
    return ranks;
  }

  Group group_;  // -1: not there yet
  const uint64_t bucket_bytes_;
};

class MpiBackend final : public Backend {
 public:
  MpiBackend(std::shared_ptr<Communicator> communicator, uint64_t bucket_bytes)
      : communicator_(std::move(communicator)), bucket_bytes_(bucket_bytes) {}

  std::string name() const override { return "mpi"; }

  Result<std::unique_ptr<Gathering>> open(const GroupOptions& options, double) override {
    DW_RETURN_IF_ERROR(check_size(options.size));
    // Of two processes that both open groups none takes a tag of the other.
    const uint64_t number = num_opened_++ * communicator_->size() + communicator_->rank();
    Group group{.communicator = communicator_, .tag = kFirstTag + int(number % kNumTags)};
    group.members.assign(options.size, -1);
    group.members[0] = int(communicator_->rank());
    return std::unique_ptr<Gathering>(
        std::make_unique<MpiGathering>(std::move(group), bucket_bytes_));
  }

  Result<std::unique_ptr<Carrier>> enter(const std::string& ticket, unsigned rank,
                                         const GroupOptions& options,
                                         double timeout_seconds) override {
    DW_RETURN_IF_ERROR(check_size(options.size));
    DW_RETURN_IF_ERROR(check_rank(rank, options.size));
    DW_ASSIGN_OR_RETURN(const Ticket to, parse_ticket(ticket, communicator_->size()));
    Group group{.communicator = communicator_, .tag = to.tag, .rank = rank};
    group.members.assign(options.size, -1);
    group.members[0] = to.root;
    std::vector<int> hello = {int(rank)}, table(options.size);
    const std::atomic<bool> never{false};
    Polling polling(timeout_seconds, never);
    {
      Transfers greeting(group, kTableSlice);
      greeting.send(0, bytes_of(hello));
      greeting.receive(0, bytes_of(table));
      Status status = greeting.run(&polling);
      if (!status.ok()) {
        leave_unfinished();
        return std::move(status).at("mpi: waiting for the group of rank 0");
      }
    }
    for (const int process : table) {
      if (process < 0 || unsigned(process) >= communicator_->size()) {
        return corruption("mpi: process " + std::to_string(process) + " is not of this job");
      }
    }
    group.members = std::move(table);
    return make_carrier(std::move(group), bucket_bytes_);
  }

 private:
  Status check_size(unsigned size) const {
    if (size >= 1 && size <= communicator_->size()) return {};
    return invalid_argument("mpi: a group of " + std::to_string(size) + " ranks in a job of " +
                            std::to_string(communicator_->size()));
  }

  const std::shared_ptr<Communicator> communicator_;
  const uint64_t bucket_bytes_;
  std::atomic<uint64_t> num_opened_{0};
};

}  // namespace
}  // namespace mpi

Status add_mpi_backend(const MpiOptions& options) {
  DW_ASSIGN_OR_RETURN(auto communicator, mpi::open_communicator(options));
  add_backend(std::make_shared<mpi::MpiBackend>(std::move(communicator), options.bucket_bytes));
  return {};
}

}  // namespace deltawire
