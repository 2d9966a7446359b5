#include "carrier/mpi/group.h"

#include "carrier/mpi/runtime.h"

namespace deltawire::mpi {

Communicator::Communicator(MPI_Comm handle) : handle_(handle) {
  int rank = 0, size = 0;
  MPI_Comm_rank(handle, &rank);
  MPI_Comm_size(handle, &size);
  rank_ = unsigned(rank);
  size_ = unsigned(size);
  MPI_Comm_set_errhandler(handle, MPI_ERRORS_RETURN);
}

Communicator::~Communicator() {
  if (!is_kept_.load() && !has_ended()) MPI_Comm_free(&handle_);
}

Result<std::shared_ptr<Communicator>> Communicator::copy_of(MPI_Comm original,
                                                            double timeout_seconds) {
  // Outlives the wait: MPI writes to it when the last rank has come.
  auto copy = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  if (const int error = MPI_Comm_idup(original, copy.get(), &request); error != MPI_SUCCESS) {
    return failure(error, "MPI_Comm_idup");
  }
  const std::atomic<bool> never{false};
  Polling polling(timeout_seconds, never);
  while (true) {
    int is_done = 0;
    const int error = MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
    if (error == MPI_SUCCESS && is_done) {
      return std::shared_ptr<Communicator>(new Communicator(*copy));
    }
    if (error == MPI_SUCCESS && !polling.aborted() && !polling.late()) {
      polling.rest();
      continue;
    }
    (void)copy.release();
    leave_unfinished();
    if (error != MPI_SUCCESS) return failure(error, "MPI_Comm_idup");
    if (polling.aborted()) return cancelled("MPI: asked to stop");
    return unavailable("MPI: not all ranks have come " + after_seconds(timeout_seconds));
  }
}

}  // namespace deltawire::mpi
