// One of NCCL's communicators, of the kind that never waits inside: it is asked, with a deadline.
#pragma once

#include "carrier/nccl/library.h"
#include "carrier/polling.h"

namespace deltawire::nccl {

class Communicator {
 public:
  // Unavailable when not all ranks come in time. On the device in use.
  static Result<Communicator> create(const Library& library, const ncclUniqueId& id, unsigned rank,
                                     unsigned size, Polling* polling);
  ~Communicator();  // ends in order what is whole; waits a little for the other ranks
  Communicator(Communicator&& other) noexcept
      : library_(other.library_), handle_(std::exchange(other.handle_, nullptr)) {}
  Communicator& operator=(Communicator&&) = delete;

  ncclComm_t get() const { return handle_; }
  bool is_aborted() const { return handle_ == nullptr; }

  // What a call of NCCL returned, waited for.
  Status settle(ncclResult_t returned, const char* doing, Polling* polling);
  // What has gone wrong since; OK while all is well.
  Status check(const char* doing);
  // Ends what runs on the device, and the communicator.
  void abort() noexcept;

 private:
  Communicator(const Library& library, ncclComm_t handle) : library_(&library), handle_(handle) {}

  const Library* library_;
  ncclComm_t handle_;
};

}  // namespace deltawire::nccl
