// Ranks of a group as MPI knows them.
#pragma once

#include <mpi.h>

#include <memory>
#include <vector>

#include "carrier/polling.h"
#include "deltawire/status.h"

namespace deltawire::mpi {

// A communicator of our own, where nothing of others comes in between.
class Communicator {
 public:
  // All processes of `original` must come for it.
  static Result<std::shared_ptr<Communicator>> copy_of(MPI_Comm original, double timeout_seconds);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  MPI_Comm get() const { return handle_; }
  unsigned rank() const { return rank_; }
  unsigned size() const { return size_; }
  // Ranks that are late may still use it: it is not freed, then.
  void keep() noexcept { is_kept_.store(true); }

 private:
  explicit Communicator(MPI_Comm handle);

  MPI_Comm handle_;
  unsigned rank_ = 0, size_ = 0;
  std::atomic<bool> is_kept_{false};
};

// Some of its processes, in any order. A tag is never used by two groups with the same processes.
struct Group {
  std::shared_ptr<Communicator> communicator;
  int tag = 1;
  unsigned rank = 0;
  std::vector<int> members = {};  // ranks in the communicator

  unsigned size() const { return unsigned(members.size()); }
};

}  // namespace deltawire::mpi
